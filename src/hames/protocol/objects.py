"""Objects that stand in several messages: turn, slot, queue, session, usage."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from hames.protocol.base import Count, Id, Key, Positive, Short, Text, closed

SlotRole = Literal["command", "context", "quoted"]
Delivery = Literal["queue", "join", "reject"]
TurnStatus = Literal["queued", "running", "completed", "failed", "cancelled"]
Own = Literal["prefer", "require", "observe"]
CallOutcome = Literal["ok", "error", "denied", "cancelled", "not_run", "unknown"]


@closed
class Slot(TypedDict):
    """One part of a caller's input. `role` says what it may authorise: only a `command` does (AH-INV-3)."""

    type: Literal["text"]
    text: Text
    role: NotRequired[SlotRole]
    label: NotRequired[Short]


@closed
class TurnLimits(TypedDict, total=False):
    """Limits of a turn; see `initialize.limits` for defaults and maxima. A turn may only lower the session's."""

    steps: Positive
    toolCalls: Count
    wallTimeMs: Positive
    outputBytes: Positive
    fallback: bool
    """At the step limit, ask once more for a text, with tools that may not be called (default true)."""


class By(TypedDict):
    """Who caused an event: the operating-system user, the client's name, the connection."""

    principal: str
    client: NotRequired[str]
    connectionId: NotRequired[str]


class ErrorInfo(TypedDict):
    """Why a turn failed: the shape of a JSON-RPC error's data, with its message."""

    kind: str
    message: str
    retryable: bool
    boundary: NotRequired[str]
    details: dict[str, Any]


class Hold(TypedDict):
    """The queue waits for `queue/resume`."""

    by: By
    since: str
    cause: str


class Queue(TypedDict):
    """Turns that wait in a session."""

    length: Count
    turnIds: list[Id]
    held: NotRequired[Hold]


class CancelRequest(TypedDict):
    """A cancel that is durable."""

    by: By
    at: str
    cause: Literal["client", "session_closed", "host", "disconnect", "shutdown"]
    reason: NotRequired[str]


class UsageRecord(TypedDict):
    """Usage of one model request as the provider reported it; an absent counter is absent (AH-USAGE-1)."""

    modelRequestId: str
    provider: str
    model: str
    counters: dict[str, int]


class UsageTotal(TypedDict):
    """Sums by counter name over the requests that reported that counter.

    `coverage`: `requests` made, `reported` of them with usage. With `reported < requests` the sums are lower
    bounds. Cost is absent: `costReason` says why (AH-USAGE-5).
    """

    counters: dict[str, int]
    requests: Count
    reported: Count
    costReason: Literal["no_rate_card"]


class Usage(TypedDict):
    """`direct` is this session's or turn's own; `inclusive` adds finished children (none in this version)."""

    direct: UsageTotal
    inclusive: UsageTotal


class Outcome(TypedDict):
    """How a turn ended, the same facts as its terminal event."""

    status: Literal["completed", "failed", "cancelled"]
    text: NotRequired[str]
    error: NotRequired[ErrorInfo]
    cause: NotRequired[str]
    forced: NotRequired[bool]
    undelivered: NotRequired[list[Id]]


class Turn(TypedDict):
    """A turn as it stands at `cursor`."""

    turnId: Id
    sessionId: Id
    status: TurnStatus
    delivery: Literal["queue", "join"]
    held: NotRequired[bool]
    hostTurnId: NotRequired[Id]
    runner: Literal["local", "remote", "none"]
    attempt: NotRequired[Positive]
    cancelRequested: NotRequired[CancelRequest]
    queuedAt: str
    startedAt: NotRequired[str]
    endedAt: NotRequired[str]
    deadlineAt: NotRequired[str]
    outcome: NotRequired[Outcome]
    cursor: str


class ModelRoute(TypedDict):
    """Where a session's model requests go, and whose credential pays. Never the credential."""

    provider: str
    model: str
    baseUrl: NotRequired[str]
    credential: NotRequired[dict[str, Any]]


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
    instructions: NotRequired[str]
    defaults: list[str]
    """Names of the members that were not given and took their default."""
    assurance: dict[str, Any]
    """`reduced`: guarantees that this sandbox does not give (AH-DIAG-2)."""


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
    owner: NotRequired[dict[str, Any]]
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
    """From where to read (absent: the start; in `session/resume`: the returned cursor), and whether deltas."""

    after: Short
    deltas: bool


class CursorEvent(TypedDict):
    """An event with the cursor that stands after it."""

    cursor: str
    event: dict[str, Any]


IdempotencyKey = Key
