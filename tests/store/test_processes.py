"""Two real processes on one store: they see each other's commits, take over from the dead, and wait at the gate."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from crash.stopping import stop_outside_the_gate
from hames.core.limits import DEFAULTS
from hames.ports import Owner
from hames.protocol.errors import HarnessFault
from store.damage import close_in_passing
from store.play import World, check_chain, chunk, create, folded, running, stale_owner, submission, take, whole
from store.process import close_from_outside, locked, other

pytestmark = pytest.mark.anyio


async def test_two_processes_follow_each_others_commits(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
        with other(disk_world.directory) as second:
            for n in range(0, 20, 2):
                second.tell("changed", after=n + 1)
                await store.commit("s-1", submission(f"t-{n}")).wait()
                assert (await anyio.to_thread.run_sync(second.hear))["seq"] == n + 2
                second.tell("submit", turn=f"t-{n + 1}")
                with anyio.fail_after(30):
                    assert await store.changed("s-1", n + 2) == n + 3
                assert second.hear()["seq"] == n + 3

            entries = await whole(store)
            assert len(entries) == 21
            assert (await store.load("s-1")).state == folded("s-1", entries)


async def test_a_killed_owner_is_taken_over_at_once_and_its_files_are_removed(disk_world: World) -> None:
    async with disk_world.open() as store:
        with other(disk_world.directory) as second:
            fence = second.ask("run")["fence"]
            assert isinstance(await store.claim("s-1"), Owner)

            second.kill()

            assert await take(store) == fence + 1
            assert second.owner_id not in os.listdir(disk_world.directory / "live")
            assert f"{second.owner_id}.sock" not in os.listdir(disk_world.directory / "bell")


async def test_a_stopped_owner_is_stale_and_cannot_commit_after_it_was_taken_over(disk_world: World) -> None:
    disk_world.limits = {**disk_world.limits, "leaseMs": 200}
    async with disk_world.open() as store:
        with other(disk_world.directory) as second:
            fence = second.ask("run")["fence"]
            await anyio.to_thread.run_sync(stop_outside_the_gate, second, disk_world.directory)
            holder = await stale_owner(store)
            assert holder.alive
            assert holder.pid == second.process.pid

            assert await take(store, force=True) == fence + 1

            second.signal(signal.SIGCONT)
            assert second.ask("chunk", fence=fence)["kind"] == "lease_lost"
            assert second.ask("submit", turn="t-9")["seq"] == 4
            assert (await store.owner("s-1")).mine  # type: ignore[union-attr]


async def test_a_process_stopped_within_the_gate_costs_others_an_error_and_no_loss(disk_world: World) -> None:
    disk_world.limits = {**disk_world.limits, "gateMs": 200}
    async with disk_world.open() as store:
        await create(store)
        with other(disk_world.directory) as second:
            assert second.ask("hold")["held"]
            second.signal(signal.SIGSTOP)
            with anyio.fail_after(30):
                with pytest.raises(HarnessFault) as caught:
                    await store.commit("s-1", submission("t-1")).wait()
                assert (await store.check())["status"] == "unavailable"
            assert caught.value.kind == "store_unavailable"
            assert caught.value.details["pid"] == second.process.pid
            assert caught.value.details["state"] == "stopped"
            assert (await store.load("s-1")).state.seq == 1

            second.signal(signal.SIGCONT)
            second.tell("go on")
            assert second.hear() == {"held": False}

            assert (await store.commit("s-1", submission("t-1")).wait()).state.seq == 2


async def test_a_process_killed_within_the_gate_leaves_it_open(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
        with other(disk_world.directory) as second:
            assert second.ask("hold")["held"]

            second.kill()

            assert (await store.commit("s-1", submission("t-1")).wait()).state.seq == 2


@pytest.mark.slow
async def test_two_busy_processes_share_the_gate(disk_world: World) -> None:
    async with disk_world.open() as store:
        with other(disk_world.directory) as second:
            second.tell("flood", sessions=2)
            second.hear()
            fence = await running(store, "mine")

            with anyio.fail_after(60):
                for at in range(200):
                    await store.commit("mine", chunk(fence, "t-1", at)).wait()

            second.kill()
            check_chain("mine", (await store.read("mine", limit=999, max_bytes=2**20)).lines)


async def test_a_stray_close_in_this_process_and_a_foreign_closer_lose_nothing(disk_world: World) -> None:
    """POSIX drops a process's locks on a file with any `close` of it; then the last foreign closer unlinks the WAL."""
    async with disk_world.open() as store:
        await create(store)
        close_in_passing(disk_world.directory)

        await anyio.to_thread.run_sync(close_from_outside, disk_world.directory)
        for n in range(3):
            await store.commit("s-1", submission(f"t-{n}")).wait()

        assert (disk_world.directory / "store.db-wal").exists()
    async with disk_world.open() as store:
        assert len(await whole(store)) == 4


async def test_a_foreign_program_that_holds_the_write_lock_is_an_error_that_passes(disk_world: World) -> None:
    disk_world.limits = {**DEFAULTS, "gateMs": 150}
    async with disk_world.open() as store:
        await create(store)
        with locked(disk_world.directory):
            ticket = store.commit("s-1", submission("t-1"))
            with anyio.fail_after(30), pytest.raises(HarnessFault, match="store_unavailable"):
                await ticket.wait()

        assert (await store.commit("s-1", submission("t-1")).wait()).state.seq == 2


@pytest.mark.slow
async def test_many_processes_making_one_store_make_one(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with other(directory) as a, other(directory) as b, other(directory) as c:
        for n, process in enumerate((a, b, c)):
            assert process.ask("create", session=f"s-{n}")["seq"] == 1

    connection = sqlite3.connect(f"file:{directory / 'store.db'}?mode=ro", uri=True)
    try:
        assert connection.execute("select count(*) from session").fetchone() == (3,)
    finally:
        connection.close()


async def test_a_long_path_has_a_bell_too(tmp_path: Path) -> None:
    world = World("sqlite", tmp_path / ("long-" * 25) / ("path-" * 25))
    async with world.open() as store:
        await create(store)
        with other(world.directory) as second:
            assert len(os.listdir(world.directory / "bell")) == 2
            second.tell("changed", after=1)
            await store.commit("s-1", submission("t-1")).wait()
            assert (await anyio.to_thread.run_sync(second.hear))["seq"] == 2
