"""Rows of turns that are not those the log tells of: said, never a list that is short or tells of one twice."""

from __future__ import annotations

import pytest

from hames.protocol.errors import HarnessFault
from store.play import World, completion, create, start, submission, take
from store.test_verify import edit

pytestmark = pytest.mark.anyio

HARM = [
    "delete from turn where n = 3",
    "delete from turn where n = 1",
    "delete from turn where n = 2",
    "delete from turn",
    "insert into turn select session, 9, 't-9', status, crc, doc from turn where n = 1",
    "insert into turn select session, 0, 't-0', status, crc, doc from turn where n = 1",
    "update turn set session = 9 where n = 2",
    "update turn set n = 7 where n = 3",
    "update turn set turn_id = 't-7' where n = 2",
    "update turn set status = 'failed' where n = 2",
    "update turn set doc = '{}' where n = 2",
    "update turn set doc = 'no JSON' where n = 2",
    "update turn set doc = (select doc from turn where n = 1), crc = (select crc from turn where n = 1) where n = 2",
]


async def three(world: World) -> None:
    """A session of three turns that have ended, and one without any."""
    async with world.open() as store:
        await create(store)
        await create(store, "s-2")
        fence = await take(store)
        for n in range(1, 4):
            await store.commit("s-1", submission(f"t-{n}")).wait()
            await store.commit("s-1", start(fence)).wait()
            await store.commit("s-1", completion(fence, f"t-{n}")).wait()


@pytest.mark.parametrize("statement", HARM)
async def test_rows_that_differ_from_the_log_are_told_to_who_lists_asks_or_writes(
    disk_world: World, statement: str
) -> None:
    await three(disk_world)
    edit(disk_world, statement)

    for status in (None, "completed", "failed"):
        async with disk_world.open() as store:
            with pytest.raises(HarnessFault, match=r"session_corrupt.*`hames (verify|repair)`"):
                await store.turns("s-1", before=None, limit=9, status=status)
    async with disk_world.open() as store:
        for turn_id in ("t-1", "t-2", "t-3"):
            with pytest.raises(HarnessFault, match="session_corrupt"):
                await store.turn("s-1", turn_id)
    async with disk_world.open() as store:
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await store.commit("s-1", submission("t-2", digest="other")).wait()
        await store.commit("s-2", submission("t-1")).wait()
        assert (await store.turns("s-2", before=None, limit=9, status=None))[0][0].turn_id == "t-1"


async def test_a_row_that_does_not_match_its_own_checksum_is_told_where_it_is_read(disk_world: World) -> None:
    await three(disk_world)
    edit(disk_world, "update turn set crc = 1 where n = 2")

    async with disk_world.open() as store:
        assert (await store.turn("s-1", "t-1"))[0].n == 1
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await store.turn("s-1", "t-2")
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await store.turns("s-1", before=None, limit=9, status=None)


async def test_an_id_whose_row_is_gone_is_not_given_to_another_turn(disk_world: World) -> None:
    await three(disk_world)
    edit(disk_world, "delete from turn where turn_id = 't-2'")

    async with disk_world.open() as store:
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await store.commit("s-1", submission("t-2")).wait()
        assert store.head("s-1") == 0


async def test_rows_are_proved_once_and_what_another_process_writes_is_no_damage(disk_world: World) -> None:
    await three(disk_world)
    async with disk_world.open() as first, disk_world.open() as second:
        assert len((await first.turns("s-1", before=None, limit=9, status=None))[0]) == 3
        await second.commit("s-1", submission("t-4")).wait()
        await first.commit("s-1", submission("t-5")).wait()
        await second.commit("s-1", submission("t-6")).wait()
        for store in (first, second):
            turns, _ = await store.turns("s-1", before=None, limit=9, status=None)
            assert [turn.turn_id for turn in turns] == ["t-6", "t-5", "t-4", "t-3", "t-2", "t-1"]
