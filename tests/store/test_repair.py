"""What a repair keeps of a damaged store, what it says is lost, and that nothing ends it halfway."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hames.core.commands import Ending, EndTurn
from hames.ports import Store
from hames.protocol.errors import HamesError, HarnessFault, Refused
from hames.store.repair import finish_cut_repair, repair_store
from store.play import LIMITS, World, completion, create, fill, folded, parse, start, submission, take, whole
from store.process import ROOT, locked, other
from store.test_verify import DAMAGE, checkpoint, cut, edit, look, rich

pytestmark = pytest.mark.anyio

UNTOLD = {"the seal was edited", "the title was edited", "the workspace was edited", "the fence went back"}
LOSSLESS = UNTOLD | {
    "the state was edited",
    "the state is gone",
    "a turn is gone",
    "a turn was edited",
    "a turn's status was edited",
    "a turn too many",
    "an event stands a second time behind the head",
    "the epoch was edited",
    "the head tells of less",
    "the chain was edited",
    "the checksum of an event was edited",
    "the digest of an event was edited",
    "two events changed places",
}
"""Damage beside the log, or to what follows from it: all of it is there again afterwards."""

CUT = ("log.recovered", "queue.held")
"""What a repair adds."""


async def logs(store: Store, *session_ids: str) -> dict[str, list[dict[str, Any]]]:
    """Whole logs."""
    return {session_id: await whole(store, session_id) for session_id in session_ids}


async def go_on(store: Store, session_id: str = "s-1") -> None:
    """The session proves itself, is what its log leads to, and a turn can be run in it."""
    loaded = await store.load(session_id)
    assert loaded.state == folded(session_id, await whole(store, session_id))
    fence = await take(store, session_id)
    if loaded.state.running is not None:
        ending = Ending("failed", error={"kind": "lease_lost", "message": "gone", "retryable": False, "details": {}})
        await store.commit(session_id, EndTurn(fence, loaded.state.running, ending, recovering=True)).wait()
    await store.commit(session_id, replace(submission("t-new"), resume_queue=True)).wait()
    while (running := (await store.commit(session_id, start(fence)).wait()).state.running) is not None:
        await store.commit(session_id, completion(fence, running)).wait()
    assert (await store.turn(session_id, "t-new"))[0].status == "completed"


@pytest.mark.parametrize(("name", "statements"), [case[:2] for case in DAMAGE], ids=[case[0] for case in DAMAGE])
async def test_what_proves_itself_is_kept_and_a_loss_is_told_in_the_log(
    disk_world: World, name: str, statements: list[str]
) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        before = await whole(store)
    edit(disk_world, *statements)

    report = repair_store(disk_world.directory, LIMITS)

    assert look(disk_world).findings == []
    assert report.epoch == (8 if name == "the epoch was edited" else 2)
    assert (Path(report.backup) / "store.db").stat().st_size > 0
    async with disk_world.open() as store:
        after = await whole(store)
        kept = len([entry for entry in after if entry in before])
        assert after[:kept] == before[:kept]
        if name in LOSSLESS:
            assert (after, report.loses) == (before, False)
        else:
            (marked,) = after[kept:]
            assert marked["event"]["type"] == "log.recovered"
            assert marked["event"]["data"]["action"] == "cut"
            assert marked["event"]["data"]["cut"]["lastGoodSeq"] == kept
            assert marked["event"]["data"]["cut"]["epoch"] == 2
            assert report.loses
        for entry in before[kept:]:
            with pytest.raises(Refused, match=r"cursor_ahead|cursor_foreign"):
                await store.read("s-1", after=entry["cursor"], limit=9, max_bytes=9999)
        for entry in before[:kept]:
            await store.read("s-1", after=entry["cursor"], limit=9, max_bytes=9999)
        fence = await take(store, "s-1")
        assert fence > 1
        await go_on(store)
    assert look(disk_world).findings == []


async def test_how_much_was_lost_is_told_where_the_seal_tells_it(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
    edit(disk_world, "update event set line = replace(line, '\"x\"', '\"y\"') where id & 0xffff = 5")

    (salvaged,) = repair_store(disk_world.directory, LIMITS).salvaged

    assert (salvaged.last_good_seq, salvaged.lost, salvaged.reason) == (4, 6, "edited")
    async with disk_world.open() as store:
        (*_, last) = await whole(store)
    cut = {"lastGoodSeq": 4, "lost": 6, "epoch": 2, "reason": "edited"}
    assert last["event"]["data"] == {"action": "cut", "reason": "damaged", "openCalls": [], "cut": cut}


async def test_other_sessions_keys_and_artifacts_are_as_they_were(disk_world: World) -> None:
    await rich(disk_world)
    async with disk_world.open() as store:
        before = await logs(store, "s-0", "s-2")
        text = await store.artifacts("s-0", after=None, limit=9)
    edit(disk_world, "update event set line = replace(line, '\"x\"', '\"y\"') where id = (2 << 40) + 5")

    repair_store(disk_world.directory, LIMITS)

    assert look(disk_world).findings == []
    async with disk_world.open() as store:
        assert await logs(store, "s-0", "s-2") == before
        assert await store.artifacts("s-0", after=None, limit=9) == text
        again = await store.commit("s-0", submission("t-9", key="second")).wait()
        assert again.reply.repeated


async def test_a_session_that_was_cut_before_its_key_was_used_admits_the_request_anew(disk_world: World) -> None:
    await rich(disk_world)
    edit(disk_world, "update event set line = replace(line, 'hello', 'hallo') where id = (1 << 40) + 5")

    repair_store(disk_world.directory, LIMITS)

    assert look(disk_world).findings == []
    async with disk_world.open() as store:
        first = await store.commit("s-0", submission("t-1", key="first")).wait()
        assert (first.reply.repeated, first.reply.turn_id) == (True, "t-1")
        assert not (await store.commit("s-0", submission("t-2", key="second")).wait()).reply.repeated


async def test_keys_turns_and_references_that_are_gone_are_made_anew_from_the_log(disk_world: World) -> None:
    await rich(disk_world)
    async with disk_world.open() as store:
        before = await logs(store, "s-0", "s-1", "s-2")
    edit(disk_world, "delete from idem", "delete from turn", "delete from blob_ref", "delete from state")

    report = repair_store(disk_world.directory, LIMITS)

    assert look(disk_world).findings == []
    assert not report.loses
    async with disk_world.open() as store:
        assert await logs(store, "s-0", "s-1", "s-2") == before
        assert (await store.commit("s-0", submission("t-9", key="second")).wait()).reply.turn_id == "t-2"


async def test_one_session_is_repaired_alone(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10, "s-1")
        await fill(store, 10, "s-2")
    edit(disk_world, "update event set line = replace(line, '\"x\"', '\"y\"') where id & 0xffff = 5")

    repair_store(disk_world.directory, LIMITS, session_id="s-2")

    assert {finding.where for finding in look(disk_world).findings} == {"session s-1, event 5"}
    async with disk_world.open() as store:
        await go_on(store, "s-2")
        with pytest.raises(HarnessFault, match="session_corrupt"):
            await whole(store, "s-1")


async def test_a_session_of_which_nothing_proves_itself_is_in_the_backup_alone(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        await create(store, "s-2")
    edit(disk_world, "update event set line = replace(line, 'Title', 'title') where id = (1 << 40) + 1")

    report = repair_store(disk_world.directory, LIMITS)

    (salvaged,) = report.salvaged
    assert (salvaged.session_id, salvaged.gone, salvaged.lost, report.loses) == ("s-1", True, 10, True)
    assert look(disk_world).findings == []
    with closing(sqlite3.connect(Path(report.backup) / "store.db")) as connection:
        assert connection.execute("select count(*) from event").fetchone() == (11,)
    async with disk_world.open() as store:
        with pytest.raises(Refused, match="session_not_found"):
            await store.load("s-1")
        await go_on(store, "s-2")


async def test_a_session_that_was_called_otherwise_has_the_name_that_its_log_tells(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        before = await whole(store)
    edit(disk_world, "update session set id = 's-9' where n = 1")

    report = repair_store(disk_world.directory, LIMITS)

    assert (report.loses, look(disk_world).findings) == (False, [])
    async with disk_world.open() as store:
        assert await whole(store) == before
        await go_on(store)


async def test_a_session_of_another_store_is_not_taken_for_one_of_this(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
    (disk_world.directory / "key").write_bytes(os.urandom(32))

    (salvaged,) = repair_store(disk_world.directory, LIMITS).salvaged

    assert "not written by this store" in str(salvaged.left)


async def test_rows_that_belong_to_nobody_are_kept_in_the_backup_alone(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        await create(store, "s-2")
    edit(disk_world, "delete from session where id = 's-1'", "delete from event where id = (1 << 40) + 1")

    report = repair_store(disk_world.directory, LIMITS)

    assert report.removed == 9
    assert look(disk_world).findings == []
    with closing(sqlite3.connect(Path(report.backup) / "store.db")) as connection:
        assert connection.execute("select count(*) from event").fetchone() == (10,)


# --- the store as a whole -----------------------------------------------------------------------------------


async def test_a_store_that_went_back_says_so_in_every_log(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        await create(store, "s-2")
    checkpoint(disk_world)
    async with disk_world.open() as store:
        lost = await store.commit("s-1", submission("t-2")).wait()
        await create(store, "s-3")
    (disk_world.directory / "store.db-wal").unlink()

    report = repair_store(disk_world.directory, LIMITS)

    assert (report.history_lost, report.loses, report.epoch) == (True, True, 2)
    assert look(disk_world).findings == []
    async with disk_world.open() as store:
        for session_id, seq in (("s-1", 10), ("s-2", 1)):
            (*_, last) = await whole(store, session_id)
            assert last["event"]["data"]["cut"] == {"lastGoodSeq": seq, "epoch": 2, "reason": "history_lost"}
        with pytest.raises(Refused, match="cursor_foreign"):
            await store.read("s-1", after=lost.cursor, limit=9, max_bytes=9999)
        with pytest.raises(Refused, match="session_not_found"):
            await store.load("s-3")
        await go_on(store)


def garble_pages(path: Path) -> None:
    """A stretch in the middle is lost, as with a bad block."""
    size = path.stat().st_size // 4096
    with open(path, "r+b") as file:
        file.seek(size // 2 * 4096)
        file.write(os.urandom(4 * 4096))


@pytest.mark.parametrize("harm", [cut, garble_pages])
async def test_what_can_be_read_of_a_damaged_file_gets_a_new_one(
    disk_world: World, harm: Callable[[Path], object]
) -> None:
    names = [f"s-{n}" for n in range(1, 9)]
    async with disk_world.open() as store:
        for session_id in names:
            await fill(store, 60, session_id, text="x" * 500)
        before = await logs(store, *names)
    checkpoint(disk_world)
    harm(disk_world.directory / "store.db")

    report = repair_store(disk_world.directory, LIMITS)

    assert report.rebuilt
    left = {f"session {each.session_id}" for each in report.salvaged if each.left is not None}
    assert {finding.where.partition(",")[0] for finding in look(disk_world).findings} == left
    assert set(os.listdir(report.backup)) >= {"store.db", "key", "witness"}
    kept = 0
    async with disk_world.open() as store:
        listed = await store.sessions(workspace=None, query=None, before=None, limit=99)
        there = {loaded.state.session_id for _, loaded in listed}
        for session_id in names:
            if session_id not in there:
                with pytest.raises(HamesError, match=r"session_corrupt|session_not_found"):
                    await whole(store, session_id)
                continue
            after = await whole(store, session_id)
            good = [entry for entry in after if entry["event"]["type"] not in CUT]
            assert good == before[session_id][: len(good)]
            assert (len(good) < 60) == (len(after) > len(good))
            kept += len(good)
            await go_on(store, session_id)
    assert 100 < kept < 480


async def test_a_file_of_which_nothing_can_be_read_is_left_as_it_is(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
    checkpoint(disk_world)
    path = disk_world.directory / "store.db"
    path.write_bytes(os.urandom(path.stat().st_size))
    before = path.read_bytes()

    with pytest.raises(HarnessFault, match="reads nothing"):
        repair_store(disk_world.directory, LIMITS)

    assert path.read_bytes() == before


async def test_without_its_key_nothing_is_repaired(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
    (disk_world.directory / "key").unlink()

    with pytest.raises(HarnessFault, match="key"):
        repair_store(disk_world.directory, LIMITS)


async def test_a_store_that_is_in_use_is_not_touched_and_who_uses_it_is_named(disk_world: World) -> None:
    with other(disk_world.directory) as second:
        second.ask("create")

        with pytest.raises(HarnessFault) as caught:
            repair_store(disk_world.directory, LIMITS)

        assert caught.value.details["pids"] == [second.process.pid]
        assert second.ask("submit", turn="t-1") == {"seq": 2}
    assert not (disk_world.directory / "backups").exists()


async def test_a_program_that_is_not_ours_and_has_it_open_is_noticed(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
    edit(disk_world, "delete from state")
    with locked(disk_world.directory), pytest.raises(HarnessFault, match="another program"):
        repair_store(disk_world.directory, LIMITS)
    assert not look(disk_world).is_good


@pytest.mark.parametrize("by_repair", [False, True])
async def test_who_comes_while_a_repair_is_unfinished_finishes_it(disk_world: World, by_repair: bool) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
    directory = disk_world.directory
    (directory / "repaired").mkdir()
    with closing(sqlite3.connect(directory / "store.db")) as connection:
        connection.execute("vacuum into ?", (str(directory / "repaired" / "store.db"),))
    with closing(sqlite3.connect(directory / "repaired" / "store.db")) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("update meta set value = value + 100 where key = 'commits'")
        connection.commit()
    with pytest.raises(HarnessFault, match="cut short"):
        look(disk_world)

    if by_repair:
        finish_cut_repair(directory, LIMITS)
        assert look(disk_world).is_good
    async with disk_world.open() as store:
        assert len(await whole(store)) == 10
    assert look(disk_world).store["commits"] > 100
    assert not (directory / "repaired").exists()


# --- ended at any point -------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
directory, limit = sys.argv[1], int(sys.argv[2])
from hames.store.repair import repair_store
from store.play import LIMITS
seen = 0
def hook(event, arguments):
    global seen
    if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "shutil.rmtree"):
        if any(directory in os.fsdecode(a) for a in arguments if isinstance(a, (str, bytes, os.PathLike))):
            seen += 1
            if seen == limit:
                os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
repair_store(Path(directory), LIMITS)
"""
"""A repair that is killed before it does something to a file for the nth time."""


def killed_at(directory: Path, limit: int) -> bool:
    """Repair, and be killed at that point; False when it was done before."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    command = [sys.executable, "-c", KILLED, str(directory), str(limit)]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert ended.returncode in (0, -signal.SIGKILL)
    return ended.returncode != 0


def harm_rows(world: World) -> None:
    edit(world, "update event set line = replace(line, '\"x\"', '\"y\"') where id & 0xffff = 5")


def harm_file(world: World) -> None:
    checkpoint(world)
    garble_pages(world.directory / "store.db")


@pytest.mark.slow
@pytest.mark.parametrize(("harm", "step"), [(harm_rows, 2), (harm_file, 3)])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_repair_that_is_killed_leaves_the_old_store_or_the_repaired_one(
    disk_world: World, tmp_path: Path, harm: Callable[[World], None], step: int
) -> None:
    async with disk_world.open() as store:
        for n in range(1, 4):
            await fill(store, 40, f"s-{n}", text="x")
        before = await logs(store, "s-1", "s-2", "s-3")
    harm(disk_world)
    damaged = look(disk_world)
    saved = tmp_path / "saved"
    shutil.copytree(disk_world.directory, saved, ignore=shutil.ignore_patterns("*.sock"))
    old = new = 0
    point = 1
    while killed_at(disk_world.directory, point):
        if (disk_world.directory / "repaired").exists():
            async with disk_world.open():
                pass
        found = look(disk_world)
        assert found.is_good or found.findings == damaged.findings, point
        old, new = old + (not found.is_good), new + found.is_good
        if not found.is_good:
            repair_store(disk_world.directory, LIMITS)
            assert look(disk_world).is_good
        async with disk_world.open() as store:
            for session_id, log in before.items():
                after = [entry for entry in await whole(store, session_id) if entry["event"]["type"] not in CUT]
                assert after == log[: len(after)]
        shutil.rmtree(disk_world.directory)
        shutil.copytree(saved, disk_world.directory)
        point += step
    assert look(disk_world).is_good
    assert old > 2
    assert new > 0 or harm is harm_rows, "there is one commit, and nothing after it"


async def test_a_page_that_was_read_before_a_repair_goes_on_after_it(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
        page = await store.read("s-1", limit=4, max_bytes=9999)
    edit(disk_world, "update event set line = replace(line, '\"x\"', '\"y\"') where id & 0xffff = 8")

    repair_store(disk_world.directory, LIMITS)

    async with disk_world.open() as store:
        rest = await store.read("s-1", after=page.cursor, limit=100, max_bytes=9999)
        assert [entry["event"]["seq"] for entry in parse(rest.lines)] == [5, 6, 7, 8]
