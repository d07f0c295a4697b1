"""Nothing of a command is left, however it ends and whatever it does against it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from hames.ports import ProcessResult, ReaperRecord
from hames.protocol.errors import HarnessFault
from hames.sandbox import hunt
from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses
from hames.sandbox.tree import descendants
from sandbox.conftest import Lock

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parent
RESISTING = ["stop_watchers", "hold_watchers", "stop_one_and_kill_the_other"]
STAYING = ["plain", "deaf", "detached", "stopped", "hopper", "respawner", "forest", "subreaper"]


async def nasty(sandbox: LocalSandbox, kind: str, lock: Lock, **options: Any) -> ProcessResult:
    argv = [sys.executable, str(FOLDER / "nasty.py"), kind, str(lock.path)]
    defaults = {"timeout_ms": 60_000, "grace_ms": 0, "keep_bytes": 1000}
    return await sandbox.run(argv, **{**defaults, **options})


async def cancel_when_ready(sandbox: LocalSandbox, kind: str, lock: Lock) -> None:
    ready = anyio.Event()
    async with anyio.create_task_group() as group:

        async def run() -> None:
            await nasty(sandbox, kind, lock, on_output=lambda _: ready.set())

        group.start_soon(run)
        await ready.wait()
        assert not lock.is_free()
        group.cancel_scope.cancel()


@contextmanager
def owner(
    tmp_path: Path, session: str, kind: str, lock: Lock
) -> Iterator[tuple[subprocess.Popen[bytes], ReaperRecord]]:
    argv = [sys.executable, str(FOLDER / "owner.py"), str(tmp_path / "other"), session, kind, str(lock.path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        record = ReaperRecord(*json.loads(process.stdout.readline()))
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process, record
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("kind", STAYING)
async def test_a_cancelled_command_is_gone_before_the_cancel_returns(
    sandbox: LocalSandbox, lock: Lock, kind: str
) -> None:
    with anyio.fail_after(30):
        await cancel_when_ready(sandbox, kind, lock)

    assert lock.is_free()


@pytest.mark.slow
@pytest.mark.parametrize("kind", STAYING)
async def test_a_command_that_runs_out_of_time_is_gone_before_its_result(
    sandbox: LocalSandbox, lock: Lock, kind: str
) -> None:
    with anyio.fail_after(30):
        result = await nasty(sandbox, kind, lock, timeout_ms=400)

    assert lock.is_free()
    assert (result.exit_code, result.timed_out) == (124, True)


@pytest.mark.parametrize("kind", ["detached_alone", "pipe_holder"])
async def test_what_a_command_leaves_behind_is_killed_and_counted(sandbox: LocalSandbox, lock: Lock, kind: str) -> None:
    with anyio.fail_after(30):
        result = await nasty(sandbox, kind, lock)

    assert lock.is_free()
    assert (result.exit_code, result.killed, result.alive) == (0, 1, ())


@pytest.mark.parametrize("kind", ["kill_supervisor", "stop_supervisor"])
async def test_a_command_that_gets_rid_of_its_supervisor_is_ended_by_the_reaper(
    sandbox: LocalSandbox, lock: Lock, kind: str
) -> None:
    with anyio.fail_after(30):
        result = await nasty(sandbox, kind, lock)

    assert lock.is_free()
    assert (result.exit_code, result.killed) == (-9, 2)


@pytest.mark.parametrize("kind", RESISTING)
async def test_a_cancelled_command_that_stopped_reaper_and_supervisor_is_gone_with_them(
    sandbox: LocalSandbox, lock: Lock, kind: str
) -> None:
    with anyio.fail_after(30):
        await cancel_when_ready(sandbox, kind, lock)

        assert lock.is_free()
        assert not [pid for pid in descendants([os.getpid()]) if (hunt.stat_fields(pid) or "?")[0] in "Tt"]
        result = await sandbox.run(["true"], timeout_ms=10_000, grace_ms=0, keep_bytes=1)
    assert result.exit_code == 0


@pytest.mark.parametrize("kind", RESISTING)
async def test_a_command_that_stopped_its_watchers_and_runs_out_of_time_is_gone(
    sandbox: LocalSandbox, lock: Lock, kind: str
) -> None:
    with anyio.fail_after(30), suppress(HarnessFault):
        await nasty(sandbox, kind, lock, timeout_ms=600)

    assert lock.is_free()


@pytest.mark.parametrize("kind", ["deaf", *RESISTING])
@pytest.mark.parametrize("grace_ms", [250, 30_000])
async def test_who_is_in_a_hurry_waits_for_no_grace(
    workspace: Path, tmp_path: Path, lock: Lock, kind: str, grace_ms: int
) -> None:
    processes = ReaperProcesses(tmp_path / "run", term_grace_ms=grace_ms, reap_ms=30_000)
    sandbox = LocalSandbox(workspace, workspace, "hurried", processes)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            ready = anyio.Event()
            group.start_soon(partial(nasty, sandbox, kind, lock, on_output=lambda _: ready.set()))
            await ready.wait()
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                # The cancel waits for the grace by now.
                await checkpoint()
                processes.hurry()
        assert lock.is_free()
        await processes.aclose()
    assert list((tmp_path / "run").iterdir()) == []
    await sandbox.aclose()


@pytest.mark.parametrize("kind", RESISTING)
async def test_closing_is_not_held_up_by_who_stops_the_reaper(
    workspace: Path, tmp_path: Path, lock: Lock, kind: str
) -> None:
    processes = ReaperProcesses(tmp_path / "run", reap_ms=30_000)
    sandbox = LocalSandbox(workspace, workspace, "closing", processes)
    ready = anyio.Event()

    async def run() -> None:
        with suppress(HarnessFault):
            await nasty(sandbox, kind, lock, on_output=lambda _: ready.set())

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await ready.wait()
            await processes.aclose()
    assert lock.is_free()
    assert list((tmp_path / "run").iterdir()) == []
    await sandbox.aclose()


async def test_a_stopped_reaper_is_woken_for_the_next_command(
    sandbox: LocalSandbox, processes: ReaperProcesses
) -> None:
    record = await processes.start()
    assert record is not None
    os.kill(record.pid, signal.SIGSTOP)

    with anyio.fail_after(30):
        result = await sandbox.run(["true"], timeout_ms=60_000, grace_ms=0, keep_bytes=1)

    assert result.exit_code == 0


async def test_a_command_that_asks_its_supervisor_to_end_is_just_ended(sandbox: LocalSandbox) -> None:
    with anyio.fail_after(30):
        result = await sandbox.run(["sh", "-c", "kill $PPID; sleep 60"], timeout_ms=60_000, grace_ms=0, keep_bytes=9)

    assert (result.exit_code, result.alive) == (-9, ())


async def test_a_running_command_of_a_session_that_is_taken_over_ends_as_lost(
    sandbox: LocalSandbox, processes: ReaperProcesses, lock: Lock
) -> None:
    record = await processes.start()
    assert record is not None
    ready = anyio.Event()
    failures: list[HarnessFault] = []

    async def run() -> None:
        with pytest.raises(HarnessFault) as failure:
            await nasty(sandbox, "deaf", lock, on_output=lambda _: ready.set())
        failures.append(failure.value)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await ready.wait()
            assert await processes.stop_foreign(record, sandbox.session_id) == ()
            assert lock.is_free()

    assert failures[0].kind == "lease_lost"


@pytest.mark.parametrize("kind", ["kill_reaper", "kill_both"])
async def test_a_command_that_kills_the_reaper_dies_with_it_and_the_next_gets_a_new_one(
    sandbox: LocalSandbox, lock: Lock, kind: str
) -> None:
    with anyio.fail_after(30):
        with pytest.raises(HarnessFault) as failure:
            await nasty(sandbox, kind, lock)

        assert lock.is_free()
        assert (failure.value.kind, failure.value.boundary) == ("internal", "sandbox")
        result = await sandbox.run(["true"], timeout_ms=10_000, grace_ms=0, keep_bytes=1)
        assert result.exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", STAYING)
async def test_a_killed_owner_leaves_neither_command_nor_reaper(tmp_path: Path, lock: Lock, kind: str) -> None:
    with owner(tmp_path, "orphan", kind, lock) as (process, record):
        reaper = os.pidfd_open(record.pid)
        process.kill()
        with anyio.fail_after(30):
            await lock.until_free()
            await anyio.wait_readable(reaper)
        os.close(reaper)

    assert hunt.start_time(record.pid) is None
    assert os.listdir(os.path.dirname(record.socket)) == []


@pytest.mark.slow
async def test_a_command_cancelled_at_any_moment_of_its_start_is_gone(sandbox: LocalSandbox, lock: Lock) -> None:
    chance = random.Random(7)
    with anyio.fail_after(120):
        for _ in range(60):
            with anyio.move_on_after(chance.uniform(0, 0.04)):
                await nasty(sandbox, "detached", lock)
            assert lock.is_free()


async def test_a_graceful_command_ends_by_its_own_handler_and_its_last_words_are_kept(sandbox: LocalSandbox) -> None:
    script = "trap 'echo bye; exit 5' TERM; echo on; while :; do sleep 0.01; done"
    with anyio.fail_after(30):
        result = await sandbox.run(["sh", "-c", script], timeout_ms=300, grace_ms=20_000, keep_bytes=1000)

    assert result.output.startswith(b"on\n")
    assert result.output.endswith(b"bye\n")
    assert result.exit_code == 124


@pytest.mark.parametrize("state", ["running", "stopped"])
async def test_another_process_can_end_a_session_without_touching_its_owner(
    tmp_path: Path, processes: ReaperProcesses, lock: Lock, state: str
) -> None:
    with owner(tmp_path, "taken", "deaf", lock) as (process, record):
        if state == "stopped":
            os.kill(process.pid, signal.SIGSTOP)
        with anyio.fail_after(30):
            assert await processes.stop_foreign(record, "another") == ()
            assert not lock.is_free()
            assert await processes.stop_foreign(record, "taken") == ()

        assert lock.is_free()
        if state == "stopped":
            assert process.poll() is None
            assert hunt.start_time(record.pid) == record.start_time
            os.kill(process.pid, signal.SIGCONT)
        # It is told what happened, and ends by itself.
        assert await anyio.to_thread.run_sync(process.wait) == 1


@pytest.mark.parametrize("trick", ["stopped reaper", "wrong start time", "no socket"])
async def test_a_session_is_ended_by_its_marker_when_the_reaper_cannot_be_asked(
    tmp_path: Path, lock: Lock, trick: str, anyio_backend: str
) -> None:
    processes = ReaperProcesses(tmp_path / "run", reap_ms=200)
    with owner(tmp_path, "marked", "deaf", lock) as (_, record):
        asked = record
        if trick == "stopped reaper":
            os.kill(record.pid, signal.SIGSTOP)
        elif trick == "wrong start time":
            asked = ReaperRecord(record.pid, record.start_time + 1, record.socket)
        else:
            os.unlink(record.socket)
        with anyio.fail_after(30):
            assert await processes.stop_foreign(asked, "marked") == ()

        assert lock.is_free()
        os.kill(record.pid, signal.SIGCONT)


async def test_a_session_that_was_taken_over_runs_nothing_until_it_is_opened_again(
    workspace: Path, processes: ReaperProcesses, sandbox: LocalSandbox
) -> None:
    record = await processes.start()
    assert record is not None
    session = "mine"
    old = LocalSandbox(workspace, workspace, session, processes)
    options: Any = {"timeout_ms": 10_000, "grace_ms": 0, "keep_bytes": 10}
    with anyio.fail_after(30):
        assert (await old.run(["true"], **options)).exit_code == 0
        assert await processes.stop_foreign(record, session) == ()
        with pytest.raises(HarnessFault) as failure:
            await old.run(["true"], **options)
        assert failure.value.kind == "lease_lost"
        assert (await sandbox.run(["true"], **options)).exit_code == 0

        new = LocalSandbox(workspace, workspace, session, processes)
        assert (await new.run(["true"], **options)).exit_code == 0
    await old.aclose()
    await new.aclose()


async def test_closing_ends_what_runs_and_refuses_what_comes(workspace: Path, tmp_path: Path, lock: Lock) -> None:
    processes = ReaperProcesses(tmp_path / "run")
    sandbox = LocalSandbox(workspace, workspace, "closing", processes)
    ready = anyio.Event()
    results: list[ProcessResult] = []

    async def run() -> None:
        results.append(await nasty(sandbox, "deaf", lock, on_output=lambda _: ready.set()))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await ready.wait()
            await processes.aclose()
    assert lock.is_free()
    assert results[0].exit_code == -9
    with pytest.raises(HarnessFault) as failure:
        await sandbox.run(["true"], timeout_ms=1000, grace_ms=0, keep_bytes=1)
    assert failure.value.kind == "shutting_down"
    assert list((tmp_path / "run").iterdir()) == []
    await sandbox.aclose()
