"""`kill -9` at any point of a server's life: nothing that was acknowledged is lost, nothing is done twice."""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path

import pytest

from crash.ledger import Ledger, settle, still_usable
from crash.waits import until_file, until_gone
from e2e.driver import Server, compatible, said
from e2e.fixtures import Start
from fake.provider import Answer, FakeProvider, calls, partial, stall, text, trickle, wait_for

KILLS = int(os.environ.get("SOAK_KILLS", "100"))
SESSIONS = 5
START_S = 0.5
"""About what a server takes to start: some are killed while they do, the others once they have said something."""


class Model:
    """Answers at random: words in pieces, slow words, tool calls alone and in batches."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def __call__(self, body: object) -> Answer:
        chance = self.chance
        kind = chance.random()
        if kind < 0.45:
            return text("wörd " * chance.randrange(1, 60), chunks=chance.randrange(1, 12))
        if kind < 0.55:
            words = partial("slow words ")[0].data  # type: ignore[union-attr]
            return trickle(words, each_ms=1) + text("done")
        tools = [
            ("bash", {"command": f"echo one; sleep 0.0{chance.randrange(1, 9)}; echo two"}),
            ("read", {"path": "a.txt"}),
            ("write", {"path": "b.txt", "content": "b" * chance.randrange(1, 100)}),
            ("grep", {"pattern": "a"}),
        ]
        return calls([chance.choice(tools) for _ in range(chance.randrange(1, 4))], "let me see" * chance.randrange(2))


@pytest.mark.slow
def test_a_hundred_kills_under_load_lose_nothing(home: Path, workspace: Path, fake: FakeProvider) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    fake.answer = Model(seed)
    (workspace / "a.txt").write_text("a\n")
    ledger = Ledger()
    env = compatible(fake.url, HAMES_LIMIT_CHUNK_MS="10", HAMES_LIMIT_STEPS="4")
    with Server(home, env=env) as server:
        for n in range(SESSIONS):
            ledger.sessions.add(server.create(workspace, f"s{n}"))
    following = Server(home, env=env, initialize=False)
    for life in range(KILLS):
        server, following = following, Server(home, env=env, initialize=False)  # it starts while this one lives
        one_life(server, ledger, chance, life)
    following.kill()
    fake.answer = lambda _body: text("yes")
    with Server(home, env=env) as server:
        events = ledger.prove(server)
        assert len(ledger.answered) > KILLS, "they were killed under load"
        print(f"{events} events, {len(ledger.sent)} submits, {len(ledger.answered)} answered")
        for session_id in ledger.sessions:
            still_usable(server, session_id)
    assert fake.refusals == []


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
    env = {"HAMES_LIMIT_CHUNK_MS": "10", "HAMES_LIMIT_STEPS": "4"}
    heir = start(env=env)
    for n in range(SESSIONS):
        ledger.sessions.add(heir.create(workspace, f"s{n}"))
        heir.call("session/close", sessionId=f"s{n}")  # so that the first to resume it is its owner
    for life in range(12):
        one_life(Server(home, env=compatible(fake.url, **env), initialize=False), ledger, chance, life)
        for session_id in ledger.sessions:
            heir.send("session/resume", sessionId=session_id)
    fake.answer = lambda _body: text("yes")
    ledger.take(heir, {})
    ledger.prove(heir)
    for session_id in ledger.sessions:
        seen = [event["seq"] for event in heir.events(session_id)]
        head = max(seen)
        assert seen[:head] == list(range(1, head + 1)), "its subscription had every event once, in order"


def one_life(server: Server, ledger: Ledger, chance: random.Random, life: int) -> None:
    """Attach to everything, pipeline submits, be killed at a random moment, note what was said."""
    asked: dict[int, tuple[str, str]] = {}
    try:
        server.send("initialize", protocolVersions=["1"], clientInfo={"name": "killer", "version": "1"})
        for session_id in sorted(ledger.sessions):
            cursor = ledger.last_cursor(session_id)
            subscribe = {} if cursor is None else {"after": cursor}
            server.send("session/resume", sessionId=session_id, subscribe=subscribe)
        for session_id, key in [place for place in ledger.sent if place not in ledger.answered][:3]:
            asked[ledger.submit(server, session_id, ledger.sent[session_id, key], key)] = (session_id, key)
        for n in range(3):
            session_id, key = chance.choice(sorted(ledger.sessions)), f"k-{life}-{n}"
            asked[ledger.submit(server, session_id, f"text of {key}", key)] = (session_id, key)
        if chance.random() < 0.3:
            server.send("turn/cancel", sessionId=chance.choice(sorted(ledger.sessions)), queue="continue")
        if chance.random() < 0.2:
            time.sleep(chance.uniform(0, START_S))
        else:
            frames = chance.randrange(1, 80)
            with contextlib.suppress(AssertionError):  # everything has come to its end before
                server.wait_until(lambda: len(server.frames) >= frames, timeout=1)
    finally:
        server.kill()
    refused = [f for frame in server.frames for f in frame.responses if "error" in f]
    kinds = {(r["error"].get("data") or {}).get("kind", r["error"]["code"]) for r in refused}
    assert kinds <= {"no_active_turn", "queue_full", "session_owned"}, refused
    ledger.take(server, asked)


@pytest.mark.slow
def test_a_turn_that_was_just_answered_is_there_after_a_kill(home: Path, workspace: Path, fake: FakeProvider) -> None:
    fake.answer = lambda _body: stall()
    env = compatible(fake.url)
    answered: dict[str, str] = {}
    with Server(home, env=env) as server:
        session_id = server.create(workspace, "s")
    for n in range(20):
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
