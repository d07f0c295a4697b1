"""What is broken on disk is said, never served as whole; what is not broken goes on."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from hames.core.commands import Command, Draft, Record
from hames.protocol.errors import HarnessFault, Refused
from hames.store import SqliteStore
from store.play import World, chunk, create, fill, folded, parse, submission, take, whole

pytestmark = pytest.mark.anyio


def edit(world: World, statement: str, *values: Any) -> None:
    """Change rows behind the store's back, and move the change out of the WAL."""
    with closing(sqlite3.connect(world.directory / "store.db")) as connection:
        assert connection.execute(statement, values).rowcount > 0
        connection.commit()


def checkpoint(world: World) -> None:
    """Move everything from the WAL into the database."""
    with closing(sqlite3.connect(world.directory / "store.db")) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")


async def fault(world: World) -> HarnessFault:
    """Why the store cannot be opened."""
    store = world.make()
    with pytest.raises(HarnessFault) as caught:
        await store.open()
    await store.aclose()
    assert caught.value.boundary == "artifact_store"
    return caught.value


# --- sessions -----------------------------------------------------------------------------------------------

EDITS = [
    ("update event set line = replace(line, '\"x\"', '\"y\"') where id & 0xffff = 5", 5),
    ("delete from event where id & 0xffff = 5", 5),
    ("update event set line = (select line from event where id & 0xffff = 6) where id & 0xffff = 5", 5),
    ("delete from event where id & 0xffff = 10", 10),
    ("update event set line = replace(line, '\"x\"', '\"y\"') where id & 0xffff = 10", 10),
]


@pytest.mark.parametrize(("statement", "bad"), EDITS)
async def test_events_before_the_first_bad_one_are_served_and_it_is_named(
    disk_world: World, statement: str, bad: int
) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        before = await whole(store)
    edit(disk_world, statement)

    async with disk_world.open() as store:
        page = await store.read("s-1", limit=100, max_bytes=2**20)
        assert parse(page.lines) == before[: bad - 1]
        assert (page.last_seq, page.head_seq, page.more) == (bad - 1, 10, True)

        with pytest.raises(HarnessFault) as caught:
            await store.read("s-1", after=page.cursor, limit=100, max_bytes=2**20)
        assert (caught.value.kind, caught.value.details["seq"]) == ("session_corrupt", bad)


async def test_a_bad_checksum_of_a_good_event_is_noticed_by_a_page_that_starts_from_it(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        before = await whole(store)
    edit(disk_world, "update event set crc = crc + 1 where id & 0xffff = 5")

    async with disk_world.open() as store:
        assert await whole(store) == before
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await store.read("s-1", after=before[4]["cursor"], limit=9, max_bytes=2**20)


@pytest.mark.parametrize(("statement", "bad"), EDITS[:1])
async def test_events_after_the_last_bad_one_are_served_backward(disk_world: World, statement: str, bad: int) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        before = await whole(store)
    edit(disk_world, statement)

    async with disk_world.open() as store:
        page = await store.read("s-1", before=before[-1]["cursor"], limit=100, max_bytes=2**20)
        assert parse(page.lines) == before[bad:-1]
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await store.read("s-1", before=before[bad]["cursor"], limit=100, max_bytes=2**20)


@pytest.mark.parametrize("types", [["turn.started"], ["message.chunk"], ["no.such"]])
async def test_a_filter_never_skips_a_bad_event(disk_world: World, types: list[str]) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
    edit(disk_world, EDITS[0][0])

    async with disk_world.open() as store:
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await whole(store, limit=1, types=types)


@pytest.mark.parametrize(
    "statement",
    [
        "update session set head = head - 1 where id = 's-1'",
        "update session set chain = x'00' where id = 's-1'",
        "update session set crc = crc + 1 where id = 's-1'",
        "update session set mac = x'00' where id = 's-1'",
        "update session set id = 's-9' where id = 's-1'",
        "update state set doc = replace(doc, 'running', 'queued') where n = 1",
        "delete from state where n = 1",
        "delete from event where id & 0xffff = 10",
        "update event set digest = x'00' where id & 0xffff = 10",
        "update event set line = replace(line, '/work', '/home') where id = (1 << 40) + 1",
    ],
)
async def test_a_session_that_was_edited_is_corrupt_and_others_are_not(disk_world: World, statement: str) -> None:
    session_id = "s-9" if "'s-9'" in statement else "s-1"
    async with disk_world.open() as store:
        await fill(store, 10)
        await create(store, "s-2")
    edit(disk_world, statement)

    async with disk_world.open() as store:
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await store.load(session_id)
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await store.commit(session_id, submission("t-2")).wait()
        assert (await store.commit("s-2", submission("t-1")).wait()).state.seq == 2
        listed = await store.sessions(workspace=None, query=None, before=None, limit=9)
        assert [loaded.state.session_id for _, loaded in listed] == ["s-2"]


async def test_a_session_and_its_events_put_back_from_an_older_copy_are_corrupt_by_the_key_of_another_store(
    disk_world: World, tmp_path: Path
) -> None:
    async with disk_world.open() as store:
        await create(store)
    (disk_world.directory / "key").write_bytes(os.urandom(32))

    async with disk_world.open() as store:
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await store.load("s-1")


async def test_a_turn_that_was_edited_is_corrupt(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 5)
    edit(disk_world, "update turn set doc = replace(doc, 'running', 'queued')")

    async with disk_world.open() as store:
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await store.turn("s-1", "t-1")


async def test_a_session_of_a_newer_build_is_read_and_not_written(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
    edit(disk_world, "update session set min_reader = 99")

    async with disk_world.open() as store:
        assert len(await whole(store)) == 1
        with pytest.raises(Refused, match="session_incompatible"):
            await store.load("s-1")
        with pytest.raises(Refused, match="session_incompatible"):
            await store.commit("s-1", submission("t-1")).wait()


async def test_a_state_of_another_fold_is_folded_anew(disk_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with disk_world.open() as store:
        fence = await fill(store, 10)
        assert fence == 1
        before = (await store.load("s-1")).state

    monkeypatch.setattr("hames.core.state.FOLD_VERSION", 2)
    async with disk_world.open() as store:
        assert (await store.load("s-1")).state == before
        await store.commit("s-1", submission("t-2")).wait()
    async with disk_world.open() as store:
        assert (await store.load("s-1")).state == folded("s-1", await whole(store))
        assert (await store.turn("s-1", "t-1"))[0] == before.turns["t-1"]


# --- files --------------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 4096 * 7 // 10 * 4096)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def garble(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [cut, empty, zero, garble, remove])
async def test_a_database_file_that_is_not_whole_is_refused(disk_world: World, harm: Callable[[Path], None]) -> None:
    async with disk_world.open() as store:
        await fill(store, 300, text="x" * 200)
    checkpoint(disk_world)
    harm(disk_world.directory / "store.db")

    refused = await fault(disk_world)

    assert refused.kind == "store_unavailable"
    assert str(disk_world.directory) in refused.message


async def test_a_database_that_was_cut_while_the_wal_held_newer_pages_is_refused(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 300, text="x" * 200)
        checkpoint(disk_world)
        await store.commit("s-1", submission("t-2")).wait()
    cut(disk_world.directory / "store.db")

    assert (await fault(disk_world)).kind == "store_unavailable"


@pytest.mark.parametrize("harm", [empty, zero, garble, remove])
async def test_a_wal_that_was_lost_is_noticed_by_the_witness(disk_world: World, harm: Callable[[Path], None]) -> None:
    async with disk_world.open() as store:
        await create(store)
        checkpoint(disk_world)
        await store.commit("s-1", submission("t-1")).wait()
    harm(disk_world.directory / "store.db-wal")

    refused = await fault(disk_world)

    assert refused.details["historyLost"] is True
    assert refused.details["commitsWitnessed"] == refused.details["commitsFound"] + 1


async def test_a_loss_can_be_accepted_by_removing_the_witness(disk_world: World) -> None:
    async with disk_world.open() as store:
        made = await create(store)
        checkpoint(disk_world)
        lost = await store.commit("s-1", submission("t-1")).wait()
    remove(disk_world.directory / "store.db-wal")
    remove(disk_world.directory / "witness")

    async with disk_world.open() as store:
        assert (await store.load("s-1")).cursor == made.cursor
        with pytest.raises(Refused, match="cursor_ahead"):
            await store.read("s-1", after=lost.cursor, limit=1, max_bytes=100)


@pytest.mark.parametrize("harm", [empty, remove])
async def test_a_store_without_its_key_is_refused(disk_world: World, harm: Callable[[Path], None]) -> None:
    async with disk_world.open() as store:
        await create(store)
    harm(disk_world.directory / "key")

    assert "key" in (await fault(disk_world)).message


@pytest.mark.parametrize("harm", [empty, garble, remove])
async def test_the_shared_memory_and_a_witness_are_made_anew(disk_world: World, harm: Callable[[Path], None]) -> None:
    async with disk_world.open() as store:
        await create(store)
    harm(disk_world.directory / "store.db-shm")
    harm(disk_world.directory / "witness")

    async with disk_world.open() as store:
        assert (await store.commit("s-1", submission("t-1")).wait()).state.seq == 2


async def test_another_programs_database_is_refused(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
    with closing(sqlite3.connect(disk_world.directory / "store.db")) as connection:
        connection.execute("pragma application_id = 7")

    assert "not made by Hames" in (await fault(disk_world)).message


async def test_a_database_out_of_wal_mode_is_refused(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
    with closing(sqlite3.connect(disk_world.directory / "store.db")) as connection:
        assert connection.execute("pragma journal_mode = delete").fetchone() == ("delete",)

    assert "WAL" in (await fault(disk_world)).message


async def test_a_making_that_was_cut_short_is_made_again(disk_world: World) -> None:
    disk_world.directory.mkdir()
    (disk_world.directory / "key").write_bytes(b"short")
    (disk_world.directory / "store.db").touch()

    async with disk_world.open() as store:
        await create(store)
        assert (disk_world.directory / "key").stat().st_size == 32


# --- room ---------------------------------------------------------------------------------------------------


async def limit_pages(store: SqliteStore, pages: int) -> None:
    """Let the database grow to so many pages."""
    running = store._running
    assert running is not None
    assert running.writer.side is not None
    connection = running.writer.side.connection
    await store._give(lambda _: connection.pragma("max_page_count", pages)).wait()


async def submit_many(store: SqliteStore, count: int) -> None:
    """Admit turns that take 5 kB each."""
    for n in range(count):
        await store.commit("s-1", submission(f"t-{n}", digest="d" * 5000)).wait()


async def test_a_full_disk_fails_what_does_not_fit_and_works_again_with_room(disk_world: World) -> None:
    async with disk_world.open() as store:
        assert isinstance(store, SqliteStore)
        await create(store)
        await create(store, "s-2")
        await limit_pages(store, 30)

        small = [store.commit("s-2", submission("t-1"))]
        with pytest.raises(HarnessFault) as caught:
            await submit_many(store, 1000)
        assert (caught.value.kind, caught.value.retryable) == ("store_full", True)
        assert (await small[0].wait()).state.seq == 2
        head = (await store.load("s-1")).state.seq
        assert (await store.check())["status"] in ("ok", "unavailable")

        await limit_pages(store, 10_000)
        assert (await store.commit("s-1", submission("t-last")).wait()).state.seq == head + 1
        assert (await store.load("s-1")).state == folded("s-1", await whole(store))
        with anyio.fail_after(30):
            assert await take(store) == 1


async def held_back(store: SqliteStore, commands: list[Command]) -> list[str]:
    """Give commands while the writer is busy, so that they share a batch; what became of each."""
    busy = threading.Event()
    store._give(lambda _: busy.wait(30))
    tickets = [store.commit("s-1", command) for command in commands]
    busy.set()
    outcomes: list[str] = []
    for ticket in tickets:
        try:
            outcomes.append(str((await ticket.wait()).state.seq))
        except HarnessFault as fault:
            outcomes.append(fault.kind)
    return outcomes


async def test_of_a_batch_that_does_not_fit_only_what_is_too_large_fails(disk_world: World) -> None:
    async with disk_world.open() as store:
        assert isinstance(store, SqliteStore)
        await create(store)
        await limit_pages(store, 60)

        outcomes = await held_back(
            store, [submission("t-1"), submission("t-2", digest="d" * 500_000), submission("t-3")]
        )

        assert outcomes == ["2", "store_full", "3"]
        assert (await store.load("s-1")).state == folded("s-1", await whole(store))


async def test_a_command_that_cannot_be_written_fails_alone_and_the_writer_lives(disk_world: World) -> None:
    async with disk_world.open() as store:
        assert isinstance(store, SqliteStore)
        fence = await fill(store, 5)
        bad = Record(fence, "t-1", (Draft("message.chunk", {"text": object()}),))

        outcomes = await held_back(store, [chunk(fence, "t-1", 9), bad, chunk(fence, "t-1", 10)])

        assert outcomes == ["6", "internal", "7"]
        assert (await store.check()) == {"status": "ok"}
