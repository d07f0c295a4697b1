"""What can be told of a store without changing anything of it: for people who look, not for sessions.

Rule 1: nothing is made, brought to a newer version, removed or committed.
Rule 2: what is counted is what the tables know; no history is read.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import apsw
import orjson

from hames.core.records import record
from hames.store import schema, shape
from hames.store.faults import FOREIGN, translate, unavailable
from hames.store.guards import Gate, Witness, own_descriptors
from hames.store.kinds import misplaced
from hames.store.opening import open_for_reading, sqlites, why_read_only

QUICK_BYTES: Final = 64 * 2**20
"""A database up to this size is looked over by SQLite, in some tenths of a second; of a larger one `hames verify`
tells."""


@record
class Survey:
    """A store that can be opened. `read_only` says why it cannot be written to. `newest_backup` is a path in
    `backups/` and when it was made, in seconds of the epoch; `backups_bytes` is what the removal of all `backups` would
    free; `witnessed` is None where the witness is missing."""

    store_id: str
    version: int
    supported: int
    read_only: str | None
    epoch: int
    commits: int
    witnessed: int | None
    sessions: int
    events: int
    database_bytes: int
    wal_bytes: int
    ballast_bytes: int | None
    newest_backup: tuple[Path, float] | None
    backups: int
    backups_bytes: int


@record
class Attendance:
    """A process that said it lives on the store; `alive` while it holds its lock. `pid` is 0 where it cannot be
    told."""

    owner_id: str
    pid: int
    host: str
    alive: bool


def survey(directory: Path, limits: Mapping[str, int]) -> Survey | None:
    """The store in `directory`; None where none was made yet. Waits at its gate for `gateMs` at most.

    Raises:
        HarnessFault: `store_unavailable`, `session_incompatible`: as a session would hear it.
    """
    for name, why, _ in misplaced(directory):
        raise unavailable(directory, f"{name} {why}", retryable=False)
    if not (directory / "store.db").exists():
        if _witnessed(directory) is not None:
            raise unavailable(directory, "store.db is not there, though commits were made", retryable=False)
        return None
    try:
        read_only = why_read_only(directory)
        before = own_descriptors(directory)
        with closing(open_for_reading(directory, limits, guard=False)) as side:
            connection = side.connection
            side.files.check()
            _look_over(connection, directory, sqlites(directory, before))
            meta: dict[str, Any] = dict(schema.every(connection, "select key, value from meta"))
            version = int(connection.pragma("user_version"))
            # Below "0" stand those that are being removed.
            sessions, events = schema.one(
                connection, "select count(*), coalesce(sum(head), 0) from session where id >= '0'"
            )
        if read_only is None and meta["min_writer"] > schema.VERSION:
            read_only = f"a build that knows version {version} wrote it, and lets this one only read"
        if read_only is None:
            _pass_the_gate(directory, limits)
        return Survey(
            store_id=meta["store_id"],
            version=version,
            supported=schema.VERSION,
            read_only=read_only,
            epoch=int(meta.get("epoch", 1)),
            commits=meta["commits"],
            witnessed=_witnessed(directory),
            sessions=sessions,
            events=events,
            database_bytes=_size_bytes(directory / "store.db") or 0,
            wal_bytes=_size_bytes(directory / "store.db-wal") or 0,
            ballast_bytes=_size_bytes(directory / "ballast"),
            newest_backup=_newest_backup(directory / "backups"),
            backups=len(_backups(directory / "backups")),
            backups_bytes=_freed_bytes(directory / "backups"),
        )
    except FOREIGN as error:
        raise translate(error, directory) from error


def _look_over(connection: apsw.Connection, directory: Path, own: Mapping[str, int]) -> None:
    if "" in own and schema.is_of_other_format(directory, own[""]):
        raise unavailable(directory, "the header of store.db is damaged", retryable=False)
    if shape.misshapen(connection):
        raise unavailable(directory, "its tables are not as they were made", retryable=False)
    size_bytes = _size_bytes(directory / "store.db") or 0
    if size_bytes <= QUICK_BYTES and schema.one(connection, "pragma quick_check(1)") != ("ok",):
        raise apsw.CorruptError("quick_check")


def attendances(directory: Path) -> list[Attendance]:
    """Who said to live on the store, dead ones too: those are left where they are."""
    found = []
    with suppress(FileNotFoundError):
        for name in sorted(os.listdir(directory / "live")):
            with suppress(OSError):
                found.append(_attendance(directory / "live" / name))
    return found


def _attendance(path: Path) -> Attendance:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            # Shared: two that look at once do not take each other for the owner.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            alive = False
        except BlockingIOError:
            alive = True
        record: dict[str, Any] = {}
        with suppress(orjson.JSONDecodeError):
            record = orjson.loads(os.pread(descriptor, 4096, 0))
        return Attendance(path.name, int(record.get("pid", 0)), str(record.get("host", "")), alive)
    finally:
        os.close(descriptor)


def _pass_the_gate(directory: Path, limits: Mapping[str, int]) -> None:
    """Hold the right to write for a moment: who holds it for too long is named by the fault."""
    with closing(Gate(directory, limit_ms=limits["gateMs"])) as gate:
        gate.enter()
        gate.leave()


def _witnessed(directory: Path) -> int | None:
    try:
        with closing(Witness(directory, write=False)) as witness:
            seen = witness.read()
    except FileNotFoundError:
        return None
    return None if seen is None else seen[1]


def _size_bytes(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _newest_backup(directory: Path) -> tuple[Path, float] | None:
    found = [(entry.stat().st_mtime, entry.path) for entry in _backups(directory)]
    return (Path(max(found)[1]), max(found)[0]) if found else None


def _backups(directory: Path) -> list[os.DirEntry[str]]:
    try:
        return [entry for entry in os.scandir(directory) if entry.name[0] != "."]
    except FileNotFoundError:
        return []


def _freed_bytes(directory: Path) -> int:
    """Without contents that the store has too: those are one file with two names."""
    found = [path.lstat() for path in directory.rglob("*")]
    return sum(each.st_size for each in found if stat.S_ISREG(each.st_mode) and each.st_nlink == 1)
