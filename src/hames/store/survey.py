"""What can be told of a store without changing anything of it: for people who look, not for sessions.

Rule 1: nothing is made, brought to a newer version, removed or committed.
Rule 2: what is counted is what the tables know; no history is read.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from hames.store import schema
from hames.store.faults import FOREIGN, translate
from hames.store.guards import Gate, Witness
from hames.store.opening import open_for_reading, why_read_only


@dataclass(frozen=True, slots=True)
class Survey:
    """A store that can be opened. `read_only` says why it cannot be written to. `newest_backup` is a path in
    `backups/` and when it was made, in seconds of the epoch; `witnessed` is None where the witness is missing."""

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


@dataclass(frozen=True, slots=True)
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
    if not (directory / "store.db").exists():
        return None
    try:
        read_only = why_read_only(directory)
        with closing(open_for_reading(directory, limits, guard=False)) as side:
            connection = side.connection
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
        )
    except FOREIGN as error:
        raise translate(error, directory) from error


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
    try:
        found = [(entry.stat().st_mtime, entry.path) for entry in os.scandir(directory) if entry.name[0] != "."]
    except FileNotFoundError:
        return None
    return (Path(max(found)[1]), max(found)[0]) if found else None
