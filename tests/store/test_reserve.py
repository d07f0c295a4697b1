"""Room that is kept for the day when the disk is full: given up for what ends a turn, and made again with room."""

from __future__ import annotations

import os
from pathlib import Path

import anyio.to_thread
import pytest

from crash.waits import until_file
from hames.core.commands import CancelTurn, Ending, EndTurn
from hames.protocol.errors import HarnessFault
from hames.store import SqliteStore
from hames.store.reserve import LAST_PART, Reserve
from store.play import BY, World, chunk, create, running, submission
from store.test_damage import limit_pages

BYTES = 64 * 1024


def test_it_takes_up_room_and_is_the_users_alone(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, BYTES)
    reserve.keep()
    found = (tmp_path / "ballast").stat()
    assert (found.st_size, found.st_blocks * 512 >= BYTES, found.st_mode & 0o777) == (BYTES, True, 0o600)


def test_it_is_given_up_once_and_made_again_when_there_is_room(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, BYTES)
    reserve.keep()

    assert reserve.give_up()
    assert (reserve.is_used, (tmp_path / "ballast").stat().st_size) == (True, BYTES // LAST_PART)
    assert not reserve.give_up()
    assert reserve.give_up(to_remove=True)
    assert os.listdir(tmp_path) == []
    assert not reserve.give_up(to_remove=True)

    assert reserve.make()
    assert (reserve.is_used, os.listdir(tmp_path)) == (False, ["ballast"])


def test_one_of_another_size_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "ballast").write_bytes(b"short")
    Reserve(tmp_path, BYTES).keep()
    assert (tmp_path / "ballast").stat().st_size == BYTES


def test_where_there_is_no_room_for_it_none_is_made_and_nothing_is_left(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    reserve = Reserve(tmp_path, disk.f_bavail * disk.f_frsize)
    reserve.keep()
    assert os.listdir(tmp_path) == []
    assert not reserve.give_up()
    assert not reserve.make()
    assert reserve.is_used


def test_without_a_size_there_is_none_and_nothing_is_ever_held_back(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, 0)
    reserve.keep()
    assert not reserve.give_up()
    assert not reserve.is_used
    assert os.listdir(tmp_path) == []


async def write_on(store: SqliteStore, fence: int) -> None:
    """Until there is no room."""
    for at in range(1000):
        await store.commit("s-1", chunk(fence, "t-1", at, "x" * 4000)).wait()


@pytest.mark.anyio
async def test_a_full_disk_lets_turns_end_and_admits_nothing_until_there_is_room(disk_world: World) -> None:
    ballast = disk_world.directory / "ballast"
    async with disk_world.open() as store:
        assert isinstance(store, SqliteStore)
        await create(store, "s-2")
        fence = await running(store)
        await anyio.to_thread.run_sync(until_file, ballast)
        await limit_pages(store, 1)  # it takes no page more than it has, as on a full disk

        with pytest.raises(HarnessFault) as caught:
            await write_on(store, fence)
        assert (caught.value.kind, caught.value.details["reserveUsed"]) == ("store_full", True)
        assert "reserve" in caught.value.message
        assert ballast.stat().st_size == BYTES // LAST_PART

        ballast.unlink()
        ballast.mkdir()  # it cannot be made again: there is no room
        await limit_pages(store, 10_000)  # what it gave up
        for command in (submission("t-2"), chunk(fence, "t-1", 1001)):
            with pytest.raises(HarnessFault, match="nothing new is admitted"):
                await store.commit("s-1", command).wait()
        assert (await store.check())["status"] == "unavailable"
        await store.commit("s-1", CancelTurn(BY)).wait()
        ended = await store.commit("s-1", EndTurn(fence, "t-1", Ending("cancelled"))).wait()
        assert ended.state.running is None

        ballast.rmdir()
        await store.commit("s-1", submission("t-2")).wait()
        assert await store.check() == {"status": "ok"}
        assert ballast.stat().st_size == BYTES


@pytest.mark.anyio
async def test_behind_a_fact_that_was_not_kept_none_stands_though_there_is_room_for_it(disk_world: World) -> None:
    async with disk_world.open() as store:
        assert isinstance(store, SqliteStore)
        fence = await running(store)
        before = store.head("s-1")
        await limit_pages(store, 4)

        large = store.commit("s-1", chunk(fence, "t-1", 0, "x" * 100_000))
        small = store.commit("s-1", chunk(fence, "t-1", 100_000, "y"))
        for pending in (large, small):
            with pytest.raises(HarnessFault):
                await pending.wait()
        await limit_pages(store, 10_000)
        with pytest.raises(HarnessFault):
            await store.commit("s-1", chunk(fence, "t-1", 100_001, "z")).wait()

        assert store.head("s-1") == before
        ending = Ending("failed", error={"kind": "store_full", "message": "m", "retryable": True, "details": {}})
        ended = await store.commit("s-1", EndTurn(fence, "t-1", ending)).wait()
        assert [event.type for event in ended.events] == ["turn.failed"]
