"""What a look at a whole store finds: every kind of damage told apart and placed, and nothing where there is none."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.commands import SteerTurn, SubmitTurn
from hames.protocol.errors import HarnessFault, Refused
from hames.store.verify import StoreReport, verify_store
from hames.store.walk import Trail
from store.play import BY, LIMITS, World, chunk, completion, create, creation, fill, running, start, submission, take
from store.process import other
from store.versions import raise_version

pytestmark = pytest.mark.anyio


def look(world: World, session_id: str | None = None) -> StoreReport:
    """What is found in the world's store."""
    return verify_store(world.directory, LIMITS, session_id=session_id)


def told(report: StoreReport) -> set[tuple[str, str]]:
    """Kinds and places."""
    return {(finding.kind, finding.where) for finding in report.findings}


def edit(world: World, *statements: str) -> None:
    """Change rows behind the store's back."""
    with closing(sqlite3.connect(world.directory / "store.db")) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0, statement
        connection.commit()


def checkpoint(world: World) -> None:
    """Move everything from the WAL into the database."""
    with closing(sqlite3.connect(world.directory / "store.db")) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")


async def rich(world: World) -> None:
    """A store with some of everything: ended, running, queued and held turns, keys, a steer, large texts."""
    async with world.open() as store:
        await store.commit("s-0", creation(store, "s-0", key="made", turn=submission("t-1", key="first"))).wait()
        fence = await take(store, "s-0")
        await store.commit("s-0", start(fence)).wait()
        steer = SteerTurn("u-1", ({"role": "command", "type": "text", "text": "left"},), "content", BY, key="steered")
        await store.commit("s-0", steer).wait()
        await store.commit("s-0", submission("t-2", key="second")).wait()
        large = ({"role": "command", "type": "text", "text": "Größe " * 40_000},)
        await store.commit(
            "s-0", SubmitTurn("t-3", large, "content", BY, meta={"artifact": "a-1", "sha256": "x"})
        ).wait()
        await store.commit("s-0", chunk(fence, "t-1", 0)).wait()
        await fill(store, 10)
        await create(store, "s-2")


async def test_a_store_that_was_not_touched_is_good_whatever_is_in_it(disk_world: World) -> None:
    await rich(disk_world)

    report = look(disk_world)

    assert told(report) == set()
    assert report.is_good
    assert report.counts["sessions"] == 3
    assert report.counts["turns"] == 4
    assert report.store["epoch"] == 1


async def test_one_session_is_looked_at_alone(disk_world: World) -> None:
    await rich(disk_world)
    edit(disk_world, "update event set line = replace(line, '\"x\"', '\"y\"') where id = (2 << 40) + 5")

    assert look(disk_world, "s-0").is_good
    assert told(look(disk_world, "s-1")) == {("edited", "session s-1, event 5")}
    with pytest.raises(Refused, match="session_not_found"):
        look(disk_world, "s-9")


DAMAGE: list[tuple[str, list[str], set[tuple[str, str]]]] = [
    (
        "an event was edited",
        ["update event set line = replace(line, '\"x\"', '\"y\"') where id & 0xffff = 5"],
        {("edited", "session s-1, event 5")},
    ),
    (
        "an event that is no line",
        ["update event set line = '{}' where id & 0xffff = 5"],
        {("edited", "session s-1, event 5")},
    ),
    (
        "the checksum of an event was edited",
        ["update event set crc = crc + 1 where id & 0xffff = 5"],
        {("edited", "session s-1, event 5")},
    ),
    (
        "the digest of an event was edited",
        ["update event set digest = x'0011223344556677' where id & 0xffff = 5"],
        {("edited", "session s-1, event 5")},
    ),
    (
        "an event is gone",
        ["delete from event where id & 0xffff = 5"],
        {("gapped", "session s-1, event 5")},
    ),
    (
        "several events are gone",
        ["delete from event where id & 0xffff in (5, 6, 8)"],
        {("gapped", "session s-1, events 5 to 6"), ("gapped", "session s-1, event 8")},
    ),
    (
        "the last events are gone",
        ["delete from event where id & 0xffff >= 9"],
        {("torn", "session s-1, events 9 to 10")},
    ),
    (
        "the last event is gone",
        ["delete from event where id & 0xffff = 10"],
        {("torn", "session s-1, event 10")},
    ),
    (
        "an event stands a second time in the place of another",
        ["update event set line = (select line from event where id & 0xffff = 6) where id & 0xffff = 5"],
        {("duplicated", "session s-1, event 5")},
    ),
    (
        "an event stands a second time behind the head",
        ["insert into event select id + 2, digest, crc, line from event where id & 0xffff = 9"],
        {("duplicated", "session s-1, event 11"), ("duplicated", "session s-1, head")},
    ),
    (
        "two events changed places",
        [
            "update event set id = id + 100 where id & 0xffff in (5, 6)",
            "update event set id = id - 99 where id & 0xffff = 105",
            "update event set id = id - 101 where id & 0xffff = 106",
        ],
        {("swapped", "session s-1, event 5"), ("swapped", "session s-1, event 6")},
    ),
    (
        "an event of another session stands in its place",
        ["update event set line = replace(line, '\"s-1\"', '\"s-7\"') where id & 0xffff = 5"],
        {("swapped", "session s-1, event 5")},
    ),
    (
        "the head tells of less",
        ["update session set head = head - 1 where id = 's-1'"],
        {("edited", "session s-1, head"), ("duplicated", "session s-1, head")},
    ),
    (
        "the seal was edited",
        ["update session set mac = x'00' where id = 's-1'"],
        {("edited", "session s-1, head")},
    ),
    (
        "the chain was edited",
        ["update session set chain = x'00' where id = 's-1'"],
        {("edited", "session s-1, head")},
    ),
    (
        "the title was edited",
        ["update session set title = 'another' where id = 's-1'"],
        {("edited", "session s-1, head")},
    ),
    (
        "the workspace was edited",
        ["update session set workspace = '/' where id = 's-1'"],
        {("edited", "session s-1, head")},
    ),
    (
        "the fence went back",
        ["update session set fence = 0 where id = 's-1'"],
        {("edited", "session s-1, head")},
    ),
    (
        "the state was edited",
        ["update state set doc = replace(doc, 'running', 'queued')"],
        {("edited", "session s-1, state")},
    ),
    ("the state is gone", ["delete from state"], {("missing", "session s-1, state")}),
    ("a turn is gone", ["delete from turn"], {("missing", "session s-1, turn t-1")}),
    (
        "a turn was edited",
        ["update turn set doc = replace(doc, 'running', 'queued')"],
        {("edited", "session s-1, turn t-1")},
    ),
    (
        "a turn's status was edited",
        ["update turn set status = 'completed'"],
        {("edited", "session s-1, turn t-1")},
    ),
    (
        "a turn too many",
        ["insert into turn select session, 2, 't-9', status, crc, doc from turn"],
        {("duplicated", "session s-1, turns")},
    ),
    (
        "the row of a session is gone",
        ["delete from session"],
        {("missing", "events"), ("missing", "turns"), ("missing", "states")},
    ),
    ("the epoch was edited", ["update meta set value = 7 where key = 'epoch'"], {("edited", "epochs")}),
]


@pytest.mark.parametrize(("statements", "found"), [case[1:] for case in DAMAGE], ids=[case[0] for case in DAMAGE])
async def test_what_was_done_to_a_store_is_told_and_placed(
    disk_world: World, statements: list[str], found: set[tuple[str, str]]
) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
    edit(disk_world, *statements)

    assert told(look(disk_world)) == found


async def test_two_sessions_that_changed_names_are_swapped(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store, "s-1")
        await create(store, "s-2")
    edit(
        disk_world,
        "update session set id = 's-0' where n = 1",
        "update session set id = 's-1' where n = 2",
        "update session set id = 's-2' where n = 1",
    )

    assert {("swapped", "session s-1, event 1"), ("swapped", "session s-2, event 1")} <= told(look(disk_world))


async def test_an_older_row_of_a_session_put_back_is_swapped(disk_world: World) -> None:
    with_older = disk_world.directory.with_name("older.db")
    async with disk_world.open() as store:
        await fill(store, 10)
    with closing(sqlite3.connect(disk_world.directory / "store.db")) as connection:
        connection.execute("vacuum into ?", (str(with_older),))
    async with disk_world.open() as store:
        fence = await take(store, "s-1", force=True)
        await store.commit("s-1", submission("t-2")).wait()
        assert fence == 2
    with closing(sqlite3.connect(disk_world.directory / "store.db")) as connection:
        connection.execute("attach ? as older", (str(with_older),))
        connection.execute("insert or replace into session select * from older.session")
        connection.commit()

    assert ("swapped", "session s-1, head") in told(look(disk_world))


KEYS = [
    ("delete from idem where key = 'first'", {("missing", "session s-0, idempotency key of event 2")}),
    ("delete from idem where key = 'made'", {("missing", "session s-0, idempotency key of event 1")}),
    ("update idem set digest = 'x' where key = 'steered'", {("edited", "session s-0, idempotency key of event 4")}),
    ("update idem set turn_id = 'x' where key = 'second'", {("edited", "session s-0, idempotency key of event 5")}),
    ("update idem set seq = 999 where key = 'second'", {("edited", "session s-0, idempotency key of event 5")}),
    (
        "insert into idem select scope, 'more', digest, session_id, seq, turn_id, steer_id from idem where scope = 1",
        {("duplicated", "session s-0, idempotency keys")},
    ),
    (
        "insert into idem select 0, 'more', digest, session_id, seq, turn_id, steer_id from idem where scope = 0",
        {("duplicated", "idempotency keys")},
    ),
    (
        "insert into idem select 0, 'more', digest, 's-9', seq, turn_id, steer_id from idem where scope = 0",
        {("missing", "idempotency keys")},
    ),
]


@pytest.mark.parametrize(("statement", "found"), KEYS)
async def test_a_key_that_is_not_as_the_log_has_it_is_found(
    disk_world: World, statement: str, found: set[tuple[str, str]]
) -> None:
    await rich(disk_world)
    edit(disk_world, statement.replace("where scope = 1", "where scope = 1 limit 1"))

    assert told(look(disk_world)) == found


async def test_keys_of_a_deleted_session_are_no_damage(disk_world: World) -> None:
    await rich(disk_world)
    edit(
        disk_world,
        "insert into idem select 0, 'more', digest, 's-9', seq, turn_id, steer_id from idem where scope = 0",
        "insert into tombstone values ('s-9', '2026-01-01T00:00:00.000Z', null)",
    )

    assert look(disk_world).is_good


ARTIFACTS = [
    ("delete from blob", {("missing", "artifacts"), ("missing", "session s-0, event 6")}),
    ("delete from blob_ref", {("missing", "session s-0, event 6")}),
    ("update blob set size_bytes = 7", None),
]


@pytest.mark.parametrize(("statement", "found"), ARTIFACTS)
async def test_an_artifact_that_an_event_names_and_nobody_has_is_found(
    disk_world: World, statement: str, found: set[tuple[str, str]] | None
) -> None:
    await rich(disk_world)
    edit(disk_world, statement)

    report = look(disk_world)

    assert not report.is_good
    if found is not None:
        assert told(report) == found


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (lambda path: path.unlink(), "missing"),
        (lambda path: os.truncate(path, 100), "torn"),
        (lambda path: path.write_bytes(b"x" * path.stat().st_size), "edited"),
    ],
)
async def test_a_file_of_an_artifact_that_is_damaged_is_found(
    disk_world: World, harm: Callable[[Path], object], kind: str
) -> None:
    await rich(disk_world)
    (file,) = [path for path in (disk_world.directory / "blobs").rglob("*") if path.is_file()]
    file.chmod(0o600)
    harm(file)

    found = look(disk_world)

    assert [finding.kind for finding in found.findings] == [kind]
    assert file.name[:20] in found.findings[0].where


# --- files --------------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 4096 * 7 // 10 * 4096)


FILES: list[tuple[str, Callable[[Path], object], set[str]]] = [
    ("store.db", Path.unlink, {"missing"}),
    ("store.db", lambda path: os.truncate(path, 0), {"torn"}),
    ("store.db", cut, {"torn"}),
    ("store.db", lambda path: path.write_bytes(os.urandom(path.stat().st_size)), {"edited"}),
    ("store.db-wal", Path.unlink, {"torn"}),
    ("store.db-wal", lambda path: os.truncate(path, 4000), {"torn"}),
    ("key", Path.unlink, {"missing"}),
    ("witness", Path.unlink, {"missing"}),
    ("witness", lambda path: path.write_bytes(bytes(64)), {"edited"}),
]


@pytest.mark.parametrize(("name", "harm", "kinds"), FILES)
async def test_a_file_of_the_store_that_is_not_whole_is_found(
    disk_world: World, name: str, harm: Callable[[Path], object], kinds: set[str]
) -> None:
    async with disk_world.open() as store:
        await fill(store, 300, text="x" * 200)
    checkpoint(disk_world)
    if name != "store.db":
        async with disk_world.open() as store:
            await store.commit("s-1", submission("t-2")).wait()
    harm(disk_world.directory / name)

    assert kinds <= set(look(disk_world).kinds)


async def test_a_flipped_bit_in_the_text_of_an_event_is_placed(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 20, text="a text that can be found")
    checkpoint(disk_world)
    path = disk_world.directory / "store.db"
    data = bytearray(path.read_bytes())
    for match in re.finditer(rb'"seq":9,[^\n]*?a text', data):  # what SQLite moved leaves copies behind
        data[match.end() - 1] ^= 1
    path.write_bytes(data)

    assert told(look(disk_world)) == {("edited", "session s-1, event 9")}


async def test_where_there_is_no_store_nothing_is_called_good(tmp_path: Path) -> None:
    with pytest.raises(HarnessFault, match="there is no store"):
        verify_store(tmp_path / "nowhere", LIMITS)


async def test_a_newer_store_is_not_judged(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
    raise_version(disk_world.directory, 99, min_reader=99, min_writer=99)

    with pytest.raises(HarnessFault, match="session_incompatible"):
        look(disk_world)


async def test_a_session_of_a_newer_build_is_proved_and_not_folded(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        await store.commit("s-2", creation(store, "s-2", key="made")).wait()
    edit(disk_world, "update session set min_reader = 99", "update state set doc = '{}'")

    assert look(disk_world).is_good


async def test_a_live_process_that_commits_all_the_time_is_not_disturbed_and_its_store_is_good(
    disk_world: World,
) -> None:
    async with disk_world.open() as store:
        await create(store, "s-9")
    with other(disk_world.directory) as second:
        second.tell("flood", sessions=3)
        for _ in range(20):
            second.hear()
        for _ in range(5):
            assert told(look(disk_world)) == set()
        said = second.kill()
    assert said
    assert all("kind" not in line for line in said)


async def test_progress_tells_of_every_event_and_only_so_much_is_kept_of_what_is_wrong(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 2_500)
    seen: list[tuple[int, int]] = []
    assert verify_store(disk_world.directory, LIMITS, progress=lambda *at: seen.append(at)).is_good
    assert seen == [(1000, 2500), (2000, 2500), (2500, 2500)]

    edit(disk_world, "update event set line = line || ' ' where id & 0xffff > 5")
    report = look(disk_world)
    assert len(report.findings) == 20
    assert report.findings[0].where == "session s-1, event 6"


class Deaf:
    """Is told, and does nothing."""

    def amend(self, *_: Any) -> None: ...

    def event(self, *_: Any) -> None: ...

    def turn(self, *_: Any) -> None: ...


async def test_the_trail_ends_at_the_first_event_that_does_not_prove_itself(disk_world: World) -> None:
    async with disk_world.open() as store:
        fence = await running(store)
        await store.commit("s-1", completion(fence, "t-1")).wait()
    edit(disk_world, "update event set line = replace(line, 'done', 'gone') where line like '%done%'")
    from hames.store import schema
    from hames.store.findings import Findings
    from hames.store.walk import walk

    with closing(schema.connect(disk_world.directory, write=False, busy_ms=1000)) as connection:
        trail = Trail("s-1", Deaf())
        last = walk(connection, 1, trail, Findings(), step=lambda: None)

    assert (trail.seq, last) == (3, 4)
    assert trail.state.running == "t-1"


@given(st.binary(max_size=200), st.integers(1, 3))
def test_no_line_whatever_is_taken_for_the_next_event(line: bytes, seq: int) -> None:
    from hames.store.walk import Entry

    trail = Trail("s-1", Deaf())

    assert trail.take(Entry(seq, b"12345678", 0, line)) is not None
    assert trail.seq == 0
