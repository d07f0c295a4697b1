"""What a client may send: the params of every method, closed."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from hames.protocol.base import Count, Id, Key, Positive, Short, Text, Title, closed
from hames.protocol.objects import (
    Attribution,
    ContextPolicy,
    Delivery,
    Input,
    NetworkPosture,
    Own,
    SandboxName,
    SessionLimits,
    Subscribe,
    TurnLimits,
)

Meta = dict[str, Any]


@closed
class Empty(TypedDict, total=False):
    """No params."""

    _meta: Meta


@closed
class HealthCheck(TypedDict, total=False):
    """Which session's dependencies to check; the server's own without one."""

    sessionId: Id
    dependencies: list[Literal["store", "sandbox", "provider", "workspace"]]
    _meta: Meta


@closed
class FirstTurn(TypedDict):
    """A first submit, in the same commit as the creation."""

    input: Input
    turnId: NotRequired[Id]
    limits: NotRequired[TurnLimits]
    instructions: NotRequired[Text]


@closed
class SessionCreate(TypedDict):
    """Make a session bound to `workspace`, an absolute path of a directory."""

    workspace: Short
    sessionId: NotRequired[Id]
    idempotencyKey: NotRequired[Key]
    cwd: NotRequired[Short]
    """Where tools start, within the workspace; absolute or relative to it. Default: the workspace."""
    model: NotRequired[Short]
    """`compatible/<model>`, or a model of the configured provider. `offline` needs nothing and plays scripts. Default:
    the configured model, else the configured provider's, else `offline`."""
    mode: NotRequired[Literal["default", "strict"]]
    """`strict` injects no default: `model` must be given."""
    sandbox: NotRequired[SandboxName]
    """Where its commands run: `local`, unconfined on the host; `contained` or the weaker `landlock`, refused where not
    proved; `auto`: the first of `contained` and `landlock` that is proved, else `local`. Default: the configured
    one, else `local`."""
    network: NotRequired[NetworkPosture]
    """`general` (default), or `disabled`, which `local` cannot give. For commands and tools: what asks the model is
    neither."""
    tools: NotRequired[list[Title]]
    """The tools of its model, of those in `tools/list`; none for an empty list. Default: those that are offered to the
    family of its model, in a strict session the core of them."""
    limits: NotRequired[SessionLimits]
    context: NotRequired[ContextPolicy]
    instructions: NotRequired[Text]
    """Added to the system prompt of every turn; with the input of the request at most `limits.inputBytes` bytes."""
    attribution: NotRequired[Attribution]
    title: NotRequired[Title]
    metadata: NotRequired[dict[str, Any]]
    """Yours: kept and given back as it is, at most `limits.metadataBytes` bytes as JSON."""
    subscribe: NotRequired[Subscribe]
    turn: NotRequired[FirstTurn]
    _meta: NotRequired[Meta]


@closed
class Expect(TypedDict, total=False):
    """What the caller believes the session is bound to; a difference is `authority_mismatch`."""

    workspace: Short
    snapshotDigest: Short


@closed
class SessionResume(TypedDict):
    """Attach to a session. Answers from the log at once, whatever the model does."""

    sessionId: Id
    expect: NotRequired[Expect]
    own: NotRequired[Own]
    """`prefer` (default): run its turns when the lease is free; `require`: or fail; `observe`: never."""
    recover: NotRequired[Literal["continue", "fail"]]
    """What becomes of a turn whose process is gone: `continue` (default) it where that repeats nothing with an effect,
    or end it as failed with `lease_lost`, as is done anyway where a command may have run."""
    subscribe: NotRequired[Subscribe]
    _meta: NotRequired[Meta]


@closed
class SessionGet(TypedDict):
    """Read a session. Never consent to run anything."""

    sessionId: Id
    view: NotRequired[bool]
    """Whether the conversation, the turns and the usage come too (default false)."""
    before: NotRequired[Short]
    """Items before this cursor: that of the first item of the page before."""
    limit: NotRequired[Positive]
    """Items, 100 by default; more than 1,000 are not given."""
    _meta: NotRequired[Meta]


@closed
class SessionList(TypedDict, total=False):
    """Newest first. `page` is what the last answer gave as `nextPage`."""

    workspace: Short
    query: Short
    """Part of the title or the id."""
    page: Short
    limit: Positive
    """Sessions, 50 by default; more than 200 are not given."""
    _meta: Meta


@closed
class SessionUpdate(TypedDict):
    """Change the title, or the model of turns that start from now on; at least one of them."""

    sessionId: Id
    title: NotRequired[Title]
    model: NotRequired[Short]
    """As in `session/create`."""
    _meta: NotRequired[Meta]


@closed
class SessionRef(TypedDict):
    """One session."""

    sessionId: Id
    _meta: NotRequired[Meta]


@closed
class SessionDelete(TypedDict):
    """Cancel what runs, and remove the session for ever. Deleting it again answers as the first time."""

    sessionId: Id
    expect: NotRequired[Expect]
    _meta: NotRequired[Meta]


@closed
class TurnSubmit(TypedDict):
    """Admit a turn. The answer is the receipt: the text is on disk."""

    sessionId: Id
    input: Input
    turnId: NotRequired[Id]
    idempotencyKey: NotRequired[Key]
    delivery: NotRequired[Delivery]
    """`queue` (default), `join` the running turn at its next step, or `reject` when one runs."""
    resumeQueue: NotRequired[bool]
    """Let a held queue go on (default false)."""
    limits: NotRequired[TurnLimits]
    instructions: NotRequired[Text]
    """Added to the system prompt of this turn; with the input at most `limits.inputBytes` bytes."""
    _meta: NotRequired[Meta]


@closed
class TurnSteer(TypedDict):
    """Say something to the running turn; it gets one more step for it."""

    sessionId: Id
    input: Input
    expectedTurnId: NotRequired[Id]
    """Refuse with `turn_mismatch` if another turn runs."""
    idempotencyKey: NotRequired[Key]
    _meta: NotRequired[Meta]


@closed
class TurnUpdate(TypedDict):
    """Change a queued turn, never its place."""

    sessionId: Id
    turnId: Id
    input: NotRequired[Input]
    delivery: NotRequired[Literal["queue", "join"]]
    _meta: NotRequired[Meta]


@closed
class TurnCancel(TypedDict):
    """Stop a turn: the running one without `turnId`."""

    sessionId: Id
    turnId: NotRequired[Id]
    queue: NotRequired[Literal["hold", "continue", "drop"]]
    """What the turns behind a running one do: wait for `queue/resume` (`hold`, default), run, or be cancelled too."""
    reason: NotRequired[Short]
    _meta: NotRequired[Meta]


@closed
class TurnRef(TypedDict):
    """One turn."""

    sessionId: Id
    turnId: Id
    _meta: NotRequired[Meta]


@closed
class TurnList(TypedDict):
    """Newest first; `before` is a turn's number as `nextBefore` gave it."""

    sessionId: Id
    status: NotRequired[Literal["queued", "running", "completed", "failed", "cancelled"]]
    before: NotRequired[Positive]
    limit: NotRequired[Positive]
    """Turns, 50 by default; more than 200 are not given."""
    _meta: NotRequired[Meta]


@closed
class TurnWait(TypedDict):
    """Wait for a turn to end."""

    sessionId: Id
    turnId: Id
    timeoutMs: NotRequired[Count]
    """For how long at most. Default: without an end."""
    _meta: NotRequired[Meta]


@closed
class EventsRead(TypedDict):
    """A page of the log, ascending. `after` is exclusive; absent, it is the start."""

    sessionId: Id
    after: NotRequired[Short]
    before: NotRequired[Short]
    """The last events before this cursor, instead of the first ones after one."""
    limit: NotRequired[Positive]
    """Events; `limits.pageEvents` by default and at most. A page also ends at `limits.pageBytes`."""
    types: NotRequired[list[Short]]
    """Only events of these types."""
    waitMs: NotRequired[Count]
    """How long to wait for something new where there is nothing (default 0), at most `limits.waitMs`."""
    _meta: NotRequired[Meta]


@closed
class EventsSubscribe(TypedDict):
    """Get every event after `after` (absent: the start), each once, now and as they come."""

    sessionId: Id
    after: NotRequired[Short]
    deltas: NotRequired[bool]
    """Whether previews of text are sent too (default true)."""
    _meta: NotRequired[Meta]


@closed
class EventsUnsubscribe(TypedDict):
    """End a subscription of this connection."""

    subscriptionId: Id
    _meta: NotRequired[Meta]


@closed
class ArtifactList(TypedDict):
    """A session's artifacts, by their ids."""

    sessionId: Id
    after: NotRequired[Id]
    """Only those behind this id, as `nextAfter` gave it."""
    limit: NotRequired[Positive]
    """Artifacts, 100 by default; more than 1,000 are not given."""
    _meta: NotRequired[Meta]


@closed
class ArtifactRead(TypedDict):
    """A piece of an artifact. The whole is proved by its digest before any of it is given."""

    sessionId: Id
    artifact: Id
    encoding: NotRequired[Literal["utf-8", "base64"]]
    """How the piece is given: as `text` (`utf-8`, default; refused for what is no text) or as `data` (`base64`)."""
    offset: NotRequired[Count]
    """Where the piece begins, in bytes (default 0). A character that it splits is left out."""
    length: NotRequired[Positive]
    """Bytes at most; no more than 512 KiB (default) are given. A piece of text ends between two characters, and has
    one at least."""
    _meta: NotRequired[Meta]


@closed
class ProcessList(TypedDict):
    """The background processes of a session: those that run, and the newest of those that ended."""

    sessionId: Id
    _meta: NotRequired[Meta]


@closed
class ProcessRead(TypedDict):
    """What a background process wrote, from a byte on. Any server on the store can read it, also after its end."""

    sessionId: Id
    processId: Id
    offset: NotRequired[Count]
    """Where the piece begins, in bytes of all that it wrote (default 0). Where that is not kept any more, the piece
    begins with the oldest byte that is."""
    length: NotRequired[Positive]
    """Bytes at most; no more than 128 KiB (default) are given."""
    encoding: NotRequired[Literal["utf-8", "base64"]]
    """How the piece is given: as `text` (`utf-8`, default), where U+FFFD stands for what is no text, or as `data`."""
    waitMs: NotRequired[Count]
    """Wait so long for output behind `offset`, or for the end of the process (default 0, at most `limits.waitMs`)."""
    _meta: NotRequired[Meta]


@closed
class ProcessStop(TypedDict):
    """End a background process and all that it started: TERM, `limits.timeoutGraceMs`, KILL. Repeatable."""

    sessionId: Id
    processId: Id
    timeoutMs: NotRequired[Count]
    """Answer after so long, also if it has not ended; the wish stands. Without it, wait for the end."""
    _meta: NotRequired[Meta]


@closed
class UsageGet(TypedDict):
    """Usage of a session, or of one of its turns."""

    sessionId: Id
    turnId: NotRequired[Id]
    _meta: NotRequired[Meta]


@closed
class ModelsList(TypedDict, total=False):
    """Models of one provider, or of the configured one."""

    provider: Short
    _meta: Meta


@closed
class Shutdown(TypedDict, total=False):
    """Stop. The process ends after the answer."""

    mode: Literal["drain", "cancel"]
    """`cancel` running turns (default), or let them end; queued turns stay for the next process."""
    timeoutMs: Count
    """For how long to `drain` until what still runs is cancelled. Default: without an end."""
    _meta: Meta


@closed
class CancelRequestParams(TypedDict):
    """End a request of this connection that waits, also for a program that prints a key, which is then answered with
    code -32800. Nothing else is touched."""

    id: str | int
    """Its id, as it was sent."""
    _meta: NotRequired[Meta]


class ClientInfo(TypedDict):
    """Who connects; for people and for the log."""

    name: str
    version: str


class ClientCapabilities(TypedDict, total=False):
    """What the client can do. Unknown members are ignored."""

    asks: list[str]


class Initialize(TypedDict):
    """The handshake. Unknown members are ignored. `protocolVersions` are strings of integers, like `"1"`."""

    protocolVersions: list[str]
    clientInfo: ClientInfo
    capabilities: NotRequired[ClientCapabilities]
