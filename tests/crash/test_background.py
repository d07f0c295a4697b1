"""Background processes end with what owns them: the session, the server, the lease. Nothing of them is left running,
and the log says why they ended, after they did."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from uuid import uuid4

import pytest

from crash.ledger import still_usable
from crash.stopping import stop_outside_the_gate
from crash.waits import marked, until, until_file
from e2e.background import begin, events_of, exit_of, files_left, output, stands, until_said
from e2e.driver import Server
from e2e.fixtures import Start
from engine.rules import check_log
from fake.provider import FakeProvider, calls, text, wait_for

FAR = "(setsid setsid sh -c 'trap \"\" TERM HUP; touch far; sleep 600; sleep 600' > /dev/null 2>&1 &)"
"""A daemon that has left its session and heeds nothing."""


def stubborn(mark: str) -> str:
    return f"export {mark}=1; trap '' TERM; {FAR}; echo here; touch began; until [ -e go ]; do sleep 0.1; done"


@pytest.fixture
def mark() -> str:
    return f"HAMES_TEST_MARK_{uuid4().hex}"


def begun(server: Server, session_id: str, workspace: Path, fake: FakeProvider, command: str) -> str:
    process_id = begin(fake, server, session_id, command)
    for name in ("began", "far"):
        until_file(workspace / name)
    until_said(server, session_id, process_id, b"here\n")
    return process_id


def test_closing_the_session_ends_it_first(
    server: Server, workspace: Path, home: Path, fake: FakeProvider, mark: str
) -> None:
    session_id = server.create(workspace)
    process_id = begun(server, session_id, workspace, fake, stubborn(mark))

    closing = server.send("session/close", sessionId=session_id)
    server.wait_event("process.exited", processId=process_id)
    assert marked(mark) == [], "when its end is in the log, nothing runs"
    assert server.answer(closing)["result"]["session"]["status"] == "closed"

    log = [entry["event"] for entry in server.log(session_id)]
    check_log(log)
    assert [event["type"] for event in log][-3:] == ["process.stop_requested", "process.exited", "session.closed"]
    assert exit_of(server, session_id, process_id)["why"] == "session_closed"
    assert files_left(home) == []
    server.call("session/resume", sessionId=session_id)
    still_usable(server, session_id)


def test_nothing_is_admitted_while_a_close_waits_for_it(
    start: Start, workspace: Path, fake: FakeProvider, mark: str
) -> None:
    server = start(env={"HAMES_LIMIT_TERM_GRACE_MS": "30000"})
    session_id = server.create(workspace)
    begun(server, session_id, workspace, fake, stubborn(mark))

    closing = server.send("session/close", sessionId=session_id)
    server.wait_event("process.stop_requested", cause="session_closed")
    error = server.refused("turn/submit", sessionId=session_id, input=[{"type": "text", "text": "more"}])
    (workspace / "go").touch()

    assert error["data"]["kind"] == "session_closed"
    assert server.answer(closing)["result"]["session"]["status"] == "closed"


def test_deleting_the_session_ends_it_first(
    server: Server, workspace: Path, home: Path, fake: FakeProvider, mark: str
) -> None:
    session_id = server.create(workspace)
    begun(server, session_id, workspace, fake, stubborn(mark))

    server.call("session/delete", sessionId=session_id)

    assert marked(mark) == []
    assert files_left(home) == []


@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "shutdown", "drain"])
def test_a_server_that_leaves_ends_it_and_says_so(
    start: Start, workspace: Path, home: Path, fake: FakeProvider, mark: str, how: str
) -> None:
    server = start()
    session_id = server.create(workspace)
    process_id = begun(server, session_id, workspace, fake, stubborn(mark))

    if how == "SIGTERM":
        server.terminate()
    elif how == "end of input":
        server.close_stdin()
    else:
        server.call("shutdown", mode="cancel" if how == "shutdown" else "drain")
    assert server.wait() == 0

    assert marked(mark) == []
    second = start()
    exited = exit_of(second, session_id, process_id)
    assert exited["why"] == "owner_left"
    assert output(second, session_id, process_id) == b"here\n"
    assert files_left(home) == []
    second.call("session/resume", sessionId=session_id)
    still_usable(second, session_id)


def test_a_server_that_is_killed_ends_it_and_who_comes_next_says_so(
    start: Start, workspace: Path, home: Path, fake: FakeProvider, mark: str
) -> None:
    server = start()
    session_id = server.create(workspace)
    process_id = begun(server, session_id, workspace, fake, stubborn(mark))

    server.kill()
    second = start()
    alone = stands(second, session_id, process_id)
    assert (alone["status"], alone["runner"]) == ("running", "none")
    assert output(second, session_id, process_id) == b"here\n", "its output is there before anybody owns the session"
    second.call("session/resume", sessionId=session_id, subscribe={})
    second.wait_event("process.exited", processId=process_id)
    assert marked(mark) == []

    exited = exit_of(second, session_id, process_id)
    assert exited["why"] == "owner_died"
    assert "exitCode" not in exited
    assert output(second, session_id, process_id) == b"here\n"
    assert files_left(home) == []
    still_usable(second, session_id)


def test_a_stop_of_what_died_with_its_server_settles_it_without_a_model(
    start: Start, workspace: Path, fake: FakeProvider, mark: str
) -> None:
    server = start()
    session_id = server.create(workspace)
    process_id = begun(server, session_id, workspace, fake, stubborn(mark))
    server.kill()
    asked = len(fake.requests)
    second = start()

    stopped = second.call("process/stop", sessionId=session_id, processId=process_id)["process"]

    assert marked(mark) == []
    assert (stopped["status"], stopped["why"]) == ("exited", "owner_died")
    assert len(fake.requests) == asked


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
def test_a_session_whose_server_was_killed_closes_and_goes(
    start: Start, workspace: Path, home: Path, fake: FakeProvider, mark: str, method: str
) -> None:
    server = start()
    session_id = server.create(workspace)
    begun(server, session_id, workspace, fake, stubborn(mark))
    server.kill()
    second = start()

    second.call(method, sessionId=session_id)

    assert marked(mark) == []
    assert files_left(home) == []


def test_another_server_lists_reads_and_stops_what_the_first_one_runs(
    start: Start, workspace: Path, fake: FakeProvider, mark: str
) -> None:
    first, second = start(), start()
    session_id = first.create(workspace)
    process_id = begun(first, session_id, workspace, fake, stubborn(mark))

    shown = stands(second, session_id, process_id)
    read = output(second, session_id, process_id)
    stopped = second.call("process/stop", sessionId=session_id, processId=process_id)["process"]

    assert (shown["status"], shown["runner"], shown["outputBytes"]) == ("running", "remote", 5)
    assert read == b"here\n"
    assert marked(mark) == []
    assert stopped["why"] == "stopped"
    assert output(second, session_id, process_id) == b"here\n"


def test_who_stands_by_gets_the_session_without_what_ran_in_its_background(
    start: Start, workspace: Path, fake: FakeProvider, mark: str
) -> None:
    first, second = start(), start()
    session_id = first.create(workspace)
    process_id = begun(first, session_id, workspace, fake, stubborn(mark))
    gate = fake.gate("go")
    fake.script(wait_for("go") + text("never"), text("taken over"))
    turn_id = first.submit(session_id)
    first.wait_event("model.requested", start=len(first.frames) - 1)
    second.call("session/resume", sessionId=session_id, subscribe={})
    until(lambda: list((first.home / "store" / "heirs").glob(f"{session_id}.*")), "the second stands by")

    assert first.stop() == 0
    gate.open()

    turn = second.finish(session_id, turn_id)
    assert (turn["status"], turn["outcome"]["text"]) == ("completed", "taken over")
    assert marked(mark) == []
    log = [entry["event"] for entry in second.log(session_id)]
    check_log(log)
    assert exit_of(second, session_id, process_id)["why"] == "owner_left"


def test_a_stopped_owner_loses_it_with_the_session(
    start: Start, workspace: Path, fake: FakeProvider, mark: str
) -> None:
    short: dict[str, str | None] = {"HAMES_LIMIT_LEASE_MS": "1000"}
    first, second = start(env=short), start(env=short)
    session_id = first.create(workspace)
    process_id = begun(first, session_id, workspace, fake, stubborn(mark))
    second.call("session/resume", sessionId=session_id, subscribe={})
    stop_outside_the_gate(first, first.home / "store")

    stopped = second.call("process/stop", sessionId=session_id, processId=process_id)["process"]

    assert stopped["why"] == "owner_died"
    assert marked(mark) == []
    first.signal(signal.SIGCONT)
    still_usable(second, session_id)
    exits = [event for event in events_of(first, session_id, process_id) if event["type"] == "process.exited"]
    assert len(exits) == 1
    still_usable(first, first.create(workspace))


def test_a_reaper_that_is_killed_takes_it_along_and_the_end_says_so(
    server: Server, workspace: Path, fake: FakeProvider, mark: str
) -> None:
    session_id = server.create(workspace)
    process_id = begun(server, session_id, workspace, fake, stubborn(mark))

    os.kill(events_of(server, session_id, process_id)[0]["data"]["reaper"]["pid"], signal.SIGKILL)

    exited = exit_of(server, session_id, process_id)
    assert (exited["why"], exited["error"]["kind"]) == ("exited", "internal")
    assert marked(mark) == []
    assert begin(fake, server, session_id, "sleep 600")


@pytest.mark.slow
def test_kills_at_any_moment_of_a_start_leave_nothing_running_and_a_log_that_says_so(
    start: Start, workspace: Path, fake: FakeProvider, mark: str
) -> None:
    """Killed at the first event of a kind, which is another moment of the start each time."""
    moments = ["turn.started", "tool.requested", "tool.started", "process.started", "tool.completed"]
    command = {"command": f"export {mark}=1; {FAR}; while :; do echo x; done", "background": True}
    for moment in moments:
        server = start(env={"HAMES_LIMIT_PROCESS_START_MS": "50"})
        session_id = server.create(workspace)
        fake.script(calls([("bash", command)]))
        fake.answer = lambda _body: text("ok")
        server.submit(session_id)
        server.wait_event(moment)
        server.kill()

        second = start()
        second.call("session/resume", sessionId=session_id, own="prefer", recover="fail")
        second.call("session/close", sessionId=session_id)

        until(lambda: marked(mark) == [], "nothing runs")
        log = [entry["event"] for entry in second.log(session_id)]
        check_log(log)
        types = [event["type"] for event in log]
        assert types.count("process.started") == types.count("process.exited")
        second.stop()
