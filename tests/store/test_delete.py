"""A session that is deleted is gone at once for everybody, and its rows go by and by, whoever is killed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

from hames.core.commands import Command, CreateSession, UpdateSession
from hames.ports import Owner, Store
from hames.protocol.errors import Refused
from hames.store import SqliteStore, removal, schema, sqlite
from hames.store.verify import verify_store
from store.play import BY, World, create, creation, fill, running, start, submission, take, whole

pytestmark = pytest.mark.anyio


def named_files(directory: Path) -> list[str]:
    return sorted(path.parent.name + path.name for path in directory.glob("blobs/??/*"))


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await anyio.sleep(0.02)


async def kind_of(asked: Callable[[], Any]) -> str:
    with pytest.raises(Refused) as caught:
        await asked()
    return caught.value.kind


async def committed_kind(store: Store, session_id: str, command: Command) -> str:
    return await kind_of(store.commit(session_id, command).wait)


async def test_a_deleted_session_answers_session_deleted_to_everything(world: World) -> None:
    async with world.open() as store:
        await fill(store, 10)

        at = await store.delete("s-1", by="user")

        assert isinstance(at, str)
        assert await committed_kind(store, "s-1", UpdateSession("title", BY)) == "session_deleted"
        assert await committed_kind(store, "s-1", submission("t-2")) == "session_deleted"
        assert await committed_kind(store, "s-1", creation(store, "s-1")) == "session_deleted"
        assert await kind_of(lambda: store.load("s-1")) == "session_deleted"
        assert await kind_of(lambda: store.turn("s-1", "t-1")) == "session_deleted"
        assert await kind_of(lambda: store.turns("s-1", before=None, limit=9, status=None)) == "session_deleted"
        assert await kind_of(lambda: whole(store)) == "session_deleted"
        assert await kind_of(lambda: store.claim("s-1")) == "session_deleted"
        assert await kind_of(lambda: store.owner("s-1")) == "session_deleted"
        assert await kind_of(lambda: store.changed("s-1", 3)) == "session_deleted"
        assert await kind_of(lambda: store.artifacts("s-1", after=None, limit=9)) == "session_deleted"
        assert await store.sessions(workspace=None, query=None, before=None, limit=9) == []
        assert (store.head("s-1"), store.latest("s-1")) == (0, None)


async def test_deleting_again_tells_when_it_was_deleted(world: World) -> None:
    async with world.open() as store:
        await create(store)
        at = await store.delete("s-1")

        assert await store.delete("s-1") == at


async def test_what_never_was_cannot_be_deleted(world: World) -> None:
    async with world.open() as store:
        await create(store)

        assert await kind_of(lambda: store.delete("s-2")) == "session_not_found"


async def test_the_key_that_made_a_deleted_session_is_not_used_again(world: World) -> None:
    async with world.open() as store:
        await store.commit("s-1", creation(store, "s-1", key="k")).wait()
        await store.delete("s-1")

        assert await committed_kind(store, "s-2", creation(store, "s-2", key="k")) == "session_deleted"
        other = creation(store, "s-2", key="k")
        other = CreateSession(other.snapshot, other.snapshot_digest, other.keyed_digest, "other", BY, key="k")
        assert await committed_kind(store, "s-2", other) == "session_deleted"


async def test_other_sessions_stay_as_they_are_and_new_ones_share_nothing_with_it(world: World) -> None:
    async with world.open() as store:
        await fill(store, 10, "s-1")
        await fill(store, 12, "s-2")
        before = await whole(store, "s-2")
        await store.commit("s-2", submission("t-2", key="k")).wait()

        await store.delete("s-2")
        await fill(store, 5, "s-3")
        again = await store.commit("s-3", submission("t-2", key="k")).wait()

        assert not again.reply.repeated
        assert len(before) == 12
        assert [entry["event"]["seq"] for entry in await whole(store, "s-3")] == [1, 2, 3, 4, 5, 6]
        assert len(await whole(store, "s-1")) == 10


async def test_what_is_given_before_the_delete_is_answered_and_what_comes_after_is_refused(world: World) -> None:
    async with world.open() as store:
        await create(store)

        before = store.commit("s-1", UpdateSession("before", BY))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.delete, "s-1")
            await anyio.wait_all_tasks_blocked()
            after = store.commit("s-1", UpdateSession("after", BY))

        assert (await before.wait()).state.title == "before"
        assert await kind_of(after.wait) == "session_deleted"


async def test_who_waits_for_a_session_hears_that_it_was_deleted_in_every_process(world: World) -> None:
    async with world.open() as store, world.open() as other:
        await create(store)
        heard: list[str] = []

        async def wait(which: Store) -> None:
            heard.append(await kind_of(lambda: which.changed("s-1", 1)))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, store)
                tasks.start_soon(wait, other)
                await anyio.wait_all_tasks_blocked()
                await store.delete("s-1")

        assert heard == ["session_deleted", "session_deleted"]


async def test_a_session_that_another_live_process_runs_is_not_deleted(world: World) -> None:
    async with world.open() as store, world.open() as other:
        await running(store)

        holder = await other.delete("s-1")

        assert isinstance(holder, Owner)
        assert (holder.alive, holder.mine) == (True, False)
        assert (await other.load("s-1")).state.seq == 3


async def test_another_process_that_knew_the_session_appends_nothing_to_it(world: World) -> None:
    async with world.open() as store, world.open() as other:
        await create(store)
        await other.commit("s-1", UpdateSession("theirs", BY)).wait()

        await store.delete("s-1")

        assert await committed_kind(other, "s-1", UpdateSession("late", BY)) == "session_deleted"
        assert await kind_of(lambda: whole(other)) == "session_deleted"


async def test_contents_that_only_it_refers_to_go_and_shared_ones_stay(world: World) -> None:
    async with world.open() as store:
        for session_id in ("s-1", "s-2"):
            await create(store, session_id)
        shared = "shared " * 20_000
        for session_id, text in (("s-1", shared), ("s-2", shared), ("s-1", "own " * 40_000)):
            command = submission("t-" + text[:3])
            slots = ({"role": "command", "type": "text", "text": text},)
            await store.commit(session_id, type(command)(command.turn_id, slots, command.digest, BY)).wait()
        assert len(await store.artifacts("s-1", after=None, limit=9)) == 2

        await store.delete("s-1")

        [artifact] = await store.artifacts("s-2", after=None, limit=9)
        assert await store.read_artifact("s-2", artifact.artifact, offset=0, length=10**6) == shared.encode()
        if isinstance(store, SqliteStore):
            assert named_files(world.directory) == [artifact.sha256]


# --- on disk ------------------------------------------------------------------------------------------------


@contextmanager
def looking(directory: Path) -> Iterator[Callable[[str], int]]:
    connection = schema.connect(directory, write=False, busy_ms=20_000)

    def count(table: str) -> int:
        return int(schema.one(connection, f"select count(*) from {table}")[0])

    try:
        yield count
    finally:
        connection.close()


TABLES = ("session", "state", "event", "turn", "blob_ref", "blob")


async def test_nothing_of_it_is_left_on_the_disk_but_the_tombstone(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 500, text="a secret of the session")
        await store.commit("s-1", submission("t-2", key="k")).wait()

        await store.delete("s-1", by="user")

        with looking(disk_world.directory) as count:
            assert {table: count(table) for table in (*TABLES, "idem")} == dict.fromkeys((*TABLES, "idem"), 0)
            assert count("tombstone") == 1
    connection = schema.connect(disk_world.directory, write=True, busy_ms=20_000)
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    content = (disk_world.directory / "store.db").read_bytes()
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    # SQLite zeroes the pages that get free; the one that stays the table's keeps traces of its cells.
    assert sum(b"a secret of the session" in page for page in pages) <= 1


async def test_rows_that_a_dead_process_left_are_removed_by_the_next_one(
    disk_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "REMOVE_S", 0)
    monkeypatch.setattr(removal, "STEP_NS", 0)
    async with disk_world.open() as store:
        await fill(store, 1_000)
        await store.delete("s-1")
        with looking(disk_world.directory) as count:
            assert count("event") > 0

    monkeypatch.undo()
    async with disk_world.open() as store:
        with looking(disk_world.directory) as count, anyio.fail_after(30):
            await until(lambda: not any(count(table) for table in TABLES))
        await create(store, "s-2")
        assert await kind_of(lambda: store.load("s-1")) == "session_deleted"


async def test_a_store_is_good_while_rows_of_a_deleted_session_are_left(
    disk_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "REMOVE_S", 0)
    monkeypatch.setattr(removal, "STEP_NS", 0)
    async with disk_world.open() as store:
        await fill(store, 1_000, "s-1")
        await fill(store, 10, "s-2")
        await store.delete("s-1")
    with looking(disk_world.directory) as count:
        assert count("event") > 10

    report = verify_store(disk_world.directory, disk_world.limits)

    assert (report.findings, report.counts["sessions"]) == ([], 1)


async def test_while_the_rows_of_a_large_session_go_others_commit(
    disk_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "STEP_NS", 0)
    async with disk_world.open() as store, disk_world.open() as other:
        await fill(store, 2_000, "s-1")
        await create(store, "s-2")
        seen: list[int] = []

        with looking(disk_world.directory) as count, anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.delete, "s-1")
                while not seen or seen[-1] > 0:
                    await other.commit("s-2", UpdateSession(f"title {len(seen)}", BY)).wait()
                    seen.append(count("event") - len(seen) - 2)

        assert len(seen) > 10
        assert seen == sorted(seen, reverse=True)


async def test_a_corrupt_session_can_be_deleted(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 5, "s-1")
        await create(store, "s-2")
    connection = schema.connect(disk_world.directory, write=True, busy_ms=20_000)
    connection.execute("update session set mac = x'00' where id = 's-1'")
    connection.close()

    async with disk_world.open() as store:
        assert isinstance(await store.delete("s-1"), str)
        assert await kind_of(lambda: store.load("s-1")) == "session_deleted"
        fence = await take(store, "s-2")
        await store.commit("s-2", submission("t-1")).wait()
        assert (await store.commit("s-2", start(fence)).wait()).events


async def test_the_numbers_of_sessions_are_not_given_again_while_rows_are_left(
    disk_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "REMOVE_S", 0)
    monkeypatch.setattr(removal, "STEP_NS", 0)
    async with disk_world.open() as store:
        await fill(store, 1_000, "s-1")
        await store.delete("s-1")

        await fill(store, 5, "s-2")

        assert [entry["event"]["seq"] for entry in await whole(store, "s-2")] == [1, 2, 3, 4, 5]
