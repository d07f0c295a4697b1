"""Contents as files: durable, private, proved, written once, collected when nobody refers to them."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import anyio
import apsw
import pytest

from hames.core.artifacts import content_of
from hames.core.commands import Draft, Record
from hames.ports import Store
from hames.protocol.errors import HarnessFault
from hames.store.blobs import ROW_BYTES, BlobFiles
from store.play import World, create, running, submission

pytestmark = pytest.mark.anyio

LARGE = b"0123456789abcdef" * 8192
DIGEST = sha256(LARGE).digest()


def result(fence: int, data: bytes) -> Record:
    """A call's result with an image."""
    image = {"mediaType": "image/png", "data": data}
    told = {"callId": "c-1", "tool": "read", "outcome": "ok", "text": "seen", "details": {}, "images": [image]}
    return Record(fence, "t-1", (Draft("tool.completed", told),))


async def keep(store: Store, data: bytes = LARGE) -> str:
    """An artifact with this content, in session s-1."""
    fence = await running(store)
    await store.commit("s-1", result(fence, data)).wait()
    [artifact] = await store.artifacts("s-1", after=None, limit=10)
    return artifact.artifact


def blob_files(directory: Path) -> list[Path]:
    return [path for path in (directory / "blobs").rglob("*") if path.is_file()]


async def test_a_large_content_is_a_private_file_by_its_digest(disk_world: World) -> None:
    async with disk_world.open() as store:
        await keep(store)

    [path] = blob_files(disk_world.directory)
    assert path == disk_world.directory / "blobs" / DIGEST.hex()[:2] / DIGEST.hex()[2:]
    assert path.read_bytes() == LARGE
    for place in (path, path.parent, path.parent.parent):
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0


async def test_a_small_content_is_a_row(disk_world: World) -> None:
    async with disk_world.open() as store:
        artifact = await keep(store, LARGE[:ROW_BYTES])

        assert not (disk_world.directory / "blobs").exists()
        assert await store.read_artifact("s-1", artifact, offset=5, length=3) == LARGE[5:8]


async def test_the_same_content_is_written_once(disk_world: World) -> None:
    async with disk_world.open() as store:
        await keep(store)
        [path] = blob_files(disk_world.directory)
        written = path.stat()

        await create(store, "s-2")
        slot = {"type": "image", "mediaType": "image/png", "data": LARGE}
        await store.commit("s-2", replace(submission("t-1"), input=(slot,))).wait()

        assert (path.stat().st_ino, path.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
        assert blob_files(disk_world.directory) == [path]


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
async def test_a_damaged_file_is_told_and_written_again_by_who_has_the_content(disk_world: World, damage: str) -> None:
    async with disk_world.open() as store:
        artifact = await keep(store)
        [path] = blob_files(disk_world.directory)
        if damage == "flipped":
            path.write_bytes(LARGE[:-1] + b"!")
        elif damage == "cut":
            os.truncate(path, 1000)
        else:
            path.unlink()

        with pytest.raises(HarnessFault) as caught:
            await store.read_artifact("s-1", artifact, offset=0, length=10)

        fault = caught.value
        assert (fault.kind, fault.boundary) == ("artifact_corrupt", "artifact_store")
        assert (fault.details["artifact"], fault.details["expected"]) == (artifact, DIGEST.hex())
        if damage == "flipped":
            assert fault.details["found"] == sha256(LARGE[:-1] + b"!").hexdigest()

        await create(store, "s-2")
        slot = {"type": "image", "mediaType": "image/png", "data": LARGE}
        await store.commit("s-2", replace(submission("t-1"), input=(slot,))).wait()
        assert await store.read_artifact("s-1", artifact, offset=0, length=10) == LARGE[:10]


async def test_a_damaged_row_is_told_and_other_sessions_go_on(disk_world: World) -> None:
    async with disk_world.open() as store:
        artifact = await keep(store, LARGE[:1000])
    connection = apsw.Connection(str(disk_world.directory / "store.db"))
    connection.execute("update blob set data = zeroblob(1000)")
    connection.close()

    async with disk_world.open() as store:
        with pytest.raises(HarnessFault, match="artifact_corrupt"):
            await store.contents("s-1", [artifact])
        await create(store, "s-2")
        assert (await store.load("s-1")).state.active is not None


async def test_a_large_file_is_proved_once_and_again_when_it_looks_different(tmp_path: Path) -> None:
    files = BlobFiles(tmp_path)
    files.put(DIGEST, LARGE)
    path = files.path(DIGEST)
    assert files.read(DIGEST, len(LARGE), offset=10, length=6) == LARGE[10:16]
    before = path.stat()

    path.write_bytes(b"!" + LARGE[1:])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))

    with pytest.raises(HarnessFault, match="artifact_corrupt"):
        files.read(DIGEST, len(LARGE), offset=10, length=6)


async def test_what_nobody_refers_to_is_collected_once_it_is_old(disk_world: World) -> None:
    async with disk_world.open() as store:
        await keep(store)
        connection = apsw.Connection(str(disk_world.directory / "store.db"))
        connection.execute("delete from blob_ref")
        connection.close()
        assert await store.collect() == 0
        assert len(blob_files(disk_world.directory)) == 1

        assert await store.collect(grace_ms=-60_000) == 1

        assert blob_files(disk_world.directory) == []


async def test_files_that_were_given_up_are_collected(disk_world: World) -> None:
    async with disk_world.open() as store:
        artifact = await keep(store)
        files = BlobFiles(disk_world.directory)
        stray = content_of(b"never committed" * 9999, "image/png")
        files.put(stray.digest, stray.data)
        left = files.temporary()
        left.write_bytes(b"half")
        for path in (files.path(stray.digest), left):
            os.utime(path, (1, 1))

        assert await store.collect() == 2

        assert [path.name for path in blob_files(disk_world.directory)] == [DIGEST.hex()[2:]]
        assert len(await store.read_artifact("s-1", artifact, offset=0, length=99)) == 99


async def test_a_large_spool_is_a_file_that_is_gone_when_it_is_not_wanted(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
        spool = store.spool()
        spool.write(b"x" * ROW_BYTES)
        assert not (disk_world.directory / "blobs").exists()
        spool.write(b"y")
        assert len(blob_files(disk_world.directory)) == 1

        spool.discard()

        assert blob_files(disk_world.directory) == []
        with pytest.raises(HarnessFault, match="internal"):
            await store.keep("s-1", spool, media_type="text/plain", name="late")


async def test_a_file_that_cannot_be_written_refuses_the_command_and_keeps_nothing(disk_world: World) -> None:
    async with disk_world.open() as store:
        fence = await running(store)
        (disk_world.directory / "blobs").write_bytes(b"in the way")

        with pytest.raises(HarnessFault, match="store_unavailable"):
            await store.commit("s-1", result(fence, LARGE)).wait()

        assert (await store.load("s-1")).state.seq == 3
        assert await store.artifacts("s-1", after=None, limit=10) == []
        (disk_world.directory / "blobs").unlink()
        await store.commit("s-1", result(fence, LARGE)).wait()


async def test_a_session_with_references_is_closed_to_builds_that_know_none(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store, "s-2")
        await keep(store)
    connection = apsw.Connection(str(disk_world.directory / "store.db"))

    found = sorted(connection.execute("select id, min_reader from session").fetchall())

    connection.close()
    assert found == [("s-1", 2), ("s-2", 1)]


async def test_a_store_that_is_opened_is_tidied_once_a_day_when_nothing_waits(disk_world: World) -> None:
    async with disk_world.open() as store:
        await keep(store)
    database = str(disk_world.directory / "store.db")
    connection = apsw.Connection(database)
    connection.execute("delete from blob_ref; update blob set created = '2020-01-01T00:00:00.000Z'")

    async with disk_world.open():
        with anyio.fail_after(30):
            while blob_files(disk_world.directory):  # noqa: ASYNC110
                await anyio.sleep(0.01)
    ((first,),) = connection.execute("select value from meta where key = 'collected'").fetchall()
    connection.execute("insert into blob values (1, zeroblob(32), 1, '2020-01-01T00:00:00.000Z', x'00')")
    async with disk_world.open() as store:
        await create(store, "s-2")

    assert connection.execute("select value from meta where key = 'collected'").fetchall() == [(first,)]
    assert connection.execute("select count(*) from blob").fetchall() == [(1,)]
    connection.close()
