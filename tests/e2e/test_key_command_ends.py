"""A program that prints a key ends with what waits for it: it, and all that it started."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server, line, said
from e2e.families import Family
from e2e.fixtures import Start
from fake.provider import FakeProvider, text
from fake.vendors import VENDORS

SETTING = "providers.compatible.apiKeyCommand"
CANCELLED = -32800
ENDINGS: dict[str, Callable[[Server], None]] = {
    "EOF": Server.close_stdin,
    "SIGTERM": Server.terminate,
    "SIGHUP": lambda server: server.signal(signal.SIGHUP),
}


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    made = Family(tmp_path / "family")
    yield made
    made.kill()


def asking(family: Family, then: str = "time.sleep(600)") -> dict[str, str]:
    """The variables of a server that asks such a program for the key of its model."""
    return {"HAMES_COMPATIBLE_API_KEY_COMMAND": family.command(then)}


def create(server: Server, workspace: Path) -> int:
    return server.send("session/create", workspace=str(workspace))


REQUESTS: dict[str, Callable[[Server, Path], int]] = {
    "session/create": create,
    "models/list": lambda server, _: server.send("models/list"),
    "health/check": lambda server, _: server.send("health/check", dependencies=["provider"]),
}


@pytest.mark.parametrize("method", REQUESTS)
def test_it_is_gone_when_the_request_that_waits_for_it_is_taken_back(
    start: Start, workspace: Path, family: Family, method: str
) -> None:
    server = start(env=asking(family))
    request = REQUESTS[method](server, workspace)
    family.stands()

    server.notify("$/cancelRequest", id=request)

    assert server.answer(request)["error"]["code"] == CANCELLED
    assert family.left() == []
    assert server.call("session/list")["sessions"] == []


@pytest.mark.parametrize("method", ["session/resume", "turn/submit", "session/update", "queue/resume"])
def test_so_it_is_for_a_request_on_a_session_of_another_process(
    start: Start, workspace: Path, family: Family, method: str
) -> None:
    server = start()
    session_id = server.create(workspace)
    head = server.log(session_id)
    assert server.stop() == 0
    more: dict[str, dict[str, Any]] = {
        "turn/submit": {"input": said("go")},
        "session/update": {"model": "compatible/another-model"},
    }

    server = start(env=asking(family))
    request = server.send(method, sessionId=session_id, **more.get(method, {}))
    family.stands()
    server.notify("$/cancelRequest", id=request)

    assert server.answer(request)["error"]["code"] == CANCELLED
    assert family.left() == []
    assert server.log(session_id) == head


def test_a_request_that_is_taken_back_before_anything_is_done_starts_nothing(
    start: Start, workspace: Path, family: Family
) -> None:
    server = start(env=asking(family))
    server.expect("made", "session/create")

    server.write(
        line("made", "session/create", workspace=str(workspace))
        + b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"made"}}\n'
    )

    assert server.answer("made")["error"]["code"] == CANCELLED
    assert server.call("session/list")["sessions"] == []
    assert server.stop() == 0
    assert not family.has_begun()


@pytest.mark.parametrize("mode", ["cancel", "drain"])
def test_it_is_gone_when_shutdown_is_answered(start: Start, workspace: Path, family: Family, mode: str) -> None:
    server = start(env=asking(family))
    request = create(server, workspace)
    family.stands()

    assert server.call("shutdown", mode=mode) == {}

    assert family.left() == []
    assert server.answer(request)["error"]["data"]["kind"] == "shutting_down"
    assert server.wait() == 0


@pytest.mark.parametrize("ending", ENDINGS)
def test_it_is_gone_when_the_server_is(start: Start, workspace: Path, family: Family, ending: str) -> None:
    server = start(env=asking(family))
    create(server, workspace)
    family.stands()

    ENDINGS[ending](server)

    assert server.wait() == 0
    assert family.left() == []


def test_it_goes_with_a_server_that_is_killed(start: Start, workspace: Path, family: Family) -> None:
    server = start(env=asking(family))
    create(server, workspace)
    family.stands()

    server.kill()

    server.poll_until(lambda: family.left() == [], what="the end of the program")


@pytest.mark.slow
def test_it_is_gone_when_its_time_is_over(start: Start, workspace: Path, family: Family) -> None:
    server = start(env=asking(family))

    error = server.refused("session/create", workspace=str(workspace))

    assert family.left() == []
    assert (error["data"]["kind"], error["data"]["details"]) == ("credential_missing", {"setting": SETTING})
    assert "did not end in 10 s" in error["message"]


def test_when_it_has_printed_the_key_what_it_started_is_gone(
    start: Start, workspace: Path, fake: FakeProvider, family: Family
) -> None:
    fake.api_key = "sk-of-a-family-1234"
    fake.script(text("done"))
    server = start(env=asking(family, "print('sk-of-a-family-1234')"))

    session_id = server.create(workspace)

    assert family.left() == []
    assert server.finish(session_id, server.submit(session_id))["status"] == "completed"


# --- in a turn --------------------------------------------------------------------------------------------------


@pytest.fixture
def in_a_turn(start: Start, workspace: Path, family: Family) -> Iterator[tuple[Server, str, str]]:
    """A server whose turn waits for the program, since another process set its model; the session and the turn."""
    vendor = VENDORS["openai"]
    with FakeProvider(wire=vendor.wire) as openai:
        url = {"HAMES_OPENAI_BASE_URL": openai.url}
        server = start(env={**url, "HAMES_OPENAI_API_KEY_COMMAND": family.command("time.sleep(600)")})
        other = start(env={**url, "HAMES_OPENAI_API_KEY": "sk-of-the-other-process"})
        session_id = server.create(workspace)
        other.call("session/update", sessionId=session_id, model=f"openai/{vendor.models[0]}")
        assert other.stop() == 0
        turn_id = server.submit(session_id)
        family.stands()
        yield server, session_id, turn_id
        assert openai.requests == []


def test_it_is_gone_when_a_turn_that_waits_for_it_is_cancelled(
    in_a_turn: tuple[Server, str, str], family: Family
) -> None:
    server, session_id, turn_id = in_a_turn

    server.call("turn/cancel", sessionId=session_id, turnId=turn_id)

    server.wait_event("turn.cancelled", session_id=session_id)
    assert family.left() == []
    assert server.finish(session_id, turn_id)["status"] == "cancelled"


def test_it_is_gone_when_shutdown_cancels_a_turn_that_waits_for_it(
    in_a_turn: tuple[Server, str, str], family: Family
) -> None:
    server, session_id, _ = in_a_turn

    assert server.call("shutdown") == {}

    assert family.left() == []
    assert server.wait() == 0
    assert server.events(session_id, "turn.cancelled")


@pytest.mark.parametrize("ending", ENDINGS)
def test_it_is_gone_when_a_server_with_such_a_turn_is(
    in_a_turn: tuple[Server, str, str], family: Family, ending: str
) -> None:
    server, _, _ = in_a_turn

    ENDINGS[ending](server)

    assert server.wait() == 0
    assert family.left() == []


def test_a_turn_does_not_wait_for_it_beyond_its_own_time(
    start: Start, workspace: Path, family: Family, fake: FakeProvider
) -> None:
    vendor = VENDORS["openai"]
    url = {"HAMES_OPENAI_BASE_URL": fake.url}
    server = start(env={**url, "HAMES_OPENAI_API_KEY_COMMAND": family.command("time.sleep(600)")})
    other = start(env={**url, "HAMES_OPENAI_API_KEY": "sk-of-the-other-process"})
    session_id = server.create(workspace)
    other.call("session/update", sessionId=session_id, model=f"openai/{vendor.models[0]}")

    turn = server.finish(session_id, server.submit(session_id, limits={"wallTimeMs": 1_000}))

    assert family.left() == []
    assert turn["outcome"]["error"]["details"]["limit"] == "wallTimeMs"


# --- what it says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["print(MARK * 300_000)", "while True: print(MARK)"])
def test_one_that_prints_more_than_a_key_is_ended_there_and_nobody_sees_a_word_of_it(
    start: Start, home: Path, workspace: Path, family: Family, then: str
) -> None:
    server = start(env=asking(family, f"MARK = 'sk-flood-1'\nsys.stderr.write(MARK)\n{then}"))

    error = server.refused("session/create", workspace=str(workspace))

    assert family.left() == []
    assert error["data"]["kind"] == "credential_missing"
    assert error["data"]["details"] == {"setting": SETTING}
    assert "printed more than 16384 bytes" in error["message"]
    unseen(server, home, b"sk-flood-1")


def test_of_one_that_fails_nobody_sees_a_word(start: Start, home: Path, workspace: Path, family: Family) -> None:
    code = "print('sk-half-a-key'); sys.stderr.write('locked: sk-half-a-key'); sys.exit(4)"
    server = start(env=asking(family, code))

    error = server.refused("session/create", workspace=str(workspace))
    health = server.call("health/check", dependencies=["provider"])

    assert error["data"]["details"] == {"setting": SETTING, "exitCode": 4}
    assert health["dependencies"]["provider"]["status"] == "unavailable"
    unseen(server, home, b"sk-half-a-key")


def unseen(server: Server, home: Path, mark: bytes) -> None:
    """What is marked stands nowhere: not on the wire, not in the store, not on stderr."""
    assert server.stop() == 0
    assert not [frame.raw for frame in server.frames if mark in frame.raw]
    assert not [path for path in home.rglob("*") if path.is_file() and mark in path.read_bytes()]
    assert mark.decode() not in server.stderr


def test_while_it_runs_others_are_served(start: Start, workspace: Path, family: Family) -> None:
    server = start(env=asking(family))
    request = create(server, workspace)
    family.stands()

    assert server.call("ping") == {}
    session_id = server.create(workspace, model="offline")
    turn = server.finish(session_id, server.submit(session_id, "say hello"))

    assert turn["status"] == "completed"
    assert not server.answered(request)
    server.notify("$/cancelRequest", id=request)
    assert server.answer(request)["error"]["code"] == CANCELLED
