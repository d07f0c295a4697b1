"""What a client may send: the params of every method, closed."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from hames.protocol.base import Count, Id, Key, Positive, Short, Text, Title, closed
from hames.protocol.objects import Delivery, Own, Slot, Subscribe, TurnLimits

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

    input: list[Slot]
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
    """`<provider>/<model>`, or a model of the configured provider. `offline` needs nothing."""
    mode: NotRequired[Literal["default", "strict"]]
    """`strict` injects no default: `model` must be given."""
    limits: NotRequired[TurnLimits]
    instructions: NotRequired[Text]
    title: NotRequired[Title]
    metadata: NotRequired[dict[str, Any]]
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
    subscribe: NotRequired[Subscribe]
    _meta: NotRequired[Meta]


@closed
class SessionGet(TypedDict):
    """Read a session. Never consent to run anything."""

    sessionId: Id
    view: NotRequired[bool]
    before: NotRequired[Short]
    """Items before this cursor: that of the first item of the page before."""
    limit: NotRequired[Positive]
    _meta: NotRequired[Meta]


@closed
class SessionList(TypedDict, total=False):
    """Newest first. `page` is what the last answer gave as `nextPage`."""

    workspace: Short
    query: Short
    """Part of the title or the id."""
    page: Short
    limit: Positive
    _meta: Meta


@closed
class SessionUpdate(TypedDict):
    """Change the title."""

    sessionId: Id
    title: Title
    _meta: NotRequired[Meta]


@closed
class SessionRef(TypedDict):
    """One session."""

    sessionId: Id
    _meta: NotRequired[Meta]


@closed
class TurnSubmit(TypedDict):
    """Admit a turn. The answer is the receipt: the text is on disk."""

    sessionId: Id
    input: list[Slot]
    turnId: NotRequired[Id]
    idempotencyKey: NotRequired[Key]
    delivery: NotRequired[Delivery]
    """`queue` (default), `join` the running turn at its next step, or `reject` when one runs."""
    resumeQueue: NotRequired[bool]
    limits: NotRequired[TurnLimits]
    instructions: NotRequired[Text]
    _meta: NotRequired[Meta]


@closed
class TurnSteer(TypedDict):
    """Say something to the running turn; it gets one more step for it."""

    sessionId: Id
    input: list[Slot]
    expectedTurnId: NotRequired[Id]
    idempotencyKey: NotRequired[Key]
    _meta: NotRequired[Meta]


@closed
class TurnUpdate(TypedDict):
    """Change a queued turn, never its place."""

    sessionId: Id
    turnId: Id
    input: NotRequired[list[Slot]]
    delivery: NotRequired[Literal["queue", "join"]]
    _meta: NotRequired[Meta]


@closed
class TurnCancel(TypedDict):
    """Stop a turn: the running one without `turnId`. `queue` says what those behind it do."""

    sessionId: Id
    turnId: NotRequired[Id]
    queue: NotRequired[Literal["hold", "continue", "drop"]]
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
    _meta: NotRequired[Meta]


@closed
class TurnWait(TypedDict):
    """Wait for a turn to end. Without `timeoutMs` there is no limit."""

    sessionId: Id
    turnId: Id
    timeoutMs: NotRequired[Count]
    _meta: NotRequired[Meta]


@closed
class EventsRead(TypedDict):
    """A page of the log, ascending. `after` is exclusive; absent, it is the start."""

    sessionId: Id
    after: NotRequired[Short]
    before: NotRequired[Short]
    limit: NotRequired[Positive]
    types: NotRequired[list[Short]]
    waitMs: NotRequired[Count]
    _meta: NotRequired[Meta]


@closed
class EventsSubscribe(TypedDict):
    """Get every event after `after` (absent: the start), each once, now and as they come."""

    sessionId: Id
    after: NotRequired[Short]
    deltas: NotRequired[bool]
    _meta: NotRequired[Meta]


@closed
class EventsUnsubscribe(TypedDict):
    """End a subscription of this connection."""

    subscriptionId: Id
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
    """Stop: `cancel` running turns (default), or let them end (`drain`) for at most `timeoutMs`."""

    mode: Literal["drain", "cancel"]
    timeoutMs: Count
    _meta: Meta


@closed
class CancelRequestParams(TypedDict):
    """The id of a request of this connection that waits."""

    id: str | int
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
