"""Events and rows of sessions that stand in another place than they tell of, put where they belong.

Rule 1: an event tells whose it is and which; it is moved to a place that is free, or whose own event belongs elsewhere.
One that stands in its place too is removed from the other.
Rule 2: a session is called what its first event tells, once that proves itself under this name and the store's key.
Rule 3: nothing is proved by being moved: that comes after.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import Any, Final

import apsw

from hames.store import removal, rows
from hames.store.schema import MOST_SESSIONS, PLAIN_SESSION_VERSION, SEQ_BITS, every, one
from hames.store.snapshots import matches
from hames.store.walk import Amends, Entry, Trail, said_by

HEAD_CHARS: Final = 400
"""Of a line, enough for what it says of itself."""

MOVED_MOST: Final = 100_000
"""Events put back; where more are astray, nothing is to be made of the table."""

_ASIDE: Final = -(2**62)
"""Keys below which events wait for their place."""

_SEQS: Final = (1 << SEQ_BITS) - 1


class _Deaf:
    """A `walk.Taker` that takes nothing."""

    def amend(self, amends: Amends) -> None: ...

    def event(self, *_: Any) -> None: ...

    def turn(self, *_: Any) -> None: ...


def settle(connection: apsw.Connection, key: bytes) -> int:
    """Put events and sessions in their places; how many were elsewhere."""
    # First the sessions: an event finds its place by them.
    return _settle_sessions(connection, key) + _settle_events(connection)


def _settle_events(connection: apsw.Connection) -> int:
    numbers = {session_id: n for n, session_id in every(connection, "select n, id from session")}
    astray: list[tuple[int, str, int]] = []
    select = f"select id, cast(substr(line, 1, {HEAD_CHARS}) as blob) from event order by id"
    for place, head in connection.execute(select):
        says = said_by(head)
        if says is None:
            continue
        n, seq = place >> SEQ_BITS, place & _SEQS
        if seq == says[1] == 1:
            numbers.setdefault(says[0], n)
        if seq != says[1] or numbers.get(says[0], n) != n:
            astray.append((place, *says))
            if len(astray) > MOVED_MOST:
                return 0
    for at, (place, _, _) in enumerate(astray):
        connection.execute("update event set id = ? where id = ?", (_ASIDE + at, place))
    moved = 0
    for at, (place, session_id, seq) in enumerate(astray):
        wanted = (numbers.get(session_id, place >> SEQ_BITS) << SEQ_BITS) + seq
        is_place = 0 < seq <= _SEQS and 0 < wanted >> SEQ_BITS <= MOST_SESSIONS
        if is_place and one(connection, "select 1 from event where id = ?", (wanted,)) is None:
            connection.execute("update event set id = ? where id = ?", (wanted, _ASIDE + at))
            moved += wanted != place
        elif is_place and _is_same(connection, wanted, _ASIDE + at):
            connection.execute("delete from event where id = ?", (_ASIDE + at,))
            moved += 1
        elif one(connection, "select 1 from event where id = ?", (place,)) is None:
            connection.execute("update event set id = ? where id = ?", (place, _ASIDE + at))
    return moved


def _is_same(connection: apsw.Connection, place: int, other: int) -> bool:
    select = "select 1 from event a join event b on a.line = b.line where a.id = ? and b.id = ?"
    return one(connection, select, (place, other)) is not None


def _settle_sessions(connection: apsw.Connection, key: bytes) -> int:
    """Give every log whose first event proves itself the row that is called so, or a blank one."""
    wanted: dict[int, str] = {}
    at = 0
    while (found := one(connection, "select min(id) from event where id > ?", (at,))) != (None,):
        n = found[0] >> SEQ_BITS
        at = ((n + 1) << SEQ_BITS) - 1
        session_id = _misnamed(connection, n, key)
        if session_id is not None:
            wanted[n] = session_id
    # Aside first: a name stands once, and so does a number.
    for n, session_id in wanted.items():
        connection.execute("update session set n = -1 - n where n >= 0 and (n = ? or id = ?)", (n, session_id))
    for n, session_id in wanted.items():
        if _is_sealed(connection, -1 - n, session_id, key):
            # Only its name is another's, which may have its own row in turn.
            connection.execute("update session set id = '!' || n where id = ?", (session_id,))
            connection.execute("update session set n = ?, id = ? where n = -1 - ?", (n, session_id, n))
    for n, session_id in wanted.items():
        connection.execute("update session set n = ? where id = ?", (n, session_id))
        if one(connection, "select 1 from session where n = ?", (n,)) is None:
            connection.execute("update session set n = ?, id = ? where n = -1 - ?", (n, session_id, n))
        if one(connection, "select 1 from session where n = ?", (n,)) is None:
            connection.execute(
                "insert into session (n, id, head, chain, crc, state_digest, mac, fence, min_reader)"
                " values (?, ?, 0, x'', 0, x'', x'', 0, ?)",
                (n, session_id, PLAIN_SESSION_VERSION),
            )
    connection.execute("delete from session where n < 0")
    return len(wanted)


def _is_sealed(connection: apsw.Connection, n: int, session_id: str, key: bytes) -> bool:
    """The row at `n` was written as that of this session, however it is called."""
    row = one(connection, "select head, chain, crc, state_digest, mac from session where n = ?", (n,))
    if row is None:
        return False
    head, chain, crc, state_digest, mac = row
    return compare_digest(mac, rows.seal(key, session_id, head, chain, crc=crc, state_digest=state_digest))


def _misnamed(connection: apsw.Connection, n: int, key: bytes) -> str | None:
    """What the session of the log `n` is called, if its row is not there or called otherwise."""
    row = one(connection, "select id from session where n = ?", (n,))
    session_id, is_ours = _name_by_log(connection, n, key)
    if session_id is None or (row is not None and (row[0] in (session_id, removal.name_of(n)) or not is_ours)):
        return None
    if one(connection, "select 1 from tombstone where session_id = ?", (session_id,)) is not None:
        return None
    there = one(connection, "select n from session where id = ?", (session_id,))
    # Two logs may tell that they are the same session: the one that has the row is.
    return None if there is not None and _says(connection, there[0]) == (session_id, 1) else session_id


def _says(connection: apsw.Connection, n: int) -> tuple[str, int] | None:
    line = _first(connection, n)
    return None if line is None else said_by(line)


def _first(connection: apsw.Connection, n: int) -> bytes | None:
    if not 0 < n <= MOST_SESSIONS:
        return None
    row = one(connection, "select cast(line as blob) from event where id = ?", ((n << SEQ_BITS) + 1,))
    return None if row is None else row[0]


def _name_by_log(connection: apsw.Connection, n: int, key: bytes) -> tuple[str | None, bool]:
    """What the first event of a log says that the session is called, if it proves itself under this name; and whether
    who has the key wrote it."""
    line, says = _first(connection, n), _says(connection, n)
    if line is None or says is None:
        return None, False
    trail = Trail(says[0], _Deaf())
    if trail.take(Entry(1, b"", 0, line)) is not None or trail.created is None:
        return None, False
    try:
        return says[0], matches(trail.created, trail.state, key)
    except (LookupError, TypeError, AttributeError):
        return None, False
