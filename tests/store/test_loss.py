"""Files that are taken from a store while it is open: nothing is acknowledged into what is lost, and what can be made
again is made again."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hames.ports import Owner
from hames.protocol.errors import HarnessFault
from hames.store import SqliteStore
from hames.store.transaction import Transaction
from store.play import World, create, fill, folded, submission, whole
from store.process import other

pytestmark = pytest.mark.anyio

Harm = Callable[[Path], object]


def remove(path: Path) -> None:
    path.unlink()


def become_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace(path: Path) -> None:
    shutil.copy(path, path.parent.parent / "copy")
    os.replace(path.parent.parent / "copy", path)


def empty(path: Path) -> None:
    os.truncate(path, 0)


FRAME_BYTES = 24 + 4096
"""Of the WAL, behind its 32 bytes of header: a header and a page."""


def used_bytes(path: Path) -> int:
    """How much of a file holds something: behind the WAL's last frame there are zeros to be written over."""
    data = path.read_bytes()
    if path.name != "store.db-wal":
        return len(data)
    return 32 + -(-(len(data.rstrip(b"\0")) - 32) // FRAME_BYTES) * FRAME_BYTES


def halve(path: Path) -> None:
    os.truncate(path, used_bytes(path) // 2)


def cut_last_byte(path: Path) -> None:
    os.truncate(path, used_bytes(path) - 1)


def garble(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(os.urandom(8192))


def garble_end(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(used_bytes(path) - 5000)
        file.write(os.urandom(5000))


def in_the_database(directory: Path, statement: str) -> None:
    """Another program does something to the database that is its right."""
    program = "import sqlite3, sys; sqlite3.connect(sys.argv[1], isolation_level=None).execute(sys.argv[2]).fetchall()"
    subprocess.run([sys.executable, "-c", program, str(directory / "store.db"), statement], check=True)


def moved_out(directory: Path) -> None:
    """Put everything into the database file, so that it is of some size."""
    in_the_database(directory, "pragma wal_checkpoint(passive)")


@pytest.mark.parametrize("is_read_before", [True, False])
@pytest.mark.parametrize(
    ("name", "harm", "damage"),
    [
        ("store.db", remove, "removed"),
        ("store.db", become_directory, "replaced"),
        ("store.db", replace, "replaced"),
        ("store.db", empty, "cut off"),
        ("store.db", halve, "cut off"),
        ("store.db", garble, "overwritten"),
        ("store.db-wal", remove, "removed"),
        ("store.db-wal", replace, "replaced"),
        ("store.db-wal", empty, "cut off"),
        ("store.db-wal", halve, "cut off"),
        ("store.db-wal", cut_last_byte, "cut off"),
        ("store.db-wal", garble, "overwritten"),
        ("store.db-wal", garble_end, "overwritten"),
        ("store.db-shm", remove, "removed"),
        ("store.db-shm", empty, "cut off"),
    ],
)
async def test_nothing_is_acknowledged_or_read_when_a_file_was_taken_away(
    disk_world: World, name: str, harm: Harm, damage: str, *, is_read_before: bool
) -> None:
    async with disk_world.open() as store:
        await fill(store, 100, text="x" * 200)
        if name == "store.db":
            moved_out(disk_world.directory)
            await store.commit("s-1", submission("t-2")).wait()
        if is_read_before:
            await store.load("s-1")
        harm(disk_world.directory / name)

        for _ in range(2):
            with pytest.raises(HarnessFault) as caught:
                await store.commit("s-1", submission("t-3")).wait()
            assert caught.value.kind == "store_unavailable"
            assert (caught.value.details["file"], caught.value.details["damage"]) == (name, damage)
            assert "restore" in caught.value.message
            with pytest.raises(HarnessFault, match="store_unavailable"):
                await store.load("s-1")
        with pytest.raises(HarnessFault, match="store_unavailable"):
            await create(store, "s-2")
        assert (await store.check())["status"] == "unavailable"


@pytest.mark.parametrize("harm", [remove, replace])
async def test_who_holds_a_gate_that_is_not_the_stores_any_more_writes_nothing(disk_world: World, harm: Harm) -> None:
    async with disk_world.open() as store:
        made = await create(store)
        harm(disk_world.directory / "gate.lock")

        with pytest.raises(HarnessFault, match=r"gate\.lock"):
            await store.commit("s-1", submission("t-1")).wait()

        assert (await store.load("s-1")).cursor == made.cursor
    async with disk_world.open() as store:
        assert (await store.commit("s-1", submission("t-1")).wait()).state.seq == 2


async def test_a_directory_that_is_moved_away_takes_nothing_more(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
        disk_world.directory.rename(disk_world.directory.with_name("moved"))

        with pytest.raises(HarnessFault, match="store_unavailable"):
            await store.commit("s-1", submission("t-1")).wait()
        with pytest.raises(HarnessFault, match="store_unavailable"):
            await store.load("s-1")


async def test_a_file_that_goes_between_the_write_and_its_answer_is_noticed(disk_world: World) -> None:
    async with disk_world.open() as store:
        assert isinstance(store, SqliteStore)
        await create(store)

        def write_and_lose(transaction: Transaction) -> None:
            transaction.touch()
            (disk_world.directory / "store.db").unlink()

        lost = store._give(write_and_lose)

        with pytest.raises(HarnessFault, match="removed"):
            await lost.wait()


@pytest.mark.parametrize(
    "statement",
    [
        "pragma wal_checkpoint(passive)",
        "pragma wal_checkpoint(restart)",
        "pragma wal_checkpoint(truncate)",
        "vacuum",
    ],
)
async def test_what_another_program_may_do_is_not_taken_for_a_loss(disk_world: World, statement: str) -> None:
    async with disk_world.open() as store:
        await fill(store, 300, text="x" * 500)
        moved_out(disk_world.directory)
        in_the_database(disk_world.directory, "create table spare as select line from event")
        moved_out(disk_world.directory)
        in_the_database(disk_world.directory, "drop table spare")

        in_the_database(disk_world.directory, statement)
        in_the_database(disk_world.directory, "pragma wal_checkpoint(truncate)")

        assert len(await whole(store)) == 300
        await store.commit("s-1", submission("t-2")).wait()
        assert (await store.load("s-1")).state == folded("s-1", await whole(store))
        assert await store.check() == {"status": "ok"}


async def test_reading_beside_a_flood_of_another_process_is_never_taken_for_a_loss(disk_world: World) -> None:
    async with disk_world.open() as store:
        with other(disk_world.directory) as second:
            second.tell("flood", sessions=3)
            for _ in range(5):
                second.hear()
            for _ in range(300):
                await store.load("s-0")
                assert await store.check() == {"status": "ok"}
            second.kill()


async def test_key_and_witness_that_were_removed_are_there_again_with_the_next_commit(disk_world: World) -> None:
    key = disk_world.directory / "key"
    witness = disk_world.directory / "witness"
    async with disk_world.open() as store:
        await create(store)
        before = key.read_bytes()
        key.unlink()
        witness.unlink()

        await store.commit("s-1", submission("t-1")).wait()

        assert (key.read_bytes(), stat.S_IMODE(key.stat().st_mode)) == (before, 0o600)
        assert witness.stat().st_size == 64
        key.unlink()
    assert key.read_bytes() == before
    async with disk_world.open() as store:
        assert (await store.load("s-1")).state.seq == 2


async def test_a_live_file_that_was_removed_is_there_again_with_the_next_beat(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
        lease = await store.claim("s-1")
        shutil.rmtree(disk_world.directory / "live")

        store.beat()

        async with disk_world.open() as second:
            owner = await second.claim("s-1")
            assert isinstance(owner, Owner)
            assert owner.alive
            assert await store.claim("s-1") == lease


async def test_a_session_that_a_reader_found_damaged_takes_no_commit_until_the_store_is_opened_again(
    disk_world: World,
) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        await create(store, "s-2")
    with closing(sqlite3.connect(disk_world.directory / "store.db")) as connection:
        connection.execute("update event set line = replace(line, '\"x\"', '\"y\"') where id & 0xffff = 5")
        connection.commit()

    async with disk_world.open() as store:
        page = await store.read("s-1", limit=100, max_bytes=2**20)
        await store.commit("s-1", submission("t-2")).wait()

        with pytest.raises(HarnessFault, match="session_corrupt") as read:
            await store.read("s-1", after=page.cursor, limit=100, max_bytes=2**20)
        with pytest.raises(HarnessFault, match="session_corrupt") as written:
            await store.commit("s-1", submission("t-3")).wait()

        assert written.value.details == read.value.details
        assert (await store.commit("s-2", submission("t-1")).wait()).state.seq == 2
        await store.claim("s-1")
        await store.release("s-1")

    async with disk_world.open() as store:
        assert (await store.commit("s-1", submission("t-3")).wait()).state.seq == 12
