"""The database: its tables, how a connection to it is set up, and whether this build may use it.

Rule 1: every connection has `NO_CKPT_ON_CLOSE`: the last to close would unlink the WAL, and a process whose locks
were dropped by a stray `close` (POSIX) would go on committing into the unlinked file.
Rule 2: no checkpoint but the writer's own; no `immutable`, no `mmap_size`, no shared cache.
Rule 3: what a newer build wrote is never written to.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apsw

from hames.protocol.errors import HarnessFault
from hames.store.faults import unavailable

APPLICATION_ID: Final = 0x48616D73
"""`Hams` in the file's header: `file` and we can tell whose database it is."""

VERSION: Final = 1
"""Of the tables. A store says which versions may read and which may write it (`min_reader`, `min_writer`)."""

SESSION_VERSION: Final = 1
"""Raised with an event type that moves the lifecycle: an older build serves such a session's bytes, no more."""

SEQ_BITS: Final = 40
"""An event's key is `session << 40 | seq`: one b-tree, clustered by session, 10^12 events in each of 8 million."""

MIN_SQLITE: Final = (3, 51, 3)
"""This version ends a race of two processes that resets the WAL under a writer (sqlite.org/wal.html)."""

CHECKPOINT_PAGES: Final = 1024
"""4 MiB of WAL: recovered in 2 ms after a crash."""

_TABLES: Final = """
create table meta (key text primary key, value any not null) strict, without rowid;
create table session (
  n integer primary key, id text not null unique,
  head integer not null, chain blob not null, crc integer not null, state_digest blob not null, mac blob not null,
  fence integer not null, owner text, min_reader integer not null, workspace text, title text
) strict;
create table state (n integer primary key, doc text not null) strict;
create table event (id integer primary key, digest blob not null, crc integer not null, line text not null) strict;
create table turn (
  session integer not null, n integer not null, turn_id text not null, status text not null,
  crc integer not null, doc text not null, primary key (session, n)
) strict, without rowid;
create unique index turn_id on turn (session, turn_id);
create table idem (
  scope integer not null, key text not null, digest text not null, session_id text not null, seq integer not null,
  turn_id text, steer_id text, primary key (scope, key)
) strict, without rowid;
"""
"""A session's state stands apart: most events change the small row only. `idem.scope` is a session's number, 0 for
the store. A turn's `crc` is of its `doc`."""

_PRAGMAS: Final = (
    "synchronous=full",
    "wal_autocheckpoint=0",
    "journal_size_limit=16777216",
    "trusted_schema=off",
    "cell_size_check=on",
    "temp_store=memory",
    *(("fullfsync=on", "checkpoint_fullfsync=on") if sys.platform == "darwin" else ()),
)
"""FULL: a commit is on the medium. macOS flushes its drive's cache only when asked by `fullfsync`."""

WRITE_CACHE_KIB: Final = 16_000
READ_CACHE_KIB: Final = 2_000
"""Pages SQLite keeps. A long read passes through them once, faster where they fit the processor's cache; what is read
again and again is in the system's."""


@dataclass(frozen=True, slots=True)
class Meta:
    """A store's identity, and its count of commits."""

    store_id: str
    commits: int


def one(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Any:
    """The first row of a query as a tuple, None without one; the statement is over."""
    found = connection.execute(sql, values).fetchall()
    return found[0] if found else None


def every(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """All rows of a query, as tuples."""
    return list(connection.execute(sql, values).fetchall())


def connect(directory: Path, *, write: bool, busy_ms: int) -> apsw.Connection:
    """A connection with our settings; made for one thread. Does not touch the file yet, save a new one."""
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < MIN_SQLITE:
        raise unavailable(directory, f"SQLite {version} is older than {'.'.join(map(str, MIN_SQLITE))}; update apsw")
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if write else apsw.SQLITE_OPEN_READONLY
    connection = apsw.Connection(str(directory / "store.db"), flags=flags)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.set_busy_timeout(busy_ms)
    for pragma in (*_PRAGMAS, f"cache_size={-(WRITE_CACHE_KIB if write else READ_CACHE_KIB)}"):
        connection.execute(f"pragma {pragma}").fetchall()
    if not write:
        connection.execute("pragma query_only=on")
    return connection


def is_new(connection: apsw.Connection) -> bool:
    """Nothing was ever written to it, or its making was cut short."""
    return not connection.pragma("application_id") and not connection.execute("select 1 from sqlite_schema").fetchall()


def create(connection: apsw.Connection, directory: Path) -> None:
    """Make the tables; called with the gate held, on a file that `is_new`."""
    connection.pragma("page_size", 4096)
    if connection.pragma("journal_mode", "wal") != "wal":
        raise unavailable(directory, "its file system does not support SQLite's WAL; use a local one")
    with connection:
        connection.execute(_TABLES)
        rows = (("store_id", secrets.token_hex(16)), ("commits", 0), ("min_reader", VERSION), ("min_writer", VERSION))
        connection.executemany("insert into meta values (?, ?)", rows)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", VERSION)


def inspect(connection: apsw.Connection, directory: Path) -> tuple[Meta, bool]:
    """Whose store this is, and whether this build may write to it.

    Raises:
        HarnessFault: not a store, or one that this build cannot even read.
    """
    if connection.pragma("application_id") != APPLICATION_ID:
        raise unavailable(directory, "store.db was not made by Hames")
    if connection.pragma("journal_mode") != "wal":
        raise unavailable(directory, "another program took store.db out of WAL mode")
    meta: dict[str, Any] = dict(every(connection, "select key, value from meta"))
    version = connection.pragma("user_version")
    if meta["min_reader"] > VERSION:
        raise HarnessFault(
            "session_incompatible",
            f"The store {directory} is of version {version}; this build reads version {VERSION}. Use a newer build.",
            boundary="artifact_store",
            path=str(directory),
            storeVersion=version,
            supported=VERSION,
        )
    return Meta(meta["store_id"], meta["commits"]), meta["min_writer"] <= VERSION


def check_size(connection: apsw.Connection, directory: Path) -> None:
    """Refuse a database file that was cut off.

    Pages beyond the file's end are those that were added since the last checkpoint, so all of them stand in the
    WAL; the first one that does not was in the file once. SQLite itself reads it as zeros.

    Raises:
        HarnessFault: `store_unavailable`.
    """
    size = connection.pragma("page_size")
    there = (directory / "store.db").stat().st_size // size
    if there < connection.pragma("page_count") and not _in_wal(directory / "store.db-wal", there + 1, size):
        raise unavailable(directory, "store.db was cut off; keep a copy of the directory, restore a backup of it")


def _in_wal(path: Path, page: int, page_size: int) -> bool:
    """Whether the WAL holds a page (sqlite.org/fileformat2.html, 4: the WAL header and frame headers)."""
    with open(path, "rb", buffering=0) as wal:
        salts = wal.read(32)[16:24]
        while True:
            header = wal.read(24)
            if len(header) < 24 or header[8:16] != salts:
                return False
            if int.from_bytes(header[:4], "big") == page:
                return True
            wal.seek(page_size, 1)
