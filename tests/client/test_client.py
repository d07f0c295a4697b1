"""The Python client against a stub of the server: restarts, order, bounds, and a clean end."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import hames_client.client
import hames_client.events
from e2e.processes import unmeasured
from hames_client import ConnectionLost, HamesClient, HamesError, LogBroken, Session

pytestmark = pytest.mark.anyio

STUB = str(Path(__file__).with_name("stub.py"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "store"


@asynccontextmanager
async def _client(home: Path, *traits: str, **options: Any) -> AsyncIterator[HamesClient]:
    command = [sys.executable, STUB, str(home), *traits]
    with anyio.fail_after(60):
        async with HamesClient.spawn(command, **{"env": unmeasured(), **options}) as client:
            yield client


def _calls(home: Path) -> list[str]:
    return [json.loads(line) for line in (home / "calls").read_text().splitlines()]


async def _take(session: Session, count: int, **options: Any) -> list[int]:
    async with session.events(**options) as events:
        return [(await anext(events))["seq"] for _ in range(count)]


async def _until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 another process does it
            await anyio.sleep(0.01)


async def test_it_initializes_and_answers_requests(home: Path) -> None:
    async with _client(home) as client:
        described = await client.describe()

        assert client.server["serverInfo"]["name"] == "stub"
        assert described["schemaVersion"] == "1.0"
        assert client.pid is not None


async def test_a_refusal_has_its_kind_and_details(home: Path) -> None:
    async with _client(home) as client:
        session = await client.create_session("/w")

        with pytest.raises(HamesError) as refused:
            await _take(session, 1, after="99.000000000000")

    assert refused.value.kind == "cursor_ahead"
    assert refused.value.code == -32000
    assert not refused.value.retryable
    assert refused.value.details == {"supported": ["2"]}


async def test_events_come_once_and_in_order_from_the_start(home: Path) -> None:
    async with _client(home, "doubles", "unknown") as client:
        session = await client.create_session("/w")
        await session.submit("count 5")

        seqs = await _take(session, 9)

    assert seqs == list(range(1, 10))


async def test_events_go_on_after_a_cursor(home: Path) -> None:
    async with _client(home) as client:
        session = await client.create_session("/w")
        await session.submit("count 5")
        async with session.events() as events:
            for _ in range(4):
                await anext(events)

        assert events.cursor == "4.000000000004"
        assert await _take(session, 5, after=events.cursor) == [5, 6, 7, 8, 9]


async def test_events_survive_the_death_of_the_server(home: Path) -> None:
    async with _client(home) as client:
        session = await client.create_session("/w")
        await session.submit("count 5")
        async with session.events() as events, anyio.create_task_group() as tasks:
            seqs = [(await anext(events))["seq"] for _ in range(9)]

            async def read_on() -> None:
                seqs.extend([(await anext(events))["seq"] for _ in range(3)])

            tasks.start_soon(read_on)
            first_pid = client.pid
            assert first_pid is not None
            os.kill(first_pid, signal.SIGKILL)
            await session.submit("again")

        assert seqs == list(range(1, 13))
        assert client.pid != first_pid
        assert client.server["serverInfo"]["starts"] == 2


async def test_after_a_restart_its_sessions_are_resumed_before_anything_else(home: Path) -> None:
    async with _client(home) as client:
        await client.create_session("/w")
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        await _until(lambda: _calls(home).count("session/resume") == 1)
        await client.ping()

    assert _calls(home)[2:] == ["initialize", "session/get", "session/resume", "ping", "shutdown"]


async def test_a_session_that_was_closed_or_only_observed_is_not_resumed(home: Path) -> None:
    async with _client(home) as client:
        session = await client.create_session("/w")
        await client.resume_session("s", own="observe")
        await session.close()
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        await _until(lambda: _calls(home).count("initialize") == 2)
        await client.ping()

    assert "session/resume" not in _calls(home)[_calls(home).index("session/close") :]


@pytest.mark.parametrize("text", ["die after", "die before"])
async def test_a_submit_whose_answer_is_lost_is_sent_again_and_admitted_once(home: Path, text: str) -> None:
    async with _client(home, max_restarts=1) as client:
        session = await client.create_session("/w")

        if text == "die before":
            # It dies at every try, so this is also the bound on trying.
            with pytest.raises(ConnectionLost):
                await session.submit(text)
            return
        answer = await session.submit(text)

        assert answer["turn"]["turnId"] == "t1"
        assert await _take(session, 4) == [1, 2, 3, 4]
    assert _calls(home).count("turn/submit") == 2


async def test_a_request_that_may_not_be_repeated_fails_when_the_server_dies(home: Path) -> None:
    async with _client(home) as client:
        session = await client.create_session("/w")

        with pytest.raises(ConnectionLost) as lost:
            await session.rename("die")

        assert lost.value.exit_code == 9
        assert (await session.rename("better"))["session"]["sessionId"] == "s"


async def test_a_wait_goes_on_over_a_restart(home: Path) -> None:
    answers = []
    async with _client(home) as client:
        session = await client.create_session("/w")
        turn = (await session.submit("open"))["turn"]

        async def wait() -> None:
            answers.append(await session.wait(turn["turnId"]))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await _until(lambda: "turn/wait" in _calls(home))
            assert client.pid is not None
            os.kill(client.pid, signal.SIGKILL)
            await _until(lambda: _calls(home).count("turn/wait") == 2)
            with (home / "log").open("a") as log:
                event = {"sessionId": "s", "seq": 4, "turnId": turn["turnId"], "type": "turn.completed", "data": {}}
                log.write(json.dumps(event) + "\n")
            await client.ping()

    assert [answer["why"] for answer in answers] == ["ended"]


async def test_without_restart_a_death_is_final(home: Path) -> None:
    async with _client(home, restart=False) as client:
        session = await client.create_session("/w")
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)

        with pytest.raises(ConnectionLost):
            await _take(session, 2)
        with pytest.raises(ConnectionLost):
            await client.ping()


async def test_a_server_that_keeps_dying_is_given_up_with_its_last_words(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hames_client.client, "BACKOFF_S", (0.0,))
    async with _client(home, "dies") as client:
        session = client.session("s")
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)

        with pytest.raises(ConnectionLost) as lost:
            await session.wait("t1")

    assert lost.value.exit_code == 3
    assert "out of luck" in lost.value.stderr


@pytest.mark.parametrize("what", ["command", "cwd"])
async def test_a_command_that_cannot_be_started_says_so_and_what_to_do(home: Path, what: str) -> None:
    missing = str(home / "nothing")
    command = missing if what == "command" else sys.executable

    with pytest.raises(ConnectionLost, match="cannot be started: No such file or directory") as lost:
        async with HamesClient.spawn([command], cwd=missing if what == "cwd" else None):
            pass

    assert missing in str(lost.value)
    assert "give `spawn` the command" in str(lost.value)


async def test_no_common_version_ends_the_client_at_once(home: Path) -> None:
    with pytest.raises(HamesError) as refused:
        async with _client(home, "newer"):
            pass

    assert refused.value.kind == "unsupported_protocol"


async def test_an_exception_in_the_body_comes_out_as_it_is(home: Path) -> None:
    with pytest.raises(KeyError):
        async with _client(home):
            raise KeyError("mine")


async def test_noise_on_stdout_and_a_flood_on_stderr_do_no_harm(home: Path) -> None:
    async with _client(home, "noise") as client:
        await client.ping()


async def test_a_hole_in_the_numbers_is_an_error(home: Path) -> None:
    async with _client(home, "gap") as client:
        session = await client.create_session("/w")
        await session.submit("count 5")

        with pytest.raises(LogBroken):
            await _take(session, 9)


async def test_a_subscription_that_the_server_keeps_ending_is_an_error(home: Path) -> None:
    async with _client(home, "closes") as client:
        session = await client.create_session("/w")

        with pytest.raises(LogBroken, match="deleted"):
            await _take(session, 1)


async def test_a_slow_consumer_gets_everything_and_holds_little(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hames_client.events, "MAX_WAITING", 10)
    async with _client(home) as client:
        session = await client.create_session("/w")
        await session.submit("count 100")
        seqs = []
        async with session.events() as events:
            for _ in range(104):
                seqs.append((await anext(events))["seq"])
                assert len(events._waiting) <= 10

    assert seqs == list(range(1, 105))
    assert "events/unsubscribe" in _calls(home)


async def test_deltas_go_to_their_callback(home: Path) -> None:
    deltas: list[str] = []
    async with _client(home) as client:
        session = await client.create_session("/w")
        await _take(session, 1, on_delta=lambda delta: deltas.append(delta["text"]))
        await client.ping()

    assert deltas == ["ab"]


async def test_other_notifications_go_to_the_client(home: Path) -> None:
    seen: list[str] = []
    async with _client(home, "unknown", on_notification=lambda method, params: seen.append(method)) as client:
        await client.ping()
        await client.ping()

    assert "news" in seen


async def test_a_request_that_is_given_up_is_cancelled_at_the_server(home: Path) -> None:
    async with _client(home) as client:
        session = await client.create_session("/w")
        turn = (await session.submit("open"))["turn"]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.wait, turn["turnId"])
            await _until(lambda: "turn/wait" in _calls(home))
            tasks.cancel_scope.cancel()
        await client.ping()

    assert "$/cancelRequest" in _calls(home)


async def test_a_request_larger_than_the_server_takes_is_refused_here(home: Path) -> None:
    async with _client(home) as client:
        session = await client.create_session("/w")

        with pytest.raises(HamesError) as refused:
            await session.submit("x" * 5000)

        assert refused.value.kind == "frame_too_large"
        await client.ping()


async def test_text_with_lone_surrogates_and_line_separators_arrives(home: Path) -> None:
    async with _client(home) as client:
        answer = await client.request("echo", {"text": "a\u2028b\u0085c\ud800"})

    assert answer == {"text": "a\u2028b\u0085c\ud800"}


async def test_closing_shuts_the_server_down_and_reaps_it(home: Path) -> None:
    async with _client(home) as client:
        pid = client.pid
        assert pid is not None

    assert _calls(home)[-1] == "shutdown"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_server_that_does_not_end_is_ended(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hames_client.client, "CLOSE_S", 0.2)
    async with _client(home, "deaf") as client:
        pid = client.pid
        assert pid is not None

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_cancelled_client_leaves_no_server(home: Path) -> None:
    pids: list[int | None] = []

    async def work() -> None:
        async with _client(home) as client:
            pids.append(client.pid)
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await _until(lambda: bool(pids))
        tasks.cancel_scope.cancel()

    assert pids[0] is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_an_iteration_ends_when_it_is_closed_and_fails_when_the_client_is(home: Path) -> None:
    async with _client(home) as client:
        session = await client.create_session("/w")
        closed = session.events()
        await anext(closed)
        closed.close()
        left = session.events()
        await anext(left)

        assert [event async for event in closed] == []

    with pytest.raises(ConnectionLost):
        await anext(left)
