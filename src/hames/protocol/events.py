"""Every durable event, with the data it carries, its stability and whether it moves the lifecycle.

A published event is `{sessionId, seq, time, turnId?, attempt?, type, data}`. Types are never changed in an
incompatible way: they gain optional members, or a new type is made. Readers skip types they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, get_args

from typing_extensions import TypedDict

from hames.protocol.base import Count, Id, Positive
from hames.protocol.objects import (
    By,
    CallOutcome,
    CancelCause,
    ErrorInfo,
    Evidence,
    Image,
    ModelRoute,
    Reference,
    Said,
    Snapshot,
)
from hames.protocol.processes import ExitWhy
from hames.protocol.usage import Cost, CostReason, Money, Semantics, Usage


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


class SessionResumed(TypedDict):
    """A closed session is open again."""

    by: By


class SessionUpdated(TypedDict):
    """What changed, as it now is."""

    by: By
    title: NotRequired[str]
    model: NotRequired[ModelRoute]
    """Of turns that start from now on."""
    snapshotDigest: NotRequired[str]
    """Of the snapshot with this model."""


class SessionClosed(TypedDict):
    """The session takes no more turns until it is resumed."""

    by: By


LossReason = Literal["owner_lost", "cancel_requested", "calls_with_unknown_effect", "caller_asked", "deadline"]
"""What was found: a process that is gone; with it, a cancel that was durable, calls that may have had an effect, the
wish `recover: fail`, or a turn whose time was over."""

RecoveryReason = Literal[
    "owner_lost", "cancel_requested", "calls_with_unknown_effect", "caller_asked", "deadline", "damaged"
]
"""The same; or the store was damaged."""


class LogCut(TypedDict):
    """What a repair of the store could not keep of the log. Cursors behind `lastGoodSeq` are of no log any more."""

    lastGoodSeq: Count
    lost: NotRequired[Count]
    """Events that are known to be gone; absent where nobody can tell, as whether any are."""
    epoch: Count
    """Of the store: raised by each repair."""
    reason: Literal["torn", "duplicated", "gapped", "edited", "swapped", "missing", "history_lost"]
    """What was found there first; `history_lost`: the store itself went back."""


class LogRecovered(TypedDict):
    """What an unclean stop or damage left, and what was done about it."""

    turnId: NotRequired[Id]
    action: Literal["continued", "settled", "cut"]
    """`cut`: a repair kept what proved itself of the log; see `cut`."""
    previousAttempt: NotRequired[Count]
    reason: RecoveryReason
    openCalls: list[Id]
    cut: NotRequired[LogCut]


class TurnQueued(TypedDict):
    """A turn is admitted: its text is safe from now on."""

    input: list[Said]
    delivery: Literal["queue", "join"]
    position: Count
    """0 runs next."""
    limits: dict[str, Any]
    by: By
    contentDigest: str
    idempotencyKey: NotRequired[str]
    instructions: NotRequired[str | Reference]
    meta: NotRequired[dict[str, Any]]


class Worker(TypedDict):
    """The process that runs an attempt."""

    pid: int


class Previous(TypedDict):
    """The attempt before, and why it did not end the turn."""

    attempt: Count
    reason: LossReason


class TurnStarted(TypedDict):
    """An attempt runs the turn, under a fence."""

    attempt: Positive
    fence: Positive
    worker: Worker
    snapshotDigest: str
    deadlineAt: str
    previous: NotRequired[Previous]
    """From the second attempt on."""


class TurnJoined(TypedDict):
    """A queued turn enters the running one and shares its outcome."""

    hostTurnId: Id
    step: Positive


class TurnSteered(TypedDict):
    """A message for the running turn is admitted; `steer.delivered` tells when the model gets it."""

    steerId: Id
    input: list[Said]
    by: By
    contentDigest: str
    idempotencyKey: NotRequired[str]


class SteerDelivered(TypedDict):
    """These steers stand in the request of `step`."""

    steerIds: list[Id]
    step: Positive


class TurnUpdated(TypedDict):
    """A queued turn was changed; its place was not."""

    by: By
    input: NotRequired[list[Said]]
    delivery: NotRequired[Literal["queue", "join"]]


class QueueHeld(TypedDict):
    """The queue waits for `queue/resume`: the running turn was cancelled while others were queued, or a repair cut the
    log, and its turns may have run behind the cut."""

    by: By
    cause: Literal["turn_cancelled", "log_cut"]


class QueueResumed(TypedDict):
    """The queue goes on."""

    by: By


class TurnCancelRequested(TypedDict):
    """Durable before anything is signalled; the turn can only end as cancelled now."""

    by: By
    cause: CancelCause
    queue: Literal["hold", "continue", "drop"]
    reason: NotRequired[str]


class ContextCompactRequested(TypedDict):
    """The context is to be made shorter with the next model request."""

    by: By


class ContextReplaced(TypedDict):
    """From here on the model is not sent what stands before event `keptFrom`, save what `kept` names: a summary
    stands in its place. The log keeps all of it."""

    trigger: Literal["threshold", "overflow", "request"]
    """Its size neared the model's window; the provider refused it as too long; `session/compact` asked."""
    by: NotRequired[By]
    """Who asked."""
    keptFrom: Positive
    kept: list[Positive]
    """Events before it at which people's messages entered that stay, word for word, and marked as earlier ones."""
    readFrom: Positive
    """The first event that the rest of the conversation is told from."""
    summary: NotRequired[str | Reference]
    """Derived by the model."""
    summaryMissing: NotRequired[str]
    """Why there is none: the messages were left out alone, since the provider took no more of them."""
    files: list[str]
    """Files that the calls which were left out named."""
    messagesGone: Count
    messagesLeft: Count
    tokensBefore: Count
    """Estimated."""
    tokensAfter: Count
    windowTokens: NotRequired[Count]


class ContextPart(TypedDict):
    """A part of the system text."""

    source: Literal["agent", "environment", "document", "session"]
    """Hames; what it works with; a document of the project; the session's `instructions`."""
    path: NotRequired[str]
    """Of a document, relative to the workspace."""
    sizeBytes: Count
    """Of `text`."""
    sha256: str
    """Of `text`."""
    fileBytes: NotRequired[Count]
    """Of the file, where the document is cut."""
    problem: NotRequired[str]
    """Why a document is not shown: `outside_workspace`, `not_a_file`, `permission_denied`, `not_text` (not UTF-8),
    `no_room` (the documents together are too long), or another kind of failure."""
    text: str | Reference
    """As the model is shown it; empty where it is not shown."""


class ContextComposed(TypedDict):
    """What the model is told beside the conversation from here on: the system text is these parts in this order, and
    the turn's own `instructions` behind them. Composed with the first step of a session, for another model, and with a
    compaction; see `resources.changed`."""

    reason: Literal["first", "model", "compaction"]
    provider: str
    model: str
    profile: Literal["anthropic", "openai", "gemini", "other"]
    """The family of models that it is worded for."""
    parts: list[ContextPart]


class ResourcesChanged(ContextPart):
    """A document or the environment is another than the model was told. It is told so behind what was said, and the
    system text stays as it was sent."""

    kind: Literal["added", "changed", "removed"]


class ContextKept(TypedDict):
    """The context was to be made shorter and stays as it is; it is tried again in a later turn."""

    trigger: Literal["threshold", "overflow", "request"]
    reason: str


class ContextWarning(TypedDict):
    """The conversation nears the model's window."""

    estimatedTokens: Count
    windowTokens: Count
    percent: Count


class Repair(TypedDict):
    """One kind of what is not sent as it was said, and how much of it there is in the conversation."""

    code: str
    """`signed_parts`: answers whose parts only another provider or model understands; their text and calls are sent.
    `images`: images beyond `limits.requestImages` or `limits.requestImageBytes`; a note stands in their place.
    `images_not_taken`: images that the model, its vendor or, of an animation, any model refuses; a note stands in the
    place of each, and a model that takes them is shown them.
    `content_lost`: contents that a repair of the store did not find; what is left and a note stand in their place.
    Later versions may add codes."""
    count: Positive
    artifacts: NotRequired[list[Id]]
    """The first hundred that are lost."""


class ContextRepaired(TypedDict):
    """What the next request sends differs from what was said, so that its provider takes it. The log keeps all as it
    was. Told again when there is more of it."""

    repairs: list[Repair]


class StepStarted(TypedDict):
    """A step begins: one model request and the tool calls that answer it."""

    step: Positive
    fallback: NotRequired[bool]
    """The last request at the step limit: its tools may not be called, and calls in the answer are left out."""


class ModelRequested(TypedDict):
    """A request goes to the model. `requestDigest` is SHA-256 over the neutral request."""

    step: Positive
    modelRequestId: Id
    tryNumber: Positive
    provider: str
    model: str
    requestDigest: str
    messages: Count
    estimatedTokens: NotRequired[Count]
    """Before it is corrected by what the provider counted of the request before; absent of a summary."""
    purpose: NotRequired[Literal["summary"]]
    """`summary`: its answer stands in the place of messages that are left out; see `context.replaced`."""
    trigger: NotRequired[Literal["threshold", "overflow", "request"]]
    """Of a summary: what made it necessary, as in `context.replaced`."""
    afterText: NotRequired[bool]
    """Beside the trigger `overflow`: an answer had begun to come when the request was found too long, so it counts for
    `limits.costMicros`."""
    costAtMost: NotRequired[Money]
    """Of a turn with `limits.costMicros`: the most that this try can cost, where that is known."""


class ModelRetried(TypedDict):
    """A try failed and another will be made after `delayMs` (AH-LIFE-5)."""

    modelRequestId: Id
    tryNumber: Positive
    delayMs: Count
    error: ErrorInfo


class ModelDiscarded(TypedDict):
    """Text that was shown is withdrawn: the items do not count."""

    modelRequestId: Id
    tryNumber: Positive
    itemIds: list[Id]
    cause: str
    """The kind of the error, like `model_gateway`; see errors.md."""


class StepCompleted(TypedDict):
    """The model's answer is whole."""

    step: Positive
    modelRequestId: Id
    stopReason: Literal["stop", "tool_calls", "length", "content_filter", "pause", "other"]
    """`pause`: the provider wants to be asked again, with this answer at the end."""
    rawStopReason: NotRequired[str]
    """As the provider said it, where that is another word."""
    responseModel: NotRequired[str]
    responseId: NotRequired[str]
    parts: NotRequired[dict[str, Any] | Reference]
    """What only the provider understands of the answer, like signed reasoning, in the order it came in: it goes back
    verbatim to the same model, or not at all."""


class Chunk(TypedDict):
    """Text of an item from `offset` (UTF-8 bytes) on; gapless."""

    itemId: Id
    offset: Count
    text: str


class MessageCompleted(TypedDict):
    """The whole text of an item. With `inContext` false it does not count, for the `cause` given."""

    itemId: Id
    text: str | Reference
    inContext: bool
    step: NotRequired[Positive]
    cause: NotRequired[str]
    """Why it is not whole or does not count: `cancelled`, `interrupted`, `handed_over`, `limit_exceeded`,
    `model_failed`, or the kind of an error."""


class ToolRequested(TypedDict):
    """The model asks for a call. `arguments` is its raw JSON text."""

    callId: Id
    providerCallId: str
    tool: str
    arguments: str | Reference
    step: Positive


class ToolStarted(TypedDict):
    """Durable before the effect. `grant` names what authorised it (AH-TOOL-4)."""

    callId: Id
    tool: str
    effect: Literal["read", "write", "execute"]
    summary: str
    grant: Literal["session.tools"]
    """`session.tools`: the list of tools in the session's snapshot."""
    disposition: Literal["allowed"]


class ToolChunk(TypedDict):
    """Newest output of a running tool: at most one a second and 8 KiB; `skippedBytes` were left out before it."""

    callId: Id
    offset: Count
    skippedBytes: Count
    text: str


class ToolCompleted(TypedDict):
    """The one result of a call. `text` is exactly what the model is shown."""

    callId: Id
    tool: str
    outcome: CallOutcome
    text: str | Reference
    images: NotRequired[list[Image]]
    """Shown to the model beside the text."""
    artifact: NotRequired[Reference]
    """The whole output, where the model was shown a part of it."""
    durationMs: NotRequired[Count]
    details: dict[str, Any]
    truncation: NotRequired[dict[str, Any]]
    error: NotRequired[dict[str, Any]]
    originTurnId: NotRequired[Id]


class FileChanged(TypedDict):
    """A file as it was observed before and after a call: sha256, absent where there was none."""

    callId: Id
    path: str
    kind: Literal["created", "modified", "deleted"]
    before: NotRequired[str]
    after: NotRequired[str]
    diff: NotRequired[str | Reference]


class Reaper(TypedDict):
    """Where the server that runs a process has the small process that ends it: who takes the session over asks it."""

    pid: Positive
    startTime: Count
    """In clock ticks since boot: a pid alone may be given to another."""
    socket: str


class ProcessStarted(TypedDict):
    """A background process is about to run: durable before it does. It is the session's: its turn ends without it."""

    processId: Id
    name: NotRequired[Id]
    command: str
    """In one line of at most 200 characters."""
    callId: Id
    lifetimeMs: Positive
    """After which it is stopped."""
    reaper: NotRequired[Reaper]


class ProcessStopRequested(TypedDict):
    """Somebody wants a background process to end, or the session to close, which waits for its end."""

    processId: Id
    by: By
    cause: Literal["client", "session_closed"]


class ProcessExited(TypedDict):
    """Nothing of a background process runs any more, nor of what it started."""

    processId: Id
    why: ExitWhy
    exitCode: NotRequired[int]
    """Absent where a signal ended it, and where nobody saw how it ended."""
    signal: NotRequired[Positive]
    killed: NotRequired[Count]
    """Processes that outlived it and were killed."""
    met: NotRequired[dict[str, int]]
    """Limits of commands that it is known to have run into, with their values."""
    outputBytes: Count
    """Written in all."""
    artifact: NotRequired[Reference]
    """Its output: the newest bytes, where it wrote more than is kept. Absent where there is none."""
    error: NotRequired[dict[str, Any]]
    """Of `not_started`, and of an end that our own fault caused: `{kind, message}`."""
    mayStillRun: NotRequired[list[Count]]
    """Pids that could not be ended: the only exit that is not preceded by proof."""
    originTurnId: Id
    """The turn that started it."""


class LoopDetected(TypedDict):
    """The same calls gave the same results again and again, and the model is told so; once more, and the turn fails at
    the limit `loopRepeats`."""

    period: Positive
    """Steps after which it repeats."""
    repeats: Positive


class UsageRecorded(TypedDict):
    """Counters as the provider reported them for one try, by its own names. Absent stays absent.

    `cost`, or `costReason` where there is none; of older events neither.
    """

    modelRequestId: Id
    tryNumber: Positive
    provider: str
    model: str
    counters: dict[str, int]
    semantics: NotRequired[Semantics]
    cost: NotRequired[Cost]
    costReason: NotRequired[CostReason]
    costAtMost: NotRequired[Money]
    """Of a turn with `limits.costMicros`: the most that it can have cost, if that is known, and the cost is not: beside
    a `costReason`, a report that is `partial`, and counters that cannot be of the answer that came. It counts for the
    limit in the place of `cost`."""
    partial: NotRequired[bool]
    """The answer was cut, and its provider reports while it answers: what is reported may be of a part."""


class Warned(TypedDict):
    """Something the operator should know that ended nothing."""

    code: str
    """`text_repaired`: lone surrogates of an input were replaced. Later versions may add codes."""
    message: str
    details: dict[str, Any]
    originTurnId: NotRequired[Id]


class Fold(TypedDict):
    """The folded lifecycle state after this event: equal builds must agree."""

    version: int
    digest: str


class TurnCompleted(TypedDict):
    """The turn succeeded."""

    text: str | Reference
    usage: Usage
    claims: dict[str, Any]
    """What the model says it did: its final text, by reference."""
    evidence: Evidence
    assurance: dict[str, Any]
    hostTurnId: NotRequired[Id]
    fold: Fold


class TurnFailed(TypedDict):
    """The turn failed. `text` is a fallback text at a limit, else what was said last."""

    error: ErrorInfo
    text: NotRequired[str | Reference]
    usage: Usage
    evidence: Evidence
    assurance: dict[str, Any]
    undelivered: NotRequired[list[Id]]
    hostTurnId: NotRequired[Id]
    forced: NotRequired[bool]
    mayStillRun: NotRequired[list[Any]]
    fold: Fold


class TurnCancelled(TypedDict):
    """The turn was cancelled, and nothing of it runs (`forced`: it could not be proved)."""

    cause: CancelCause
    reason: NotRequired[str]
    """What the caller of `turn/cancel` said."""
    usage: Usage
    evidence: Evidence
    assurance: dict[str, Any]
    undelivered: NotRequired[list[Id]]
    hostTurnId: NotRequired[Id]
    forced: NotRequired[bool]
    mayStillRun: NotRequired[list[Any]]
    fold: Fold


EventType = Literal[
    "session.created",
    "session.resumed",
    "session.updated",
    "session.closed",
    "log.recovered",
    "turn.queued",
    "turn.started",
    "turn.joined",
    "turn.steered",
    "steer.delivered",
    "turn.updated",
    "queue.held",
    "queue.resumed",
    "turn.cancel_requested",
    "context.compact_requested",
    "context.replaced",
    "context.composed",
    "resources.changed",
    "context.kept",
    "context.warning",
    "context.repaired",
    "step.started",
    "model.requested",
    "model.retried",
    "model.discarded",
    "step.completed",
    "message.chunk",
    "message.completed",
    "reasoning.chunk",
    "reasoning.completed",
    "tool.requested",
    "tool.started",
    "tool.chunk",
    "tool.completed",
    "file.changed",
    "process.started",
    "process.stop_requested",
    "process.exited",
    "loop.detected",
    "usage.recorded",
    "warning",
    "turn.completed",
    "turn.failed",
    "turn.cancelled",
]


@dataclass(frozen=True, slots=True)
class EventInfo:
    """A row of the event table. `data`: its `TypedDict`; `lifecycle`: folded by `core.session.evolve`."""

    data: type
    lifecycle: bool = False
    conversation: bool = False
    """Folded into the items and the context: read when a session is opened by a worker."""
    stability: Literal["stable", "experimental"] = "stable"


EVENTS: Mapping[EventType, EventInfo] = {
    "session.created": EventInfo(SessionCreated, lifecycle=True),
    "session.resumed": EventInfo(SessionResumed, lifecycle=True),
    "session.updated": EventInfo(SessionUpdated, lifecycle=True),
    "session.closed": EventInfo(SessionClosed, lifecycle=True),
    "log.recovered": EventInfo(LogRecovered, conversation=True),
    "turn.queued": EventInfo(TurnQueued, lifecycle=True, conversation=True),
    "turn.started": EventInfo(TurnStarted, lifecycle=True, conversation=True),
    "turn.joined": EventInfo(TurnJoined, lifecycle=True, conversation=True),
    "turn.steered": EventInfo(TurnSteered, lifecycle=True, conversation=True),
    "steer.delivered": EventInfo(SteerDelivered, lifecycle=True, conversation=True),
    "turn.updated": EventInfo(TurnUpdated, lifecycle=True, conversation=True),
    "queue.held": EventInfo(QueueHeld, lifecycle=True),
    "queue.resumed": EventInfo(QueueResumed, lifecycle=True),
    "turn.cancel_requested": EventInfo(TurnCancelRequested, lifecycle=True),
    "context.compact_requested": EventInfo(ContextCompactRequested, lifecycle=True),
    "context.replaced": EventInfo(ContextReplaced, lifecycle=True, conversation=True),
    "context.composed": EventInfo(ContextComposed, lifecycle=True, conversation=True),
    "resources.changed": EventInfo(ResourcesChanged, conversation=True),
    "context.kept": EventInfo(ContextKept, lifecycle=True),
    "context.warning": EventInfo(ContextWarning),
    "context.repaired": EventInfo(ContextRepaired, conversation=True),
    "step.started": EventInfo(StepStarted, conversation=True),
    "model.requested": EventInfo(ModelRequested, conversation=True),
    "model.retried": EventInfo(ModelRetried, conversation=True),
    "model.discarded": EventInfo(ModelDiscarded),
    "step.completed": EventInfo(StepCompleted, conversation=True),
    "message.chunk": EventInfo(Chunk, conversation=True),
    "message.completed": EventInfo(MessageCompleted, conversation=True),
    "reasoning.chunk": EventInfo(Chunk, conversation=True),
    "reasoning.completed": EventInfo(MessageCompleted, conversation=True),
    "tool.requested": EventInfo(ToolRequested, conversation=True),
    "tool.started": EventInfo(ToolStarted, conversation=True),
    "tool.chunk": EventInfo(ToolChunk),
    "tool.completed": EventInfo(ToolCompleted, conversation=True),
    "file.changed": EventInfo(FileChanged),
    "process.started": EventInfo(ProcessStarted, lifecycle=True),
    "process.stop_requested": EventInfo(ProcessStopRequested, lifecycle=True),
    "process.exited": EventInfo(ProcessExited, lifecycle=True),
    "loop.detected": EventInfo(LoopDetected, conversation=True),
    "usage.recorded": EventInfo(UsageRecorded, conversation=True),
    "warning": EventInfo(Warned),
    "turn.completed": EventInfo(TurnCompleted, lifecycle=True, conversation=True),
    "turn.failed": EventInfo(TurnFailed, lifecycle=True, conversation=True),
    "turn.cancelled": EventInfo(TurnCancelled, lifecycle=True, conversation=True),
}

assert set(EVENTS) == set(get_args(EventType))

CONVERSATION_TYPES: tuple[str, ...] = tuple(name for name, info in EVENTS.items() if info.conversation)
LIFECYCLE_TYPES: frozenset[str] = frozenset(name for name, info in EVENTS.items() if info.lifecycle)
TERMINAL_TYPES: tuple[str, ...] = ("turn.completed", "turn.failed", "turn.cancelled")
