"""`hames.connect`: what holds for a spawned server holds for one within the program, and the program stays its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

import hames
import hames.app
import hames_client.events
from crash.waits import until_file
from e2e.processes import descendants
from hames.embedded import connect
from hames_client import ConnectionLost, HamesClient, HamesError, Session

pytestmark = pytest.mark.anyio

TERMINAL = {"turn.completed", "turn.failed", "turn.cancelled"}
LONG = "say begun\nwait 600000\nsay never"


async def submitted(session: Session, text: str) -> str:
    """Admit a turn; its id."""
    turn_id: str = (await session.submit(text))["turn"]["turnId"]
    return turn_id


async def started(session: Session, text: str) -> str:
    """Admit a turn and wait until the model works on it; its id."""
    async with session.events() as events:
        turn_id = await submitted(session, text)
        async for event in events:
            if event["type"] == "model.requested":
                return turn_id
    raise AssertionError("the events ended")


async def log(session: Session) -> list[Any]:
    """All events, with their cursors."""
    return list((await session.read_events())["events"])


async def turn_after(environ: Mapping[str, str], session_id: str, turn_id: str) -> Mapping[str, Any]:
    """A turn as the store has it once the server that ran it is gone."""
    async with connect(environ=environ) as client:
        return (await client.session(session_id).get_turn(turn_id))["turn"]


async def test_a_turn_runs_and_a_spawned_server_reads_the_same_log(environ: Mapping[str, str], workspace: Path) -> None:
    with anyio.fail_after(60):
        async with connect(environ=environ) as client:
            session = await client.create_session(workspace, model="offline")
            waited = await session.wait(await submitted(session, "say hello"))
            seen = await log(session)
        async with HamesClient.spawn(env=environ) as spawned:
            read = await log(spawned.session(session.id))

    assert waited["turn"]["outcome"]["text"] == "hello"
    assert seen == read
    assert client.server["transport"]["kind"] == "memory"
    assert spawned.server["limits"] == client.server["limits"]


async def test_events_come_in_order_with_their_previews(environ: Mapping[str, str], workspace: Path) -> None:
    text = ""

    def grow(delta: dict[str, Any]) -> None:
        nonlocal text
        text += delta["text"]

    with anyio.fail_after(60):
        async with connect(environ=environ) as client:
            session = await client.create_session(workspace, model="offline")
            seqs = []
            async with session.events(on_delta=grow) as events:
                await anext(events)
                # A preview that comes at once may find its reader behind, and is left out.
                await submitted(session, "wait 500\nrepeat 50 ab ")
                async for event in events:
                    seqs.append(event["seq"])
                    if event["type"] in TERMINAL:
                        break

    assert seqs == list(range(2, len(seqs) + 2))
    assert text == "ab" * 50


async def test_limits_and_refusals_are_those_of_every_client(environ: Mapping[str, str], workspace: Path) -> None:
    with anyio.fail_after(60):
        async with connect(environ=environ, settings={"limits.inputBytes": 100, "limits.queueLength": 1}) as client:
            session = await client.create_session(workspace, model="offline")
            with pytest.raises(HamesError) as too_much:
                await session.submit("x" * 101)
            await started(session, LONG)
            await session.submit("say later")
            with pytest.raises(HamesError) as too_many:
                await session.submit("say too late")
            with pytest.raises(HamesError) as unknown:
                await client.request("session/get", {"sessionId": "none"})
            with pytest.raises(HamesError) as misspelt:
                await client.request("session/gte")

    assert (too_much.value.kind, too_much.value.details["limit"]) == ("limit_exceeded", "inputBytes")
    assert too_many.value.kind == "queue_full"
    assert unknown.value.kind == "session_not_found"
    assert misspelt.value.kind == "method_not_found"


async def test_at_the_end_of_the_block_a_running_turn_is_cancelled(environ: Mapping[str, str], workspace: Path) -> None:
    with anyio.fail_after(60):
        async with connect(environ=environ) as client:
            session = await client.create_session(workspace, model="offline")
            turn_id = await started(session, LONG)
        turn = await turn_after(environ, session.id, turn_id)

    assert (turn["status"], turn["outcome"]["cause"]) == ("cancelled", "shutdown")


async def test_with_drain_the_end_waits_for_what_runs(environ: Mapping[str, str], workspace: Path) -> None:
    with anyio.fail_after(60):
        async with connect(environ=environ, on_close="drain") as client:
            session = await client.create_session(workspace, model="offline")
            turn_id = await started(session, "say first\nwait 300\nsay last")
        turn = await turn_after(environ, session.id, turn_id)

    assert (turn["status"], turn["attempt"]) == ("completed", 1)
    assert turn["outcome"]["text"].endswith("last")


@pytest.mark.parametrize("on_close", ["cancel", "drain"])
async def test_an_exception_of_the_block_comes_out_as_it_is_and_nothing_is_waited_for(
    environ: Mapping[str, str], workspace: Path, on_close: Any
) -> None:
    mine = LookupError("mine")

    with anyio.fail_after(60):
        try:
            async with connect(environ=environ, on_close=on_close) as client:
                session = await client.create_session(workspace, model="offline")
                turn_id = await started(session, LONG)
                raise mine
        except LookupError as error:
            caught = error
        turn = await turn_after(environ, session.id, turn_id)

    assert caught is mine
    assert turn["status"] == "cancelled"


async def test_sys_exit_in_the_block_is_an_exit(environ: Mapping[str, str]) -> None:
    with pytest.raises(SystemExit):
        async with connect(environ=environ):
            sys.exit(3)


@pytest.mark.parametrize("on_close", ["cancel", "drain"])
async def test_a_cancelled_block_settles_its_turns_first(
    environ: Mapping[str, str], workspace: Path, on_close: Any
) -> None:
    with anyio.fail_after(60):
        with anyio.CancelScope() as scope:
            async with connect(environ=environ, on_close=on_close) as client:
                session = await client.create_session(workspace, model="offline")
                turn_id = await started(session, LONG)
                scope.cancel()
                await anyio.sleep_forever()
        turn = await turn_after(environ, session.id, turn_id)

    assert scope.cancelled_caught
    assert turn["status"] == "cancelled"
    assert turn["attempt"] == 1


async def test_a_drain_that_takes_too_long_can_be_cancelled(environ: Mapping[str, str], workspace: Path) -> None:
    with anyio.fail_after(60):
        with anyio.move_on_after(0.5) as limit:
            async with connect(environ=environ, on_close="drain") as client:
                session = await client.create_session(workspace, model="offline")
                turn_id = await started(session, LONG)
                limit.deadline = anyio.current_time() + 0.2
        turn = await turn_after(environ, session.id, turn_id)

    assert limit.cancelled_caught
    assert turn["status"] == "cancelled"


async def test_a_request_that_is_cancelled_is_cancelled_in_the_server(
    environ: Mapping[str, str], workspace: Path
) -> None:
    with anyio.fail_after(60):
        async with connect(environ=environ, settings={"limits.waitingRequests": 1}) as client:
            session = await client.create_session(workspace, model="offline")
            turn_id = await started(session, LONG)
            for _ in range(5):
                with anyio.move_on_after(0.05):
                    await session.wait(turn_id)
                # Else the next one would be refused: one may wait.
                await client.ping()


async def test_a_hundred_turns_run_beside_one_another(environ: Mapping[str, str], workspace: Path) -> None:
    ended: list[Any] = []

    async def work(client: HamesClient, number: int) -> None:
        session = await client.create_session(workspace, model="offline")
        turn = (await session.wait(await submitted(session, f"wait 50\nsay turn {number}")))["turn"]
        ended.append(turn["outcome"]["text"])

    with anyio.fail_after(120):
        async with connect(environ=environ) as client, anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(work, client, number)

    assert sorted(ended) == sorted(f"turn {number}" for number in range(100))


async def test_who_does_not_take_events_keeps_few_and_gets_them_all(
    environ: Mapping[str, str], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hames_client.events, "MAX_WAITING", 20)

    with anyio.fail_after(120):
        async with connect(environ=environ) as client:
            session = await client.create_session(workspace, model="offline")
            async with session.events() as events:
                await anext(events)
                last = [await submitted(session, "say x") for _ in range(10)][-1]
                waited = await session.wait(last)
                kept = len(events._waiting)
                count = 1
                async for event in events:
                    count += 1
                    if event.get("turnId") == last and event["type"] in TERMINAL:
                        break
            head = (await session.read_events(limit=1))["headSeq"]

    assert waited["turn"]["status"] == "completed"
    assert kept <= 20 < count == head


async def test_two_clients_of_a_program_share_a_store_and_either_ends_first(
    environ: Mapping[str, str], workspace: Path
) -> None:
    with anyio.fail_after(60):
        async with connect(environ=environ) as second:
            async with connect(environ=environ) as first:
                session = await first.create_session(workspace, model="offline")
                await session.wait(await submitted(session, "say one"))
                watched = await log(second.session(session.id))
                own = await log(session)
            other = await second.resume_session(session.id)
            turn = (await other.wait(await submitted(other, "say two")))["turn"]

    assert watched == own
    assert turn["outcome"]["text"] == "two"


async def test_many_clients_that_come_at_once_open_the_store_safely(
    environ: Mapping[str, str], workspace: Path
) -> None:
    async def work(number: int) -> None:
        async with connect(environ=environ) as client:
            session = await client.create_session(workspace, model="offline", session_id=f"s-{number}")
            for text in ("say one", "say two"):
                assert (await session.wait(await submitted(session, text)))["turn"]["status"] == "completed"

    with anyio.fail_after(120):
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(work, number * 10 + _)
        async with connect(environ=environ) as client:
            page = await client.list_sessions(limit=100)

    assert len(page["sessions"]) == 24


async def test_the_program_is_left_as_it_was(
    environ: Mapping[str, str], workspace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAMES_COMPATIBLE_API_KEY", "sk-of-the-program-0123456789")
    signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)]
    variables, folder, threads = dict(os.environ), Path.cwd(), set(threading.enumerate())
    tuned: list[str] = []
    monkeypatch.setattr(hames.app, "give_memory_back", lambda: tuned.append("malloc"))

    with anyio.fail_after(60):
        async with connect(environ=environ) as client:
            session = await client.create_session(workspace, model="offline")
            await session.wait(await submitted(session, 'call bash {"command": "echo hi"}\nsay done'))
            inside = [
                signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
            ]

    assert inside == signals
    assert (dict(os.environ), Path.cwd(), tuned) == (variables, folder, [])
    assert descendants(os.getpid()) == []
    assert [one.name for one in set(threading.enumerate()) - threads if one.name.startswith("hames")] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"limits.steps": 0}, "limits.steps must be from 1"),
        ({"modle": "x"}, "There is no setting 'modle'"),
        ({"providers.compatible.baseUrl": "ftp://x"}, "must be an http or https URL"),
    ],
)
async def test_a_setting_that_is_wrong_is_refused_by_its_name(
    environ: Mapping[str, str], settings: Mapping[str, Any], told: str
) -> None:
    with pytest.raises(HamesError) as refused:
        async with connect(environ=environ, settings=settings):
            pass

    assert refused.value.kind == "invalid_config"
    assert told in refused.value.message


async def test_settings_of_the_caller_win_and_the_home_too(
    environ: Mapping[str, str], tmp_path: Path, home: Path, workspace: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    given = {**environ, "HAMES_LIMIT_STEPS": "5", "HAMES_LIMIT_RETRIES": "2"}

    with anyio.fail_after(60):
        async with connect(home=elsewhere, environ=given, settings={"limits.steps": 7}) as client:
            await client.create_session(workspace, model="offline")
            limits = client.server["limits"]

    assert (limits["steps"]["default"], limits["retries"]["default"]) == (7, 2)
    assert (elsewhere / "store.db").exists()
    assert not (home / "store").exists()


async def test_a_store_that_cannot_be_made_is_a_typed_error(environ: Mapping[str, str], workspace: Path) -> None:
    async with connect(environ=environ, home="/proc/nothing") as client:
        with pytest.raises(HamesError) as refused:
            await client.create_session(workspace, model="offline")
        await client.ping()

    assert refused.value.kind == "store_unavailable"


async def test_a_defect_of_the_server_is_a_lost_connection_and_not_the_end_of_the_program(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(hames.app, "make_host", broken)

    with anyio.fail_after(60), pytest.raises(ConnectionLost, match="ZeroDivisionError"):
        async with connect(environ=environ):
            pass


async def test_a_server_that_breaks_down_is_started_again_and_its_turns_go_on(
    environ: Mapping[str, str], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts: list[Any] = []
    groups: list[Any] = []
    make_host = hames.app.make_host

    def noted(config: Any, variables: Any, tasks: Any, **options: Any) -> Any:
        groups.append(tasks)
        hosts.append(make_host(config, variables, tasks, **options))
        return hosts[-1]

    async def fail() -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(hames.app, "make_host", noted)

    with anyio.fail_after(60):
        async with connect(environ=environ) as client:
            session = await client.create_session(workspace, model="offline")
            turn_id = await started(session, "say first\nwait 300\nsay last")
            groups[0].start_soon(fail)
            waited = await session.wait(turn_id)

    assert len(hosts) == 2
    assert (waited["why"], waited["turn"]["attempt"], waited["turn"]["status"]) == ("ended", 2, "completed")


@pytest.mark.slow
async def test_a_program_that_is_killed_is_taken_over_by_the_next(
    environ: Mapping[str, str], workspace: Path, anyio_backend: str
) -> None:
    marker = workspace / "ran.txt"
    script = f'call bash {{"command": "echo once >> {marker}"}}\nwait 600000\nsay Done.'
    program = f"""
import anyio, hames
async def main():
    async with hames.connect() as client:
        session = await client.create_session({str(workspace)!r}, model="offline", session_id="s-killed")
        await session.submit({script.replace("600000", "3000")!r}, turn_id="t-1")
        await anyio.sleep_forever()
anyio.run(main, backend={anyio_backend!r})
"""
    child = subprocess.Popen([sys.executable, "-c", program], env=environ)  # noqa: ASYNC220
    try:
        await anyio.to_thread.run_sync(until_file, marker)
        async with connect(environ=environ) as watcher:
            events = watcher.session("s-killed").events()
            with anyio.fail_after(30):
                while (await anext(events))["type"] != "tool.completed":
                    pass
            child.kill()
            child.wait()
            with anyio.fail_after(60):
                session = await watcher.resume_session("s-killed")
                waited = await session.wait("t-1")
    finally:
        child.kill()
        child.wait()

    assert (waited["why"], waited["turn"]["attempt"], waited["turn"]["outcome"]["text"]) == ("ended", 2, "Done.")
    assert marker.read_text() == "once\n"


@pytest.mark.slow
async def test_ctrl_c_settles_what_runs_and_is_an_interrupt(
    environ: Mapping[str, str], workspace: Path, anyio_backend: str
) -> None:
    program = f"""
import sys, anyio, hames
async def main():
    async with hames.connect(on_close="drain") as client:
        session = await client.create_session({str(workspace)!r}, model="offline", session_id="s-1")
        await session.submit("wait 600000", turn_id="t-1")
        async for event in session.events():
            if event["type"] == "model.requested":
                break
        print("waiting", flush=True)
        await session.wait("t-1")
code = 0
try:
    anyio.run(main, backend={anyio_backend!r})
except* KeyboardInterrupt:  # alone, or in a group where trio raised it in a task of a nursery
    code = 130
sys.exit(code)
"""
    # An interrupt may come between the making of a coroutine and its start.
    command = [sys.executable, "-W", "ignore:coroutine:RuntimeWarning", "-c", program]
    child = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: ASYNC220
    assert child.stdout is not None
    with anyio.fail_after(60):
        assert await anyio.to_thread.run_sync(child.stdout.readline) == b"waiting\n"
        child.send_signal(signal.SIGINT)
        out, err = await anyio.to_thread.run_sync(child.communicate)
        turn = await turn_after(environ, "s-1", "t-1")

    assert (child.returncode, out, err) == (130, b"", b"")
    # trio may raise the interrupt in a task of the server, which then leaves the turn to recovery.
    assert turn["status"] in ({"cancelled"} if anyio_backend == "asyncio" else {"cancelled", "running"})
