"""What may be asked of a session: client commands (decided against the head by any process) and attempt
commands (refused unless their fence is the lease's). Of those for background processes, only a stop is a client's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from hames.core.records import record
from hames.core.state import Turn

By = Mapping[str, Any]


@record
class Draft:
    """An event that is decided but has no number yet."""

    type: str
    data: Mapping[str, Any]
    turn_id: str | None = None
    attempt: int | None = None


# --- client commands ----------------------------------------------------------------------------------------


@record
class SubmitTurn:
    """Admit a turn. `digest` is over the canonical content, `key` the idempotency key. `repaired`: a lone surrogate
    in the request was replaced. `only_repeat`: answer what the key was used for, or nothing."""

    turn_id: str
    input: tuple[Mapping[str, Any], ...]
    digest: str
    by: By
    delivery: Literal["queue", "join", "reject"] = "queue"
    key: str | None = None
    resume_queue: bool = False
    limits: Mapping[str, Any] = field(default_factory=dict)
    instructions: str | None = None
    meta: Mapping[str, Any] | None = None
    queue_limit: int = 100
    repaired: bool = False
    only_repeat: bool = False


@record
class CreateSession:
    """Make the session, and admit a first turn in the same commit. `key` is unique in the store. `only_repeat`: as
    in `SubmitTurn`."""

    snapshot: Mapping[str, Any]
    snapshot_digest: str
    keyed_digest: str
    digest: str
    by: By
    key: str | None = None
    title: str | None = None
    metadata: Mapping[str, Any] | None = None
    turn: SubmitTurn | None = None
    only_repeat: bool = False


@record
class UpdateSession:
    """Change the title, or the model: `model` is its route, `snapshot_digest` that of the snapshot with it."""

    title: str | None
    by: By
    model: Mapping[str, Any] | None = None
    snapshot_digest: str | None = None


@record
class CloseSession:
    """Cancel what runs and what waits; closed once nothing runs."""

    by: By


@record
class OpenSession:
    """Open a closed session; nothing on an open one."""

    by: By


@record
class CompactContext:
    """Have the context made shorter with the next model request."""

    by: By


@record
class CutLog:
    """Say what a repair of the store could not keep of the log: `cut`, as in `log.recovered`."""

    cut: Mapping[str, Any]


@record
class UpdateTurn:
    """Change a queued turn, never its place."""

    turn_id: str
    by: By
    input: tuple[Mapping[str, Any], ...] | None = None
    delivery: Literal["queue", "join"] | None = None


@record
class SteerTurn:
    """Speak to the running turn, if it is `expected`."""

    steer_id: str
    input: tuple[Mapping[str, Any], ...]
    digest: str
    by: By
    expected: str | None = None
    key: str | None = None
    repaired: bool = False


@record
class CancelTurn:
    """Stop `turn_id`, or the running turn. `queue` says what those behind it do."""

    by: By
    turn_id: str | None = None
    queue: Literal["hold", "continue", "drop"] = "hold"
    reason: str | None = None
    cause: Literal["client", "disconnect", "shutdown"] = "client"


@record
class ResumeQueue:
    """Lift a hold; nothing without one."""

    by: By


# --- attempt commands ---------------------------------------------------------------------------------------


@record
class StartTurn:
    """Start the turn at the head of the queue, or go on with the one whose attempt is gone (`previous`: why).

    The deadline is fixed at the first start: `wall_time_ms` after `now_ms`, milliseconds since 1970. `drafts`
    are what the attempt before left to be said; they stand before the start.
    """

    fence: int
    worker: Mapping[str, Any]
    now_ms: int
    wall_time_ms: int
    previous: str | None = None
    drafts: tuple[Draft, ...] = ()


@record
class Record:
    """Facts of an attempt that leave the lifecycle as it is."""

    fence: int
    turn_id: str
    drafts: tuple[Draft, ...]


@record
class Boundary:
    """Between two steps: let in joins and steers. `step` is the one about to begin."""

    fence: int
    turn_id: str
    step: int


@record
class Ending:
    """How an attempt wants its turn to end. A durable cancel beats it; a pending steer puts off `completed`."""

    status: Literal["completed", "failed", "cancelled"]
    text: str | None = None
    error: Mapping[str, Any] | None = None
    forced: bool = False
    may_still_run: tuple[Any, ...] = ()


@record
class EndTurn:
    """Record `drafts` (the last facts) and the terminal in one commit.

    `assurance` is stated in the terminal (AH-DIAG-2). `recovering`: the attempt that ran it is gone, and the
    holder of the lease settles it without an attempt of its own.
    """

    fence: int
    turn_id: str
    ending: Ending
    drafts: tuple[Draft, ...] = ()
    assurance: Mapping[str, Any] = field(default_factory=dict)
    recovering: bool = False


# --- background processes -----------------------------------------------------------------------------------


@record
class StartProcess:
    """A call of a running turn starts a background process: `data`, as in `process.started`."""

    fence: int
    turn_id: str
    process_id: str
    data: Mapping[str, Any]


@record
class StopProcess:
    """A client wants a background process to end; nothing on one that has ended, or is being stopped."""

    process_id: str
    by: By


@record
class ExitProcess:
    """Nothing of a background process runs any more: `data`, as in `process.exited`. Nothing on one that has ended."""

    fence: int
    process_id: str
    data: Mapping[str, Any]


ClientCommand = (
    CreateSession
    | SubmitTurn
    | UpdateSession
    | CloseSession
    | OpenSession
    | UpdateTurn
    | SteerTurn
    | CancelTurn
    | ResumeQueue
    | CompactContext
    | CutLog
)
AttemptCommand = StartTurn | Record | Boundary | EndTurn
ProcessCommand = StartProcess | StopProcess | ExitProcess
Command = ClientCommand | AttemptCommand | ProcessCommand


@record
class KeyRecord:
    """What an idempotency key was used for: the content's digest, and where the answer stands in the log."""

    digest: str
    session_id: str
    seq: int
    turn_id: str | None = None
    steer_id: str | None = None


@record
class Known:
    """What the store knows beyond the state, read in the same transaction.

    `turn`: the turn that the command names, open or ended. `key`: the record of the command's key. `fence`:
    that of the lease which the asking process holds; -1, which no command is made under, where it holds none.
    """

    turn: Turn | None = None
    key: KeyRecord | None = None
    fence: int = 0


@record
class Reply:
    """What the caller is told beside the state: which turn, which steer, and where in the log it stands.

    `seq` is None for 'at the new head'. `repeated`: an earlier equal command was answered again.
    `ended`: the terminal was written (`EndTurn`). `joined`: turns that entered at a boundary.
    """

    turn_id: str | None = None
    steer_id: str | None = None
    session_id: str | None = None
    seq: int | None = None
    repeated: bool = False
    ended: bool = False
    joined: tuple[str, ...] = ()
    steered: tuple[str, ...] = ()


@record
class Decision:
    """The events that follow from a command, in order, and the answer."""

    drafts: tuple[Draft, ...] = ()
    reply: Reply = Reply()


def named_turn(command: Command) -> str | None:
    """The turn id whose record `decide` needs as `Known.turn`."""
    match command:
        case SubmitTurn() | UpdateTurn() | CancelTurn() | Record() | Boundary() | EndTurn():
            return command.turn_id
        case CreateSession(turn=SubmitTurn() as first):
            return first.turn_id
        case _:
            return None


def named_key(command: Command) -> tuple[str, str] | None:
    """The idempotency key that `decide` needs as `Known.key`, with its scope: `store` or `session`."""
    match command:
        case CreateSession(key=str() as key):
            return "store", key
        case SubmitTurn(key=str() as key) | SteerTurn(key=str() as key):
            return "session", key
        case _:
            return None


def fence_of(command: Command) -> int | None:
    """The fence an attempt command was made under; None for a client command."""
    match command:
        case StartTurn() | Record() | Boundary() | EndTurn() | StartProcess() | ExitProcess():
            return command.fence
        case _:
            return None


def put(data: dict[str, Any], **optional: Any) -> None:
    """Add the members that are there: an absent member is absent on the wire, never null."""
    data.update({name: value for name, value in optional.items() if value is not None})
