"""What every store does, whichever it is: one contract, two implementations, two event loops."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from hames.core.commands import CancelTurn, CloseSession, Command, Record, SteerTurn, UpdateSession
from hames.ports import Lease, Owner, ReaperRecord, Store
from hames.protocol.chain import cursor, first_digest
from hames.protocol.errors import HarnessFault, Refused
from hames.store import MemoryStore
from store.play import (
    BY,
    SNAPSHOT,
    World,
    check_chain,
    chunk,
    completion,
    create,
    creation,
    fill,
    folded,
    parse,
    running,
    stale_owner,
    start,
    submission,
    take,
    whole,
)

pytestmark = pytest.mark.anyio


async def refusal(store: Store, session_id: str, command: Command) -> Refused:
    with pytest.raises(Refused) as caught:
        await store.commit(session_id, command).wait()
    return caught.value


# --- commands -----------------------------------------------------------------------------------------------


async def test_a_session_is_made_with_its_first_turn_in_one_commit(world: World) -> None:
    async with world.open() as store:
        made = await store.commit("s-1", creation(store, "s-1", turn=submission("t-1"))).wait()

        assert [event.type for event in made.events] == ["session.created", "turn.queued"]
        assert (made.reply.turn_id, made.state.seq, made.cursor) == ("t-1", 2, made.reply_cursor)
        loaded = await store.load("s-1")
        assert loaded.state == replace(made.state, ended=None)
        assert (loaded.snapshot, loaded.cursor, loaded.owner) == (SNAPSHOT, made.cursor, None)


async def test_a_repeated_submit_gets_the_original_answer_for_ever(world: World) -> None:
    async with world.open() as store:
        await create(store)
        first = await store.commit("s-1", submission("t-1", key="k")).wait()
        fence = await take(store)
        await store.commit("s-1", start(fence)).wait()
        await store.commit("s-1", completion(fence, "t-1")).wait()

        again = await store.commit("s-1", submission("t-2", key="k")).wait()

        assert (again.reply.turn_id, again.reply.repeated, again.events) == ("t-1", True, ())
        assert again.reply_cursor == first.cursor
        assert again.cursor == (await store.load("s-1")).cursor != first.cursor


async def test_a_key_used_for_other_content_is_a_conflict(world: World) -> None:
    async with world.open() as store:
        await create(store)
        await store.commit("s-1", submission("t-1", key="k")).wait()

        refused = await refusal(store, "s-1", submission("t-2", key="k", digest="other"))

        assert refused.kind == "idempotency_conflict"
        assert len(await whole(store)) == 2


async def test_the_key_of_a_creation_is_unique_in_the_store(world: World) -> None:
    async with world.open() as store:
        first = await store.commit("s-1", creation(store, "s-1", key="k", turn=submission("t-1"))).wait()
        await store.commit("s-1", submission("t-2")).wait()

        again = await store.commit("s-2", creation(store, "s-2", key="k", turn=submission("t-1"))).wait()

        assert (again.reply.session_id, again.reply.turn_id, again.reply_cursor) == ("s-1", "t-1", first.cursor)
        assert (again.state.session_id, again.state.seq) == ("s-1", 3)
        with pytest.raises(Refused, match="session_not_found"):
            await store.load("s-2")


async def test_the_same_key_may_be_used_in_two_sessions(world: World) -> None:
    async with world.open() as store:
        await create(store, "s-1")
        await create(store, "s-2")

        one = await store.commit("s-1", submission("t-1", key="k")).wait()
        two = await store.commit("s-2", submission("t-1", key="k")).wait()

        assert not one.reply.repeated
        assert not two.reply.repeated


async def test_a_steer_is_answered_again_with_its_first_id(world: World) -> None:
    async with world.open() as store:
        await running(store)
        steer = SteerTurn("st-1", ({"role": "command", "type": "text", "text": "left"},), "content", BY, key="k")
        first = await store.commit("s-1", steer).wait()

        again = await store.commit("s-1", replace(steer, steer_id="st-2")).wait()

        assert (again.reply.steer_id, again.reply_cursor) == ("st-1", first.cursor)


async def test_a_known_id_is_refused_and_leaves_nothing(world: World) -> None:
    async with world.open() as store:
        await create(store)
        await store.commit("s-1", submission("t-1")).wait()

        assert (await refusal(store, "s-1", submission("t-1"))).kind == "turn_exists"
        assert (await refusal(store, "s-1", creation(store, "s-1"))).kind == "session_exists"
        assert len(await whole(store)) == 2


async def test_the_id_of_an_ended_turn_stays_taken(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)
        await store.commit("s-1", completion(fence, "t-1")).wait()

        assert (await refusal(store, "s-1", submission("t-1"))).kind == "turn_exists"
        cancelled = await store.commit("s-1", CancelTurn(BY, "t-1")).wait()
        assert cancelled.events == ()


async def test_nothing_is_committed_to_a_session_that_is_not_there(world: World) -> None:
    async with world.open() as store:
        assert (await refusal(store, "s-9", submission("t-1"))).kind == "session_not_found"
        assert store.head("s-9") == 0


async def test_commands_commit_in_the_order_they_were_given(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)

        tickets = [store.commit("s-1", chunk(fence, "t-1", at)) for at in range(300)]
        seqs = [(await ticket.wait()).state.seq for ticket in tickets]

        assert seqs == list(range(4, 304))
        offsets = [entry["event"]["data"]["offset"] for entry in (await whole(store))[3:]]
        assert offsets == list(range(300))


async def test_a_refused_command_in_the_middle_leaves_the_others_whole(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)
        await create(store, "s-2")

        before = [store.commit("s-1", chunk(fence, "t-1", at)) for at in range(5)]
        bad = store.commit("s-1", Record(fence + 1, "t-1", chunk(0, "", 0).drafts))
        other = store.commit("s-2", submission("t-1"))
        after = [store.commit("s-1", chunk(fence, "t-1", at)) for at in range(5, 10)]

        with pytest.raises(Refused, match="lease_lost"):
            await bad.wait()
        await other.wait()
        assert [(await ticket.wait()).state.seq for ticket in before + after] == list(range(4, 14))
        assert len(await whole(store)) == 13


async def test_cancelling_the_wait_does_not_take_the_command_back(world: World) -> None:
    async with world.open() as store:
        await create(store)

        with anyio.CancelScope() as scope:
            scope.cancel()
            await store.commit("s-1", submission("t-1")).wait()

        with anyio.fail_after(30):
            await store.changed("s-1", 1)
        assert (await store.turn("s-1", "t-1"))[0].status == "queued"


async def test_a_commit_is_seen_by_the_head_and_wakes_who_waits(world: World) -> None:
    async with world.open() as store:
        await create(store)
        woken: list[int] = []

        async def wait() -> None:
            woken.append(await store.changed("s-1", 2))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await store.commit("s-1", submission("t-1")).wait()
                assert store.head("s-1") == 2
                await store.commit("s-1", submission("t-2")).wait()

        assert woken == [3]


async def test_room_is_there_again_when_all_is_written(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)
        text = "x" * 100_000
        for at in range(120):
            store.commit("s-1", chunk(fence, "t-1", at, text))

        with anyio.fail_after(30):
            await store.room()
            last = await store.commit("s-1", chunk(fence, "t-1", 120)).wait()

        assert last.state.seq == 124


# --- the log ------------------------------------------------------------------------------------------------


async def test_the_chain_can_be_recomputed_from_the_bytes_alone(world: World) -> None:
    async with world.open() as store:
        await fill(store, 50, text="née  \u0085")

        page = await store.read("s-1", limit=100, max_bytes=2**20)

        assert (page.count, page.last_seq, page.more) == (50, 50, False)
        assert page.cursor == page.head_cursor == (await store.load("s-1")).cursor
        assert "\u2028".encode() not in page.lines
        check_chain("s-1", page.lines)


async def test_the_stored_state_is_the_fold_of_the_log(world: World) -> None:
    async with world.open() as store:
        fence = await fill(store, 20)
        await store.commit("s-1", UpdateSession("New title", BY)).wait()
        await store.commit("s-1", completion(fence, "t-1")).wait()

        assert (await store.load("s-1")).state == folded("s-1", await whole(store))


async def test_pages_end_at_the_limit_and_at_the_bytes_but_hold_one_event(world: World) -> None:
    async with world.open() as store:
        await fill(store, 40, text="y" * 1000)
        lines = (await store.read("s-1", limit=100, max_bytes=2**20)).lines

        few = await store.read("s-1", limit=7, max_bytes=2**20)
        small = await store.read("s-1", after=few.cursor, limit=100, max_bytes=5000)
        tiny = await store.read("s-1", after=small.cursor, limit=100, max_bytes=1)

        assert (few.count, few.last_seq) == (7, 7)
        assert 1 <= small.count <= 4
        assert len(small.lines) <= 5000
        assert tiny.count == 1
        assert lines.startswith(few.lines + small.lines + tiny.lines)


async def test_pages_before_a_cursor_ascend_and_leave_it_out(world: World) -> None:
    async with world.open() as store:
        await fill(store, 30)
        entries = await whole(store)

        page = await store.read("s-1", before=entries[20]["cursor"], limit=5, max_bytes=2**20)

        assert parse(page.lines) == entries[15:20]
        assert (page.last_seq, page.cursor) == (20, entries[19]["cursor"])
        assert (await store.read("s-1", before=entries[0]["cursor"], limit=5, max_bytes=2**20)).count == 0


async def test_a_filter_passes_what_it_leaves_out(world: World) -> None:
    async with world.open() as store:
        fence = await fill(store, 500)
        await store.commit("s-1", completion(fence, "t-1")).wait()

        ends = await store.read("s-1", limit=1, max_bytes=2**20, types=["turn.completed"])
        none = await store.read("s-1", limit=10, max_bytes=2**20, types=["no.such"])

        assert [entry["event"]["seq"] for entry in parse(ends.lines)] == [501]
        assert (none.count, none.lines, none.last_seq, none.cursor) == (0, b"", 501, ends.head_cursor)


async def test_an_unknown_event_that_a_filter_names_in_its_text_is_not_taken_for_it(world: World) -> None:
    async with world.open() as store:
        await fill(store, 5, text='","type":"turn.started"')

        page = await store.read("s-1", limit=10, max_bytes=2**20, types=["turn.started"])

        assert [entry["event"]["seq"] for entry in parse(page.lines)] == [3]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("0.000000000000", "cursor_foreign"),
        ("2.000000000000", "cursor_foreign"),
        ("4.000000000000", "cursor_ahead"),
        ("99999999.000000000000", "cursor_ahead"),
        ("2", "cursor_malformed"),
        ("-1.000000000000", "cursor_malformed"),
        ("", "cursor_malformed"),
    ],
)
async def test_a_cursor_that_is_not_of_this_log_is_told_apart(world: World, text: str, kind: str) -> None:
    async with world.open() as store:
        await running(store)

        for where in ("after", "before"):
            with pytest.raises(Refused) as caught:
                await store.read("s-1", limit=1, max_bytes=100, **{where: text})
            assert caught.value.kind == kind


async def test_a_cursor_of_another_session_is_foreign(world: World) -> None:
    async with world.open() as store:
        await create(store, "s-1")
        other = await create(store, "s-2")

        with pytest.raises(Refused, match="cursor_foreign"):
            await store.read("s-1", after=other.cursor, limit=1, max_bytes=100)


async def test_the_cursor_of_the_start_is_a_cursor(world: World) -> None:
    async with world.open() as store:
        made = await create(store)
        zero = cursor(0, first_digest("s-1"))

        assert (await store.read("s-1", after=zero, limit=1, max_bytes=100)).cursor == made.cursor
        assert (await store.read("s-1", before=zero, limit=1, max_bytes=100)).cursor == zero


async def test_reading_at_the_head_gives_an_empty_page_with_the_same_cursor(world: World) -> None:
    async with world.open() as store:
        made = await create(store)

        page = await store.read("s-1", after=made.cursor, limit=10, max_bytes=100)

        assert (page.count, page.lines, page.cursor, page.more) == (0, b"", made.cursor, False)


# --- what is listed -----------------------------------------------------------------------------------------


async def test_turns_are_listed_newest_first_as_they_last_stood(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)
        for n in range(2, 6):
            await store.commit("s-1", submission(f"t-{n}")).wait()
        done = await store.commit("s-1", completion(fence, "t-1")).wait()

        turns, at = await store.turns("s-1", before=None, limit=3, status=None)
        older, _ = await store.turns("s-1", before=turns[-1].n, limit=3, status=None)
        queued, _ = await store.turns("s-1", before=None, limit=10, status="queued")

        assert [turn.turn_id for turn in turns + older] == ["t-5", "t-4", "t-3", "t-2", "t-1"]
        assert (older[-1].status, older[-1].end_seq, at) == ("completed", done.state.seq, done.cursor)
        assert [turn.turn_id for turn in queued] == ["t-5", "t-4", "t-3", "t-2"]
        with pytest.raises(Refused, match="turn_not_found"):
            await store.turn("s-1", "t-9")
        with pytest.raises(Refused, match="session_not_found"):
            await store.turns("s-9", before=None, limit=1, status=None)


async def test_every_turn_of_a_closed_session_has_its_terminal_in_the_list(world: World) -> None:
    async with world.open() as store:
        await create(store)
        for n in range(3):
            await store.commit("s-1", submission(f"t-{n}")).wait()

        await store.commit("s-1", CloseSession(BY)).wait()

        turns, _ = await store.turns("s-1", before=None, limit=10, status=None)
        assert [turn.status for turn in turns] == ["cancelled"] * 3


async def test_sessions_are_listed_newest_first_and_found_by_part_of_title_or_id(world: World) -> None:
    async with world.open() as store:
        for n in range(5):
            await create(store, f"s-{n}")
        await store.commit("s-3", UpdateSession("Mend the ROOF, É", BY)).wait()

        page = await store.sessions(workspace=None, query=None, before=None, limit=2)
        rest = await store.sessions(workspace="/work", query=None, before=page[-1][0], limit=9)

        assert [loaded.state.session_id for _, loaded in page + rest] == ["s-4", "s-3", "s-2", "s-1", "s-0"]
        assert await store.sessions(workspace="/elsewhere", query=None, before=None, limit=9) == []
        for query in ("the roof", "é", "S-3"):
            found = await store.sessions(workspace=None, query=query, before=None, limit=9)
            assert [loaded.state.title for _, loaded in found] == ["Mend the ROOF, É"]
        assert await store.sessions(workspace=None, query="100%", before=None, limit=9) == []


# --- leases -------------------------------------------------------------------------------------------------


async def test_a_lease_is_kept_and_force_gives_it_a_new_fence(world: World) -> None:
    async with world.open() as store:
        await create(store)

        first = await store.claim("s-1")
        again = await store.claim("s-1")
        forced = await store.claim("s-1", force=True)

        assert (first, again, forced) == (Lease("s-1", 1), Lease("s-1", 1), Lease("s-1", 2))
        owner = await store.owner("s-1")
        assert owner is not None
        assert (owner.mine, owner.alive, owner.stale) == (True, True, False)
        assert owner.since <= owner.expires_at


async def test_an_attempt_commits_only_under_the_current_fence(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)
        await store.claim("s-1", force=True)

        assert (await refusal(store, "s-1", chunk(fence, "t-1", 0))).kind == "lease_lost"
        assert (await refusal(store, "s-1", chunk(fence + 1, "t-1", 0))).kind == "lease_lost"


async def test_an_attempt_cannot_commit_after_the_release(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)
        await store.release("s-1")

        assert (await refusal(store, "s-1", chunk(fence, "t-1", 0))).kind == "lease_lost"
        assert await store.owner("s-1") is None
        assert await take(store) == fence + 1


async def test_a_live_owner_keeps_its_lease_whatever_another_asks(world: World) -> None:
    async with world.open() as mine, world.open() as other:
        await create(mine)
        await take(mine)

        for force in (False, True):
            holder = await other.claim("s-1", force=force)
            assert isinstance(holder, Owner)
            assert (holder.alive, holder.stale, holder.mine) == (True, False, False)
        await other.release("s-1")
        assert (await mine.claim("s-1")) == Lease("s-1", 1)


async def test_clients_of_two_processes_commit_to_one_session(world: World) -> None:
    async with world.open() as one, world.open() as two:
        await create(one)

        for n in range(10):
            await (one, two)[n % 2].commit("s-1", submission(f"t-{n}")).wait()

        assert (await one.load("s-1")).state == (await two.load("s-1")).state == folded("s-1", await whole(two))
        turns, _ = await one.turns("s-1", before=None, limit=99, status=None)
        assert [turn.n for turn in turns] == list(range(10, 0, -1))


async def test_one_process_wakes_the_other(world: World) -> None:
    async with world.open() as one, world.open() as two:
        await create(one)
        with anyio.fail_after(30):
            for n in range(20):
                async with anyio.create_task_group() as group:
                    group.start_soon(two.changed, "s-1", n + 1)
                    await one.commit("s-1", submission(f"t-{n}")).wait()

        assert two.head("s-1") == 21


async def test_what_happened_before_the_wait_is_not_waited_for(world: World) -> None:
    async with world.open() as one, world.open() as two:
        await create(one)

        with anyio.fail_after(30):
            assert await two.changed("s-1", 0) == 1


async def test_leases_are_given_back_when_a_store_is_closed(world: World) -> None:
    async with world.open() as keeper:
        async with world.open() as store:
            await create(store)
            await take(store)

        assert await keeper.owner("s-1") is None
        assert await take(keeper) == 2


async def test_a_silent_owner_is_stale_and_loses_its_lease_only_by_force(world: World) -> None:
    now = 0
    world.disk.clock_ns = lambda: now
    world.limits = {**world.limits, "leaseMs": 200}
    async with world.open() as silent, world.open() as other:
        fence = await running(silent)
        now = 10**9
        holder = await stale_owner(other)

        assert holder.alive
        assert await take(other, force=True) == fence + 1
        assert (await refusal(silent, "s-1", chunk(fence, "t-1", 0))).kind == "lease_lost"
        assert (await refusal(silent, "s-1", completion(fence, "t-1"))).kind == "lease_lost"


async def test_a_beat_ends_the_silence_and_tells_of_the_reaper(world: World) -> None:
    now = 10**9
    world.disk.clock_ns = lambda: now
    record: list[ReaperRecord] = []
    silent = world.make(lambda: record[0] if record else None)
    await silent.open()
    async with world.open() as other:
        await create(silent)
        await take(silent)
        record.append(ReaperRecord(7, 8, "/run/reaper"))

        silent.beat()

        owner = await other.owner("s-1")
        assert owner is not None
        assert (owner.stale, owner.reaper) == (False, record[0])
    await silent.aclose()


async def test_a_lease_of_a_session_that_is_not_there_is_refused(world: World) -> None:
    async with world.open() as store:
        for wait in (store.claim, store.release, store.owner, store.load):
            with pytest.raises(Refused, match="session_not_found"):
                await wait("s-9")


async def test_an_owner_that_died_in_memory_is_taken_over_at_once(world: World) -> None:
    world.kind = "memory"
    async with world.open() as other:
        dead = world.make()
        await dead.open()
        fence = await running(dead)
        assert isinstance(dead, MemoryStore)

        dead.die()

        owner = await other.owner("s-1")
        assert owner is not None
        assert not owner.alive
        assert await take(other) == fence + 1


# --- itself -------------------------------------------------------------------------------------------------


async def test_a_store_that_is_not_open_says_so(world: World) -> None:
    store = world.make()

    assert store.describe()["kind"] == world.kind
    assert (await store.check())["status"] == "unavailable"
    with pytest.raises(HarnessFault, match="store_unavailable"):
        await store.commit("s-1", submission("t-1")).wait()
    with pytest.raises(HarnessFault, match="store_unavailable"):
        await store.load("s-1")


async def test_opening_twice_is_opening_once(world: World) -> None:
    store = world.make()
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(store.open)
    assert (await store.check()) == {"status": "ok"}

    await store.aclose()
    await store.aclose()


async def test_what_was_committed_is_there_after_a_reopen(world: World) -> None:
    async with world.open() as store:
        await fill(store, 100)
        before = await whole(store)

    async with world.open() as store:
        assert await whole(store) == before
        assert (await store.load("s-1")).state == folded("s-1", before)
        assert (await store.commit("s-1", submission("t-2")).wait()).state.seq == 101


async def test_a_snapshot_of_another_stores_user_is_corrupt_here(world: World) -> None:
    async with world.open() as store:
        await create(store, "s-2")
        await store.commit("s-1", replace(creation(store, "s-1"), keyed_digest="00" * 32)).wait()

        with pytest.raises(HarnessFault, match="session_corrupt"):
            await store.load("s-1")
        found = await store.sessions(workspace=None, query=None, before=None, limit=9)
        assert [loaded.state.session_id for _, loaded in found] == ["s-2"]
