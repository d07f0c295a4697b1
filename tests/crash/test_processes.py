"""Cancelling real commands: one `cancelled`, and nothing is left running, whatever they do to stay."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from uuid import uuid4

import pytest

from crash.ledger import settle, still_usable
from crash.waits import marked, runs, until, until_file, until_gone
from e2e.driver import Server
from e2e.fixtures import Start
from engine.rules import check_log
from fake.provider import Answer, FakeProvider, calls, text, thinking, trickle

IGNORES_TERM = "trap '' TERM; echo $$ > pid; touch began; while :; do sleep 1; done"
FAR_GRANDCHILD = "(setsid sh -c 'echo $$ > far; exec sleep 600') & echo $$ > pid; touch began; wait"
DAEMON = "(setsid sh -c 'exec > /dev/null 2>&1 < /dev/null; echo $$ > far; trap \"\" TERM HUP; sleep 600; sleep 600' &)"
HOLDS_STDOUT = "sleep 600 & echo $! > far; touch began"
NASTY = {
    "ignores TERM": IGNORES_TERM,
    "a grandchild in a session of its own": FAR_GRANDCHILD,
    "a daemon": f"{DAEMON}; echo $$ > pid; touch began; sleep 600",
    "a holder of stdout": f"{HOLDS_STDOUT}; sleep 600",
    "many": "for i in $(seq 20); do (setsid sleep 600 &); done; echo $$ > pid; touch began; sleep 600",
}


def terminals(server: Server, session_id: str, turn_id: str) -> list[str]:
    log = [entry["event"] for entry in server.log(session_id)]
    check_log(log)
    ends = ("turn.completed", "turn.failed", "turn.cancelled")
    return [event["type"] for event in log if event.get("turnId") == turn_id and event["type"] in ends]


@pytest.mark.parametrize("command", NASTY.values(), ids=NASTY.keys())
def test_a_cancel_leaves_nothing_of_a_command_running(
    start: Start, workspace: Path, fake: FakeProvider, command: str
) -> None:
    mark = f"HAMES_TEST_MARK_{uuid4().hex}"
    fake.script(calls([("bash", {"command": f"export {mark}=1; {command}"})]))
    server = start()
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    until_file(workspace / "began")
    until(lambda: marked(mark), "the command's children run")
    server.call("turn/cancel", sessionId=session_id, turnId=turn_id)
    assert server.finish(session_id, turn_id)["status"] == "cancelled"
    assert marked(mark) == [], "when the terminal is there, nothing runs"
    for name in ("pid", "far"):
        if (workspace / name).exists():
            assert not runs(int((workspace / name).read_text()))
    assert terminals(server, session_id, turn_id) == ["turn.cancelled"]
    (call,) = [e for e in server.events(session_id, "tool.completed")]
    assert call["data"]["outcome"] == "cancelled"
    still_usable(server, session_id)


def test_what_a_command_leaves_behind_ends_with_it(server: Server, workspace: Path, fake: FakeProvider) -> None:
    mark = f"HAMES_TEST_MARK_{uuid4().hex}"
    fake.script(calls([("bash", {"command": f"export {mark}=1; {DAEMON}; {HOLDS_STDOUT}; echo said"})]), text("ok"))
    session_id = server.create(workspace)
    turn = server.finish(session_id, server.submit(session_id))
    assert turn["status"] == "completed"
    assert marked(mark) == []
    assert "said" in server.events(session_id, "tool.completed")[0]["data"]["text"]


def test_the_deadline_ends_a_command_too(server: Server, workspace: Path, fake: FakeProvider) -> None:
    mark = f"HAMES_TEST_MARK_{uuid4().hex}"
    fake.script(calls([("bash", {"command": f"export {mark}=1; {IGNORES_TERM}"})]))
    session_id = server.create(workspace)
    turn_id = server.submit(session_id, limits={"wallTimeMs": 1_000})
    error = server.finish(session_id, turn_id)["outcome"]["error"]
    assert (error["kind"], error["details"]["limit"]) == ("limit_exceeded", "wallTimeMs")
    assert marked(mark) == []
    still_usable(server, session_id)


@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "SIGKILL"])
def test_a_server_that_ends_leaves_no_command_running(
    start: Start, workspace: Path, fake: FakeProvider, how: str
) -> None:
    mark = f"HAMES_TEST_MARK_{uuid4().hex}"
    fake.script(calls([("bash", {"command": f"export {mark}=1; {DAEMON}; {IGNORES_TERM}"})]))
    server = start()
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    until_file(workspace / "began")
    if how == "SIGKILL":
        server.kill()
        until(lambda: not marked(mark), "nothing of the command runs")
    else:
        if how == "SIGTERM":
            server.terminate()
            server.wait()
        else:
            assert server.stop() == 0
        assert marked(mark) == []
    second = start()
    second.call("session/resume", sessionId=session_id)
    status = second.finish(session_id, turn_id)["status"]
    assert status == ("failed" if how == "SIGKILL" else "cancelled")
    still_usable(second, session_id)


@pytest.mark.slow
def test_cancels_at_random_moments_end_each_turn_once(start: Start, workspace: Path, fake: FakeProvider) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    mark = f"HAMES_TEST_MARK_{uuid4().hex}"
    (workspace / "a.txt").write_text("a\n")
    nasty = list(NASTY.values())

    def answer(_body: object) -> Answer:
        kind = chance.random()
        if kind < 0.3:
            return thinking("hm") + trickle(text("slow")[0].data, each_ms=2) + text("word " * 30, chunks=9)  # type: ignore[union-attr]
        if kind < 0.5:
            return calls([("read", {"path": "a.txt"}), ("grep", {"pattern": "a"})])
        return calls([("bash", {"command": f"export {mark}=1; {chance.choice(nasty)}"})], "now", fragment=7)

    fake.answer = answer
    server = start(env={"HAMES_LIMIT_CHUNK_MS": "10"})
    session_id = server.create(workspace)
    turns = []
    for n in range(20):
        turns.append(server.submit(session_id, f"turn {n}"))
        time.sleep(chance.uniform(0, 0.15))
        server.call("turn/cancel", sessionId=session_id, turnId=turns[-1])
        assert server.finish(session_id, turns[-1])["status"] in ("cancelled", "completed")
        assert marked(mark) == []
    fake.answer = lambda _body: text("ok")
    settle(server, session_id)
    still_usable(server, session_id)
    for turn_id in turns:
        assert len(terminals(server, session_id, turn_id)) == 1


def test_a_command_that_is_killed_from_outside_is_only_a_result(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(calls([("bash", {"command": "echo $$ > pid; touch began; sleep 600"})]), text("ok"))
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    until_file(workspace / "began")
    pid = int((workspace / "pid").read_text())

    os.kill(pid, signal.SIGKILL)
    assert server.finish(session_id, turn_id)["status"] == "completed"
    until_gone(pid)
