"""Stores of older builds are brought forward whole; those of newer builds are read as far as they allow."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

from hames.core.commands import SubmitTurn
from hames.core.limits import DEFAULTS
from hames.ports import Store
from hames.protocol.errors import HarnessFault, Refused
from hames.store import migrations, schema
from hames.store.lookup import Lookup
from hames.store.opening import open_for_reading
from hames.store.owners import Owners, new_owner_id
from store.play import World, check_chain, completion, create, folded, parse, start, submission, take, whole
from store.process import OLDER, ROOT, Other, other
from store.versions import VERSIONS, append, lines_of, meta, raise_version, raw, tables, unpack

pytestmark = pytest.mark.anyio

SESSIONS = ["idle", "closed", "joined", "held", "running"]
"""Of every fixture: see `fixtures/make.py`."""


@pytest.fixture(params=VERSIONS)
def older(request: pytest.FixtureRequest, disk_world: World) -> World:
    """The store that the build of an older version left."""
    unpack(request.param, disk_world.directory)
    return disk_world


@pytest.fixture
def oldest(disk_world: World) -> World:
    """The store of version 1."""
    unpack(1, disk_world.directory)
    return disk_world


async def refused_at_open(world: World) -> HarnessFault:
    """Why the store cannot be opened."""
    with pytest.raises(HarnessFault) as caught:
        async with world.open():
            pass
    return caught.value


async def log_of(store: Store, session_id: str) -> bytes:
    page = await store.read(session_id, limit=10_000, max_bytes=2**24)
    assert not page.more
    return page.lines


def backups(world: World) -> list[Path]:
    return sorted((world.directory / "backups").glob("*"))


# --- older stores -------------------------------------------------------------------------------------------


async def test_there_is_a_fixture_of_every_older_version() -> None:
    assert set(range(1, schema.VERSION)) <= set(VERSIONS)
    assert set(migrations.STEPS) == set(range(1, schema.VERSION))
    assert set(schema.TABLES) == set(range(1, schema.VERSION + 1))
    newest = migrations.STEPS[schema.VERSION - 1]
    assert (newest.min_reader, newest.min_writer) == (schema.MIN_READER, schema.MIN_WRITER)


async def test_every_event_of_an_older_store_is_served_byte_by_byte_and_proves_itself(older: World) -> None:
    before = lines_of(older.directory)

    async with older.open() as store:
        assert set(SESSIONS) <= set(before)
        for session_id, lines in before.items():
            assert await log_of(store, session_id) == lines
            check_chain(session_id, lines)
            for entry in parse(lines):
                page = await store.read(session_id, after=entry["cursor"], limit=1, max_bytes=1)
                assert page.last_seq == min(entry["event"]["seq"] + 1, page.head_seq)
    assert lines_of(older.directory) == before


async def test_the_state_of_every_session_of_an_older_store_is_what_its_log_leads_to(older: World) -> None:
    async with older.open() as store:
        for session_id in SESSIONS:
            loaded = await store.load(session_id)
            assert loaded.state == folded(session_id, await whole(store, session_id))
            assert loaded.metadata is not None
            assert loaded.metadata["of"] == session_id


async def test_sessions_of_an_older_store_go_on(older: World) -> None:
    async with older.open() as store:
        fence = await take(store, "idle")
        await store.commit("idle", submission("new", key="a new key")).wait()
        await store.commit("idle", start(fence)).wait()
        await store.commit("idle", completion(fence, "new")).wait()

        turns, _ = await store.turns("idle", before=None, limit=10, status=None)
        assert [turn.turn_id for turn in turns] == ["new", "i-3", "i-2", "i-1"]
        failed, _ = await store.turns("idle", before=None, limit=10, status="failed")
        assert [turn.turn_id for turn in failed] == ["i-3"]
        waiting, _ = await store.turns("held", before=None, limit=10, status="queued")
        assert [turn.turn_id for turn in waiting] == ["h-3", "h-2"]
        found = await store.sessions(workspace=None, query="日本", before=None, limit=10)
        assert [loaded.state.session_id for _, loaded in found] == ["idle"]
    async with older.open() as store:
        assert (await store.load("idle")).state == folded("idle", await whole(store, "idle"))


async def test_a_turn_that_an_older_build_left_running_is_taken_over(older: World) -> None:
    async with older.open() as store:
        assert (await store.load("running")).state.running == "r-1"
        fence = await take(store, "running")

        await store.commit("running", replace(completion(fence, "r-1"), recovering=True)).wait()
        await store.commit("running", start(fence)).wait()

        assert (await store.load("running")).state.running == "r-2"


async def test_keys_that_an_older_build_used_up_answer_as_before(older: World) -> None:
    async with older.open() as store:
        log = await whole(store, "idle")
        queued = next(entry["event"] for entry in log if entry["event"]["type"] == "turn.queued")
        data = queued["data"]
        again = SubmitTurn("other", data["input"], data["contentDigest"], data["by"], key=data["idempotencyKey"])

        repeated = await store.commit("idle", again).wait()

        assert repeated.reply.repeated
        assert (repeated.reply.turn_id, repeated.events) == ("i-1", ())
        with pytest.raises(Refused, match="idempotency_conflict"):
            await store.commit("idle", submission("other", key=data["idempotencyKey"])).wait()


async def test_what_an_older_build_kept_apart_is_there_and_what_it_deleted_is_not(older: World) -> None:
    version = meta(older.directory)["user_version"]
    session_ids = list(lines_of(older.directory))
    apart = 0
    async with older.open() as store:
        for session_id in session_ids:
            for artifact in await store.artifacts(session_id, after=None, limit=100):
                whole = await store.contents(session_id, [artifact.artifact])
                assert sha256(whole[artifact.artifact]).hexdigest() == artifact.sha256
                apart += 1
        if version >= 2:
            with pytest.raises(Refused, match="session_deleted"):
                await store.load("deleted")
    assert (apart > 0) == (version >= 2)


async def test_an_older_store_gets_the_tables_of_a_new_one(older: World, tmp_path: Path) -> None:
    new = World("sqlite", tmp_path / "new")
    async with new.open(), older.open():
        pass

    assert tables(older.directory) == tables(new.directory)
    said, fresh = meta(older.directory), meta(new.directory)
    for name in ("user_version", "min_reader", "min_writer", "epoch"):
        assert said[name] == fresh[name]


async def test_a_copy_is_kept_that_takes_the_place_of_the_store(oldest: World) -> None:
    before = lines_of(oldest.directory)
    async with oldest.open() as store:
        await create(store, "later")

    (backup,) = backups(oldest)
    assert backup.name.startswith("pre-1-")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert stat.S_IMODE(backup.parent.stat().st_mode) == 0o700
    assert meta(backup.parent, backup.name)["user_version"] == 1
    for name in ("store.db-wal", "store.db-shm", "witness"):
        (oldest.directory / name).unlink(missing_ok=True)
    shutil.copy(backup, oldest.directory / "store.db")

    async with oldest.open() as store:
        for session_id, lines in before.items():
            assert await log_of(store, session_id) == lines
        with pytest.raises(Refused, match="session_not_found"):
            await store.load("later")


async def test_the_newest_three_copies_are_kept(oldest: World) -> None:
    directory = oldest.directory / "backups"
    directory.mkdir()
    for number in range(5):
        (directory / f"pre-1-2020010{number}T000000Z.db").write_bytes(b"")
    (directory / "mine.db").write_bytes(b"")

    async with oldest.open():
        pass

    kept = [path.name for path in backups(oldest)]
    assert kept[:1] == ["mine.db"]
    assert len(kept) == 1 + migrations.BACKUPS_KEPT
    assert "pre-1-20200100T000000Z.db" not in kept


async def test_a_store_without_room_for_the_copy_is_left_as_it_is(
    oldest: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = meta(oldest.directory)

    def no_room(*_: Any) -> Path:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(migrations, "back_up", no_room)
        assert (await refused_at_open(oldest)).kind == "store_full"

    assert meta(oldest.directory) == before
    async with oldest.open() as store:
        assert (await store.load("idle")).state.title is not None


KILLED = """
import os, signal, sys
from pathlib import Path
import anyio
from hames.core.limits import DEFAULTS
from hames.store import SqliteStore, migrations

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

where = sys.argv[2]
if where == "copy":
    real = migrations.sync
    migrations.sync = die
elif where == "before":
    migrations._make = die
else:
    change = migrations.STEPS[1].change
    def changed(connection):
        change(connection)
        die()
    migrations.STEPS = {**migrations.STEPS, 1: migrations.Step(changed, min_reader=1, min_writer=2)}
anyio.run(SqliteStore(Path(sys.argv[1]), limits=DEFAULTS, reaper=lambda: None).open)
"""


async def kill_within(directory: Path, where: str) -> int:
    """Open the store in a process that kills itself while it migrates; its exit code."""
    argv = [sys.executable, "-c", KILLED, str(directory), where]
    died = await anyio.run_process(argv, env={"PYTHONPATH": str(ROOT / "src")}, check=False)
    return died.returncode


@pytest.mark.parametrize("where", ["copy", "before", "within"])
async def test_a_migration_that_is_killed_is_made_by_the_next(oldest: World, where: str) -> None:
    before = lines_of(oldest.directory)
    assert await kill_within(oldest.directory, where) == -signal.SIGKILL
    for left in (oldest.directory / "backups").glob(".pre-*"):
        # As if it had begun at another time.
        left.rename(left.with_name(".pre-1-20200101T000000Z.db"))

    async with oldest.open() as store:
        for session_id, lines in before.items():
            assert await log_of(store, session_id) == lines
    assert meta(oldest.directory)["user_version"] == schema.VERSION
    assert not [path for path in backups(oldest) if path.name.startswith(".")]


async def test_a_store_that_may_only_be_read_is_read_as_an_older_build_left_it(oldest: World) -> None:
    before = lines_of(oldest.directory)
    side = open_for_reading(oldest.directory, DEFAULTS, guard=False)

    owners = Owners(oldest.directory, new_owner_id(), lease_ms=1000, reaper=lambda: None)
    lookup = Lookup(side, owners.look)
    assert lookup.load("idle").state.count == 3
    assert len(lookup.sessions(None, None, None, 10)) == len(before)
    for table in ("blob", "blob_ref", "tombstone", "epoch"):
        assert schema.every(side.connection, f"select * from {table}") == []
    side.close()

    assert meta(oldest.directory)["user_version"] == 1


async def test_an_older_store_that_may_be_written_to_again_is_brought_forward_then(oldest: World) -> None:
    # Its shared memory: where nothing may be made, nobody can read without.
    open_for_reading(oldest.directory, DEFAULTS, guard=False).close()
    oldest.directory.chmod(0o500)
    try:
        with other(oldest.directory, humble=True) as reader:
            assert reader.ask("load", session="closed") == {"seq": 9}
            assert reader.ask("submit", session="held", turn="new")["kind"] == "store_unavailable"
            assert meta(oldest.directory)["user_version"] == 1

            oldest.directory.chmod(0o700)
            assert reader.ask("submit", session="held", turn="new") == {"seq": 11}
            assert reader.ask("load", session="held") == {"seq": 11}
    finally:
        oldest.directory.chmod(0o700)
    assert meta(oldest.directory)["user_version"] == schema.VERSION


# --- company ------------------------------------------------------------------------------------------------


async def test_a_store_is_not_migrated_under_a_live_process_of_an_older_build(oldest: World) -> None:
    older = Owners(oldest.directory, new_owner_id(), lease_ms=1000, reaper=lambda: None)
    older.arrive()
    try:
        refused = await refused_at_open(oldest)
    finally:
        older.leave()

    assert refused.kind == "store_unavailable"
    assert refused.retryable
    assert (refused.details["storeVersion"], refused.details["supported"]) == (1, schema.VERSION)
    assert refused.details["pids"] == [os.getpid()]
    assert f"{os.getpid()} on" in refused.message
    assert not backups(oldest)
    async with oldest.open() as store:
        assert (await store.load("idle")).state.count == 3


async def test_an_older_build_keeps_the_newer_one_out_and_reads_what_that_one_left(oldest: World) -> None:
    older = Other(oldest.directory, through=OLDER)
    try:
        assert older.ask("load", session="idle")["seq"] > 40
        refused = await refused_at_open(oldest)
        assert refused.details["pids"] == [older.process.pid]
        assert older.ask("submit", session="held", turn="by the older") == {"seq": 11}
    finally:
        older.kill()
    async with oldest.open() as store:
        assert (await store.commit("held", submission("by the newer")).wait()).state.seq == 12

    older = Other(oldest.directory, through=OLDER)
    try:
        assert older.ask("load", session="held") == {"seq": 12}
        answer = older.ask("submit", session="held", turn="again")
    finally:
        older.kill()
    assert (answer["kind"], answer["storeVersion"], answer["supported"]) == ("session_incompatible", schema.VERSION, 1)


READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("select count(*) from session").fetchall()
print(1, end="", flush=True)
sys.stdin.read()
"""


async def test_a_store_is_not_migrated_while_another_program_reads_it(oldest: World) -> None:
    async with await anyio.open_process([sys.executable, "-c", READER, str(oldest.directory / "store.db")]) as reader:
        assert reader.stdout is not None
        assert reader.stdin is not None
        assert await reader.stdout.receive() == b"1"
        refused = await refused_at_open(oldest)
        await reader.stdin.aclose()
        await reader.wait()

    assert refused.kind == "store_unavailable"
    assert refused.details["storeVersion"] == 1
    assert not backups(oldest)
    async with oldest.open() as store:
        assert (await store.load("idle")).state.count == 3


async def test_several_processes_that_start_on_an_older_store_migrate_it_once(oldest: World) -> None:
    others = [Other(oldest.directory, wait=False) for _ in range(3)]
    try:
        for number, process in enumerate(others):
            assert process.hear()["owner"]
            assert process.ask("create", session=f"new-{number}") == {"seq": 1}
    finally:
        for process in others:
            process.kill()

    assert len(backups(oldest)) == 1
    async with oldest.open() as store:
        assert (await store.load("new-2")).state.seq == 1


# --- newer stores -------------------------------------------------------------------------------------------


async def test_a_newer_store_that_lets_this_build_read_is_read_and_not_written(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
    newer = schema.VERSION + 1
    raise_version(disk_world.directory, newer, min_reader=schema.VERSION, min_writer=newer)

    async with disk_world.open() as store:
        assert len(await whole(store)) == 1
        assert (await store.load("s-1")).state.seq == 1
        assert (await store.check())["status"] == "unavailable"
        with pytest.raises(HarnessFault, match="session_incompatible") as refused:
            await store.commit("s-1", submission("t-1")).wait()
        assert (refused.value.details["storeVersion"], refused.value.details["supported"]) == (newer, schema.VERSION)
        assert f"version {newer}" in str(store.describe()["readOnly"])
        assert store.describe()["schemaVersion"] == newer
    assert meta(disk_world.directory)["user_version"] == newer


async def test_a_newer_store_that_this_build_may_not_read_is_refused(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
    newer = schema.VERSION + 1
    raise_version(disk_world.directory, newer, min_reader=newer, min_writer=newer)

    refused = await refused_at_open(disk_world)

    assert refused.kind == "session_incompatible"
    assert (refused.details["storeVersion"], refused.details["supported"]) == (newer, schema.VERSION)
    assert f"version {newer}" in refused.message
    assert f"version {schema.VERSION}" in refused.message


async def test_a_newer_store_of_additions_is_used_and_what_was_added_is_kept(disk_world: World) -> None:
    async with disk_world.open() as store:
        await take_running(store)
    columns = {"session": "id = 's-1'", "state": "n = 1", "turn": "session = 1"}
    with raw(disk_world.directory) as connection:
        for table, where in columns.items():
            connection.execute(f"alter table {table} add column added text")
            connection.execute(f"update {table} set added = 'kept' where {where}")
        connection.execute("create table added (n integer primary key) strict")
        connection.execute("insert into added values (7)")
    raise_version(disk_world.directory, schema.VERSION + 1, min_reader=schema.VERSION, min_writer=schema.VERSION)

    async with disk_world.open() as store:
        fence = await take(store, force=True)
        await store.commit("s-1", replace(completion(fence, "t-1"), recovering=True)).wait()
        await create(store, "s-2")

    with raw(disk_world.directory) as connection:
        for table, where in columns.items():
            assert connection.execute(f"select added from {table} where {where}").fetchall() == [("kept",)], table
        assert connection.execute("select * from added").fetchall() == [(7,)]
    assert meta(disk_world.directory)["user_version"] == schema.VERSION + 1


async def take_running(store: Store) -> int:
    """A session with a running turn."""
    await create(store)
    await store.commit("s-1", submission("t-1")).wait()
    fence = await take(store)
    await store.commit("s-1", start(fence)).wait()
    return fence


async def test_events_and_members_that_a_newer_build_added_are_served_as_they_are(
    disk_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with disk_world.open() as store:
        await create(store)
    unknown = append(disk_world.directory, "s-1", "future.thing", {"deep": {"ünknown": [1.5, None]}})
    member = append(disk_world.directory, "s-1", "session.updated", {"title": "new", "by": {}, "future": True})

    # A fold of another version, so that this build folds what it does not know.
    monkeypatch.setattr("hames.core.state.FOLD_VERSION", 99)
    async with disk_world.open() as store:
        assert (await log_of(store, "s-1")).split(b"\n")[1:3] == [unknown, member]
        loaded = await store.load("s-1")
        assert (loaded.state.title, loaded.state.seq) == ("new", 3)
        assert (await store.commit("s-1", submission("t-1")).wait()).state.seq == 4
        check_chain("s-1", await log_of(store, "s-1"))


async def test_a_session_that_needs_a_newer_build_is_served_and_not_written(disk_world: World) -> None:
    needs = schema.SESSION_VERSION + 1
    async with disk_world.open() as store:
        await create(store)
        await create(store, "s-2")
    line = append(disk_world.directory, "s-1", "turn.borrowed", {}, min_reader=needs)

    async with disk_world.open() as store:
        assert (await log_of(store, "s-1")).split(b"\n")[1] == line
        with pytest.raises(Refused, match="session_incompatible") as refused:
            await store.commit("s-1", submission("t-1")).wait()
        assert (refused.value.details["needs"], refused.value.details["supported"]) == (needs, schema.SESSION_VERSION)
        with pytest.raises(Refused, match="session_incompatible"):
            await store.claim("s-1")
        assert (await store.commit("s-2", submission("t-1")).wait()).state.seq == 2
