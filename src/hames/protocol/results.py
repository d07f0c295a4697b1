"""What a server answers and sends by itself: the result of every method, and the notifications."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from hames.protocol.base import Count, Id, Positive
from hames.protocol.objects import Artifact, CursorEvent, Owner, Queue, Session, Snapshot, Turn, View
from hames.protocol.processes import Process
from hames.protocol.usage import RateCard, Usage


class EmptyResult(TypedDict):
    """Done."""


class ServerInfo(TypedDict):
    """Who answers."""

    name: str
    version: str


class ServerCapabilities(TypedDict):
    """What this server can do: its methods and notifications by name."""

    methods: list[str]
    notifications: list[str]
    deltas: bool
    parallelSessions: bool
    """Turns of different sessions run at the same time."""
    serialTurns: bool
    """Turns of one session run one after the other."""


class LimitInfo(TypedDict):
    """A limit: the value in force, its range, who may set it and what it counts."""

    default: int
    minimum: int
    maximum: int
    scope: Literal["turn", "session", "tool", "model", "server"]
    """`turn`: a session and a turn may set it; `session`: a session may set a lower one; the others belong to the
    configuration."""
    meaning: str


class StoreInfo(TypedDict):
    """Where sessions are kept, and what a commit promises."""

    kind: str
    path: str
    durability: str


class TransportInfo(TypedDict):
    """How frames are told apart, and how large one may be. `memory`: the client is in the server's process."""

    kind: Literal["stdio", "memory"]
    framing: Literal["auto", "line", "header"]
    frameInBytes: Count


class InitializeResult(TypedDict):
    """What this server is and keeps to."""

    protocolVersion: str
    serverInfo: ServerInfo
    capabilities: ServerCapabilities
    limits: dict[str, LimitInfo]
    store: StoreInfo
    transport: TransportInfo


class CapabilitiesResult(TypedDict):
    """What this build can do, from its live tables (AH-CAP-1, AH-CAP-2). Starts nothing."""

    schemaVersion: str
    serverInfo: ServerInfo
    methods: list[dict[str, Any]]
    notifications: list[str]
    events: list[dict[str, Any]]
    errors: list[dict[str, Any]]
    parentTools: list[dict[str, Any]]
    hostTools: list[dict[str, Any]]
    childProfiles: list[dict[str, Any]]
    nativeModelTools: list[dict[str, Any]]
    providers: list[dict[str, Any]]
    stores: list[dict[str, Any]]
    sandboxes: list[dict[str, Any]]
    limits: dict[str, LimitInfo]
    contextPolicy: dict[str, Any]
    repeatableFields: list[str]
    attribution: dict[str, Any]
    optional: dict[str, Any]


class Health(TypedDict):
    """One dependency."""

    status: Literal["ok", "degraded", "unavailable"]
    why: NotRequired[str]
    details: NotRequired[dict[str, Any]]


class HealthResult(TypedDict):
    """Each dependency that was asked for."""

    dependencies: dict[str, Health]


class SessionCreateResult(TypedDict):
    """The session, durable."""

    session: Session
    snapshot: Snapshot
    cursor: str
    turn: NotRequired[Turn]
    subscriptionId: NotRequired[Id]


class SessionResult(TypedDict):
    """The session as it stands at `cursor`."""

    session: Session
    snapshot: Snapshot
    cursor: str
    view: NotRequired[View]
    subscriptionId: NotRequired[Id]


class SessionListResult(TypedDict):
    """A page, newest first."""

    sessions: list[Session]
    nextPage: NotRequired[str]


class SessionUpdateResult(TypedDict):
    """The session; when the change takes effect."""

    session: Session
    effective: Literal["now", "nextTurn"]
    """`nextTurn`: a new model, of a session in which a turn runs."""
    cursor: str


class SessionCompactResult(TypedDict):
    """When the context is made shorter: before the next model request, which a turn that runs or the next one makes.
    The summary is a request of its own to the session's model, with usage of its own. `context.replaced` tells what
    gave way to it and what stayed, `context.kept` why nothing did. Asked for again before that, it is one wish. The log
    keeps everything: see concepts.md."""

    effective: Literal["nextRequest"]
    cursor: str


class SessionDeleteResult(TypedDict):
    """The session is gone: its id and its keys answer `session_deleted` for ever."""

    sessionId: Id
    deletedAt: str
    """RFC 3339."""


class SessionExportResult(TypedDict):
    """An archive of the session up to `cursor`, as an artifact of it: see export.md. Kept until it was not read for a
    day."""

    artifact: Id
    sizeBytes: Count
    sha256: str
    mediaType: str
    name: str
    cursor: str
    events: Count


class TurnSubmitResult(TypedDict):
    """The receipt."""

    turn: Turn
    queue: Queue
    cursor: str


class TurnSteerResult(TypedDict):
    """The turn that will get it."""

    turn: Turn
    steerId: Id
    cursor: str


class TurnResult(TypedDict):
    """The turn as it stands at `cursor`."""

    turn: Turn
    cursor: str


class QueueResult(TypedDict):
    """The queue as it now is."""

    queue: Queue
    cursor: str


class TurnListResult(TypedDict):
    """A page, newest first."""

    turns: list[Turn]
    nextBefore: NotRequired[Count]
    cursor: str


class TurnWaitResult(TypedDict):
    """Why the wait ended: the turn ended, time is up, its queue is held, or nobody runs the session."""

    turn: Turn
    why: Literal["ended", "timeout", "held", "unowned"]


class EventsReadResult(TypedDict):
    """A page; `nextCursor` passes what a `types` filter skipped."""

    events: list[CursorEvent]
    nextCursor: str
    headCursor: str
    headSeq: Count
    hasMore: bool


class SubscribeResult(TypedDict):
    """Events up to `headSeq` were there before: replay."""

    subscriptionId: Id
    headCursor: str
    headSeq: Count


class ArtifactListResult(TypedDict):
    """A page, by ids."""

    artifacts: list[Artifact]
    nextAfter: NotRequired[Id]


class ArtifactReadResult(TypedDict):
    """A piece: `text` or `data`, as it was asked for."""

    artifact: Id
    text: NotRequired[str]
    data: NotRequired[str]
    offset: Count
    """Where the piece begins."""
    nextOffset: Count
    """Where the next one begins; `sizeBytes` at the end."""
    sizeBytes: Count
    """Of the whole."""
    sha256: str
    """Of the whole, hex."""
    mediaType: NotRequired[str]


class ProcessListResult(TypedDict):
    """Those that ended stand behind those that run, the newest last."""

    processes: list[Process]
    cursor: str


class ProcessReadResult(TypedDict):
    """A piece: `text` or `data`, as it was asked for; the process as it stood when it was read."""

    process: Process
    text: NotRequired[str]
    data: NotRequired[str]
    offset: Count
    """Where the piece begins."""
    skippedBytes: Count
    """Between the `offset` that was asked for and this one: not kept any more."""
    nextOffset: Count
    """Where the next piece begins."""
    hasMore: bool
    """There is more now. Without it, more comes only from a process that runs."""


class ProcessStopResult(TypedDict):
    """The process as it then stands."""

    process: Process
    cursor: str


class UsageResult(TypedDict):
    """Usage as reported (AH-USAGE-1)."""

    usage: Usage
    cursor: str


class Model(TypedDict):
    """A model, and what is known of it; what is not known is absent. One that is not listed can be used when named."""

    name: str
    source: Literal["provider", "catalog", "config"]
    """Who says what is known: nobody, beyond that the `provider` lists it; this build; the operator's file."""
    contextTokens: NotRequired[Positive]
    """What a request may have, together with its answer where the vendor counts that in."""
    outputTokens: NotRequired[Positive]
    """The most of an answer."""
    cutoff: NotRequired[str]
    """The year, month or day up to which it was trained."""
    thinks: NotRequired[bool]
    images: NotRequired[bool]
    """Whether it takes them."""
    rateCard: NotRequired[RateCard]
    """The prices that estimates of what it costs are made by."""


class ModelsResult(TypedDict):
    """Models, by their names."""

    provider: str
    models: list[Model]


class ToolsResult(TypedDict):
    """Tools a session can have, with their schemas and effects. `offered`: to which families of models they are given
    unasked, whether `strict` sessions get them too, and which setting one `needs`."""

    tools: list[dict[str, Any]]


class DiscoverResult(TypedDict):
    """The OpenRPC document."""

    openrpc: str
    info: dict[str, Any]
    methods: list[dict[str, Any]]
    components: dict[str, Any]


# --- notifications ------------------------------------------------------------------------------------------


class EventNotification(TypedDict):
    """A durable event, after its commit."""

    subscriptionId: Id
    cursor: str
    event: dict[str, Any]


class DeltaNotification(TypedDict):
    """A preview of what is being produced. Unnumbered, may be dropped: keep text by `offset` (UTF-8 bytes)."""

    subscriptionId: Id
    sessionId: Id
    turnId: Id
    itemId: Id
    kind: Literal["message", "reasoning", "toolArguments", "toolOutput"]
    offset: Count
    text: str


class OwnershipNotification(TypedDict):
    """Which process runs a session's turns changed."""

    sessionId: Id
    owner: Owner | None
    mine: bool


class SubscriptionClosed(TypedDict):
    """No more events come."""

    subscriptionId: Id
    reason: str
    """`deleted`: the session is; else the kind of the error that ended it, like `session_corrupt`, see errors.md."""


class Heartbeat(TypedDict):
    """A turn waits: in which phase, for how long."""

    sessionId: Id
    turnId: Id
    phase: Literal["queued", "model_waiting", "model_streaming", "retry_wait", "compacting", "tools", "stopping_tools"]
    sinceMs: Count
