"""Two processes on one session: one owner at a time, whoever is stopped, killed or silent."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from crash.ledger import settle, still_usable
from crash.stopping import stop_outside_the_gate, stop_within_the_gate
from crash.waits import runs, until, until_file
from e2e.driver import Server, said
from e2e.fixtures import Start
from engine.rules import check_log
from fake.provider import FakeProvider, calls, partial, text, wait_for

SHORT_LEASE: dict[str, str | None] = {"HAMES_LIMIT_LEASE_MS": "1000", "HAMES_LIMIT_CHUNK_MS": "10"}


def events_of(server: Server, session_id: str) -> list[dict[str, Any]]:
    log = [entry["event"] for entry in server.log(session_id)]
    check_log(log)
    return log


def of_type(log: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [event for event in log if event["type"] == type_]


def test_a_stopped_owner_is_taken_over_and_its_late_writes_are_refused(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    gate = fake.gate("first")
    fake.script(partial("from the first ") + wait_for("first") + text("too late"), text("whole"))
    first, second = start(env=SHORT_LEASE), start(env=SHORT_LEASE)
    session_id = first.create(workspace)
    turn_id = first.submit(session_id)
    first.wait_event("message.chunk")
    second.call("session/resume", sessionId=session_id, subscribe={})
    stop_outside_the_gate(first, first.home / "store")
    second.wait_event("turn.started", attempt=2)
    gate.open()
    first.signal(signal.SIGCONT)
    turn = second.finish(session_id, turn_id)
    assert (turn["status"], turn["outcome"]["text"]) == ("completed", "whole")
    log = events_of(second, session_id)
    since = next(event["seq"] for event in of_type(log, "turn.started") if event["attempt"] == 2)
    late = [event for event in log if event["seq"] >= since and event.get("attempt", 2) != 2]
    assert late == []
    assert "too late" not in str(log)
    # The first goes on serving: this session for readers, others as their owner.
    assert events_of(first, session_id) == log
    other = first.create(workspace)
    still_usable(first, other)
    still_usable(first, session_id)


def test_a_killed_owner_is_taken_over_at_once(start: Start, workspace: Path, fake: FakeProvider) -> None:
    fake.script(wait_for("never"), text("whole"))
    first, second = start(), start()  # the lease is 30 s: nobody waits for it
    session_id = first.create(workspace)
    turn_id = first.submit(session_id)
    fake.wait_for_requests(1)
    second.call("session/resume", sessionId=session_id, subscribe={})
    first.kill()
    assert second.finish(session_id, turn_id)["status"] == "completed"
    assert of_type(events_of(second, session_id), "log.recovered")[0]["data"]["action"] == "continued"


def test_commands_of_a_stopped_owner_are_ended_before_it_is_taken_over(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(calls([("bash", {"command": "(setsid sleep 600 & echo $! > far); echo $$ > near; sleep 600"})]))
    first, second = start(env=SHORT_LEASE), start(env=SHORT_LEASE)
    session_id = first.create(workspace)
    turn_id = first.submit(session_id)
    until_file(workspace / "near")
    until(lambda: (workspace / "near").read_text().strip(), "the pid")
    pids = [int((workspace / name).read_text()) for name in ("near", "far")]
    second.call("session/resume", sessionId=session_id, subscribe={})
    stop_outside_the_gate(first, first.home / "store")
    second.wait_event("tool.completed", outcome="unknown")
    assert not any(runs(pid) for pid in pids), "they were ended before the log says that they are unknown"
    assert second.finish(session_id, turn_id)["outcome"]["error"]["kind"] == "lease_lost"
    still_usable(second, session_id)
    first.signal(signal.SIGCONT)
    assert first.call("ping") == {}
    still_usable(first, session_id)


def test_everything_but_running_works_from_a_process_that_is_not_the_owner(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    gate = fake.gate("go")
    fake.script(wait_for("go") + text("first"), text("steered"), text("second"))
    owner, other = start(), start()
    session_id = owner.create(workspace)
    turn_id = owner.submit(session_id)
    fake.wait_for_requests(1)
    other.call("events/subscribe", sessionId=session_id)
    other.wait_event("model.requested")
    other.call("turn/steer", sessionId=session_id, input=said("and this"), expectedTurnId=turn_id)
    queued = other.submit(session_id, "from the other")
    owner.wait_event("turn.steered")
    gate.open()
    assert other.finish(session_id, queued)["status"] == "completed"
    assert other.finish(session_id, turn_id)["outcome"]["text"] == "steered"
    fake.script(wait_for("never"))
    running = other.submit(session_id, "cancel me")
    fake.wait_for_requests(4)
    other.call("turn/cancel", sessionId=session_id, turnId=running)
    assert other.finish(session_id, running)["status"] == "cancelled"
    log = events_of(other, session_id)
    assert {event["data"]["worker"]["pid"] for event in of_type(log, "turn.started")} == {owner.pid}
    seen = [event["seq"] for event in other.events(session_id)]
    assert seen == list(range(1, len(log) + 1))


def test_the_same_submit_again_and_again_is_one_turn(start: Start, workspace: Path, fake: FakeProvider) -> None:
    gate = fake.gate("go")
    fake.script(wait_for("go") + text("once"))
    first, second = start(), start()
    session_id = first.create(workspace)
    answers = []

    def submit(server: Server) -> None:
        params = {"sessionId": session_id, "input": said("once only"), "idempotencyKey": "the key"}
        result = server.call("turn/submit", **params)
        answers.append((result["turn"]["turnId"], result["cursor"]))

    submit(first)  # before
    fake.wait_for_requests(1)
    submit(first)  # during
    submit(second)
    gate.open()
    first.finish(session_id, answers[0][0])
    submit(second)  # after
    first.kill()
    submit(start())  # after a crash, by a process that did not see any of it
    assert len(set(answers)) == 1
    assert len(fake.requests) == 1
    assert len(of_type(events_of(second, session_id), "turn.queued")) == 1


def test_creating_with_one_key_in_two_processes_makes_one_session(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    servers = [start(), start()]
    params = {"workspace": str(workspace), "idempotencyKey": "one", "turn": {"input": said("hello")}}
    asked = [(server, server.send("session/create", **params)) for server in servers for _ in range(3)]
    results = [server.answer(identifier)["result"] for server, identifier in asked]
    assert len({result["session"]["sessionId"] for result in results}) == 1
    assert len({result["turn"]["turnId"] for result in results}) == 1
    session_id = results[0]["session"]["sessionId"]
    settle(servers[0], session_id)
    assert len(fake.requests) == 1
    error = servers[1].refused("session/create", **{**params, "title": "other"})
    assert error["data"]["kind"] == "idempotency_conflict"


@pytest.mark.slow
def test_a_session_closed_here_opens_there_at_once(start: Start, workspace: Path, fake: FakeProvider) -> None:
    servers = [start(), start()]
    session_id = servers[0].create(workspace)
    for n in range(20):
        server = servers[n % 2]
        server.call("session/resume", sessionId=session_id, own="require")
        still_usable(server, session_id)
        closed = server.call("session/close", sessionId=session_id)
        assert closed["session"]["status"] == "closed"
        assert "owner" not in closed["session"]
    events_of(servers[0], session_id)


def test_reading_a_session_that_nobody_owns_starts_nothing(start: Start, workspace: Path, fake: FakeProvider) -> None:
    fake.script(wait_for("never"))
    first = start()
    session_id = first.create(workspace)
    turn_id = first.submit(session_id)
    first.submit(session_id, "queued")
    fake.wait_for_requests(1)
    first.kill()
    second = start()
    head = second.call("session/get", sessionId=session_id, view=True)["session"]["headSeq"]
    second.call("session/list")
    second.call("turn/list", sessionId=session_id)
    second.call("events/subscribe", sessionId=session_id)
    second.call("session/resume", sessionId=session_id, own="observe")
    waited = second.call("turn/wait", sessionId=session_id, turnId=turn_id)
    assert (waited["why"], waited["turn"]["runner"]) == ("unowned", "none")
    assert second.call("session/get", sessionId=session_id)["session"]["headSeq"] == head
    assert len(fake.requests) == 1
    # A cancel costs nothing, so it is settled; the queue stays where it is.
    second.call("turn/cancel", sessionId=session_id, turnId=turn_id)
    assert second.finish(session_id, turn_id)["status"] == "cancelled"
    assert len(fake.requests) == 1
    assert len(of_type(events_of(second, session_id), "turn.started")) == 1
    settle(second, session_id)
    assert len(fake.requests) == 2


def test_requiring_a_session_of_a_live_owner_is_refused(start: Start, workspace: Path) -> None:
    first, second = start(), start()
    session_id = first.create(workspace)
    still_usable(first, session_id)
    error = second.refused("session/resume", sessionId=session_id, own="require")
    assert (error["data"]["kind"], error["data"]["details"]["pid"]) == ("session_owned", first.pid)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL], ids=["it wakes up", "it is killed"])
def test_who_is_stopped_within_the_gate_costs_others_a_typed_error_and_no_loss(
    start: Start, workspace: Path, home: Path, end: signal.Signals
) -> None:
    first, second = start(), start(env={"HAMES_LIMIT_GATE_MS": "300"})
    session_id = first.create(workspace, "mine")
    second.create(workspace, "yours")
    done = threading.Event()
    sent = [0]

    def load() -> None:
        with contextlib.suppress(AssertionError):  # it is killed
            while not done.is_set():
                sent[0] += 1
                first.answer(first.send("session/update", sessionId=session_id, title=f"title {sent[0]}"))

    writer = threading.Thread(target=load, daemon=True)
    writer.start()
    stop_within_the_gate(first, home / "store")
    try:
        error = second.refused("turn/submit", sessionId="yours", input=said("now"))
        assert error["data"]["kind"] == "store_unavailable"
        holder = error["data"]["details"]
        assert (holder.get("pid"), holder["state"]) in ((first.pid, "stopped"), (None, "unknown")), (
            "nobody else is named"
        )
        assert second.call("ping") == {}
        assert second.call("session/get", sessionId="yours")["session"]["turns"] == 0, "reading works"
    finally:
        done.set()
        first.signal(end)
    if end is signal.SIGKILL:
        first.process.wait(20)
    else:
        writer.join(20)
    still_usable(second, "yours")
    titles = [event["data"]["title"] for event in of_type(events_of(second, session_id), "session.updated")]
    assert titles == [f"title {n}" for n in range(1, len(titles) + 1)]
    assert len(titles) >= sent[0] - 1, "every answered update is there"


def test_who_leaves_hands_its_turn_to_who_stands_by(start: Start, fake: FakeProvider, workspace: Path) -> None:
    fake.on("go", partial("so far ") + wait_for("go on") + text("never"), text("by the heir"))
    first, second = start(), start()
    session_id = first.create(workspace)
    turn_id = first.submit(session_id, "go")
    fake.wait_for_requests(1)
    second.call("session/resume", sessionId=session_id, own="prefer", subscribe={})
    until(lambda: list((first.home / "store" / "heirs").glob(f"{session_id}.*")), "the heir stands by")

    assert first.stop() == 0
    turn = second.finish(session_id, turn_id)

    assert (turn["status"], turn["attempt"], turn["outcome"]["text"]) == ("completed", 2, "by the heir")
    assert fake.refusals == []
