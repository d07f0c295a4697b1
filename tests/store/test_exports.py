"""A session of either kind of store as an archive: what is in it, and what is refused."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import anyio
import pytest

from hames.archive.findings import Report
from hames.archive.verify import verify_archive
from hames.core.commands import UpdateSession
from hames.engine.export import export_session
from hames.ports import Store
from hames.protocol.errors import HamesError
from hames.protocol.events import EVENTS
from hames.store import MemoryStore, SqliteStore, schema
from store.play import BY, World, chunk, create, fill, submission, whole

pytestmark = pytest.mark.anyio

LARGE = "large " * 20_000


async def exported(store: Store, session_id: str = "s-1") -> bytes:
    """The bytes of an export, read as they are kept."""
    artifact = (await export_session(store, session_id)).artifact
    return await store.read_artifact(session_id, artifact.artifact, offset=0, length=artifact.size_bytes)


def checked(store: Store, data: bytes) -> Report:
    return verify_archive(io.BytesIO(data), keyed=store.keyed)


def members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {each.name: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr]


async def with_large_texts(store: Store) -> None:
    """Session s-1 with references in its log."""
    await create(store)
    command = submission("t-1")
    slots = ({"role": "command", "type": "text", "text": LARGE},)
    await store.commit("s-1", type(command)(command.turn_id, slots, command.digest, BY)).wait()


async def test_an_export_is_good_and_authentic_for_its_store_alone(world: World, tmp_path: Path) -> None:
    async with world.open() as store, World(world.kind, tmp_path / "other").open() as other:
        await fill(store, 20)

        data = await exported(store)

        report = checked(store, data)
        assert (report.verdict, report.events, report.authentic) == ("good", 20, True)
        assert report.cursor == (await store.load("s-1")).cursor
        assert checked(other, data).authentic is False


async def test_it_holds_the_log_its_contents_and_what_is_needed_to_read_them(world: World) -> None:
    async with world.open() as store:
        await with_large_texts(store)

        found = members(await exported(store))

        entries = await whole(store)
        assert [json.loads(line) for line in found["events.jsonl"].splitlines()] == entries
        text = entries[1]["event"]["data"]["input"][0]["text"]
        assert found[f"artifacts/{text['sha256']}"] == LARGE.encode()
        assert [name for name in found if name.startswith("schemas/")] == sorted(
            f"schemas/{each}.json" for each in EVENTS
        )
        manifest = json.loads(found["manifest.json"])
        assert manifest["sessionId"] == "s-1"
        assert manifest["storeId"] == store.describe()["storeId"]
        assert manifest["snapshotDigest"] == entries[0]["event"]["data"]["snapshotDigest"]
        assert manifest["events"]["first"] == entries[0]["cursor"]


async def test_an_export_is_in_no_later_one(world: World) -> None:
    async with world.open() as store:
        await with_large_texts(store)

        first = await export_session(store, "s-1")
        second = await export_session(store, "s-1")
        await store.commit("s-1", UpdateSession("a title", BY)).wait()
        third = await exported(store)

        assert first == second
        assert len([name for name in members(third) if name.startswith("artifacts/")]) == 1


async def test_a_log_that_grows_is_exported_up_to_the_head_that_was_found(world: World) -> None:
    async with world.open() as store:
        fence = await fill(store, 3_000)
        growing = True
        data = b""

        async def grow() -> None:
            at = 3_000
            while growing:
                await store.commit("s-1", chunk(fence, "t-1", at)).wait()
                await anyio.lowlevel.checkpoint()
                at += 1

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(grow)
                data = await exported(store)
                growing = False

        report = checked(store, data)
        assert report.good
        assert 3_000 <= report.events < (await store.load("s-1")).state.seq


async def test_it_needs_no_lease_and_takes_none(world: World) -> None:
    async with world.open() as store, world.open() as other:
        await fill(store, 10)
        before = await store.load("s-1")

        assert checked(other, await exported(other)).good

        after = await store.load("s-1")
        assert after.owner is not None
        assert (after.cursor, after.state, after.owner.mine) == (before.cursor, before.state, True)


async def test_a_content_that_is_lost_is_told_and_nothing_is_exported(disk_world: World) -> None:
    async with disk_world.open() as store:
        await with_large_texts(store)
        [artifact] = await store.artifacts("s-1", after=None, limit=9)
    connection = schema.connect(disk_world.directory, write=True, busy_ms=20_000)
    connection.execute("delete from blob")
    connection.close()

    async with disk_world.open() as store:
        with pytest.raises(HamesError) as caught:
            await export_session(store, "s-1")

    assert caught.value.kind == "artifact_corrupt"
    assert artifact.sha256 in str(caught.value.details) + caught.value.message


async def test_a_text_that_only_looks_like_a_reference_is_none(world: World) -> None:
    async with world.open() as store:
        await create(store)
        command = submission("t-1")
        meta = {"artifact": "a-" + "0" * 32}
        await store.commit("s-1", type(command)(command.turn_id, command.input, command.digest, BY, meta=meta)).wait()

        assert checked(store, await exported(store)).good


async def test_a_log_that_does_not_prove_itself_is_not_exported(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 50)
    connection = schema.connect(disk_world.directory, write=True, busy_ms=20_000)
    connection.execute('update event set line = replace(line, \'"text":"x"\', \'"text":"y"\') where id % 1024 = 20')
    connection.close()

    async with disk_world.open() as store:
        assert isinstance(store, SqliteStore)
        with pytest.raises(HamesError) as caught:
            await export_session(store, "s-1")
        assert await store.artifacts("s-1", after=None, limit=9) == []

    assert caught.value.kind == "session_corrupt"
    assert not list((disk_world.directory / "blobs").glob("*/*"))


async def test_a_deleted_session_is_not_exported(world: World) -> None:
    async with world.open() as store:
        assert isinstance(store, MemoryStore | SqliteStore)
        await create(store)
        await store.delete("s-1")

        with pytest.raises(HamesError) as caught:
            await export_session(store, "s-1")

    assert caught.value.kind == "session_deleted"
