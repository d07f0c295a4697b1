"""The removal of a session: at once for everybody who asks, then row by row for the disk.

Rule 1: the tombstone and the new name of the session's row are one commit: from then on the session is gone, whatever
happens to this process.
Rule 2: its rows go a little at a time, under the gate for some milliseconds, by whichever process has nothing else to
do; the session's own row goes last, so its number is not given to another session before nothing of it is left.
Rule 3: keys of the store that made the session stay: they answer `session_deleted` for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import apsw

from hames.protocol.errors import Refused
from hames.store.blobs import BlobFiles
from hames.store.schema import SEQ_BITS, every, one

STEP_NS: Final = 5_000_000
"""Of one transaction: others wait at the gate meanwhile."""

ROWS: Final = 64
"""Removed between two looks at the clock: at most some MiB."""

IS_DELETED: Final = "(id < '0' and id = '/' || n)"
"""Of a row of `session`: one that was deleted is called as `name_of` says. A name that is damaged is no reason
to remove anything."""

_REMAINS: Final = f"select n from session where {IS_DELETED} limit 1"


def name_of(n: int) -> str:
    """What the row of a deleted session is called: no id begins so."""
    return f"/{n}"


def deleted_at(connection: apsw.Connection, session_id: str) -> str | None:
    """When the session was deleted, None if it was not."""
    found = one(connection, "select deleted from tombstone where session_id = ?", (session_id,))
    return None if found is None else str(found[0])


def refuse(connection: apsw.Connection, session_id: str) -> None:
    """Go on only if the session was not deleted.

    Raises:
        Refused: `session_deleted`.
    """
    at = deleted_at(connection, session_id)
    if at is not None:
        raise deleted(session_id, at)


def deleted(session_id: str, at: str) -> Refused:
    """`session_deleted`, and since when."""
    return Refused("session_deleted", sessionId=session_id, deletedAt=at)


def bury(connection: apsw.Connection, n: int, session_id: str, *, by: str | None, now: str) -> None:
    """Make the session that has the number `n` gone."""
    connection.execute("insert into tombstone (session_id, deleted, by) values (?, ?, ?)", (session_id, now, by))
    connection.execute(
        "update session set id = '/' || n, owner = null, workspace = null, title = null where n = ?", (n,)
    )


def remove_some(connection: apsw.Connection, files: BlobFiles) -> bool:
    """Remove rows of a session that was deleted, for about `STEP_NS`; whether there is more to remove."""
    found = one(connection, _REMAINS)
    if found is None:
        return False
    n: int = found[0]
    # What is removed is zeroed, not only unlinked: else it could be read out of the file and of its backups.
    connection.pragma("secure_delete", True)
    try:
        until_ns = time.monotonic_ns() + STEP_NS
        # Contents first: their files are what makes room on a full disk.
        for remove in (lambda connection, n: _contents(connection, files, n), _events, _turns, _keys):
            if not _until(remove, connection, n, until_ns):
                return True
        connection.execute("delete from state where n = ?", (n,))
        connection.execute("delete from session where n = ?", (n,))
    finally:
        connection.pragma("secure_delete", False)
    return one(connection, _REMAINS) is not None


def _until(remove: Callable[[apsw.Connection, int], bool], connection: apsw.Connection, n: int, until_ns: int) -> bool:
    """Remove until there is no more; False when it took too long."""
    while remove(connection, n):
        if time.monotonic_ns() >= until_ns:
            return False
    return True


def _events(connection: apsw.Connection, n: int) -> bool:
    connection.execute(
        "delete from event where id in (select id from event where id > ? and id <= ? order by id limit ?)",
        (n << SEQ_BITS, (n + 1) << SEQ_BITS, ROWS),
    )
    return connection.changes() > 0


def _turns(connection: apsw.Connection, n: int) -> bool:
    connection.execute(
        "delete from turn where session = ?1 and n in (select n from turn where session = ?1 order by n limit ?2)",
        (n, ROWS),
    )
    return connection.changes() > 0


def _keys(connection: apsw.Connection, n: int) -> bool:
    connection.execute(
        "delete from idem where scope = ?1 and key in (select key from idem where scope = ?1 order by key limit ?2)",
        (n, ROWS),
    )
    return connection.changes() > 0


def _contents(connection: apsw.Connection, files: BlobFiles, n: int) -> bool:
    """Take back the session's references; contents that no other session refers to go, their files before the commit:
    nobody refers to them, and who needs one writes it anew."""
    digests = every(connection, "select sha256 from blob_ref where session = ? limit ?", (n, ROWS))
    for (digest,) in digests:
        connection.execute("delete from blob_ref where session = ? and sha256 = ?", (n, digest))
        if one(connection, "select 1 from blob_ref where sha256 = ? limit 1", (digest,)) is None:
            row = one(connection, "delete from blob where sha256 = ? returning data is null", (digest,))
            if row is not None and row[0]:
                files.remove(digest)
    return bool(digests)
