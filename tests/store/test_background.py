"""Background processes in a store: their ends refer to what was kept, and an older build leaves such sessions alone."""

from __future__ import annotations

import pytest

from hames.core.commands import ExitProcess, StartProcess, StopProcess
from hames.ports import Store
from hames.store import schema
from hames.store.repair import repair_store
from hames.store.verify import verify_store
from store.play import BY, LIMITS, World, completion, folded, running, whole
from store.versions import raw

pytestmark = pytest.mark.anyio

DATA = {"command": "sleep 1", "callId": "c-1", "lifetimeMs": 1_000}


async def kept(store: Store, data: bytes) -> dict[str, object]:
    """`data` as an artifact of the session that no event refers to yet."""
    spool = store.spool()
    spool.write(data)
    artifact = await store.keep("s-1", spool, media_type="text/plain", name="p-1.txt")
    return {"artifact": artifact.artifact, "sizeBytes": artifact.size_bytes, "sha256": artifact.sha256}


async def test_a_process_outlives_its_turn_and_its_output_is_kept_by_its_end(world: World) -> None:
    async with world.open() as store:
        fence = await running(store)
        await store.commit("s-1", StartProcess(fence, "t-1", "p-1", DATA)).wait()
        await store.commit("s-1", completion(fence, "t-1")).wait()
        await store.commit("s-1", StopProcess("p-1", BY)).wait()
        reference = await kept(store, b"said\n")
        data = {"why": "stopped", "outputBytes": 5, "artifact": reference}
        committed = await store.commit("s-1", ExitProcess(fence, "p-1", data)).wait()

    async with world.open() as store:
        loaded = await store.load("s-1")
        (artifact,) = await store.artifacts("s-1", after=None, limit=10)
        entries = await whole(store)

        assert artifact.seq == committed.state.seq
        assert await store.read_artifact("s-1", artifact.artifact, offset=0, length=9) == b"said\n"
        assert loaded.state == folded("s-1", entries)
        assert loaded.state.processes["p-1"].exit == data
        assert loaded.state.open_processes() == ()


async def test_a_build_that_knows_no_processes_does_not_write_to_a_session_that_had_some(disk_world: World) -> None:
    async with disk_world.open() as store:
        fence = await running(store)
        await store.commit("s-1", StartProcess(fence, "t-1", "p-1", DATA)).wait()
        await running(store, "s-2")

    assert verify_store(disk_world.directory, LIMITS).is_good
    with raw(disk_world.directory) as database:
        needs = dict(database.execute("select id, min_reader from session").fetchall())
        database.execute("update session set min_reader = 2")

    assert needs == {"s-1": schema.SESSION_VERSION, "s-2": schema.PLAIN_SESSION_VERSION}
    assert not verify_store(disk_world.directory, LIMITS).is_good
    repair_store(disk_world.directory, LIMITS)
    assert verify_store(disk_world.directory, LIMITS).is_good
    async with disk_world.open() as store:
        assert [each.process_id for each in (await store.load("s-1")).state.open_processes()] == ["p-1"]


@pytest.mark.parametrize(
    ("refers", "has_processes", "version"), [(False, False, 1), (True, False, 2), (False, True, 3), (True, True, 3)]
)
def test_a_session_needs_the_build_of_what_stands_in_it(refers: bool, has_processes: bool, version: int) -> None:
    assert schema.session_version(refers=refers, has_processes=has_processes) == version
