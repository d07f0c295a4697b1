"""What disks, backups and other programs do to a store: recovered, or told, and never a shorter history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from hames.ports import Store
from hames.protocol.errors import HarnessFault, Refused
from hames.store.repair import repair_store
from hames.store.verify import verify_store
from store.damage import (
    FRAME_BYTES,
    WAL_HEADER_BYTES,
    checkpoint,
    close_in_passing,
    flip_bit,
    flip_bits,
    frames,
    older,
    put_back,
    zero,
)
from store.play import LIMITS, World, create, fill, parse, submission, whole
from store.process import CLOSER, NEWER_CLOSER, close_from_outside, other

pytestmark = pytest.mark.anyio

NAMES = [f"s-{n}" for n in range(6)]


async def logs(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Every session's whole log."""
    return {session_id: await whole(store, session_id) for session_id in NAMES}


async def several(world: World, *, moved_out: bool) -> dict[str, list[dict[str, Any]]]:
    """Several sessions, and some commits behind the last checkpoint; what is in their logs."""
    async with world.open() as store:
        for session_id in NAMES:
            await fill(store, 40, session_id, text="x" * 100)
    if moved_out:
        checkpoint(world.directory)
    async with world.open() as store:
        for n in range(20):
            await store.commit(NAMES[n % 6], submission(f"t-{n + 2}")).wait()
        return await logs(store)


async def refused(world: World) -> HarnessFault:
    """Why the store is not opened."""
    store = world.make()
    with pytest.raises(HarnessFault) as caught:
        await store.open()
    await store.aclose()
    return caught.value


# --- the WAL ------------------------------------------------------------------------------------------------


def zero_in_the_middle(directory: Path) -> None:
    zero(directory / "store.db-wal", WAL_HEADER_BYTES + frames(directory) // 2 * FRAME_BYTES, 4096)


def flip_in_the_middle(directory: Path) -> None:
    flip_bit(directory / "store.db-wal", WAL_HEADER_BYTES + frames(directory) // 2 * FRAME_BYTES + 2000)


def flip_in_the_last_frame(directory: Path) -> None:
    flip_bit(directory / "store.db-wal", WAL_HEADER_BYTES + frames(directory) * FRAME_BYTES - 10)


def delete(directory: Path) -> None:
    (directory / "store.db-wal").unlink()


@pytest.mark.parametrize("harm", [zero_in_the_middle, flip_in_the_middle, flip_in_the_last_frame, delete])
async def test_commits_that_a_damaged_wal_took_along_are_missed_and_the_store_says_what_to_do(
    disk_world: World, harm: Callable[[Path], None]
) -> None:
    before = await several(disk_world, moved_out=True)
    harm(disk_world.directory)

    fault = await refused(disk_world)
    assert (fault.kind, fault.details["historyLost"]) == ("store_unavailable", True)
    assert "hames repair" in fault.message
    assert "torn" in verify_store(disk_world.directory, LIMITS).kinds

    assert repair_store(disk_world.directory, LIMITS).history_lost
    assert verify_store(disk_world.directory, LIMITS).is_good
    async with disk_world.open() as store:
        for session_id, log in before.items():
            *kept, told = [e for e in await whole(store, session_id) if e["event"]["type"] != "queue.held"]
            assert kept == log[: len(kept)]
            assert told["event"]["data"]["cut"]["reason"] == "history_lost"
            for entry in log[len(kept) :]:
                with pytest.raises(Refused, match=r"cursor_ahead|cursor_foreign"):
                    await store.read(session_id, after=entry["cursor"], limit=9, max_bytes=9999)


async def test_a_bit_behind_the_last_commit_of_the_wal_costs_nothing(disk_world: World) -> None:
    before = await several(disk_world, moved_out=True)
    flip_bit(disk_world.directory / "store.db-wal", WAL_HEADER_BYTES + frames(disk_world.directory) * FRAME_BYTES + 100)

    assert verify_store(disk_world.directory, LIMITS).is_good
    async with disk_world.open() as store:
        assert await logs(store) == before


async def test_a_header_that_stands_in_the_wal_too_is_recovered(disk_world: World) -> None:
    before = await several(disk_world, moved_out=False)
    checkpoint(disk_world.directory)
    async with disk_world.open() as store:
        await create(store, "s-new")  # a page more: the first one, which counts them, is in the WAL
        for n in range(12):
            await store.commit("s-new", submission(f"t-{n}")).wait()
    zero(disk_world.directory / "store.db", 0, 100)

    async with disk_world.open() as store:
        assert await logs(store) == before
    assert verify_store(disk_world.directory, LIMITS).is_good


async def test_a_shared_memory_of_garbage_is_made_anew(disk_world: World) -> None:
    before = await several(disk_world, moved_out=True)
    path = disk_world.directory / "store.db-shm"
    flip_bits(path, 2000, 1)

    assert verify_store(disk_world.directory, LIMITS).is_good
    async with disk_world.open() as store:
        assert await logs(store) == before


# --- the database -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_twenty_flipped_bits_are_told_or_do_not_matter(disk_world: World, seed: int) -> None:
    before = await several(disk_world, moved_out=False)
    checkpoint(disk_world.directory)
    flip_bits(disk_world.directory / "store.db", 20, seed)

    report = verify_store(disk_world.directory, LIMITS)
    damaged: set[str] = set()
    try:
        async with disk_world.open() as store:
            for session_id, log in before.items():
                entries = await served(store, session_id, damaged)
                assert entries == log[: len(entries)], "what is served is what was written"
                assert len(entries) == len(log) or session_id in damaged
    except HarnessFault as fault:
        damaged.add(fault.kind)
    assert not damaged or not report.is_good
    assert damaged <= {"session_corrupt", "store_unavailable", "session_not_found", *NAMES}


async def served(store: Store, session_id: str, damaged: set[str]) -> list[dict[str, Any]]:
    """As much of a log as is served, an event at a time; a session that ends in an error is noted."""
    entries: list[dict[str, Any]] = []
    try:
        while True:
            after = entries[-1]["cursor"] if entries else None
            page = await store.read(session_id, after=after, limit=1, max_bytes=2**20)
            entries += parse(page.lines)
            if not page.more:
                return entries
    except (HarnessFault, Refused) as error:
        damaged.add(error.kind)
        damaged.add(session_id)
        return entries


# --- backups ------------------------------------------------------------------------------------------------


async def test_a_database_put_back_alone_is_missed_by_the_witness(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
    checkpoint(disk_world.directory)
    before = older(disk_world.directory)
    async with disk_world.open() as store:
        await store.commit("s-1", submission("t-1")).wait()
    checkpoint(disk_world.directory)

    put_back(disk_world.directory, before, "store.db")

    assert (await refused(disk_world)).details["historyLost"] is True


async def test_a_whole_store_put_back_tells_those_who_have_seen_more(disk_world: World) -> None:
    async with disk_world.open() as store:
        first = await create(store)
    before = older(disk_world.directory)
    async with disk_world.open() as store:
        for n in range(3):
            last = await store.commit("s-1", submission(f"t-{n}")).wait()

    put_back(disk_world.directory, before)

    async with disk_world.open() as store:
        await store.read("s-1", after=first.cursor, limit=9, max_bytes=9999)
        with pytest.raises(Refused, match="cursor_ahead"):
            await store.read("s-1", after=last.cursor, limit=9, max_bytes=9999)
        for n in range(3):
            await store.commit("s-1", submission(f"u-{n}")).wait()
        with pytest.raises(Refused, match="cursor_foreign"):
            await store.read("s-1", after=last.cursor, limit=9, max_bytes=9999)


# --- other programs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [CLOSER, NEWER_CLOSER], ids=["an older SQLite", "ours without our settings"])
async def test_editors_and_command_lines_beside_two_processes_lose_nothing(disk_world: World, program: str) -> None:
    """POSIX drops a process's locks on a file with any `close` of it; then a foreign closer may unlink the WAL."""
    seen: dict[str, int] = {}
    async with disk_world.open() as store:
        await create(store, "s-1")
        with other(disk_world.directory) as second:
            second.ask("create", session="s-2")
            for n in range(6):
                close_in_passing(disk_world.directory)
                second.ask("stray")
                await anyio.to_thread.run_sync(close_from_outside, disk_world.directory, program)
                seen["s-1"] = (await store.commit("s-1", submission(f"t-{n}")).wait()).state.seq
                seen["s-2"] = second.ask("submit", session="s-2", turn=f"t-{n}")["seq"]
                if n % 2:
                    await anyio.to_thread.run_sync(close_from_outside, disk_world.directory, program)
            with other(disk_world.directory) as third:
                for session_id, seq in seen.items():
                    assert third.ask("load", session=session_id)["seq"] == seq == 7
    await anyio.to_thread.run_sync(close_from_outside, disk_world.directory, program)
    assert verify_store(disk_world.directory, LIMITS).is_good
    async with disk_world.open() as store:
        assert len(await whole(store, "s-2")) == 7
