"""What a process knows of sessions without asking the disk, and who waits for them."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from hames.core.commands import UpdateSession
from hames.core.state import State
from hames.protocol.errors import HarnessFault, Refused
from hames.store import hub
from hames.store.hub import Hub
from store.play import BY, World, create, running, submission

pytestmark = pytest.mark.anyio


async def test_over_many_sessions_only_those_that_moved_last_are_known() -> None:
    known = Hub()
    for number in range(10_000):
        known.know(State(f"s-{number}", 1), "1.0")
        known.advance(f"other-{number}", 1)

    heads = [n for n in range(10_000) if known.head(f"s-{n}")]
    states = [n for n in range(10_000) if known.latest(f"s-{n}") is not None]
    assert heads == states == list(range(10_000 - hub.SESSIONS // 2, 10_000))


async def test_a_session_that_is_used_stays_known() -> None:
    known = Hub()
    for number in range(10_000):
        known.know(State("used", number + 1), f"{number + 1}.0")
        known.know(State(f"s-{number}", 1), "1.0")

    assert known.latest("used") == (State("used", 10_000), "10000.0")


async def test_who_waits_leaves_nothing_behind() -> None:
    known = Hub()
    told = known.enter("s-1")
    known.leave("s-2", told)
    known.advance("s-1", 1)
    known.leave("s-1", told)
    gone = known.enter("s-1")
    known.leave("s-1", gone)

    assert told.is_set()
    assert not gone.is_set()
    assert known.watched() == []


async def test_the_latest_state_is_that_of_the_newest_commit_seen(world: World) -> None:
    async with world.open() as one:
        assert one.latest("s-1") is None
        made = await create(one)
        assert one.latest("s-1") == (made.state, made.cursor)

        queued = await one.commit("s-1", submission("t-1")).wait()
        assert one.latest("s-1") == (queued.state, queued.cursor)
        with pytest.raises(Refused):
            await create(one)
        assert one.latest("s-1") == (queued.state, queued.cursor)


async def test_the_latest_state_of_a_session_that_others_write_is_that_of_the_last_load(disk_world: World) -> None:
    async with disk_world.open() as one, disk_world.open() as two:
        made = await create(one)
        moved = await two.commit("s-1", UpdateSession("Moved", BY)).wait()
        assert one.latest("s-1") == (made.state, made.cursor)

        loaded = await one.load("s-1")
        assert one.latest("s-1") == (loaded.state, loaded.cursor) == (replace(moved.state, ended=None), moved.cursor)


async def test_a_session_that_was_forgotten_is_asked_of_the_store(
    disk_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "SESSIONS", 4)
    with anyio.fail_after(30):
        async with disk_world.open() as store:
            for number in range(10):
                await create(store, f"s-{number}")

            assert (store.head("s-0"), store.latest("s-0")) == (0, None)
            assert await store.changed("s-0", 0) == 1
            assert store.head("s-0") == 1


async def test_a_store_that_is_opened_again_knows_nothing_of_before(disk_world: World) -> None:
    with anyio.fail_after(30):
        one = disk_world.make()
        await one.open()
        await create(one)
        await one.aclose()
        async with disk_world.open() as two:
            await two.commit("s-1", UpdateSession("Moved", BY)).wait()
        await one.open()
        try:
            assert (one.head("s-1"), one.latest("s-1")) == (0, None)
            assert await one.changed("s-1", 1) == 2
        finally:
            await one.aclose()


async def test_who_waits_for_a_session_hears_that_the_store_is_closed(world: World) -> None:
    heard: list[HarnessFault] = []

    async def wait(after_seq: int) -> None:
        with pytest.raises(HarnessFault) as caught:
            await store.changed("s-1", after_seq)
        heard.append(caught.value)

    with anyio.fail_after(30):
        async with world.open() as store, anyio.create_task_group() as waiters:
            await running(store)
            head = store.head("s-1")
            for after_seq in (head, head + 5):
                waiters.start_soon(wait, after_seq)
            await anyio.wait_all_tasks_blocked()
            await store.aclose()

    assert [(fault.kind, fault.details["why"]) for fault in heard] == [("store_unavailable", "closed")] * 2
