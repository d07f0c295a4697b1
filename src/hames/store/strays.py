"""Rows that belong to nobody: no session they are of, no event that led to them. Told by a look, removed by a repair.

Rule 1: keys of the store whose session was deleted belong to its tombstone, and stay.
Rule 2: what is removed is in the backup. Only events are of any loss: the rest is made from the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import apsw
import orjson

from hames.store import removal
from hames.store.findings import Findings
from hames.store.log import event_in
from hames.store.schema import MOST_SESSIONS, SEQ_BITS, SESSION_VERSION, every, one
from hames.store.shape import MOST_EPOCHS

_LOWEST: Final = -(2**63)
"""Below every key of an event."""

_SESSIONS: Final = "select n from session"
DERIVED: Final = {
    "turns": f"turn where session not in ({_SESSIONS})",
    "states": f"state where n not in ({_SESSIONS})",
    "references": f"blob_ref where session not in ({_SESSIONS})",
}
KEYS: Final = (
    "idem where (session_id not in (select id from session) and session_id not in (select session_id from tombstone))"
    f" or (scope <> 0 and scope not in ({_SESSIONS}))"
)
BURIED: Final = "tombstone where session_id in (select id from session)"


def wrong_epochs(connection: apsw.Connection, epoch: int) -> str | None:
    """Why the rows of epochs are not those of a store in `epoch`, None where they are: one from the second on."""
    count, first, last = one(connection, "select count(*), min(n), max(n) from epoch")
    if (count, first, last) == ((epoch - 1, 2, epoch) if epoch > 1 else (0, None, None)):
        return None
    return f"the store is in epoch {epoch}, and {count} rows tell of {first} to {last}"


def epoch_by_rows(connection: apsw.Connection, told: int) -> int:
    """The store's epoch, by what it says and by its rows as far as they can be."""
    (last,) = one(connection, "select max(n) from epoch where n between 1 and ?", (MOST_EPOCHS,))
    return max(told, last or 1)


def notes(connection: apsw.Connection) -> list[str]:
    """What is no damage, but told: what is left of a deleted session still has its row."""
    (deleted,) = one(connection, f"select count(*) from session where {removal.IS_DELETED}")
    return [f"{deleted} deleted sessions are still being removed"] if deleted else []


def tell(connection: apsw.Connection, found: Findings) -> None:
    """Say what there is."""
    counts = {name: one(connection, f"select count(*) from {rows}")[0] for name, rows in DERIVED.items()}
    (keys,) = one(connection, f"select count(*) from {KEYS}")
    for name, count in {"events": _events(connection), **counts, "idempotency keys": keys}.items():
        found.part(name)
        if count:
            found.add("missing", f"the session of {count} of them is not there")
    found.part("idempotency keys")
    surplus = sum(1 for _ in surplus_keys(connection))
    if surplus:
        found.add("duplicated", f"{surplus} rows are of creations that no log tells of")
    found.part("deleted sessions")
    (count,) = one(connection, f"select count(*) from {BURIED}")
    if count:
        found.add("edited", f"{count} of them are there all the same")


def drop(connection: apsw.Connection) -> tuple[int, int]:
    """Remove them: how many events, and how many other rows."""
    before = connection.total_changes()
    end = _LOWEST
    for (n,) in every(connection, f"select n from session where n between 1 and {MOST_SESSIONS} order by n"):
        connection.execute("delete from event where id >= ? and id <= ?", (end, n << SEQ_BITS))
        end = (n + 1) << SEQ_BITS
    connection.execute("delete from event where id >= ?", (end,))
    removed = connection.total_changes() - before
    for key in list(surplus_keys(connection)):
        connection.execute("delete from idem where scope = 0 and key = ?", (key,))
    for rows in (*DERIVED.values(), KEYS, BURIED):
        connection.execute(f"delete from {rows}")
    return removed, connection.total_changes() - before - removed


def surplus_keys(connection: apsw.Connection) -> Iterator[str]:
    """Keys of the store that are told to have made a session whose first event tells of another key, or of none."""
    select = (
        "select i.key, cast(e.line as blob) from idem i join session s on s.id = i.session_id"
        f" left join event e on e.id = (s.n << {SEQ_BITS}) + 1 where i.scope = 0 and s.min_reader <= {SESSION_VERSION}"
    )
    for key, line in connection.execute(select):
        try:
            used = None if line is None else event_in(line)["data"].get("idempotencyKey")
        except (LookupError, ValueError, TypeError, AttributeError, orjson.JSONDecodeError):
            # The session itself is told of.
            continue
        if used != key:
            yield key


def _events(connection: apsw.Connection) -> int:
    """Between the sessions' ranges of numbers: a scan of all events would take as long as reading them."""
    count, end = 0, _LOWEST
    select = "select count(*) from event where id >= ? and id <= ?"
    for (n,) in connection.execute(f"select n from session where n between 1 and {MOST_SESSIONS} order by n"):
        count += one(connection, select, (end, n << SEQ_BITS))[0]
        end = (n + 1) << SEQ_BITS
    return int(count + one(connection, "select count(*) from event where id >= ?", (end,))[0])
