"""What the server sends. Generated from its messages; `make gen` writes it.

Members may be added in any version, so a message may hold more than stands here.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class Artifact(TypedDict):
    """Content that a session keeps apart from its log."""

    artifact: str
    sizeBytes: int
    sha256: str
    """Of the whole content, hex."""
    seq: NotRequired[int]
    """The first event that refers to it; absent where none does, as to an export."""
    mediaType: NotRequired[str]
    name: NotRequired[str]
    """What it is called, like a file."""


class ArtifactListResult(TypedDict):
    """A page, by ids."""

    artifacts: list[Artifact]
    nextAfter: NotRequired[str]


class ArtifactReadResult(TypedDict):
    """A piece: `text` or `data`, as it was asked for."""

    artifact: str
    text: NotRequired[str]
    data: NotRequired[str]
    offset: int
    """Where the piece begins."""
    nextOffset: int
    """Where the next one begins; `sizeBytes` at the end."""
    sizeBytes: int
    """Of the whole."""
    sha256: str
    """Of the whole, hex."""
    mediaType: NotRequired[str]


class By(TypedDict):
    """Who caused an event: the operating-system user, the client's name, the connection."""

    principal: str
    client: NotRequired[str]
    connectionId: NotRequired[str]


class CancelRequest(TypedDict):
    """A cancel that is durable."""

    by: By
    at: str
    cause: Literal["client", "session_closed", "host", "disconnect", "shutdown"]
    reason: NotRequired[str]


class CapabilitiesResult(TypedDict):
    """What this build can do, from its live tables. Starts nothing."""

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


class Chunk(TypedDict):
    """Text of an item from `offset` (UTF-8 bytes) on; gapless."""

    itemId: str
    offset: int
    text: str


class ContextCompactRequested(TypedDict):
    """The context is to be made shorter with the next model request."""

    by: By


class ContextComposed(TypedDict):
    """What the model is told beside the conversation from here on: the system text is these parts in this order, and
    the turn's own `instructions` behind them. Composed with the first step of a session, for another model, and
    with a compaction; see `resources.changed`.
    """

    reason: Literal["first", "model", "compaction"]
    provider: str
    model: str
    profile: Literal["anthropic", "openai", "gemini", "other"]
    """The family of models that it is worded for."""
    parts: list[ContextPart]


class ContextKept(TypedDict):
    """The context was to be made shorter and stays as it is; it is tried again in a later turn."""

    trigger: Literal["threshold", "overflow", "request"]
    reason: str


class ContextPart(TypedDict):
    """A part of the system text."""

    source: Literal["agent", "environment", "document", "session"]
    """Hames; what it works with; a document of the project; the session's `instructions`."""
    path: NotRequired[str]
    """Of a document, relative to the workspace."""
    sizeBytes: int
    """Of `text`."""
    sha256: str
    """Of `text`."""
    fileBytes: NotRequired[int]
    """Of the file, where the document is cut."""
    problem: NotRequired[str]
    """Why a document is not shown: `outside_workspace`, `not_a_file`, `permission_denied`, `not_text` (not UTF-8),
    `no_room` (the documents together are too long), or another kind of failure.
    """
    text: str | Reference
    """As the model is shown it; empty where it is not shown."""


class ContextRepaired(TypedDict):
    """What the next request sends differs from what was said, so that its provider takes it. The log keeps all as it
    was. Told again when there is more of it.
    """

    repairs: list[Repair]


class ContextReplaced(TypedDict):
    """From here on the model is not sent what stands before event `keptFrom`, save what `kept` names: a summary
    stands in its place. The log keeps all of it.
    """

    trigger: Literal["threshold", "overflow", "request"]
    """Its size neared the model's window; the provider refused it as too long; `session/compact` asked."""
    by: NotRequired[By]
    """Who asked."""
    keptFrom: int
    kept: list[int]
    """Events before it at which people's messages entered that stay, word for word, and marked as earlier ones."""
    readFrom: int
    """The first event that the rest of the conversation is told from."""
    summary: NotRequired[str | Reference]
    """Derived by the model."""
    summaryMissing: NotRequired[str]
    """Why there is none: the messages were left out alone, since the provider took no more of them."""
    files: list[str]
    """Files that the calls which were left out named."""
    messagesGone: int
    messagesLeft: int
    tokensBefore: int
    """Estimated."""
    tokensAfter: int
    windowTokens: NotRequired[int]


class ContextWarning(TypedDict):
    """The conversation nears the model's window."""

    estimatedTokens: int
    windowTokens: int
    percent: int


class Cost(TypedDict):
    """What one model request cost: what the provider said, and what was estimated; never one for the other."""

    reported: NotRequired[Money]
    estimated: NotRequired[Estimate]


class CostTotal(TypedDict):
    """Sums of costs, each over every request that was made; a kind that not all of them have is absent."""

    reported: NotRequired[Money]
    estimated: NotRequired[EstimateTotal]


class Credential(TypedDict):
    """Which key pays, never the key: where it was found, and a fingerprint under the store's own salt."""

    source: str
    """`environment`, `file`, `caller` (of the library), `command` (a program that prints it) or `none`."""
    fingerprint: NotRequired[str]
    owner: NotRequired[str]
    """Whose it is, as the operator says (`providers.<name>.owner`)."""


class CursorEvent(TypedDict):
    """An event with the cursor that stands after it."""

    cursor: str
    event: dict[str, Any]


class DeltaNotification(TypedDict):
    """A preview of what is being produced. Unnumbered, may be dropped: keep text by `offset` (UTF-8 bytes)."""

    subscriptionId: str
    sessionId: str
    turnId: str
    itemId: str
    kind: Literal["message", "reasoning", "toolArguments", "toolOutput"]
    offset: int
    text: str


class DiscoverResult(TypedDict):
    """The OpenRPC document."""

    openrpc: str
    info: dict[str, Any]
    methods: list[dict[str, Any]]
    components: dict[str, Any]


class EmptyResult(TypedDict):
    """Done."""


class ErrorInfo(TypedDict):
    """Why a turn failed: the shape of a JSON-RPC error's data, with its message."""

    kind: str
    """One of the kinds in errors.md."""
    message: str
    retryable: bool
    boundary: NotRequired[str]
    """One of the boundaries in errors.md."""
    details: dict[str, Any]


class Estimate(TypedDict):
    """What was estimated from counters and list prices. It is no bill, and none was asked for."""

    amount: str
    currency: str
    rateCard: RateCard


class EstimateTotal(TypedDict):
    """A sum of estimates, with the rate cards they were made by, ten at most."""

    amount: str
    currency: str
    rateCards: list[RateCard]


class EventNotification(TypedDict):
    """A durable event, after its commit."""

    subscriptionId: str
    cursor: str
    event: dict[str, Any]


class EventsReadResult(TypedDict):
    """A page; `nextCursor` passes what a `types` filter skipped."""

    events: list[CursorEvent]
    nextCursor: str
    headCursor: str
    headSeq: int
    hasMore: bool


class Evidence(TypedDict):
    """What was observed of a turn, whatever its text claims."""

    calls: dict[str, int]
    """How many tool calls ended with each outcome."""
    files: list[str]
    """Files that changed, by their paths; the first ones where they are many."""
    filesChanged: int
    complete: bool
    """`files` names all of them."""


class FileChanged(TypedDict):
    """A file as it was observed before and after a call: sha256, absent where there was none."""

    callId: str
    path: str
    kind: Literal["created", "modified", "deleted"]
    before: NotRequired[str]
    after: NotRequired[str]
    diff: NotRequired[str | Reference]


class Fold(TypedDict):
    """The folded lifecycle state after this event: equal builds must agree."""

    version: int
    digest: str


class Health(TypedDict):
    """One dependency."""

    status: Literal["ok", "degraded", "unavailable"]
    why: NotRequired[str]
    details: NotRequired[dict[str, Any]]


class HealthResult(TypedDict):
    """Each dependency that was asked for."""

    dependencies: dict[str, Health]


class Heartbeat(TypedDict):
    """A turn waits: in which phase, for how long."""

    sessionId: str
    turnId: str
    phase: Literal["queued", "model_waiting", "model_streaming", "retry_wait", "compacting", "tools", "stopping_tools"]
    sinceMs: int


class Hold(TypedDict):
    """The queue waits for `queue/resume`."""

    by: By
    since: str
    cause: Literal["turn_cancelled", "log_cut"]


class Image(TypedDict):
    """An image that a tool showed to the model."""

    mediaType: str
    data: Reference
    label: NotRequired[str]


class InitializeResult(TypedDict):
    """What this server is and keeps to."""

    protocolVersion: str
    serverInfo: ServerInfo
    capabilities: ServerCapabilities
    limits: dict[str, LimitInfo]
    store: StoreInfo
    transport: TransportInfo


class Item(TypedDict):
    """One entry of the conversation."""

    itemId: str
    turnId: NotRequired[str]
    kind: Literal["user", "message", "reasoning", "toolCall", "toolResult"]
    data: dict[str, Any]
    cursor: str


class LimitInfo(TypedDict):
    """A limit: the value in force, its range, who may set it and what it counts."""

    default: int
    minimum: int
    maximum: int
    scope: Literal["turn", "session", "tool", "model", "server"]
    """`turn`: a session and a turn may set it; `session`: a session may set a lower one; the others belong to the
    configuration.
    """
    meaning: str


class LogCut(TypedDict):
    """What a repair of the store could not keep of the log. Cursors behind `lastGoodSeq` are of no log any more."""

    lastGoodSeq: int
    lost: NotRequired[int]
    """Events that are known to be gone; absent where nobody can tell, as whether any are."""
    epoch: int
    """Of the store: raised by each repair."""
    reason: Literal["torn", "duplicated", "gapped", "edited", "swapped", "missing", "history_lost"]
    """What was found there first; `history_lost`: the store itself went back."""


class LogRecovered(TypedDict):
    """What an unclean stop or damage left, and what was done about it."""

    turnId: NotRequired[str]
    action: Literal["continued", "settled", "cut"]
    """`cut`: a repair kept what proved itself of the log; see `cut`."""
    previousAttempt: NotRequired[int]
    reason: Literal[
        "owner_lost", "cancel_requested", "calls_with_unknown_effect", "caller_asked", "deadline", "damaged"
    ]
    openCalls: list[str]
    cut: NotRequired[LogCut]


class LoopDetected(TypedDict):
    """The same calls gave the same results again and again, and the model is told so; once more, and the turn fails
    at the limit `loopRepeats`.
    """

    period: int
    """Steps after which it repeats."""
    repeats: int


class MessageCompleted(TypedDict):
    """The whole text of an item. With `inContext` false it does not count, for the `cause` given."""

    itemId: str
    text: str | Reference
    inContext: bool
    step: NotRequired[int]
    cause: NotRequired[str]
    """Why it is not whole or does not count: `cancelled`, `interrupted`, `handed_over`, `limit_exceeded`,
    `model_failed`, or the kind of an error.
    """


class Model(TypedDict):
    """A model, and what is known of it; what is not known is absent. One that is not listed can be used when named."""

    name: str
    source: Literal["provider", "catalog", "config"]
    """Who says what is known: nobody, beyond that the `provider` lists it; this build; the operator's file."""
    contextTokens: NotRequired[int]
    """What a request may have, together with its answer where the vendor counts that in."""
    outputTokens: NotRequired[int]
    """The most of an answer."""
    cutoff: NotRequired[str]
    """The year, month or day up to which it was trained."""
    thinks: NotRequired[bool]
    images: NotRequired[bool]
    """Whether it takes them."""
    rateCard: NotRequired[RateCard]
    """The prices that estimates of what it costs are made by."""


class ModelDiscarded(TypedDict):
    """Text that was shown is withdrawn: the items do not count."""

    modelRequestId: str
    tryNumber: int
    itemIds: list[str]
    cause: str
    """The kind of the error, like `model_gateway`; see errors.md."""


class ModelRequested(TypedDict):
    """A request goes to the model. `requestDigest` is SHA-256 over the neutral request."""

    step: int
    modelRequestId: str
    tryNumber: int
    provider: str
    model: str
    requestDigest: str
    messages: int
    estimatedTokens: NotRequired[int]
    """Before it is corrected by what the provider counted of the request before; absent of a summary."""
    purpose: NotRequired[Literal["summary"]]
    """`summary`: its answer stands in the place of messages that are left out; see `context.replaced`."""
    trigger: NotRequired[Literal["threshold", "overflow", "request"]]
    """Of a summary: what made it necessary, as in `context.replaced`."""
    afterText: NotRequired[bool]
    """Beside the trigger `overflow`: an answer had begun to come when the request was found too long, so it counts
    for `limits.costMicros`.
    """
    costAtMost: NotRequired[Money]
    """Of a turn with `limits.costMicros`: the most that this try can cost, where that is known."""


class ModelRetried(TypedDict):
    """A try failed and another will be made after `delayMs`."""

    modelRequestId: str
    tryNumber: int
    delayMs: int
    error: ErrorInfo


class ModelRoute(TypedDict):
    """Where a session's model requests go, and whose credential pays. Never the credential."""

    provider: str
    model: str
    baseUrl: NotRequired[str]
    credential: NotRequired[Credential]


class ModelsResult(TypedDict):
    """Models, by their names."""

    provider: str
    models: list[Model]


class Money(TypedDict):
    """An amount, as decimal text without an exponent."""

    amount: str
    currency: str
    """ISO 4217."""


class Outcome(TypedDict):
    """How a turn ended, the same facts as its terminal event."""

    status: Literal["completed", "failed", "cancelled"]
    text: NotRequired[str | Reference]
    error: NotRequired[ErrorInfo]
    cause: NotRequired[Literal["client", "session_closed", "host", "disconnect", "shutdown"]]
    forced: NotRequired[bool]
    """It was settled without proof that nothing of it runs."""
    undelivered: NotRequired[list[str]]
    """Steers that the model never got."""


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


class OwnershipNotification(TypedDict):
    """Which process runs a session's turns changed."""

    sessionId: str
    owner: Owner | None
    mine: bool


class Previous(TypedDict):
    """The attempt before, and why it did not end the turn."""

    attempt: int
    reason: Literal["owner_lost", "cancel_requested", "calls_with_unknown_effect", "caller_asked", "deadline"]


class Process(TypedDict):
    """A background process as it stands, and how it ended, as `process.exited` told."""

    processId: str
    name: NotRequired[str]
    """What the model calls it: no two that run in a session have one name."""
    status: Literal["running", "stopping", "exited"]
    runner: Literal["local", "remote", "none"]
    """Who runs it: this server, another one, or nobody. One that is `running` with nobody has ended with its server;
    who runs the session next says so.
    """
    command: str
    """In one line of at most 200 characters."""
    turnId: str
    """The turn that started it."""
    callId: str
    startedAt: str
    stopRequested: NotRequired[StopRequest]
    outputBytes: int
    """Written so far, of which the newest `limits.processOutputBytes` are kept."""
    endedAt: NotRequired[str]
    why: NotRequired[
        Literal["exited", "stopped", "session_closed", "limit", "cancelled", "not_started", "owner_left", "owner_died"]
    ]
    exitCode: NotRequired[int]
    signal: NotRequired[int]
    killed: NotRequired[int]
    met: NotRequired[dict[str, int]]
    artifact: NotRequired[Reference]
    """Its output: the newest bytes, where it wrote more than is kept."""
    error: NotRequired[dict[str, Any]]
    mayStillRun: NotRequired[list[int]]


class ProcessExited(TypedDict):
    """Nothing of a background process runs any more, nor of what it started."""

    processId: str
    why: Literal["exited", "stopped", "session_closed", "limit", "cancelled", "not_started", "owner_left", "owner_died"]
    exitCode: NotRequired[int]
    """Absent where a signal ended it, and where nobody saw how it ended."""
    signal: NotRequired[int]
    killed: NotRequired[int]
    """Processes that outlived it and were killed."""
    met: NotRequired[dict[str, int]]
    """Limits of commands that it is known to have run into, with their values."""
    outputBytes: int
    """Written in all."""
    artifact: NotRequired[Reference]
    """Its output: the newest bytes, where it wrote more than is kept. Absent where there is none."""
    error: NotRequired[dict[str, Any]]
    """Of `not_started`, and of an end that our own fault caused: `{kind, message}`."""
    mayStillRun: NotRequired[list[int]]
    """Pids that could not be ended: the only exit that is not preceded by proof."""
    originTurnId: str
    """The turn that started it."""


class ProcessListResult(TypedDict):
    """Those that ended stand behind those that run, the newest last."""

    processes: list[Process]
    cursor: str


class ProcessReadResult(TypedDict):
    """A piece: `text` or `data`, as it was asked for; the process as it stood when it was read."""

    process: Process
    text: NotRequired[str]
    data: NotRequired[str]
    offset: int
    """Where the piece begins."""
    skippedBytes: int
    """Between the `offset` that was asked for and this one: not kept any more."""
    nextOffset: int
    """Where the next piece begins."""
    hasMore: bool
    """There is more now. Without it, more comes only from a process that runs."""


class ProcessStarted(TypedDict):
    """A background process is about to run: durable before it does. It is the session's: its turn ends without it."""

    processId: str
    name: NotRequired[str]
    command: str
    """In one line of at most 200 characters."""
    callId: str
    lifetimeMs: int
    """After which it is stopped."""
    reaper: NotRequired[Reaper]


class ProcessStopRequested(TypedDict):
    """Somebody wants a background process to end, or the session to close, which waits for its end."""

    processId: str
    by: By
    cause: Literal["client", "session_closed"]


class ProcessStopResult(TypedDict):
    """The process as it then stands."""

    process: Process
    cursor: str


class Queue(TypedDict):
    """Turns that wait in a session."""

    length: int
    turnIds: list[str]
    held: NotRequired[Hold]


class QueueHeld(TypedDict):
    """The queue waits for `queue/resume`: the running turn was cancelled while others were queued, or a repair cut
    the log, and its turns may have run behind the cut.
    """

    by: By
    cause: Literal["turn_cancelled", "log_cut"]


class QueueResult(TypedDict):
    """The queue as it now is."""

    queue: Queue
    cursor: str


class QueueResumed(TypedDict):
    """The queue goes on."""

    by: By


class RateCard(TypedDict):
    """Which prices an estimate was made by. Another content is another `digest`."""

    name: str
    version: str
    digest: str


class Reaper(TypedDict):
    """Where the server that runs a process has the small process that ends it: who takes the session over asks it."""

    pid: int
    startTime: int
    """In clock ticks since boot: a pid alone may be given to another."""
    socket: str


class Reference(TypedDict):
    """Content that is kept apart: a text of more than 16 KiB, an image, a whole tool output. Read it with
    `artifact/read`.
    """

    artifact: str
    sizeBytes: int
    sha256: str
    """Of the whole content, hex."""
    head: NotRequired[str]
    """The beginning, at most 1 KiB; absent where the content is no text."""


class Repair(TypedDict):
    """One kind of what is not sent as it was said, and how much of it there is in the conversation."""

    code: str
    """`signed_parts`: answers whose parts only another provider or model understands; their text and calls are sent.
    `images`: images beyond `limits.requestImages` or `limits.requestImageBytes`; a note stands in their place.
    `images_not_taken`: images that the model, its vendor or, of an animation, any model refuses; a note stands in
    the place of each, and a model that takes them is shown them. `content_lost`: contents that a repair of the
    store did not find; what is left and a note stand in their place. Later versions may add codes.
    """
    count: int
    artifacts: NotRequired[list[str]]
    """The first hundred that are lost."""


class ResourcesChanged(TypedDict):
    """A document or the environment is another than the model was told. It is told so behind what was said, and the
    system text stays as it was sent.
    """

    source: Literal["agent", "environment", "document", "session"]
    path: NotRequired[str]
    sizeBytes: int
    sha256: str
    fileBytes: NotRequired[int]
    problem: NotRequired[str]
    text: str | Reference
    kind: Literal["added", "changed", "removed"]


class Said(TypedDict):
    """One part of a caller's input, as it was admitted."""

    type: Literal["text", "image"]
    text: NotRequired[str | Reference]
    data: NotRequired[Reference]
    mediaType: NotRequired[str]
    role: NotRequired[Literal["command", "context", "quoted"]]
    label: NotRequired[str]


class Semantics(TypedDict):
    """How counters relate: whether what was read from and written to a cache lies within the input (`subset`) or
    beside it (`additive`), and likewise reasoning and output. Absent where the provider does not say.
    """

    cacheRead: Literal["subset", "additive"]
    cacheWrite: Literal["subset", "additive"]
    reasoning: Literal["subset", "additive"]


class ServerCapabilities(TypedDict):
    """What this server can do: its methods and notifications by name."""

    methods: list[str]
    notifications: list[str]
    deltas: bool
    parallelSessions: bool
    """Turns of different sessions run at the same time."""
    serialTurns: bool
    """Turns of one session run one after the other."""


class ServerInfo(TypedDict):
    """Who answers."""

    name: str
    version: str


class Session(TypedDict):
    """A session as it stands at `cursor`."""

    sessionId: str
    status: Literal["open", "closed"]
    createdAt: str
    updatedAt: str
    workspace: str
    cwd: str
    title: NotRequired[str]
    metadata: NotRequired[dict[str, Any]]
    model: ModelRoute
    snapshotDigest: str
    turns: int
    queue: Queue
    runningTurnId: NotRequired[str]
    owner: NotRequired[Owner]
    headSeq: int
    cursor: str


class SessionClosed(TypedDict):
    """The session takes no more turns until it is resumed."""

    by: By


class SessionCompactResult(TypedDict):
    """When the context is made shorter: before the next model request, which a turn that runs or the next one makes.
    The summary is a request of its own to the session's model, with usage of its own. `context.replaced` tells
    what gave way to it and what stayed, `context.kept` why nothing did. Asked for again before that, it is one
    wish. The log keeps everything: see concepts.md.
    """

    effective: Literal["nextRequest"]
    cursor: str


class SessionCreateResult(TypedDict):
    """The session, durable."""

    session: Session
    snapshot: Snapshot
    cursor: str
    turn: NotRequired[Turn]
    subscriptionId: NotRequired[str]


class SessionCreated(TypedDict):
    """The session exists, with what it may do. Always event 1."""

    snapshot: Snapshot
    snapshotDigest: str
    keyedDigest: str
    """BLAKE2b-256 of the digest under the store's key: a store that was edited by hand does not match."""
    by: By
    title: NotRequired[str]
    metadata: NotRequired[dict[str, Any]]
    idempotencyKey: NotRequired[str]
    contentDigest: str


class SessionDeleteResult(TypedDict):
    """The session is gone: its id and its keys answer `session_deleted` for ever."""

    sessionId: str
    deletedAt: str
    """RFC 3339."""


class SessionExportResult(TypedDict):
    """An archive of the session up to `cursor`, as an artifact of it: see export.md. Kept until it was not read for
    a day.
    """

    artifact: str
    sizeBytes: int
    sha256: str
    mediaType: str
    name: str
    cursor: str
    events: int


class SessionListResult(TypedDict):
    """A page, newest first."""

    sessions: list[Session]
    nextPage: NotRequired[str]


class SessionResult(TypedDict):
    """The session as it stands at `cursor`."""

    session: Session
    snapshot: Snapshot
    cursor: str
    view: NotRequired[View]
    subscriptionId: NotRequired[str]


class SessionResumed(TypedDict):
    """A closed session is open again."""

    by: By


class SessionUpdateResult(TypedDict):
    """The session; when the change takes effect."""

    session: Session
    effective: Literal["now", "nextTurn"]
    """`nextTurn`: a new model, of a session in which a turn runs."""
    cursor: str


class SessionUpdated(TypedDict):
    """What changed, as it now is."""

    by: By
    title: NotRequired[str]
    model: NotRequired[ModelRoute]
    """Of turns that start from now on."""
    snapshotDigest: NotRequired[str]
    """Of the snapshot with this model."""


class Snapshot(TypedDict):
    """What a session may do, fixed at creation. Digested over RFC 8785 JSON, SHA-256."""

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
    """`reduced`: guarantees that this sandbox does not give."""


class SteerDelivered(TypedDict):
    """These steers stand in the request of `step`."""

    steerIds: list[str]
    step: int


class StepCompleted(TypedDict):
    """The model's answer is whole."""

    step: int
    modelRequestId: str
    stopReason: Literal["stop", "tool_calls", "length", "content_filter", "pause", "other"]
    """`pause`: the provider wants to be asked again, with this answer at the end."""
    rawStopReason: NotRequired[str]
    """As the provider said it, where that is another word."""
    responseModel: NotRequired[str]
    responseId: NotRequired[str]
    parts: NotRequired[dict[str, Any] | Reference]
    """What only the provider understands of the answer, like signed reasoning, in the order it came in: it goes back
    verbatim to the same model, or not at all.
    """


class StepStarted(TypedDict):
    """A step begins: one model request and the tool calls that answer it."""

    step: int
    fallback: NotRequired[bool]
    """The last request at the step limit: its tools may not be called, and calls in the answer are left out."""


class StopRequest(TypedDict):
    """Who wants a background process to end."""

    by: By
    at: str
    cause: Literal["client", "session_closed"]


class StoreInfo(TypedDict):
    """Where sessions are kept, and what a commit promises."""

    kind: str
    path: str
    durability: str


class SubscribeResult(TypedDict):
    """Events up to `headSeq` were there before: replay."""

    subscriptionId: str
    headCursor: str
    headSeq: int


class SubscriptionClosed(TypedDict):
    """No more events come."""

    subscriptionId: str
    reason: str
    """`deleted`: the session is; else the kind of the error that ended it, like `session_corrupt`, see errors.md."""


class ToolChunk(TypedDict):
    """Newest output of a running tool: at most one a second and 8 KiB; `skippedBytes` were left out before it."""

    callId: str
    offset: int
    skippedBytes: int
    text: str


class ToolCompleted(TypedDict):
    """The one result of a call. `text` is exactly what the model is shown."""

    callId: str
    tool: str
    outcome: Literal["ok", "error", "denied", "cancelled", "not_run", "unknown"]
    text: str | Reference
    images: NotRequired[list[Image]]
    """Shown to the model beside the text."""
    artifact: NotRequired[Reference]
    """The whole output, where the model was shown a part of it."""
    durationMs: NotRequired[int]
    details: dict[str, Any]
    truncation: NotRequired[dict[str, Any]]
    error: NotRequired[dict[str, Any]]
    originTurnId: NotRequired[str]


class ToolRequested(TypedDict):
    """The model asks for a call. `arguments` is its raw JSON text."""

    callId: str
    providerCallId: str
    tool: str
    arguments: str | Reference
    step: int


class ToolStarted(TypedDict):
    """Durable before the effect. `grant` names what authorised it."""

    callId: str
    tool: str
    effect: Literal["read", "write", "execute"]
    summary: str
    grant: Literal["session.tools"]
    """`session.tools`: the list of tools in the session's snapshot."""
    disposition: Literal["allowed"]


class ToolsResult(TypedDict):
    """Tools a session can have, with their schemas and effects. `offered`: to which families of models they are
    given unasked, whether `strict` sessions get them too, and which setting one `needs`.
    """

    tools: list[dict[str, Any]]


class TransportInfo(TypedDict):
    """How frames are told apart, and how large one may be. `memory`: the client is in the server's process."""

    kind: Literal["stdio", "memory"]
    framing: Literal["auto", "line", "header"]
    frameInBytes: int


class Turn(TypedDict):
    """A turn as it stands at `cursor`."""

    turnId: str
    sessionId: str
    status: Literal["queued", "running", "completed", "failed", "cancelled"]
    delivery: Literal["queue", "join"]
    held: NotRequired[bool]
    hostTurnId: NotRequired[str]
    runner: Literal["local", "remote", "none"]
    """Who runs the session: this process, another one, or nobody."""
    attempt: NotRequired[int]
    cancelRequested: NotRequired[CancelRequest]
    queuedAt: str
    startedAt: NotRequired[str]
    endedAt: NotRequired[str]
    deadlineAt: NotRequired[str]
    outcome: NotRequired[Outcome]
    cursor: str


class TurnCancelRequested(TypedDict):
    """Durable before anything is signalled; the turn can only end as cancelled now."""

    by: By
    cause: Literal["client", "session_closed", "host", "disconnect", "shutdown"]
    queue: Literal["hold", "continue", "drop"]
    reason: NotRequired[str]


class TurnCancelled(TypedDict):
    """The turn was cancelled, and nothing of it runs (`forced`: it could not be proved)."""

    cause: Literal["client", "session_closed", "host", "disconnect", "shutdown"]
    reason: NotRequired[str]
    """What the caller of `turn/cancel` said."""
    usage: Usage
    evidence: Evidence
    assurance: dict[str, Any]
    undelivered: NotRequired[list[str]]
    hostTurnId: NotRequired[str]
    forced: NotRequired[bool]
    mayStillRun: NotRequired[list[Any]]
    fold: Fold


class TurnCompleted(TypedDict):
    """The turn succeeded."""

    text: str | Reference
    usage: Usage
    claims: dict[str, Any]
    """What the model says it did: its final text, by reference."""
    evidence: Evidence
    assurance: dict[str, Any]
    hostTurnId: NotRequired[str]
    fold: Fold


class TurnFailed(TypedDict):
    """The turn failed. `text` is a fallback text at a limit, else what was said last."""

    error: ErrorInfo
    text: NotRequired[str | Reference]
    usage: Usage
    evidence: Evidence
    assurance: dict[str, Any]
    undelivered: NotRequired[list[str]]
    hostTurnId: NotRequired[str]
    forced: NotRequired[bool]
    mayStillRun: NotRequired[list[Any]]
    fold: Fold


class TurnJoined(TypedDict):
    """A queued turn enters the running one and shares its outcome."""

    hostTurnId: str
    step: int


class TurnListResult(TypedDict):
    """A page, newest first."""

    turns: list[Turn]
    nextBefore: NotRequired[int]
    cursor: str


class TurnQueued(TypedDict):
    """A turn is admitted: its text is safe from now on."""

    input: list[Said]
    delivery: Literal["queue", "join"]
    position: int
    """0 runs next."""
    limits: dict[str, Any]
    by: By
    contentDigest: str
    idempotencyKey: NotRequired[str]
    instructions: NotRequired[str | Reference]
    meta: NotRequired[dict[str, Any]]


class TurnResult(TypedDict):
    """The turn as it stands at `cursor`."""

    turn: Turn
    cursor: str


class TurnStarted(TypedDict):
    """An attempt runs the turn, under a fence."""

    attempt: int
    fence: int
    worker: Worker
    snapshotDigest: str
    deadlineAt: str
    previous: NotRequired[Previous]
    """From the second attempt on."""


class TurnSteerResult(TypedDict):
    """The turn that will get it."""

    turn: Turn
    steerId: str
    cursor: str


class TurnSteered(TypedDict):
    """A message for the running turn is admitted; `steer.delivered` tells when the model gets it."""

    steerId: str
    input: list[Said]
    by: By
    contentDigest: str
    idempotencyKey: NotRequired[str]


class TurnSubmitResult(TypedDict):
    """The receipt."""

    turn: Turn
    queue: Queue
    cursor: str


class TurnUpdated(TypedDict):
    """A queued turn was changed; its place was not."""

    by: By
    input: NotRequired[list[Said]]
    delivery: NotRequired[Literal["queue", "join"]]


class TurnWaitResult(TypedDict):
    """Why the wait ended: the turn ended, time is up, its queue is held, or nobody runs the session."""

    turn: Turn
    why: Literal["ended", "timeout", "held", "unowned"]


class Usage(TypedDict):
    """`direct` is this session's or turn's own; `inclusive` adds finished children (none in this version)."""

    direct: UsageTotal
    inclusive: UsageTotal


class UsageRecorded(TypedDict):
    """Counters as the provider reported them for one try, by its own names. Absent stays absent. `cost`, or
    `costReason` where there is none; of older events neither.
    """

    modelRequestId: str
    tryNumber: int
    provider: str
    model: str
    counters: dict[str, int]
    semantics: NotRequired[Semantics]
    cost: NotRequired[Cost]
    costReason: NotRequired[
        Literal[
            "incomplete_coverage",
            "unsupported_pricing",
            "missing_provider_detail",
            "invalid_counters",
            "mixed_evidence",
        ]
    ]
    costAtMost: NotRequired[Money]
    """Of a turn with `limits.costMicros`: the most that it can have cost, if that is known, and the cost is not:
    beside a `costReason`, a report that is `partial`, and counters that cannot be of the answer that came. It
    counts for the limit in the place of `cost`.
    """
    partial: NotRequired[bool]
    """The answer was cut, and its provider reports while it answers: what is reported may be of a part."""


class UsageResult(TypedDict):
    """Usage as reported."""

    usage: Usage
    cursor: str


class UsageTotal(TypedDict):
    """Sums over model requests. `costReason` says why there is no `cost`; without a request neither is."""

    counters: dict[str, int]
    """By the provider's names, each summed over the requests that reported it."""
    requests: int
    """Requests made."""
    reported: int
    """Requests of which the provider reported usage. Fewer than `requests`: the sums are lower bounds."""
    cost: NotRequired[CostTotal]
    costReason: NotRequired[
        Literal[
            "incomplete_coverage",
            "unsupported_pricing",
            "missing_provider_detail",
            "invalid_counters",
            "mixed_evidence",
        ]
        | Literal["no_rate_card"]
    ]
    """`incomplete_coverage`: a request has no usage, or only that of a part of its answer. `unsupported_pricing`: no
    rate card has a price for what was used, where it was used. `missing_provider_detail`: a counter is missing
    that has a price. `invalid_counters`: counters contradict one another. `mixed_evidence`: every request has a
    cost, but not in one currency, or not of one kind. Of older events `no_rate_card`: nothing was known of
    prices.
    """


class View(TypedDict):
    """A session folded: the newest items (page back with `before`), turns, queue, usage."""

    items: list[Item]
    turns: list[Turn]
    queue: Queue
    usage: Usage
    hasMore: bool


class Warned(TypedDict):
    """Something the operator should know that ended nothing."""

    code: str
    """`text_repaired`: lone surrogates of an input were replaced. Later versions may add codes."""
    message: str
    details: dict[str, Any]
    originTurnId: NotRequired[str]


class Worker(TypedDict):
    """The process that runs an attempt."""

    pid: int


class WorkspaceRef(TypedDict):
    """The directory a session is bound to: its real path, and what identifies it."""

    path: str
    device: int
    inode: int
