"""What a repair makes anew because it follows from what proves itself: nothing of a log is cut for what stands beside
it, and what is found nowhere is said once."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hames.protocol.errors import HarnessFault
from hames.store.repair import repair_store
from store.damage import checkpoint
from store.harms import file_harms
from store.play import LIMITS, World, completion, create, fill, start, submission, take, whole
from store.test_repair import go_on, logs
from store.test_verify import edit, look, rich, told

pytestmark = pytest.mark.anyio


MUCH = [
    "update event set crc = 0",
    "update event set digest = x'00'",
    'update event set line = replace(line, \'"cursor":"\', \'"cursor":"1\')',
    "update event set crc = crc + 1, digest = x'0011223344556677' where id & 1",
    "update turn set status = 'failed'",
    "update turn set doc = '{}'",
    "update turn set turn_id = 'x' || n",
    "delete from turn where n > 2",
    "update idem set digest = 'x'",
    "delete from idem where scope <> 0",
]
"""More than is kept of the findings of one session."""


@pytest.mark.parametrize("statement", MUCH)
async def test_however_much_is_wrong_beside_a_log_nothing_of_it_is_cut(disk_world: World, statement: str) -> None:
    async with disk_world.open() as store:
        await create(store)
        fence = await take(store)
        for n in range(1, 31):
            await store.commit("s-1", submission(f"t-{n}", key=f"k-{n}")).wait()
            await store.commit("s-1", start(fence)).wait()
            await store.commit("s-1", completion(fence, f"t-{n}")).wait()
        before = await whole(store)
    edit(disk_world, statement)
    assert len(look(disk_world).findings) == 20

    report = repair_store(disk_world.directory, LIMITS)

    assert (report.loses, look(disk_world).findings) == (False, [])
    assert report.mended["rows of events"] == (
        0 if " event " not in statement else 91 if "id & 1" not in statement else 46
    )
    async with disk_world.open() as store:
        assert await whole(store) == before
        await go_on(store)


async def test_a_turn_whose_id_was_used_twice_after_its_row_was_lost_is_listed_twice_and_found_once(
    disk_world: World,
) -> None:
    async with disk_world.open() as store:
        await create(store)
        fence = await take(store)
        for turn_id in ("t-1", "t-2"):
            await store.commit("s-1", submission(turn_id)).wait()
            await store.commit("s-1", start(fence)).wait()
            await store.commit("s-1", completion(fence, turn_id)).wait()
        # As a build did that did not look at the rows first.
        edit(disk_world, "delete from turn where turn_id = 't-1'")
        await store.commit("s-1", submission("t-1")).wait()
    assert told(look(disk_world)) == {("missing", "session s-1, turn t-1")}

    report = repair_store(disk_world.directory, LIMITS)

    assert (report.loses, look(disk_world).findings) == (False, [])
    async with disk_world.open() as store:
        turns, _ = await store.turns("s-1", before=None, limit=9, status=None)
        assert [(turn.turn_id, turn.n) for turn in turns] == [("t-1", 3), ("t-2", 2), ("t-1", 1)]
        assert (await store.turn("s-1", "t-1"))[0].n == 3


CONTENTS: list[tuple[str, Callable[[Path], object]]] = [
    ("missing", lambda path: path.unlink()),
    ("short", lambda path: os.truncate(path, 100)),
    ("flipped", lambda path: path.write_bytes(b"x" + path.read_bytes()[1:])),
]


@pytest.mark.parametrize("harm", [harm for _, harm in CONTENTS], ids=[name for name, _ in CONTENTS])
async def test_a_content_that_is_nowhere_is_said_to_be_lost_once_and_is_there_again_when_it_is_put_again(
    disk_world: World, harm: Callable[[Path], object]
) -> None:
    await rich(disk_world)
    (file,) = [path for path in (disk_world.directory / "blobs").rglob("*") if path.is_file()]
    data = file.read_bytes()
    file.chmod(0o600)
    harm(file)

    report = repair_store(disk_world.directory, LIMITS)

    assert (len(report.contents_lost), report.loses) == (1, True)
    found = look(disk_world)
    assert (found.findings, found.notes) == ([], ["1 artifacts are lost, as a repair found; events still name them"])
    async with disk_world.open() as store:
        lost = f"a-{report.contents_lost[0].hex()[:32]}"
        assert await store.contents("s-0", [lost]) == {}
        with pytest.raises(HarnessFault, match="was found nowhere by a repair"):
            await store.read_artifact("s-0", lost, offset=0, length=10)
        await store.commit(
            "s-2", replace(submission("t-1"), input=({"role": "command", "type": "text", "text": data.decode()},))
        ).wait()
        assert await store.contents("s-0", [lost]) == {lost: data}
    assert (look(disk_world).findings, look(disk_world).notes) == ([], [])


async def test_what_no_repair_mends_is_not_tried_again(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
    (disk_world.directory / "key").write_bytes(os.urandom(32))

    assert (look(disk_world).is_good, look(disk_world).is_mendable) == (False, False)


ELSEWHERE = [
    (
        "update session set id = 's-0' where n = 1",
        "update session set id = 's-1' where n = 2",
        "update session set id = 's-2' where n = 1",
    ),
    ("update session set n = 99 where n = 1",),
    ("update event set id = id + (9 << 40) where id >> 40 = 1",),
    ("update event set id = id + (9 << 40) where id >> 40 = 1 and id & 1",),
    ("update event set id = -id where id >> 40 = 2",),
    (
        "update event set id = id + (5 << 40) where id >> 40 = 1",
        "update event set id = id - (1 << 40) where id >> 40 = 2",
        "update event set id = id - (4 << 40) where id >> 40 = 6",
    ),
    ("insert into event select id + (9 << 40), digest, crc, line from event where id >> 40 = 1",),
]
"""Statements, each a damage of two sessions of ten events."""


@pytest.mark.parametrize("statements", ELSEWHERE)
async def test_events_and_names_that_stand_in_another_place_are_put_back(
    disk_world: World, statements: tuple[str, ...]
) -> None:
    async with disk_world.open() as store:
        await fill(store, 10, "s-1")
        await fill(store, 10, "s-2")
        before = await logs(store, "s-1", "s-2")
    edit(disk_world, *statements)
    assert not look(disk_world).is_good

    report = repair_store(disk_world.directory, LIMITS)

    assert (report.loses, look(disk_world).findings) == (False, [])
    async with disk_world.open() as store:
        assert await logs(store, "s-1", "s-2") == before
        await go_on(store, "s-1")
        await go_on(store, "s-2")


async def test_an_event_that_stands_elsewhere_is_put_back_when_one_session_is_repaired_too(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        await fill(store, 10, "s-2")
        before = await logs(store, "s-1", "s-2")
    edit(disk_world, "update event set id = id + 500 where id = (1 << 40) + 5")

    report = repair_store(disk_world.directory, LIMITS, session_id="s-1")

    assert (report.loses, look(disk_world, "s-1").findings) == (False, [])
    async with disk_world.open() as store:
        assert await logs(store, "s-1", "s-2") == before


async def test_a_content_that_one_repaired_session_lost_is_no_work_for_the_next_repair(disk_world: World) -> None:
    await rich(disk_world)
    (file,) = [path for path in (disk_world.directory / "blobs").rglob("*") if path.is_file()]
    file.unlink()
    assert look(disk_world, "s-0").is_mendable

    assert len(repair_store(disk_world.directory, LIMITS, session_id="s-0").contents_lost) == 1

    assert look(disk_world, "s-0").is_good
    assert look(disk_world).is_good


async def test_a_header_whose_page_stands_in_the_wal_is_written_again_by_who_opens_the_store(
    disk_world: World,
) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
    checkpoint(disk_world.directory)
    harms = {harm.name: harm for harm in file_harms(disk_world.directory)}
    harms["header byte 0 under a WAL"].apply(disk_world.directory)
    assert told(look(disk_world)) == {("edited", "store.db, its files")}

    async with disk_world.open() as store:
        await go_on(store)

    assert look(disk_world).is_good
