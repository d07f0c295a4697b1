"""What is told of the state directory and of the store, whole and damaged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from cli.command import Cli
from crash.waits import until_gone
from doctor.conftest import MakeCase
from e2e.fixtures import Start
from hames.doctor import state
from hames.doctor.state import (
    check_directory,
    check_filesystem,
    check_leftovers,
    check_space,
    check_store,
    existing,
    file_system,
    orphaned_reapers,
    size,
)
from hames.store import guards
from hames.store.guards import Gate
from hames.store.survey import survey
from store.damage import checkpoint
from store.harms import file_harms

OWNER = Path(__file__).parents[1] / "sandbox" / "owner.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a session in it, which nobody has open."""
    home = tmp_path_factory.mktemp("made")
    assert Cli(home, home)("run", "say hi").code == 0
    return home / "store"


@pytest.fixture
def store(made: Path, home: Path) -> Path:
    """A copy of it, to damage."""
    return Path(shutil.copytree(made, home / "store"))


def test_a_directory_that_others_may_read_is_told_with_the_command_that_mends_it(store: Path, case: MakeCase) -> None:
    store.chmod(0o755)

    found = check_directory(case())

    assert found.status == "warn"
    assert found.problems[0].advice == f"Run: chmod -R go-rwx {store}"


def test_a_directory_that_cannot_be_made_or_written_to_fails(
    home: Path, case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    missing = check_directory(case())
    (home / "store").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    closed = check_directory(case())

    assert (missing.status, missing.details["exists"]) == ("fail", False)
    assert [problem.status for problem in closed.problems][:2] == ["warn", "fail"]


def test_a_network_and_a_read_only_mount_fail(case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mount:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(guards, "network_file_system", lambda directory: "nfs4")
    monkeypatch.setattr(os, "statvfs", lambda path: Mount)

    found = check_filesystem(case())

    assert "nfs4" in found.problems[0].what
    assert "read-only" in found.problems[1].what


def test_tables_of_an_older_build_and_a_log_that_grows_are_told(
    store: Path, case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = survey(store, {"gateMs": 1_000})
    assert whole is not None
    grown = replace(whole, version=whole.supported - 1, wal_bytes=state.LARGE_WAL_BYTES + 1)
    monkeypatch.setattr("hames.store.survey.survey", lambda directory, limits: grown)

    found = check_store(case())

    assert [problem.status for problem in found.problems] == ["warn", "warn"]


def test_a_file_in_place_of_the_directory_fails(home: Path, case: MakeCase) -> None:
    (home / "store").write_text("")

    assert check_directory(case()).status == "fail"


@pytest.mark.parametrize(
    ("free_bytes", "status"), [(state.FAIL_BYTES - 1, "fail"), (state.WARN_BYTES - 1, "warn"), (2**40, "ok")]
)
def test_little_room_is_told(case: MakeCase, monkeypatch: pytest.MonkeyPatch, free_bytes: int, status: str) -> None:
    class Room:
        f_bavail, f_frsize, f_files, f_favail = free_bytes, 1, 0, 0

    monkeypatch.setattr(os, "statvfs", lambda path: Room)

    found = check_space(case())

    assert found.status == status
    assert found.details["freeBytes"] == free_bytes


def test_no_inodes_fail_though_there_are_bytes(case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    class Room:
        f_bavail, f_frsize, f_files, f_favail = 2**40, 1, 1000, 0

    monkeypatch.setattr(os, "statvfs", lambda path: Room)

    assert check_space(case()).status == "fail"


def test_the_file_system_is_told_by_its_type(case: MakeCase) -> None:
    found = check_filesystem(case())

    assert found.status == "ok"
    assert file_system(Path("/proc")) == "proc"


def test_a_store_of_a_newer_build_is_told_as_one_that_can_only_be_read(store: Path, case: MakeCase) -> None:
    with closing(apsw.Connection(str(store / "store.db"))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("update meta set value = 99 where key = 'min_writer'")

    found = check_store(case())

    assert found.status == "fail"
    assert "lets this one only read" in found.problems[0].what


def test_a_store_whose_history_went_back_fails_and_says_what_to_do(store: Path, case: MakeCase) -> None:
    (store / "store.db-wal").unlink()

    found = check_store(case())

    assert (found.status, found.details["kind"]) == ("fail", "store_unavailable")
    assert "Keep a copy" in found.problems[0].advice


@pytest.mark.parametrize(
    "name",
    [
        "header byte 0",
        "header byte 0 under a WAL",
        "header byte 18",
        "gate.lock is a directory",
        "bell is a file",
        "store.db is a symbolic link",
        "the database is gone",
        "a table is gone",
        "a page is gone",
    ],
)
def test_a_store_that_no_server_opens_is_not_called_ok(store: Path, case: MakeCase, name: str) -> None:
    harms = {harm.name: harm.apply for harm in file_harms(store)} | {
        "the database is gone": lambda directory: bool((directory / "store.db").rename(directory / "gone")),
        "a table is gone": lambda directory: change(directory, "drop table turn"),
        "a page is gone": lambda directory: zero_page(directory, 4),
    }
    checkpoint(store)
    assert harms[name](store)

    found = check_store(case())

    assert (found.status, found.details["kind"]) == ("fail", "store_unavailable")


def change(directory: Path, statement: str) -> bool:
    with closing(apsw.Connection(str(directory / "store.db"))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute(statement)
    return True


def zero_page(directory: Path, number: int) -> bool:
    with open(directory / "store.db", "r+b") as file:
        file.seek((number - 1) * 4096)
        return file.write(bytes(4096)) > 0


def test_backups_are_told_with_what_their_removal_frees(store: Path, case: MakeCase) -> None:
    place = store / "backups" / "repair-1"
    (place / "blobs").mkdir(parents=True)
    (place / "store.db").write_bytes(bytes(5_000))
    (store / "content").write_bytes(bytes(7_000))
    os.link(store / "content", place / "blobs" / "content")

    found = check_store(case())

    assert found.status == "ok"
    assert (found.details["backups"], found.details["backupsBytes"]) == (1, 5_000)
    assert "of 1 with 4.9 KiB" in found.seen


def test_backups_that_are_large_are_worth_a_word(store: Path, case: MakeCase) -> None:
    place = store / "backups" / "repair-1"
    place.mkdir(parents=True)
    with open(place / "store.db", "wb") as file:
        file.truncate(state.LARGE_BACKUPS_BYTES + 1)

    (problem,) = check_store(case()).problems

    assert (problem.status, f"rm -r {store / 'backups'}/" in problem.advice) == ("warn", True)


def test_a_missing_witness_is_a_warning(store: Path, case: MakeCase) -> None:
    (store / "witness").unlink()

    found = check_store(case())

    assert (found.status, found.details["witnessed"]) == ("warn", None)


def test_who_holds_the_gate_for_too_long_is_named(store: Path, case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "GATE_MS", 50)
    with closing(Gate(store, limit_ms=1000)) as gate:
        gate.enter()

        found = check_store(case())

    assert found.status == "fail"
    assert f"process {os.getpid()}" in found.problems[0].what


def test_the_newest_backup_is_named(store: Path, case: MakeCase) -> None:
    backups = store / "backups"
    backups.mkdir(exist_ok=True)
    for name, seconds in (("old.db", 1_000), ("new.db", 2_000)):
        (backups / name).write_text("")
        os.utime(backups / name, (seconds, seconds))

    found = check_store(case())

    assert "last backup new.db, 1970-01-01T00:33:20Z" in found.seen


def test_a_server_that_lives_is_named(start: Start, case: MakeCase, workspace: Path) -> None:
    server = start()
    server.create(workspace)

    found = check_leftovers(case())

    assert found.seen == f"on the store now: {server.pid}"
    assert found.status == "ok"
    assert (check_store(case()).status, check_store(case()).details["sessions"]) == ("ok", 1)
    server.submit(server.create(workspace, "s-after"), "say still well")


def test_a_server_that_was_killed_is_told_and_left_to_the_next(start: Start, case: MakeCase, workspace: Path) -> None:
    server = start()
    server.create(workspace)
    server.kill()

    found = check_leftovers(case())

    assert found.seen == "on the store now: nobody"
    assert f"({server.pid})" in found.problems[0].what
    assert len(list((server.home / "store" / "live").iterdir())) == 1


def test_a_reaper_that_outlives_its_starter_is_told_until_it_is_gone(
    tmp_path: Path, home: Path, case: MakeCase
) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    reapers = home / "store" / state.REAPER_FOLDER
    owner = subprocess.Popen(
        [sys.executable, str(OWNER), str(reapers), "s-1", "sleep", str(lock)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert owner.stdout is not None
    reaper = int(owner.stdout.readline().strip(b"[").split(b",")[0])
    assert list(orphaned_reapers(home / "store")) == []
    os.kill(reaper, signal.SIGSTOP)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    try:
        found = check_leftovers(case())
    finally:
        os.kill(reaper, signal.SIGCONT)
    until_gone(reaper)

    assert found.details["orphanedReapers"] == [reaper]
    assert f"kill -9 {reaper}" in found.problems[0].advice
    assert list(orphaned_reapers(home / "store")) == []


def test_the_socket_of_a_reaper_that_was_killed_is_told(home: Path, case: MakeCase) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    path = home / "store" / state.REAPER_FOLDER / f"reaper-{gone.pid}-0a0a0a0a.socket"
    path.parent.mkdir(parents=True)
    path.touch()

    found = check_leftovers(case())

    assert found.details["staleSockets"] == [str(path)]
    assert found.problems[0].advice == f"Run: rm {path}"


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (20 * 2**20, "20 MiB"), (2**50, "1024.0 TiB")],
)
def test_sizes_are_told_for_people(count: int, told: str) -> None:
    assert size(count) == told


def test_the_nearest_folder_that_exists_stands_for_one_that_does_not(tmp_path: Path) -> None:
    assert existing(tmp_path / "a" / "b") == tmp_path
    assert existing(tmp_path) == tmp_path
