"""The database: its tables, how a connection to it is set up, and whether this build may use it.

Rule 1: every connection has `NO_CKPT_ON_CLOSE`: the last to close would unlink the WAL, and a process whose locks
were dropped by a stray `close` (POSIX) would go on committing into the unlinked file.
Rule 2: no checkpoint but the writer's own; no `immutable`, no `mmap_size`, no shared cache.
Rule 3: what a newer build wrote is never written to.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from hames.core.records import record
from hames.protocol.errors import HarnessFault
from hames.store.faults import unavailable

APPLICATION_ID: Final = 0x48616D73
"""`Hams` in the file's header: `file` and we can tell whose database it is."""

VERSION: Final = 2
"""Of the tables. A store says which versions may read and which may write it (`min_reader`, `min_writer`)."""

MIN_READER: Final = 1
"""Lines are stored as before. A session whose lines hold references has a `min_reader` of its own."""

MIN_WRITER: Final = 2
"""An older build would neither keep account of blobs nor leave the keys of deleted sessions alone."""

SESSION_VERSION: Final = 3
"""Raised with an event type that moves the lifecycle, or what stands in one: an older build serves such a session's
bytes, no more. 2: texts may be references. 3: background processes, which an older build would forget."""

REFERRING_SESSION_VERSION: Final = 2
"""Of a session whose lines hold references and tell of no process."""

PLAIN_SESSION_VERSION: Final = 1
"""Of a session whose lines hold neither: every build can fold it."""


def session_version(*, refers: bool, has_processes: bool) -> int:
    """Of a session whose lines hold references, and tell of background processes, or not."""
    if has_processes:
        return SESSION_VERSION
    return REFERRING_SESSION_VERSION if refers else PLAIN_SESSION_VERSION


SEQ_BITS: Final = 40
"""An event's key is `session << 40 | seq`: one b-tree, clustered by session, 10^12 events in each of 8 million."""

MOST_SESSIONS: Final = 2 ** (63 - SEQ_BITS) - 1
"""The largest number of a session."""

MIN_SQLITE: Final = (3, 51, 3)
"""This version ends a race of two processes that resets the WAL under a writer (sqlite.org/wal.html)."""

UNFIT_OPTIONS: Final = frozenset({"OMIT_WAL", "THREADSAFE=0", "DISABLE_DIRSYNC", "NO_SYNC"})
"""Without WAL there is no store; two threads use it; what is not synced is not durable."""

PAGE_BYTES: Final = 4096
"""Of a database that is made here."""

CHECKPOINT_PAGES: Final = 256
"""1 MiB of WAL, once nothing is written for a moment: what was written stands in the database soon, and the file that
is written over and over stays small."""

TABLES: Final[Mapping[int, str]] = {
    1: """
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
""",
    2: """
create table blob (
  n integer primary key, sha256 blob not null unique, size_bytes integer not null, created text not null, data blob
) strict;
create table blob_ref (
  session integer not null, sha256 blob not null, seq integer not null, media_type text, name text,
  primary key (session, sha256)
) strict, without rowid;
create index blob_use on blob_ref (sha256);
create table tombstone (session_id text primary key, deleted text not null, by text) strict, without rowid;
create table epoch (n integer primary key, started text not null, reason text not null) strict;
create index session_workspace on session (workspace);
create index session_owner on session (owner) where owner is not null;
create index turn_failed on turn (session, status, n) where status in ('failed', 'cancelled');
""",
}
"""By the version that added them; all are additions, so a new store has them all and an older one gets what it lacks.

1: A session's state stands apart: most events change the small row only. `idem.scope` is a session's number, 0 for
the store. A turn's `crc` is of its `doc`.
2: `blob.data` is null where the content is a file. `blob_ref.seq` is the first event of the session that names it. The
`idem` rows of a deleted session stay, so its keys answer for ever. A row of `epoch` tells of a restored or salvaged
store; `meta` holds the number that is in force, 1 without a row. The indexes are of what most commits do not change;
turns that wait or run stand in the session's state."""

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

_VERSIONS_AT: Final = 18
_VERSIONS: Final = b"\2\2"
"""Of who may write and who may read (sqlite.org/fileformat2.html, 1.3.3)."""

_FACTS: Final = (("store_id", str), ("commits", int), ("min_reader", int), ("min_writer", int))
"""In `meta` of every version."""

WRITE_CACHE_KIB: Final = 16_000
READ_CACHE_KIB: Final = 2_000
"""Pages SQLite keeps. A long read passes through them once, faster where they fit the processor's cache; what is read
again and again is in the system's."""


@record
class Meta:
    """A store's identity, its count of commits, the version of its tables, and how often it was restored, from 1."""

    store_id: str
    commits: int
    version: int = VERSION
    epoch: int = 1


def one(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Any:
    """The first row of a query as a tuple, None without one; the statement is over.

    Raises:
        apsw.CorruptError: the database is damaged, or a text in it is no text.
    """
    found = every(connection, sql, values)
    return found[0] if found else None


def every(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """All rows of a query, as tuples.

    Raises:
        apsw.CorruptError: as `one`.
    """
    try:
        return connection.execute(sql, values).fetchall()
    except UnicodeDecodeError as error:
        raise apsw.CorruptError("a text is not UTF-8") from error


def why_not(version: str, options: Sequence[str]) -> str | None:
    """Why a SQLite of this version, compiled with these options, is not used; None when it is."""
    if tuple(int(part) for part in version.split(".")[:3]) < MIN_SQLITE:
        return f"SQLite {version} is older than {'.'.join(map(str, MIN_SQLITE))}; update apsw"
    unfit = sorted(UNFIT_OPTIONS.intersection(options))
    return f"its SQLite was compiled with {', '.join(unfit)}; install apsw from PyPI" if unfit else None


def library() -> str:
    """Which SQLite is used, for people: one that is not apsw's own is told as such."""
    return apsw.sqlite_lib_version() + ("" if apsw.using_amalgamation else " (the system's, not the one apsw brings)")


def connect(directory: Path, *, write: bool, busy_ms: int, alone: bool = False) -> apsw.Connection:
    """A connection with our settings; made for one thread. Does not touch the file yet, save a new one.

    `alone`: its first access fails while anybody else has the database open; later nobody else can open it.
    """
    why = why_not(apsw.sqlite_lib_version(), apsw.compile_options)
    if why is not None:
        raise unavailable(directory, why, retryable=False)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if write else apsw.SQLITE_OPEN_READONLY
    connection = apsw.Connection(str(directory / "store.db"), flags=flags)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.set_busy_timeout(busy_ms)
        if alone:
            # Before the WAL is opened: its index is then kept in memory and not shared (sqlite.org/wal.html, 7).
            connection.execute("pragma locking_mode=exclusive").fetchall()
        for pragma in (*_PRAGMAS, f"cache_size={-(WRITE_CACHE_KIB if write else READ_CACHE_KIB)}"):
            connection.execute(f"pragma {pragma}").fetchall()
        if not write:
            connection.execute("pragma query_only=on")
    except BaseException:
        # What an error keeps alive would keep its locks.
        connection.close()
        raise
    return connection


def is_new(connection: apsw.Connection) -> bool:
    """Nothing was ever written to it, or its making was cut short."""
    return not connection.pragma("application_id") and not connection.execute("select 1 from sqlite_schema").fetchall()


def create(connection: apsw.Connection, directory: Path) -> None:
    """Make the tables; called with the gate held, on a file that `is_new`."""
    connection.pragma("page_size", PAGE_BYTES)
    if connection.pragma("journal_mode", "wal") != "wal":
        why = "its file system does not support SQLite's WAL; use a local one"
        raise unavailable(directory, why, retryable=False)
    with connection:
        for tables in TABLES.values():
            connection.execute(tables)
        rows = (
            ("store_id", secrets.token_hex(16)),
            ("commits", 0),
            ("min_reader", MIN_READER),
            ("min_writer", MIN_WRITER),
            ("epoch", 1),
        )
        connection.executemany("insert into meta values (?, ?)", rows)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", VERSION)


def inspect(connection: apsw.Connection, directory: Path) -> tuple[Meta, bool]:
    """Whose store this is, and whether this build may write to it.

    Raises:
        HarnessFault: not a store, or one that this build cannot even read.
        apsw.CorruptError: it does not say.
    """
    if connection.pragma("application_id") != APPLICATION_ID:
        raise unavailable(directory, "store.db was not made by Hames", retryable=False)
    if connection.pragma("journal_mode") != "wal":
        raise unavailable(directory, "another program took store.db out of WAL mode", retryable=False)
    meta: dict[str, Any] = dict(every(connection, "select key, value from meta"))
    version = connection.pragma("user_version")
    if not all(isinstance(meta.get(name), kind) for name, kind in _FACTS):
        raise apsw.CorruptError("the table `meta` is damaged")
    if meta["min_reader"] > VERSION:
        raise incompatible(directory, version, "read")
    found = Meta(meta["store_id"], meta["commits"], version, meta.get("epoch", 1))
    return found, meta["min_writer"] <= VERSION


def incompatible(directory: Path, version: int, verb: str) -> HarnessFault:
    """`session_incompatible` of a whole store: this build may not `verb` it."""
    why = f"it is of version {version}, and a build of version {VERSION} may not {verb} it"
    return HarnessFault(
        "session_incompatible",
        f"The store {directory} cannot be used: {why}. Use a build at least as new as the one that wrote it.",
        boundary="artifact_store",
        path=str(directory),
        why=why,
        storeVersion=version,
        supported=VERSION,
    )


def check_size(connection: apsw.Connection, directory: Path) -> None:
    """Refuse a database file that was cut off.

    Pages beyond the file's end are those that were added since the last checkpoint, so all of them stand in the
    WAL; the first one that does not was in the file once. SQLite itself reads it as zeros.

    Raises:
        HarnessFault: `store_unavailable`.
    """
    size = connection.pragma("page_size")
    there = (directory / "store.db").stat().st_size // size
    if there < connection.pragma("page_count") and not in_wal(directory / "store.db-wal", there + 1, size):
        why = "store.db was cut off; restore a backup of the directory, or run `hames repair`"
        raise unavailable(directory, why, retryable=False)


def is_of_other_format(directory: Path, descriptor: int) -> bool:
    """Whether the database's header, by SQLite's own descriptor, tells of other versions of its format than a WAL has:
    nobody could write to it. A header that stands in the WAL too counts there."""
    is_read = not in_wal(directory / "store.db-wal", 1, PAGE_BYTES)
    return is_read and os.pread(descriptor, 2, _VERSIONS_AT) != _VERSIONS


def in_wal(path: Path, page: int, page_size: int) -> bool:
    """Whether the WAL, if there is one, holds a page (sqlite.org/fileformat2.html, 4: its header and its frames')."""
    if not path.exists():
        return False
    with open(path, "rb", buffering=0) as wal:
        salts = wal.read(32)[16:24]
        while True:
            header = wal.read(24)
            if len(header) < 24 or header[8:16] != salts:
                return False
            if int.from_bytes(header[:4], "big") == page:
                return True
            wal.seek(page_size, 1)
