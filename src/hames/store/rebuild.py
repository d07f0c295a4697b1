"""A new database of what can be read of a damaged one. It proves nothing: that comes after, on the new one.

Rule: a table is read from both ends to the damage between; of a session's events what stands before it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import apsw

from hames.store import schema
from hames.store.faults import unavailable
from hames.store.files import FORMAT, HEADER, make_database_file, make_directory
from hames.store.schema import SEQ_BITS, one

TABLES: Final = {
    "session": ("n", "n, id, head, chain, crc, state_digest, mac, fence, owner, min_reader, workspace, title"),
    "state": ("n", "n, doc"),
    "turn": ("session {0}, n", "session, n, turn_id, status, crc, doc"),
    "idem": ("scope {0}, key", "scope, key, digest, session_id, seq, turn_id, steer_id"),
    "blob": ("n", "n, sha256, size_bytes, created, data"),
    "blob_ref": ("session {0}, sha256", "session, sha256, seq, media_type, name"),
    "tombstone": ("session_id", "session_id, deleted, by"),
    "epoch": ("n", "n, started, reason"),
}
"""By name: the order they stand in, and their columns. Events and `meta` are read apart."""


def rebuild(directory: Path, target: Path, seen: tuple[str, int] | None, *, busy_ms: int) -> None:
    """Make a database in `target` of what the one in `directory` still gives; `seen` by the witness.

    Raises:
        HarnessFault: `store_unavailable`: nothing can be read of it.
    """
    make_database_file(target)
    with closing(schema.connect(target, write=True, busy_ms=busy_ms)) as new:
        schema.create(new, target)
        try:
            source = _readable(directory, target)
            with closing(schema.connect(source, write=False, busy_ms=busy_ms)) as old, new:
                _Copy(old, new).run(directory, seen)
        except (apsw.CorruptError, apsw.NotADBError) as error:
            why = "SQLite reads nothing of store.db; restore a backup of the directory, or move it away to begin anew"
            raise unavailable(directory, why) from error


def _readable(directory: Path, target: Path) -> Path:
    """Where the database can be read: SQLite reads nothing of one that was cut off, but all that is left of a copy that
    has its length again. Nobody has it open, this process neither: the file may be opened by hand."""
    with open(directory / "store.db", "rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size or head[: len(FORMAT)] != FORMAT:
        return directory
    page_bytes, pages = HEADER.unpack(head)
    if (directory / "store.db").stat().st_size >= page_bytes * pages:
        return directory
    copy = target / "cut"
    make_directory(copy)
    for name in ("store.db", "store.db-wal"):
        with suppress(FileNotFoundError):
            shutil.copyfile(directory / name, copy / name)
    os.truncate(copy / "store.db", page_bytes * pages)
    return copy


class _Copy:
    def __init__(self, old: apsw.Connection, new: apsw.Connection) -> None:
        self._old = old
        self._new = new

    def run(self, directory: Path, seen: tuple[str, int] | None) -> None:
        there = {name for (name,) in self._old.execute("select name from sqlite_schema where type = 'table'")}
        self._meta(directory, seen)
        for name, (order, columns) in TABLES.items():
            if name in there:
                self._table(name, order, columns)
        self._events()

    def _meta(self, directory: Path, seen: tuple[str, int] | None) -> None:
        known: dict[str, Any] = {}
        with suppress(apsw.CorruptError, UnicodeDecodeError):
            known.update(self._old.execute("select key, value from meta"))
        if known.get("min_writer", 0) > schema.VERSION:
            raise schema.incompatible(directory, self._old.pragma("user_version"), "write")
        if seen is not None:
            known = {"store_id": seen[0], "commits": 0, **known}
        for name in ("store_id", "commits", "epoch"):
            if name in known:
                self._new.execute("update meta set value = ?2 where key = ?1", (name, known[name]))

    def _table(self, name: str, order: str, columns: str) -> None:
        marks = ", ".join("?" * (columns.count(",") + 1))
        insert = f"insert or ignore into {name} ({columns}) values ({marks})"
        for direction in ("asc", "desc"):
            select = f"select {columns} from {name} order by {order.format(direction)} {direction}"
            if self._all(select, (), lambda row: self._new.execute(insert, row)):
                return

    def _events(self) -> None:
        insert = "insert or ignore into event (id, digest, crc, line) values (?, ?, ?, ?)"
        select = "select id, digest, crc, cast(line as blob) from event where id > ? and id <= ? order by id"
        for n in self._numbers():
            limits = (n << SEQ_BITS, ((n + 1) << SEQ_BITS) - 1)
            self._all(select, limits, lambda row: self._new.execute(insert, _as_text(row)))

    def _numbers(self) -> list[int]:
        """Of sessions, by their rows and by their events."""
        found = {n for (n,) in self._new.execute("select n from session")}
        with suppress(apsw.CorruptError, UnicodeDecodeError):
            at = 0
            while (first := one(self._old, "select min(id) from event where id > ?", (at,))) != (None,):
                n = first[0] >> SEQ_BITS
                found.add(n)
                at = ((n + 1) << SEQ_BITS) - 1
        return sorted(found)

    def _all(self, select: str, values: tuple[int, ...], take: Callable[[tuple[Any, ...]], object]) -> bool:
        """Take all rows; False when the damage came first."""
        try:
            for row in self._old.execute(select, values):
                # A row of other types than the table has is damaged.
                with suppress(apsw.ConstraintError, apsw.MismatchError):
                    take(row)
        except (apsw.CorruptError, UnicodeDecodeError):
            return False
        return True


def _as_text(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A line that is no text any more is kept as near to it as text can be; it will not prove itself."""
    return (*row[:3], bytes(row[3] or b"").decode(errors="replace"))
