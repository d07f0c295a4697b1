"""What a store puts on disk, how it treats what it finds there, and when it works."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import apsw
import pytest

from hames.protocol.errors import HarnessFault
from hames.store import guards
from hames.store.files import make_private
from hames.store.guards import Gate, Witness, check_witness, is_network, network_file_system, process_state
from hames.store.owners import Owners
from hames.store.schema import library, why_not
from store.play import World, chunk, create, fill, running, submission, whole
from store.process import other

pytestmark = pytest.mark.anyio


def commits(world: World) -> int:
    """How many transactions were committed to the store."""
    with closing(sqlite3.connect(f"file:{world.directory / 'store.db'}?mode=ro", uri=True)) as connection:
        return int(connection.execute("select value from meta where key = 'commits'").fetchone()[0])


async def test_a_store_is_the_users_alone_and_nothing_but_itself(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
        names = {path.name for path in disk_world.directory.iterdir()}
        made = {"store.db", "store.db-wal", "store.db-shm", "gate.lock", "key", "live", "bell", "witness"}
        assert names - {"ballast"} == made
        assert len(os.listdir(disk_world.directory / "live")) == len(os.listdir(disk_world.directory / "bell")) == 1

    assert stat.S_IMODE(disk_world.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((disk_world.directory / "key").stat().st_mode) == 0o600
    assert os.listdir(disk_world.directory / "live") == os.listdir(disk_world.directory / "bell") == []
    assert (disk_world.directory / "store.db-wal").exists()


async def test_what_waits_is_committed_together(disk_world: World) -> None:
    async with disk_world.open() as store:
        fence = await running(store)
        before = commits(disk_world)

        tickets = [store.commit("s-1", chunk(fence, "t-1", at)) for at in range(1000)]
        for ticket in tickets:
            await ticket.wait()

        assert commits(disk_world) - before < 100


async def test_a_refused_command_costs_no_commit(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
        await store.commit("s-1", submission("t-1", key="k")).wait()
        before = commits(disk_world)

        assert (await store.commit("s-1", submission("t-1", key="k")).wait()).reply.repeated

        assert commits(disk_world) == before


async def test_what_was_given_before_the_close_is_written(disk_world: World) -> None:
    store = disk_world.make()
    await store.open()
    fence = await running(store)
    tickets = [store.commit("s-1", chunk(fence, "t-1", at)) for at in range(700)]

    await store.aclose()

    assert [(await ticket.wait()).state.seq for ticket in tickets] == list(range(4, 704))
    async with disk_world.open() as store:
        assert len(await whole(store)) == 703


async def test_the_wal_is_moved_into_the_database_when_nothing_waits(disk_world: World) -> None:
    async with disk_world.open() as store:
        await fill(store, 700, text="x" * 9000)

        with anyio.fail_after(30):
            while (disk_world.directory / "store.db").stat().st_size < 4 * 2**20:  # noqa: ASYNC110
                await anyio.sleep(0.01)

        assert len(await whole(store)) == 700


@pytest.mark.parametrize("files", [0o600, 0o400], ids=["its directory", "its files too"])
async def test_a_store_that_may_only_be_read_is_read_and_says_why_it_is_not_written(
    disk_world: World, files: int
) -> None:
    async with disk_world.open() as store:
        await create(store)
    for path in disk_world.directory.glob("store.db*"):
        path.chmod(files)
    disk_world.directory.chmod(0o500)
    try:
        with other(disk_world.directory, humble=True) as reader:
            assert reader.ask("load") == {"seq": 1}
            refused = reader.ask("submit", turn="t-1")
            assert (refused["kind"], refused["readOnly"]) == ("store_unavailable", True)
            assert str(disk_world.directory) in refused["why"]
            assert reader.ask("claim")["kind"] == "store_unavailable"

            disk_world.directory.chmod(0o700)
            for path in disk_world.directory.glob("store.db*"):
                path.chmod(0o600)
            assert reader.ask("submit", turn="t-1") == {"seq": 2}
            assert reader.ask("load") == {"seq": 2}
    finally:
        disk_world.directory.chmod(0o700)


def test_the_package_is_imported_without_sqlite() -> None:
    program = "import sys, hames.store; sys.exit(any(name in sys.modules for name in ('apsw', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


async def test_a_store_cannot_be_made_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = World("sqlite", tmp_path / "file" / "store").make()

    with pytest.raises(HarnessFault, match="store_unavailable"):
        await store.open()


async def test_a_lost_bell_is_made_up_for_by_looking(disk_world: World) -> None:
    async with disk_world.open() as store:
        await create(store)
        with other(disk_world.directory) as second:
            for bell in (disk_world.directory / "bell").iterdir():
                bell.unlink()
            with anyio.fail_after(30):
                async with anyio.create_task_group() as group:
                    group.start_soon(store.changed, "s-1", 1)
                    answer = await anyio.to_thread.run_sync(lambda: second.ask("submit", turn="t-1"))

            assert answer == {"seq": 2}
            assert store.head("s-1") == 2


async def test_a_network_file_system_is_refused_with_the_reason(
    disk_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = await anyio.Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    kinds = frozenset(line.split(" - ")[1].split()[0] for line in mounts.splitlines())
    monkeypatch.setattr(guards, "_NETWORK_FILE_SYSTEMS", kinds)
    store = disk_world.make()

    with pytest.raises(HarnessFault, match="network file system") as caught:
        await store.open()

    assert caught.value.kind == "store_unavailable"
    assert "set HAMES_HOME to" in caught.value.message
    assert caught.value.details["fileSystem"] == network_file_system(disk_world.directory) in kinds


@pytest.mark.parametrize(
    "kind",
    ["nfs", "nfs4", "cifs", "smb3", "9p", "drvfs", "virtiofs", "vboxsf", "fuse", "fuse.sshfs", "fuse.rclone", "ceph"],
)
def test_file_systems_with_users_on_other_machines_are_told(kind: str) -> None:
    assert is_network(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuse.fuse-overlayfs", "fuseblk"])
def test_local_file_systems_are_not(kind: str) -> None:
    assert not is_network(kind)


def test_a_sqlite_that_cannot_keep_a_store_is_not_used() -> None:
    assert why_not("3.51.3", ["THREADSAFE=1"]) is None
    assert "older" in str(why_not("3.40.1", []))
    assert "OMIT_WAL" in str(why_not("3.54.0", ["OMIT_WAL", "THREADSAFE=1"]))
    assert library().split()[0] == apsw.sqlite_lib_version()


def test_a_live_file_that_somebody_is_stopped_at_is_left_to_him(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    with open(tmp_path / "live" / "mine", "w") as looking:
        fcntl.flock(looking, fcntl.LOCK_EX)
        owners = Owners(tmp_path, "mine", lease_ms=1000, reaper=lambda: None)

        owners.arrive()

        other = Owners(tmp_path, "other", lease_ms=1000, reaper=lambda: None)
        assert other.look("mine").alive
    owners.leave()


def test_the_gate_tells_who_holds_it(tmp_path: Path) -> None:
    holder, waiter = Gate(tmp_path, limit_ms=100), Gate(tmp_path, limit_ms=100)
    assert holder.enter()

    assert not waiter.enter(patient=False)
    with pytest.raises(HarnessFault) as caught:
        waiter.enter()
    assert caught.value.details["pid"] == os.getpid()
    assert caught.value.details["state"] == "running"

    holder.leave()
    assert waiter.enter()
    waiter.close()
    holder.close()


def test_the_state_of_a_process_is_told_as_far_as_it_can_be() -> None:
    assert process_state(os.getpid()) == "running"
    assert process_state(2**22 + 1) == "gone"


def test_a_witness_that_is_damaged_says_nothing(tmp_path: Path) -> None:
    witness = Witness(tmp_path, write=True)
    assert witness.read() is None
    witness.write("ab" * 16, 7)
    assert witness.read() == ("ab" * 16, 7)
    with open(tmp_path / "witness", "r+b") as file:
        file.seek(34)
        file.write(b"\xff")
    assert witness.read() is None
    witness.close()


def test_a_witness_of_another_store_is_told_apart(tmp_path: Path) -> None:
    check_witness(tmp_path, ("ab" * 16, 3), "ab" * 16, 3)
    check_witness(tmp_path, None, "ab" * 16, 0)
    with pytest.raises(HarnessFault, match="not the one"):
        check_witness(tmp_path, ("cd" * 16, 3), "ab" * 16, 3)


def modes(directory: Path) -> dict[str, int]:
    """What others may do with a store's files, by name; `.` is the directory."""
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    return {**found, ".": stat.S_IMODE(directory.stat().st_mode)}


@pytest.fixture
def open_umask() -> Iterator[None]:
    """No umask: what is made has the mode that was asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


PRIVATE_FILES = dict.fromkeys(("store.db", "store.db-wal", "store.db-shm", "key", "witness", "gate.lock"), 0o600)


@pytest.mark.parametrize("mode", [0o755, 0o777])
async def test_a_store_in_a_directory_that_was_there_is_the_users_alone_whatever_the_umask(
    disk_world: World, mode: int, open_umask: None
) -> None:
    disk_world.directory.mkdir()
    disk_world.directory.chmod(mode)

    async with disk_world.open() as store:
        await create(store)
        assert modes(disk_world.directory) == {**PRIVATE_FILES, "live": 0o700, "bell": 0o700, ".": 0o700}


@pytest.mark.parametrize("name", ["notes.txt", "src"])
async def test_a_store_that_was_open_to_others_is_closed_to_them_and_what_is_not_of_it_is_left(
    disk_world: World, name: str
) -> None:
    async with disk_world.open() as store:
        await create(store)
    for path in disk_world.directory.iterdir():
        path.chmod(0o755 if path.is_dir() else 0o644)
    (disk_world.directory / name).touch(0o644)
    (disk_world.directory / name).chmod(0o644)
    disk_world.directory.chmod(0o755)

    async with disk_world.open() as store:
        await store.load("s-1")
        found = modes(disk_world.directory)
        assert found == {**PRIVATE_FILES, "live": 0o700, "bell": 0o700, ".": 0o755, name: 0o644}

    (disk_world.directory / name).unlink()
    async with disk_world.open():
        assert modes(disk_world.directory)["."] == 0o700


def test_a_link_and_a_shared_directory_are_not_made_private(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch(0o644)
    (tmp_path / "elsewhere").chmod(0o644)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "key").symlink_to(tmp_path / "elsewhere")

    make_private(shared)

    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o644
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
