"""The life of a session, without I/O: what happened (`evolve`), and how decided events get their numbers.

Rule 1: nothing here waits, reads a clock, or draws a random number; the caller passes such values in.
Rule 2: state changes only in `evolve`, so replaying a log rebuilds exactly the state that wrote it.
Rule 3: a type that is not in the tables only moves the head: older builds read newer logs.

    queued -> running -> completed | failed | cancelled          (a joined turn takes its host's outcome)
    queued -> cancelled
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hames.core import processes
from hames.core.commands import Draft
from hames.core.records import record, replaced
from hames.core.state import FILES_NAMED, FILES_NAMED_CHARS, FOLD_VERSION, State, Turn
from hames.core.usage import usage_total

TERMINAL_EVENTS: Mapping[str, str] = {
    "turn.completed": "completed",
    "turn.failed": "failed",
    "turn.cancelled": "cancelled",
}


@record
class Event:
    """A numbered event, as `evolve` folds it."""

    seq: int
    time: str
    type: str
    data: Mapping[str, Any]
    turn_id: str | None = None
    attempt: int | None = None

    @staticmethod
    def of(value: Mapping[str, Any]) -> Event:
        """From the published form."""
        return Event(
            value["seq"], value["time"], value["type"], value["data"], value.get("turnId"), value.get("attempt")
        )


def number(state: State, drafts: Sequence[Draft], time: str) -> tuple[list[Event], State]:
    """Give `drafts` their numbers after `state`, and fold them; terminals get usage, evidence and the fold."""
    events: list[Event] = []
    for draft in drafts:
        data = draft.data
        if draft.type in TERMINAL_EVENTS and draft.turn_id is not None:
            turn = state.turns[draft.turn_id]
            data = {**data, "usage": usage_total(turn.usage), "evidence": _evidence(turn)}
            if draft.type == "turn.completed":
                data["claims"] = {"text": "turn.completed.text"}
        event = Event(state.seq + 1, time, draft.type, data, draft.turn_id, draft.attempt)
        state = evolve(state, event)
        if draft.type in TERMINAL_EVENTS:
            folded = {**data, "fold": {"version": FOLD_VERSION, "digest": state.digest()}}
            event = Event(event.seq, time, draft.type, folded, draft.turn_id, draft.attempt)
        events.append(event)
    return events, state


def _evidence(turn: Turn) -> dict[str, Any]:
    return {
        "calls": dict(turn.calls),
        "files": list(turn.files),
        "filesChanged": turn.files_total,
        "complete": turn.files_total == len(turn.files),
    }


def evolve(state: State, event: Event) -> State:
    """The state after `event`. Types that are not of the lifecycle only move the head."""
    if event.type in TERMINAL_EVENTS:
        return _ended(state, event)
    change = _CHANGES.get(event.type)
    if change is None:
        return state.at(event.seq)
    return replaced(change(state, event), seq=event.seq, updated_at=event.time, ended=None)


def fold(session_id: str, events: Iterable[Event]) -> State:
    """The state that `events`, a whole log, lead to."""
    state = State(session_id)
    for event in events:
        state = evolve(state, event)
    return state


def _ended(state: State, event: Event) -> State:
    turn_id = event.turn_id or ""
    status = TERMINAL_EVENTS[event.type]
    outcome = {"status": status}
    for member in ("text", "error", "cause", "forced", "undelivered"):
        if member in event.data:
            outcome[member] = event.data[member]
    turn = replaced(
        state.turns[turn_id],
        status=status,  # type: ignore[arg-type]
        ended_at=event.time,
        end_seq=event.seq,
        outcome=outcome,
    )
    turns = {key: value for key, value in state.turns.items() if key != turn_id}
    queue = tuple(waiting for waiting in state.queue if waiting != turn_id)
    was_running = state.running == turn_id
    return replaced(
        state,
        seq=event.seq,
        updated_at=event.time,
        turns=turns,
        queue=queue,
        hold=state.hold if queue else None,
        running=None if was_running else state.running,
        steers=() if was_running else state.steers,
        ended=turn,
    )


def _created(state: State, event: Event) -> State:
    return replaced(
        state,
        status="open",
        title=event.data.get("title"),
        created_at=event.time,
        snapshot_digest=event.data["snapshotDigest"],
    )


def _updated_session(state: State, event: Event) -> State:
    data = event.data
    return replaced(
        state,
        title=data.get("title", state.title),
        model=data.get("model", state.model),
        model_digest=data.get("snapshotDigest", state.model_digest),
    )


def _queued(state: State, event: Event) -> State:
    data = event.data
    turn = Turn(
        turn_id=event.turn_id or "",
        n=state.count + 1,
        delivery=data["delivery"],
        by=data["by"],
        digest=data["contentDigest"],
        limits=data["limits"],
        queued_at=event.time,
        queued_seq=event.seq,
        key=data.get("idempotencyKey"),
    )
    return replaced(_with(state, turn), queue=(*state.queue, turn.turn_id), count=state.count + 1)


def _started(state: State, event: Event) -> State:
    turn = state.turns[event.turn_id or ""]
    turn = replaced(
        turn,
        status="running",
        attempt=event.data["attempt"],
        fence=event.data["fence"],
        started_at=turn.started_at or event.time,
        deadline_at=event.data["deadlineAt"],
    )
    queue = tuple(waiting for waiting in state.queue if waiting != turn.turn_id)
    return replaced(_with(state, turn), running=turn.turn_id, queue=queue, hold=state.hold if queue else None)


def _joined(state: State, event: Event) -> State:
    turn = replaced(
        state.turns[event.turn_id or ""],
        status="running",
        host=event.data["hostTurnId"],
        started_at=event.time,
    )
    return replaced(_with(state, turn), queue=tuple(w for w in state.queue if w != turn.turn_id))


def _updated(state: State, event: Event) -> State:
    turn = state.turns[event.turn_id or ""]
    return _with(state, replaced(turn, delivery=event.data.get("delivery", turn.delivery)))


def _cancel_requested(state: State, event: Event) -> State:
    data = event.data
    cancel: dict[str, Any] = {"by": data["by"], "at": event.time, "cause": data["cause"]}
    if "reason" in data:
        cancel["reason"] = data["reason"]
    return _with(state, replaced(state.turns[event.turn_id or ""], cancel=cancel))


def _delivered(state: State, event: Event) -> State:
    given = set(event.data["steerIds"])
    return replaced(state, steers=tuple(steer for steer in state.steers if steer not in given))


def _asked_model(state: State, event: Event) -> State:
    turn = state.turns[event.turn_id or ""]
    return replaced(_with(state, replaced(turn, usage=turn.usage.asked())), usage=state.usage.asked())


def _used(state: State, event: Event) -> State:
    turn = state.turns[event.turn_id or ""]
    return replaced(_with(state, replaced(turn, usage=turn.usage.add(event.data))), usage=state.usage.add(event.data))


def _called(state: State, event: Event) -> State:
    turn = state.turns.get(event.turn_id or "")
    if turn is None:
        return state
    outcome = event.data["outcome"]
    return _with(state, replaced(turn, calls={**turn.calls, outcome: turn.calls.get(outcome, 0) + 1}))


def _changed(state: State, event: Event) -> State:
    turn = state.turns[event.turn_id or ""]
    path = event.data["path"]
    if path in turn.files:
        return state
    has_room = len(turn.files) < FILES_NAMED and sum(map(len, turn.files)) + len(path) <= FILES_NAMED_CHARS
    named = (*turn.files, path) if has_room else turn.files
    return _with(state, replaced(turn, files=named, files_total=turn.files_total + 1))


def _process_started(state: State, event: Event) -> State:
    turn_id = event.turn_id or ""
    return replaced(state, processes=processes.started(state.processes, event.data, turn_id=turn_id, time=event.time))


def _process_stopping(state: State, event: Event) -> State:
    return replaced(state, processes=processes.stopping(state.processes, event.data, time=event.time))


def _process_exited(state: State, event: Event) -> State:
    return replaced(state, processes=processes.exited(state.processes, event.data, time=event.time))


def _with(state: State, turn: Turn) -> State:
    return replaced(state, turns={**state.turns, turn.turn_id: turn})


_CHANGES: Mapping[str, Callable[[State, Event], State]] = {
    "session.created": _created,
    "session.resumed": lambda state, _: replaced(state, status="open"),
    "session.updated": _updated_session,
    "session.closed": lambda state, _: replaced(state, status="closed"),
    "turn.queued": _queued,
    "turn.started": _started,
    "turn.joined": _joined,
    "turn.updated": _updated,
    "turn.cancel_requested": _cancel_requested,
    "turn.steered": lambda state, event: replaced(state, steers=(*state.steers, event.data["steerId"])),
    "steer.delivered": _delivered,
    "queue.held": lambda state, event: replaced(
        state, hold={"by": event.data["by"], "since": event.time, "cause": event.data["cause"]}
    ),
    "queue.resumed": lambda state, _: replaced(state, hold=None),
    "context.compact_requested": lambda state, event: replaced(state, compact=event.data["by"]),
    "context.composed": lambda state, event: replaced(state, composed_at=event.seq),
    "context.kept": lambda state, _: replaced(state, compact=None),
    "context.replaced": lambda state, event: replaced(state, replaced_at=event.seq, compact=None),
    "model.requested": _asked_model,
    "usage.recorded": _used,
    "tool.completed": _called,
    "file.changed": _changed,
    "process.started": _process_started,
    "process.stop_requested": _process_stopping,
    "process.exited": _process_exited,
}

LIFECYCLE_EVENTS: frozenset[str] = frozenset({*_CHANGES, *TERMINAL_EVENTS})
"""Types that change more of a state than its head."""


def key_record(state: State, event: Event) -> tuple[str, KeyRecordParts] | None:
    """The idempotency key that `event` used up, with what it stands for; its scope is the store for a creation."""
    key = event.data.get("idempotencyKey")
    if key is None:
        return None
    return key, KeyRecordParts(event.data["contentDigest"], event.turn_id, event.data.get("steerId"))


@record
class KeyRecordParts:
    """The members of a `KeyRecord` that an event holds."""

    digest: str
    turn_id: str | None
    steer_id: str | None


def touched(state: State, event: Event) -> Turn | None:
    """The turn that `event`, the latest folded into `state`, changed, as it now stands: for the store's row."""
    if event.turn_id is None:
        return None
    if state.ended is not None and state.ended.turn_id == event.turn_id:
        return state.ended
    return state.turns.get(event.turn_id)
