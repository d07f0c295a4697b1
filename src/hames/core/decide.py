"""What may happen to a session, without I/O: `decide` gives the events that follow from a command, or refuses.

Rule 1: a refused command changes nothing. Rule 2: every admitted turn gets exactly one terminal event, and
nothing of it after that (invariant 3). Rule 3: an attempt command counts only under the lease's fence
(invariant 4). Rule 4: the log's order decides between cancel and success.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, assert_never

from hames.core.commands import (
    AttemptCommand,
    Boundary,
    By,
    CancelTurn,
    ClientCommand,
    CloseSession,
    Command,
    CompactContext,
    CreateSession,
    CutLog,
    Decision,
    Draft,
    Ending,
    EndTurn,
    KeyRecord,
    Known,
    OpenSession,
    ProcessCommand,
    Record,
    Reply,
    ResumeQueue,
    StartTurn,
    SteerTurn,
    SubmitTurn,
    UpdateSession,
    UpdateTurn,
    put,
)
from hames.core.processes import decide_process, is_closing, stop_all
from hames.core.state import State, Turn
from hames.core.times import rfc3339
from hames.protocol.errors import Refused

NOTHING_KNOWN = Known()


def decide(state: State, command: Command, known: Known = NOTHING_KNOWN) -> Decision:
    """The events that follow from `command`, or why it may not be.

    Raises:
        Refused: with a published kind; nothing follows then.
    """
    if isinstance(command, StartTurn | Record | Boundary | EndTurn):
        return _decide_attempt(state, command, known)
    if state.status == "none" and not isinstance(command, CreateSession):
        raise Refused("session_not_found", sessionId=state.session_id)
    if isinstance(command, ProcessCommand):
        return decide_process(state, command, known)
    return _decide_client(state, command, known)


def _decide_client(state: State, command: ClientCommand, known: Known) -> Decision:
    match command:
        case CreateSession():
            return _create(state, command, known)
        case SubmitTurn():
            return _submit(state, command, known)
        case UpdateSession():
            data = {"by": command.by}
            put(data, title=command.title, model=command.model, snapshotDigest=command.snapshot_digest)
            return Decision((Draft("session.updated", data),))
        case CloseSession():
            return _close(state, command)
        case OpenSession():
            return Decision(() if state.status == "open" else (Draft("session.resumed", {"by": command.by}),))
        case UpdateTurn():
            return _update(command, known)
        case SteerTurn():
            return _steer(state, command, known)
        case CancelTurn():
            return _cancel(state, command, known)
        case ResumeQueue():
            return Decision(_lift(state, command.by))
        case CompactContext():
            _open(state)
            return Decision((Draft("context.compact_requested", {"by": command.by}),) if state.compact is None else ())
        case CutLog():
            cut = {"action": "cut", "reason": "damaged", "openCalls": [], "cut": command.cut}
            # What waits may have run behind the cut: somebody is to say that it may run (again).
            held = bool(state.queue) and state.hold is None
            by = {"principal": "store", "client": "hames repair"}
            queue = (Draft("queue.held", {"by": by, "cause": "log_cut"}),) if held else ()
            return Decision((Draft("log.recovered", cut), *queue))
        case _:
            assert_never(command)


def _decide_attempt(state: State, command: AttemptCommand, known: Known) -> Decision:
    if command.fence != known.fence:
        raise Refused("lease_lost", "Another process runs this session now.", fence=command.fence, current=known.fence)
    match command:
        case StartTurn():
            return _start(state, command)
        case Record():
            turn = _running(state, command.turn_id, command.fence)
            return Decision(_of_attempt(turn, command.drafts), Reply(turn_id=turn.turn_id))
        case Boundary():
            return _boundary(state, command)
        case EndTurn():
            return _end(state, command)
        case _:
            assert_never(command)


def _create(state: State, command: CreateSession, known: Known) -> Decision:
    if known.key is not None:
        _same_content(known.key, command.digest, command.key)
        return Decision(
            reply=Reply(turn_id=known.key.turn_id, session_id=known.key.session_id, seq=known.key.seq, repeated=True)
        )
    if command.only_repeat:
        return Decision()
    if state.status != "none":
        raise Refused("session_exists", sessionId=state.session_id)
    data: dict[str, Any] = {
        "snapshot": command.snapshot,
        "snapshotDigest": command.snapshot_digest,
        "keyedDigest": command.keyed_digest,
        "by": command.by,
        "contentDigest": command.digest,
    }
    put(data, title=command.title, metadata=command.metadata, idempotencyKey=command.key)
    drafts = (Draft("session.created", data),)
    if command.turn is None:
        return Decision(drafts)
    return Decision((*drafts, *_admit(command.turn, 0)), Reply(turn_id=command.turn.turn_id))


def _submit(state: State, command: SubmitTurn, known: Known) -> Decision:
    if known.key is not None:
        _same_content(known.key, command.digest, command.key)
        return Decision(reply=Reply(turn_id=known.key.turn_id, seq=known.key.seq, repeated=True))
    if command.only_repeat:
        return Decision()
    if known.turn is not None:
        raise Refused("turn_exists", turnId=command.turn_id)
    _open(state)
    busy = state.running is not None or bool(state.queue)
    if command.delivery == "reject" and busy:
        raise Refused("session_busy", sessionId=state.session_id, runningTurnId=state.running)
    if len(state.queue) >= command.queue_limit:
        raise Refused("queue_full", length=len(state.queue), limit=command.queue_limit)
    lifted = _lift(state, command.by) if command.resume_queue else ()
    return Decision((*lifted, *_admit(command, len(state.queue))), Reply(turn_id=command.turn_id))


def _admit(command: SubmitTurn, position: int) -> tuple[Draft, ...]:
    data: dict[str, Any] = {
        "input": list(command.input),
        "delivery": "join" if command.delivery == "join" else "queue",
        "position": position,
        "limits": command.limits,
        "by": command.by,
        "contentDigest": command.digest,
    }
    put(data, idempotencyKey=command.key, instructions=command.instructions, meta=command.meta)
    return (Draft("turn.queued", data, command.turn_id), *_repaired(command.repaired, command.turn_id))


def _repaired(repaired: bool, turn_id: str) -> tuple[Draft, ...]:
    if not repaired:
        return ()
    message = "The input held a surrogate without its partner; U+FFFD stands in its place."
    return (Draft("warning", {"code": "text_repaired", "message": message, "details": {}}, turn_id),)


def _update(command: UpdateTurn, known: Known) -> Decision:
    turn = _find(known, command.turn_id)
    if turn.status != "queued":
        raise Refused("turn_started", turnId=turn.turn_id, status=turn.status)
    data: dict[str, Any] = {"by": command.by}
    put(data, input=None if command.input is None else list(command.input), delivery=command.delivery)
    if len(data) == 1:
        return Decision(reply=Reply(turn_id=turn.turn_id))
    return Decision((Draft("turn.updated", data, turn.turn_id),), Reply(turn_id=turn.turn_id))


def _steer(state: State, command: SteerTurn, known: Known) -> Decision:
    if known.key is not None:
        _same_content(known.key, command.digest, command.key, steer=True)
        reply = Reply(turn_id=known.key.turn_id, steer_id=known.key.steer_id, seq=known.key.seq, repeated=True)
        return Decision(reply=reply)
    turn = state.active
    if turn is None or turn.cancel is not None:
        raise Refused("no_active_turn", sessionId=state.session_id)
    if command.expected is not None and command.expected != turn.turn_id:
        raise Refused("turn_mismatch", expected=command.expected, active=turn.turn_id)
    data: dict[str, Any] = {
        "steerId": command.steer_id,
        "input": list(command.input),
        "by": command.by,
        "contentDigest": command.digest,
    }
    put(data, idempotencyKey=command.key)
    draft = Draft("turn.steered", data, turn.turn_id, turn.attempt or None)
    drafts = (draft, *_repaired(command.repaired, turn.turn_id))
    return Decision(drafts, Reply(turn_id=turn.turn_id, steer_id=command.steer_id))


def _cancel(state: State, command: CancelTurn, known: Known) -> Decision:
    turn = state.active if command.turn_id is None else _find(known, command.turn_id)
    if turn is None:
        raise Refused("no_active_turn", sessionId=state.session_id)
    reply = Reply(turn_id=turn.turn_id)
    if turn.ended:
        return Decision(reply=reply)
    if turn.host is not None:
        raise Refused("turn_joined", turnId=turn.turn_id, hostTurnId=turn.host)
    asked = _cancel_asked(turn, command.by, command.cause, command.queue, command.reason)
    if turn.status == "queued":
        return Decision((asked, _cancelled(turn, command.cause, command.reason)), reply)
    others: tuple[Draft, ...] = ()
    if command.queue == "drop":
        others = _drop(state, command.by, command.cause)
    elif command.queue == "continue":
        others = _lift(state, command.by)
    elif turn.cancel is None and state.queue and state.hold is None:
        others = (Draft("queue.held", {"by": command.by, "cause": "turn_cancelled"}),)
    return Decision((*(() if turn.cancel is not None else (asked,)), *others), reply)


def _close(state: State, command: CloseSession) -> Decision:
    if state.status == "closed":
        return Decision()
    drafts = (*_drop(state, command.by, "session_closed"), *stop_all(state, command.by))
    turn = state.active
    if turn is None:
        closed = () if state.open_processes() else (Draft("session.closed", {"by": command.by}),)
        return Decision((*drafts, *closed))
    if turn.cancel is None:
        drafts = (*drafts, _cancel_asked(turn, command.by, "session_closed", "drop", None))
    return Decision(drafts, Reply(turn_id=turn.turn_id))


def _start(state: State, command: StartTurn) -> Decision:
    turn = state.active
    data: dict[str, Any] = {
        "fence": command.fence,
        "worker": command.worker,
        "snapshotDigest": state.effective_digest,
    }
    if turn is None:
        if state.status != "open" or state.hold is not None or not state.queue:
            return Decision()
        turn = state.turns[state.queue[0]]
        wall_ms = int(turn.limits.get("wallTimeMs", command.wall_time_ms))
        data["deadlineAt"] = rfc3339(command.now_ms + wall_ms)
    else:
        if turn.fence == command.fence and command.previous is None:
            raise Refused("internal", f"turn {turn.turn_id} runs under this fence already")
        if turn.cancel is not None:
            # Nothing of a turn begins behind a cancel that is durable: who recovers it settles it.
            return Decision(reply=Reply(turn_id=turn.turn_id))
        data["previous"] = {"attempt": turn.attempt, "reason": command.previous or "owner_lost"}
        data["deadlineAt"] = turn.deadline_at or rfc3339(command.now_ms + command.wall_time_ms)
    data["attempt"] = turn.attempt + 1
    draft = Draft("turn.started", data, turn.turn_id, turn.attempt + 1)
    return Decision((*_of_attempt(turn, command.drafts), draft), Reply(turn_id=turn.turn_id))


def _boundary(state: State, command: Boundary) -> Decision:
    host = _running(state, command.turn_id, command.fence)
    if host.cancel is not None:
        return Decision(reply=Reply(turn_id=host.turn_id))
    drafts: list[Draft] = []
    joined: list[str] = []
    for turn_id in state.queue:
        turn = state.turns[turn_id]
        if turn.delivery == "join" and turn.by.get("principal") == host.by.get("principal"):
            data = {"hostTurnId": host.turn_id, "step": command.step}
            drafts.append(Draft("turn.joined", data, turn_id))
            joined.append(turn_id)
    if state.steers:
        steers = {"steerIds": list(state.steers), "step": command.step}
        drafts.append(Draft("steer.delivered", steers, host.turn_id, host.attempt))
    reply = Reply(turn_id=host.turn_id, joined=tuple(joined), steered=state.steers)
    return Decision(tuple(drafts), reply)


def _end(state: State, command: EndTurn) -> Decision:
    turn = _running(state, command.turn_id, None if command.recovering else command.fence)
    drafts = _of_attempt(turn, command.drafts)
    ending = command.ending
    if ending.status == "completed" and state.steers and turn.cancel is None:
        return Decision(drafts, Reply(turn_id=turn.turn_id))
    if turn.cancel is None and ending.status == "cancelled":
        raise Refused("internal", f"turn {turn.turn_id} has no durable cancel")
    if turn.cancel is not None:
        # The log's order decides: a cancel that is durable before the terminal beats success and failure.
        ending = replace(ending, status="cancelled", error=None)
    terminals = [
        _terminal(other, _host_ending(ending, turn.turn_id), {}, command.assurance, turn.turn_id)
        for other in state.joined()
    ]
    extra: dict[str, Any] = {"undelivered": list(state.steers)} if state.steers else {}
    terminals.append(_terminal(turn, ending, extra, command.assurance, None))
    return Decision((*drafts, *terminals), Reply(turn_id=turn.turn_id, ended=True))


def _host_ending(ending: Ending, host: str) -> Ending:
    if ending.status != "failed":
        return replace(ending, forced=False, may_still_run=())
    message = f"Turn {host}, which this turn had joined, failed."
    error = {"kind": "host_failed", "message": message, "retryable": False, "details": {"hostTurnId": host}}
    return Ending("failed", ending.text, error)


def _terminal(
    turn: Turn, ending: Ending, extra: Mapping[str, Any], assurance: Mapping[str, Any], host: str | None
) -> Draft:
    data: dict[str, Any] = {"assurance": assurance, **extra}
    if ending.status == "completed":
        data["text"] = ending.text or ""
    elif ending.status == "failed":
        data["error"] = ending.error
        put(data, text=ending.text)
    else:
        cancel = turn.cancel or {}
        data["cause"] = "host" if host is not None else cancel.get("cause", "client")
        put(data, reason=cancel.get("reason"))
    if ending.forced:
        data["forced"] = True
        data["mayStillRun"] = list(ending.may_still_run)
    put(data, hostTurnId=host)
    return Draft(f"turn.{ending.status}", data, turn.turn_id, turn.attempt or None)


def _cancel_asked(turn: Turn, by: By, cause: str, queue: str, reason: str | None) -> Draft:
    data: dict[str, Any] = {"by": by, "cause": cause, "queue": queue}
    put(data, reason=reason)
    return Draft("turn.cancel_requested", data, turn.turn_id, turn.attempt or None)


def _cancelled(turn: Turn, cause: str, reason: str | None) -> Draft:
    data: dict[str, Any] = {"cause": cause, "assurance": {}}
    put(data, reason=reason)
    return Draft("turn.cancelled", data, turn.turn_id)


def _drop(state: State, by: By, cause: str) -> tuple[Draft, ...]:
    """Cancel every queued turn."""
    drafts: list[Draft] = []
    for turn_id in state.queue:
        turn = state.turns[turn_id]
        drafts.append(_cancel_asked(turn, by, cause, "drop", None))
        drafts.append(_cancelled(turn, cause, None))
    return tuple(drafts)


def _lift(state: State, by: By) -> tuple[Draft, ...]:
    return () if state.hold is None else (Draft("queue.resumed", {"by": by}),)


def _of_attempt(turn: Turn, drafts: Iterable[Draft]) -> tuple[Draft, ...]:
    return tuple(Draft(draft.type, draft.data, turn.turn_id, turn.attempt) for draft in drafts)


def _running(state: State, turn_id: str, fence: int | None) -> Turn:
    turn = state.active
    if turn is None or turn.turn_id != turn_id or (fence is not None and turn.fence != fence):
        raise Refused("lease_lost", f"This attempt of turn {turn_id} is over.", turnId=turn_id)
    return turn


def _find(known: Known, turn_id: str) -> Turn:
    if known.turn is None:
        raise Refused("turn_not_found", turnId=turn_id)
    return known.turn


def _open(state: State) -> None:
    closing = state.active is not None and (state.active.cancel or {}).get("cause") == "session_closed"
    if state.status != "open" or closing or is_closing(state):
        raise Refused("session_closed", sessionId=state.session_id)


def _same_content(before: KeyRecord, digest: str, key: str | None, *, steer: bool = False) -> None:
    # A submit and a steer share their keys, and may have equal params without being the same request.
    if before.digest != digest or (before.steer_id is not None) != steer:
        raise Refused("idempotency_conflict", idempotencyKey=key)
