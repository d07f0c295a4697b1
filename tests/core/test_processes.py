"""The life of a background process in the log, and what a close has to do with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ledger import Ledger
from hames.core.commands import (
    CancelTurn,
    CloseSession,
    CreateSession,
    Ending,
    EndTurn,
    ExitProcess,
    OpenSession,
    StartProcess,
    StartTurn,
    StopProcess,
    SubmitTurn,
    fence_of,
    named_key,
    named_turn,
)
from hames.core.processes import process_view
from hames.core.session import Event, evolve
from hames.core.state import ENDED_PROCESSES, State
from hames.protocol.errors import Refused

BY = {"principal": "ann"}
SLOTS = ({"type": "text", "text": "Work."},)
DATA = {"command": "sleep 1", "callId": "c1", "lifetimeMs": 1000}
EXIT = {"why": "exited", "exitCode": 0, "outputBytes": 3}


def running() -> Ledger:
    ledger = Ledger()
    ledger.run(CreateSession({}, "snapshot", "keyed", "d", BY, turn=SubmitTurn("t1", SLOTS, "d", BY)))
    ledger.run(StartTurn(ledger.claim(), {"pid": 1}, 1_000, 60_000))
    return ledger


def start(ledger: Ledger, process_id: str = "p1", **more: Any) -> list[Event]:
    return ledger.run(StartProcess(ledger.fence, "t1", process_id, {**DATA, **more}))[1]


def leave(ledger: Ledger, process_id: str = "p1", **more: Any) -> list[Event]:
    return ledger.run(ExitProcess(ledger.fence, process_id, {**EXIT, **more}))[1]


def refusal(ledger: Ledger, command: Any) -> str:
    before = ledger.state
    with pytest.raises(Refused) as refused:
        ledger.run(command)
    assert ledger.state == before
    return refused.value.kind


def test_a_process_is_of_its_turn_when_it_starts_and_of_the_session_when_it_ends() -> None:
    ledger = running()

    (started,) = start(ledger, name="web", reaper={"pid": 1, "startTime": 2, "socket": "/s"})
    ledger.run(EndTurn(ledger.fence, "t1", Ending("completed", "Done.")))
    (exited,) = leave(ledger)

    assert (started.turn_id, started.attempt, started.data["processId"]) == ("t1", 1, "p1")
    assert (exited.turn_id, exited.attempt, exited.data["originTurnId"]) == (None, None, "t1")
    process = ledger.state.processes["p1"]
    assert (process.name, process.turn_id, process.call_id) == ("web", "t1", "c1")
    assert process.reaper == {"pid": 1, "startTime": 2, "socket": "/s"}
    assert process.exit == EXIT
    assert process.ended_at == exited.time
    assert leave(ledger) == []


def test_nothing_starts_but_of_the_running_turn_under_its_fence_and_before_its_cancel() -> None:
    ledger = running()

    assert refusal(ledger, StartProcess(ledger.fence + 1, "t1", "p1", DATA)) == "lease_lost"
    assert refusal(ledger, StartProcess(ledger.fence, "t2", "p1", DATA)) == "lease_lost"
    ledger.run(CancelTurn(BY))
    assert refusal(ledger, StartProcess(ledger.fence, "t1", "p1", DATA)) == "no_active_turn"
    ledger.run(EndTurn(ledger.fence, "t1", Ending("cancelled")))
    assert refusal(ledger, StartProcess(ledger.fence, "t1", "p1", DATA)) == "lease_lost"


def test_an_attempt_of_an_older_fence_starts_nothing() -> None:
    ledger = running()
    fence = ledger.claim()

    assert refusal(ledger, StartProcess(fence, "t1", "p1", DATA)) == "lease_lost"


def test_a_stop_is_asked_for_once_and_by_anybody() -> None:
    ledger = running()
    start(ledger)

    (asked,) = ledger.run(StopProcess("p1", BY))[1]
    again = ledger.run(StopProcess("p1", {"principal": "bob"}))[1]
    leave(ledger)
    late = ledger.run(StopProcess("p1", BY))[1]

    assert asked.data == {"processId": "p1", "by": BY, "cause": "client"}
    assert (again, late) == ([], [])
    assert refusal(ledger, StopProcess("p2", BY)) == "process_not_found"
    assert refusal(ledger, ExitProcess(ledger.fence, "p2", EXIT)) == "process_not_found"
    assert refusal(Ledger(), StopProcess("p1", BY)) == "session_not_found"


def test_only_who_has_the_lease_says_that_it_ended() -> None:
    ledger = running()
    start(ledger)
    stale = ledger.fence
    ledger.claim()

    assert refusal(ledger, ExitProcess(stale, "p1", EXIT)) == "lease_lost"
    assert leave(ledger)[0].type == "process.exited"


def test_a_close_asks_all_to_end_and_is_done_when_they_have() -> None:
    ledger = running()
    start(ledger, "p1")
    start(ledger, "p2")
    ledger.run(StopProcess("p2", BY))
    ledger.run(EndTurn(ledger.fence, "t1", Ending("completed", "Done.")))

    asked = ledger.run(CloseSession(BY))[1]
    again = ledger.run(CloseSession(BY))[1]

    assert [(event.data["processId"], event.data["cause"]) for event in asked] == [
        ("p1", "session_closed"),
        ("p2", "session_closed"),
    ]
    assert again == []
    assert refusal(ledger, SubmitTurn("t2", SLOTS, "d", BY)) == "session_closed"
    leave(ledger, "p1")
    assert ledger.run(CloseSession(BY))[1] == []
    leave(ledger, "p2")
    assert [event.type for event in ledger.run(CloseSession(BY))[1]] == ["session.closed"]
    ledger.run(OpenSession(BY))
    ledger.run(SubmitTurn("t2", SLOTS, "d", BY))


def test_a_close_waits_for_the_turn_and_for_what_it_started() -> None:
    ledger = running()
    start(ledger)

    asked = ledger.run(CloseSession(BY))[1]

    assert [event.type for event in asked] == ["process.stop_requested", "turn.cancel_requested"]
    ledger.run(EndTurn(ledger.fence, "t1", Ending("cancelled")))
    assert ledger.run(CloseSession(BY))[1] == []
    leave(ledger)
    assert ledger.run(CloseSession(BY))[1][-1].type == "session.closed"


def test_an_end_without_a_start_only_moves_the_head() -> None:
    state = running().state

    after = evolve(state, Event(state.seq + 1, "later", "process.exited", {**EXIT, "processId": "p9"}))

    assert after.processes == {}


def test_a_command_for_a_process_names_no_key_and_no_turn() -> None:
    assert [
        fence_of(c) for c in (StartProcess(3, "t1", "p1", {}), StopProcess("p1", BY), ExitProcess(4, "p1", {}))
    ] == [
        3,
        None,
        4,
    ]
    assert named_turn(StopProcess("p1", BY)) is None
    assert named_key(StopProcess("p1", BY)) is None


def view(state: State, process_id: str, **more: Any) -> dict[str, Any]:
    return process_view(state.processes[process_id], **{"output_bytes": None, "runner": "none", **more})


def test_a_process_is_shown_as_it_stands() -> None:
    ledger = running()
    start(ledger)
    runs = view(ledger.state, "p1", output_bytes=7, runner="local")
    ledger.run(StopProcess("p1", BY))
    stops = view(ledger.state, "p1", runner="remote")
    leave(ledger, why="stopped", signal=15)
    ended = view(ledger.state, "p1", runner="local")

    assert (runs["status"], runs["runner"], runs["outputBytes"]) == ("running", "local", 7)
    assert "name" not in runs
    assert (stops["status"], stops["stopRequested"]["by"]) == ("stopping", BY)
    assert (ended["status"], ended["runner"], ended["outputBytes"]) == ("exited", "none", 3)
    assert (ended["why"], ended["signal"]) == ("stopped", 15)
    assert "originTurnId" not in ended


def test_the_newest_that_ended_are_known_and_all_that_run() -> None:
    ledger = running()
    start(ledger, "first")
    for number in range(ENDED_PROCESSES + 3):
        start(ledger, f"p{number}")
        leave(ledger, f"p{number}")

    assert list(ledger.state.processes) == ["first", *(f"p{number}" for number in range(3, ENDED_PROCESSES + 3))]


ACTIONS = st.lists(st.tuples(st.sampled_from(["start", "stop", "exit", "close"]), st.integers(0, 30)), max_size=120)


@given(ACTIONS)
def test_every_start_has_one_end_and_those_that_run_are_never_forgotten(actions: list[tuple[str, int]]) -> None:
    """Against the plainest model: two lists of ids. The ledger folds its log anew after each commit."""
    ledger = running()
    open_: list[str] = []
    ended: list[str] = []
    closing = False
    for number, (action, pick) in enumerate(actions):
        process_id = open_[pick % len(open_)] if open_ else ""
        if action == "start" and not closing:
            open_.append(f"p{number}")
            start(ledger, open_[-1])
        elif action == "stop" and open_:
            ledger.run(StopProcess(process_id, BY))
        elif action == "exit" and open_:
            open_.remove(process_id)
            ended.append(process_id)
            leave(ledger, process_id)
        elif action == "close":
            closing = True
            ledger.run(CloseSession(BY))

        state = ledger.state
        assert [process.process_id for process in state.open_processes()] == open_
        assert [key for key, process in state.processes.items() if process.ended] == ended[-ENDED_PROCESSES:]
        assert state.status == "open", "a turn runs, and so do processes"
    types = [event.type for event in ledger.events]
    assert types.count("process.started") == len(open_) + len(ended)
    assert types.count("process.exited") == len(ended)
