"""`kill -9` at any point of a server's life: nothing that was acknowledged is lost, nothing is done twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from crash.ledger import Ledger, settle, still_usable
from crash.waits import until_file, until_gone
from e2e.driver import Server, compatible, said
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, partial, stall, text, wait_for
from soak.kills import ENVIRONMENT, kills, make_sessions, one_life
from soak.load import Model
from soak.place import Place


@pytest.mark.slow
@pytest.mark.parametrize("half", ["first", "second"])
def test_a_hundred_kills_under_load_lose_nothing(tmp_path: Path, half: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"{half} half, seed {seed}")
    print(kills(Place(tmp_path, seed, 50)))


@pytest.mark.slow
def test_who_takes_over_from_killed_servers_sees_every_event_once(
    start: Start, home: Path, workspace: Path, fake: FakeProvider
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    fake.answer = Model(seed)
    (workspace / "a.txt").write_text("a\n")
    ledger = Ledger()
    heir = start(env=ENVIRONMENT)
    make_sessions(heir, ledger, workspace)
    for session_id in ledger.sessions:
        heir.call("session/close", sessionId=session_id)  # so that the first to resume it is its owner
    for life in range(12):
        one_life(Server(home, env=compatible(fake.url, **ENVIRONMENT), initialize=False), ledger, chance, life)
        for session_id in ledger.sessions:
            heir.send("session/resume", sessionId=session_id)
    fake.answer = lambda _body: text("yes")
    ledger.take(heir, {})
    ledger.prove(heir)
    for session_id in ledger.sessions:
        seen = [event["seq"] for event in heir.events(session_id)]
        head = max(seen)
        assert seen[:head] == list(range(1, head + 1)), "its subscription had every event once, in order"


@pytest.mark.slow
def test_a_turn_that_was_just_answered_is_there_after_a_kill(home: Path, workspace: Path, fake: FakeProvider) -> None:
    fake.answer = lambda _body: stall()
    env = compatible(fake.url)
    answered: dict[str, str] = {}
    with Server(home, env=env) as server:
        session_id = server.create(workspace, "s")
    for n in range(10):
        server = Server(home, env=env)
        answered[server.submit(session_id, f"text {n}")] = f"text {n}"
        server.kill()
    fake.answer = lambda _body: text("ok")
    fake.release()
    with Server(home, env=env) as server:
        settle(server, session_id)
        queued = {
            entry["event"]["turnId"]: entry["event"]["data"]["input"][0]["text"]
            for entry in server.log(session_id)
            if entry["event"]["type"] == "turn.queued"
        }
        assert queued == answered


def test_a_session_that_was_just_answered_is_there_after_a_kill(
    home: Path, workspace: Path, fake: FakeProvider
) -> None:
    env = compatible(fake.url)
    made = []
    for n in range(3):
        server = Server(home, env=env)
        result = server.call(
            "session/create", workspace=str(workspace), idempotencyKey=f"k{n}", turn={"input": said(f"first of {n}")}
        )
        server.kill()
        made.append((result["session"]["sessionId"], result["turn"]["turnId"]))
    with Server(home, env=env) as server:
        for n, (session_id, turn_id) in enumerate(made):
            again = server.call(
                "session/create",
                workspace=str(workspace),
                idempotencyKey=f"k{n}",
                turn={"input": said(f"first of {n}")},
            )
            assert (again["session"]["sessionId"], again["turn"]["turnId"]) == (session_id, turn_id)
            settle(server, session_id)
            assert server.finish(session_id, turn_id)["status"] == "completed"


def test_a_turn_goes_on_after_a_kill_and_repeats_no_answer_that_is_recorded(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    (workspace / "a.txt").write_text("content\n")
    fake.script(calls([("read", {"path": "a.txt"})]), partial("half an answ") + wait_for("never"), text("whole"))
    server = start(env={"HAMES_LIMIT_CHUNK_MS": "10"})
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    server.wait_event("message.chunk", text="half an answ")
    server.kill()
    second = start()
    second.call("session/resume", sessionId=session_id)
    turn = second.finish(session_id, turn_id)
    assert (turn["status"], turn["attempt"], turn["outcome"]["text"]) == ("completed", 2, "whole")
    assert len(fake.requests) == 3
    assert fake.requests[1].body["messages"] == fake.requests[2].body["messages"]


def test_a_command_of_a_killed_server_is_ended_and_reported_as_unknown(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(calls([("bash", {"command": "echo $$ > pid; touch began; sleep 600"})]))
    server = start()
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    server.wait_event("tool.started")
    until_file(workspace / "began")
    pid = int((workspace / "pid").read_text())
    server.kill()
    second = start()
    second.call("session/resume", sessionId=session_id)
    turn = second.finish(session_id, turn_id)
    assert turn["outcome"]["error"]["kind"] == "lease_lost"
    until_gone(pid)
    assert len(fake.requests) == 1
    still_usable(second, session_id)
