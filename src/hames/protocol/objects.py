"""Objects that stand in several messages: turn, slot, queue, session."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from hames.protocol.base import SOME, TAGGED, Constraint, Count, Id, Key, Positive, Short, Text, closed
from hames.protocol.usage import Usage

SlotRole = Literal["command", "context", "quoted"]
Delivery = Literal["queue", "join", "reject"]
TurnStatus = Literal["queued", "running", "completed", "failed", "cancelled"]
Own = Literal["prefer", "require", "observe"]
SandboxName = Literal["local", "contained", "landlock", "auto"]
NetworkPosture = Literal["general", "disabled"]
CallOutcome = Literal["ok", "error", "denied", "cancelled", "not_run", "unknown"]
CancelCause = Literal["client", "session_closed", "host", "disconnect", "shutdown"]
"""A `turn/cancel`, `session/close`, the end of the turn that this one joined, a client that went away, `shutdown`."""


MediaType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]


class Reference(TypedDict):
    """Content that is kept apart: a text of more than 16 KiB, an image, a whole tool output. Read it with
    `artifact/read`."""

    artifact: Id
    sizeBytes: Count
    sha256: str
    """Of the whole content, hex."""
    head: NotRequired[str]
    """The beginning, at most 1 KiB; absent where the content is no text."""


@closed
class TextSlot(TypedDict):
    """A text of a caller's input. `role` says what it may authorise: only a `command` does (AH-INV-3)."""

    type: Literal["text"]
    text: Text
    """All texts, labels and instructions of a request together have at most `limits.inputBytes` bytes of UTF-8: 4 MiB
    by default, `limit_exceeded` beyond. At least one text of a request is not blank, or it has an image."""
    role: NotRequired[SlotRole]
    """`command` (default): the user's wish; `context`: material; `quoted`: somebody else's words."""
    label: NotRequired[Short]
    """What it is, for the model and for people, like a file name."""


@closed
class ImageSlot(TypedDict):
    """An image of a caller's input: material, which authorises nothing. It is whole, and stands still."""

    type: Literal["image"]
    data: str
    """Its bytes as base64 (RFC 4648), at most `limits.imageBytes` of them."""
    mediaType: MediaType
    """The bytes must be of this type."""
    label: NotRequired[Short]
    """What it is, for the model and for people, like a file name."""


Slot = Annotated[TextSlot | ImageSlot, TAGGED]
"""One part of a caller's input, told apart by `type`."""


@closed
class TurnLimits(TypedDict, total=False):
    """Limits of a turn; see `initialize.limits` for defaults and maxima. A turn may only lower the session's."""

    steps: Positive
    """Model requests, 100 by default, at most 10,000."""
    toolCalls: Count
    """Tool calls, 1,000 by default, at most 100,000."""
    wallTimeMs: Positive
    """From the first start to the end, an hour by default, at most a week."""
    outputBytes: Positive
    """Model text and tool output, 4 MiB by default and at most."""
    costMicros: Positive
    """The cost, in millionths of a US dollar: the turn ends before the request after the one that came to it. What a
    provider does not tell counts at its most. No such limit by default; refused (`capability_unavailable`) for a model
    whose prices are not known."""
    loopRepeats: Count
    """Equal rounds of calls until the model is told that it repeats itself; as many more end the turn. 3 by default, 0
    in a strict session: never."""
    fallback: bool
    """At the step limit, ask once more for a text, with tools that may not be called (default true)."""


@closed
class SessionLimits(TurnLimits, total=False):
    """Limits of a session: those of its turns, and of its commands, which may only be below the server's."""

    commandMemoryBytes: Positive
    """Memory of a command and of what it starts, from 64 MiB; no such limit by default. Of each process where the
    guarantee `limits.memory` is not `yes`."""
    commandProcesses: Positive
    """Processes and threads of a command at once, from 16, 4,096 by default; see the guarantee `limits.pids`."""
    commandCpuSeconds: Positive
    """Processor time of each process of a command, a week by default."""
    commandFileBytes: Positive
    """Size of a file that a command writes, from 1 KiB, 1 TiB by default."""
    commandOpenFiles: Positive
    """Files that each process of a command has open, from 64, 65,536 by default."""


class Said(TypedDict):
    """One part of a caller's input, as it was admitted."""

    type: Literal["text", "image"]
    text: NotRequired[str | Reference]
    data: NotRequired[Reference]
    mediaType: NotRequired[str]
    role: NotRequired[SlotRole]
    label: NotRequired[str]


class Image(TypedDict):
    """An image that a tool showed to the model."""

    mediaType: str
    data: Reference
    label: NotRequired[str]


class By(TypedDict):
    """Who caused an event: the operating-system user, the client's name, the connection."""

    principal: str
    client: NotRequired[str]
    connectionId: NotRequired[str]


class ErrorInfo(TypedDict):
    """Why a turn failed: the shape of a JSON-RPC error's data, with its message."""

    kind: str
    """One of the kinds in errors.md."""
    message: str
    retryable: bool
    boundary: NotRequired[str]
    """One of the boundaries in errors.md."""
    details: dict[str, Any]


class Hold(TypedDict):
    """The queue waits for `queue/resume`."""

    by: By
    since: str
    cause: Literal["turn_cancelled", "log_cut"]


class Queue(TypedDict):
    """Turns that wait in a session."""

    length: Count
    turnIds: list[Id]
    held: NotRequired[Hold]


class CancelRequest(TypedDict):
    """A cancel that is durable."""

    by: By
    at: str
    cause: CancelCause
    reason: NotRequired[str]


class Outcome(TypedDict):
    """How a turn ended, the same facts as its terminal event."""

    status: Literal["completed", "failed", "cancelled"]
    text: NotRequired[str | Reference]
    error: NotRequired[ErrorInfo]
    cause: NotRequired[CancelCause]
    forced: NotRequired[bool]
    """It was settled without proof that nothing of it runs."""
    undelivered: NotRequired[list[Id]]
    """Steers that the model never got."""


class Turn(TypedDict):
    """A turn as it stands at `cursor`."""

    turnId: Id
    sessionId: Id
    status: TurnStatus
    delivery: Literal["queue", "join"]
    held: NotRequired[bool]
    hostTurnId: NotRequired[Id]
    runner: Literal["local", "remote", "none"]
    """Who runs the session: this process, another one, or nobody."""
    attempt: NotRequired[Positive]
    cancelRequested: NotRequired[CancelRequest]
    queuedAt: str
    startedAt: NotRequired[str]
    endedAt: NotRequired[str]
    deadlineAt: NotRequired[str]
    outcome: NotRequired[Outcome]
    cursor: str


class Credential(TypedDict):
    """Which key pays, never the key: where it was found, and a fingerprint under the store's own salt."""

    source: str
    """`environment`, `file`, `caller` (of the library), `command` (a program that prints it) or `none`."""
    fingerprint: NotRequired[str]
    owner: NotRequired[str]
    """Whose it is, as the operator says (`providers.<name>.owner`)."""


ATTRIBUTION_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$"
"""Of a value of `attribution`: long enough for a name or a UUID, and no room for a text or an e-mail address."""

Label = Annotated[str, Constraint(pattern=ATTRIBUTION_PATTERN)]


@closed
class Attribution(TypedDict, total=False):
    """Whom the session works for, in words of the caller's own, which the provider and gateways before it are told: as
    headers (`hames-application`, …) of every model request. No secrets, nothing of people or of what they said."""

    application: Label
    """The program that people use."""
    component: Label
    """Its part that made the session."""
    environment: Label
    """Like `production`."""
    project: Label
    run: Label
    """What the session is one of many for, like a build."""
    task: Label


@closed
class ContextPolicy(TypedDict, total=False):
    """What is done about a conversation that gets too long for its model."""

    compaction: Literal["auto", "manual"]
    """`auto`: near the end of the window older messages are left out, and a summary stands in their place (default in a
    `default` session). `manual`: only when `session/compact` asks for it."""


class ModelRoute(TypedDict):
    """Where a session's model requests go, and whose credential pays. Never the credential."""

    provider: str
    model: str
    baseUrl: NotRequired[str]
    credential: NotRequired[Credential]


class WorkspaceRef(TypedDict):
    """The directory a session is bound to: its real path, and what identifies it."""

    path: str
    device: int
    inode: int


class Snapshot(TypedDict):
    """What a session may do, fixed at creation (AH-INV-2). Digested over RFC 8785 JSON, SHA-256."""

    version: int
    workspace: WorkspaceRef
    cwd: str
    mode: Literal["default", "strict"]
    model: ModelRoute
    tools: list[str]
    sandbox: dict[str, Any]
    limits: dict[str, Any]
    context: NotRequired[dict[str, str]]
    """`compaction`: `auto` or `manual`."""
    instructions: NotRequired[str]
    attribution: NotRequired[dict[str, str]]
    """As in `session/create`."""
    defaults: list[str]
    """Names of the members that were not given and took their default."""
    assurance: dict[str, Any]
    """`reduced`: guarantees that this sandbox does not give (AH-DIAG-2)."""


class Owner(TypedDict):
    """The process that runs a session's turns, until `expiresAt` unless it shows life before."""

    host: str
    pid: int
    since: str
    expiresAt: str
    alive: bool
    """False: it is surely gone, and its turns go on when the session is resumed."""
    mine: bool
    """It is the process that answers."""


class Evidence(TypedDict):
    """What was observed of a turn, whatever its text claims."""

    calls: dict[str, int]
    """How many tool calls ended with each outcome."""
    files: list[str]
    """Files that changed, by their paths; the first ones where they are many."""
    filesChanged: Count
    complete: bool
    """`files` names all of them."""


class Session(TypedDict):
    """A session as it stands at `cursor`."""

    sessionId: Id
    status: Literal["open", "closed"]
    createdAt: str
    updatedAt: str
    workspace: str
    cwd: str
    title: NotRequired[str]
    metadata: NotRequired[dict[str, Any]]
    model: ModelRoute
    snapshotDigest: str
    turns: Count
    queue: Queue
    runningTurnId: NotRequired[Id]
    owner: NotRequired[Owner]
    headSeq: Count
    cursor: str


class Item(TypedDict):
    """One entry of the conversation."""

    itemId: Id
    turnId: NotRequired[Id]
    kind: Literal["user", "message", "reasoning", "toolCall", "toolResult"]
    data: dict[str, Any]
    cursor: str


class View(TypedDict):
    """A session folded: the newest items (page back with `before`), turns, queue, usage."""

    items: list[Item]
    turns: list[Turn]
    queue: Queue
    usage: Usage
    hasMore: bool


@closed
class Subscribe(TypedDict, total=False):
    """A subscription, from the answer of this request on."""

    after: Short
    """The cursor after which events are sent. Default: the start; in `session/resume` the returned cursor."""
    deltas: bool
    """Whether previews of text are sent too (default true)."""


class Artifact(TypedDict):
    """Content that a session keeps apart from its log."""

    artifact: Id
    sizeBytes: Count
    sha256: str
    """Of the whole content, hex."""
    seq: NotRequired[Positive]
    """The first event that refers to it; absent where none does, as to an export."""
    mediaType: NotRequired[str]
    name: NotRequired[str]
    """What it is called, like a file."""


class CursorEvent(TypedDict):
    """An event with the cursor that stands after it."""

    cursor: str
    event: dict[str, Any]


IdempotencyKey = Key
Input = Annotated[list[Slot], SOME]
