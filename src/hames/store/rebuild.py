"""A new database of what can be read of a damaged one. It proves nothing: that comes after, on the new one.

Rule: a table is read from both ends to the damage between; of a session's events what stands before it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import apsw

from hames.store import blob_rows, schema, shape
from hames.store.faults import unavailable
from hames.store.files import FORMAT, HEADER, make_database_file, make_directory
from hames.store.schema import SEQ_BITS, every, one

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


HEADER_BYTES: Final = 100
_PAGES_AT: Final = 28

_CONSTANT: Final = {
    0: FORMAT + schema.PAGE_BYTES.to_bytes(2, "big") + bytes([2, 2, 0, 64, 32, 32]),
    # No free pages: those that there are are not needed to read.
    32: bytes(8),
    44: (4).to_bytes(4, "big"),
    52: bytes(4),
    56: (1).to_bytes(4, "big"),
    64: bytes(4),
}
"""What the header of every database of ours holds, by place (sqlite.org/fileformat2.html, 1.3): sizes and versions, no
vacuuming, UTF-8."""

_INSTEAD: Final[Mapping[str, Any]] = {"digest": b"", "crc": -1, "min_reader": 1, "fence": 0, "mac": b"", "created": ""}
"""In the place of a column that is not there; the repair makes it from the rest."""


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
    """Where the database can be read: SQLite reads nothing of one that was cut off or whose header is damaged, but all
    that is left of a copy that has its length and its header again. Nobody has it open, this process neither: the file
    may be opened by hand."""
    with open(directory / "store.db", "rb") as file:
        head = file.read(HEADER_BYTES)
    page_bytes, pages = HEADER.unpack(head[: HEADER.size]) if len(head) >= HEADER.size else (0, 0)
    size_bytes = (directory / "store.db").stat().st_size
    is_like_ours = all(head[at : at + len(data)] == data for at, data in _CONSTANT.items())
    if is_like_ours and size_bytes >= page_bytes * pages:
        return directory
    copy = target / "cut"
    make_directory(copy)
    for name in ("store.db", "store.db-wal"):
        with suppress(FileNotFoundError):
            shutil.copyfile(directory / name, copy / name)
    with open(copy / "store.db", "r+b") as file:
        for at, data in _CONSTANT.items():
            file.seek(at)
            file.write(data)
        if is_like_ours:
            os.truncate(file.fileno(), page_bytes * pages)
        else:
            file.seek(_PAGES_AT)
            file.write((size_bytes // schema.PAGE_BYTES).to_bytes(4, "big"))
    return copy


class _Copy:
    def __init__(self, old: apsw.Connection, new: apsw.Connection) -> None:
        self._old = old
        self._new = new

    def run(self, directory: Path, seen: tuple[str, int] | None) -> None:
        self._meta(directory, seen)
        for name, (order, columns) in TABLES.items():
            self._table(name, order, columns)
        self._events()

    def _meta(self, directory: Path, seen: tuple[str, int] | None) -> None:
        known: dict[str, Any] = {}
        lost: list[tuple[Any, ...]] = []
        with suppress(apsw.CorruptError, apsw.SQLError):
            known, _ = shape.told(self._old)
            lost = every(self._old, "select key, value from meta where key glob ?", (f"{blob_rows.OF_REPAIR}*",))
        if shape.is_newer(self._old) and known.get("min_writer", 0) > schema.VERSION:
            raise schema.incompatible(directory, self._old.pragma("user_version"), "write")
        if seen is not None:
            known = {"store_id": seen[0], "commits": 0, **known}
        for name in ("store_id", "commits", "epoch"):
            if name in known:
                self._new.execute("update meta set value = ?2 where key = ?1", (name, known[name]))
        self._new.executemany("insert or ignore into meta values (?, ?)", lost)

    def _table(self, name: str, order: str, columns: str) -> None:
        there = self._columns(name)
        if not there.issuperset(re.findall(r"\w+", order.replace("{0}", ""))):
            return
        marks = ", ".join("?" * (columns.count(",") + 1))
        insert = f"insert or ignore into {name} ({columns}) values ({marks})"
        values = [column if column in there else _literal(column) for column in columns.split(", ")]
        for direction in ("asc", "desc"):
            select = f"select {', '.join(values)} from {name} order by {order.format(direction)} {direction}"
            if self._all(select, (), lambda row: self._new.execute(insert, row)):
                return

    def _columns(self, table: str) -> set[str]:
        with suppress(apsw.CorruptError):
            return shape.columns(self._old, table)
        return set()

    def _events(self) -> None:
        there = self._columns("event")
        if not there.issuperset(("id", "line")):
            return
        insert = "insert or ignore into event (id, digest, crc, line) values (?, ?, ?, ?)"
        digest, crc = (column if column in there else _literal(column) for column in ("digest", "crc"))
        select = f"select id, {digest}, {crc}, cast(line as blob) from event order by id"
        for low, high in self._ranges():
            between = select.replace(" order", f" where id >= {low} and id <= {high} order")
            self._all(between, (), lambda row: self._new.execute(insert, _as_text(row)))

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Of keys: one for each session, so that damage in one hides no other, and what lies outside of all."""
        yield -(2**63), (1 << SEQ_BITS) - 1
        for n in self._numbers():
            if 0 < n <= schema.MOST_SESSIONS:
                yield n << SEQ_BITS, ((n + 1) << SEQ_BITS) - 1

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


def _literal(column: str) -> str:
    value = _INSTEAD.get(column)
    return "null" if value is None else f"x'{value.hex()}'" if isinstance(value, bytes) else repr(value)


def _as_text(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A line that is no text any more is kept as near to it as text can be, and will not prove itself; a checksum of
    another kind follows from the text."""
    key, digest, crc, line = row
    digest, crc = digest if isinstance(digest, bytes) else b"", crc if isinstance(crc, int) else -1
    return key, digest, crc, bytes(line or b"").decode(errors="replace")
