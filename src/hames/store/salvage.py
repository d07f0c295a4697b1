"""What of a damaged session proves itself stays; its row, state, turns and keys are made anew from that.

Rule 1: a log is kept up to its first break and no further; no event is ever made up for one that is gone.
Rule 2: where events are gone, or may be, the log says so itself, by `log.recovered`: a client's later cursor is then
ahead of the log or foreign to it, never taken for a place in it.
Rule 3: all of it happens in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import apsw

from hames.core.artifacts import all_references
from hames.core.commands import CutLog
from hames.core.session import Event, key_record
from hames.core.state import State, Turn, state_to_json, turn_to_json
from hames.store import rows
from hames.store.blobs import BlobFiles
from hames.store.faults import Damage
from hames.store.findings import Findings
from hames.store.owners import Owners, new_owner_id
from hames.store.schema import PLAIN_SESSION_VERSION, SEQ_BITS, SESSION_VERSION, every, one
from hames.store.session_check import COLUMNS, SessionCheck, SessionRow
from hames.store.snapshots import workspace_of
from hames.store.transaction import Scene, Transaction
from hames.store.walk import Trail, said_by, walk

AT_ONCE: Final = 500
"""Sessions whose logs are marked together: their states are in memory meanwhile."""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """A session that was damaged. `lost` events, None where nobody can tell; `left`: why nothing was done."""

    session_id: str
    last_good_seq: int
    lost: int | None
    reason: str
    left: str | None = None

    @property
    def is_cut(self) -> bool:
        """Events of it are gone, or may be."""
        return self.left is None and self.lost != 0


class Salvage:
    """Mends the sessions of one store over a connection that is in a transaction. `now` is RFC 3339."""

    def __init__(self, connection: apsw.Connection, key: bytes, directory: Path, *, epoch: int, now: str) -> None:
        self._connection = connection
        self._key = key
        self._epoch = epoch
        self._now = now
        owners = Owners(directory, new_owner_id(), lease_ms=0, reaper=lambda: None)
        self._scene = Scene(connection, key, owners, Damage(), BlobFiles(directory))

    def sessions(self, session_id: str | None) -> Iterator[Salvaged]:
        """Mend every session that is damaged, or one; what became of each that is."""
        for (n,) in every(
            self._connection, "select n from session where id >= '0' and (?1 is null or id = ?1)", (session_id,)
        ):
            row = one(self._connection, f"select {COLUMNS} from session where n = ?", (n,))
            salvaged = self._session(SessionRow(*row))
            if salvaged is not None:
                yield salvaged

    def adopt(self) -> None:
        """Make rows for sessions whose events are there and whose row is not: an event tells whose it is."""
        at = 0
        while (found := one(self._connection, "select min(id) from event where id > ?", (at,))) != (None,):
            n = found[0] >> SEQ_BITS
            at = ((n + 1) << SEQ_BITS) - 1
            if one(self._connection, "select 1 from session where n = ?", (n,)) is not None:
                continue
            (line,) = one(self._connection, "select cast(line as blob) from event where id = ?", (found[0],))
            says = said_by(line)
            known = "select 1 from session where id = ?1 union select 1 from tombstone where session_id = ?1"
            if says is None or says[1] != 1 or one(self._connection, known, (says[0],)) is not None:
                continue
            self._connection.execute(
                "insert into session (n, id, head, chain, crc, state_digest, mac, fence, min_reader)"
                " values (?, ?, 0, x'', 0, x'', x'', 0, ?)",
                (n, says[0], PLAIN_SESSION_VERSION),
            )

    def drop_strays(self) -> int:
        """Remove rows that belong to no session, and that no session can be made of; how many."""
        before = self._connection.total_changes()
        known = "select n from session"
        keys = "session_id not in (select id from session) and session_id not in (select session_id from tombstone)"
        at = 0
        for (n,) in every(self._connection, "select n from session order by n"):
            self._connection.execute("delete from event where id > ? and id <= ?", (at, n << SEQ_BITS))
            at = (n + 1) << SEQ_BITS
        self._connection.execute("delete from event where id > ?", (at,))
        for statement in (
            f"turn where session not in ({known})",
            f"state where n not in ({known})",
            f"idem where {keys}",
        ):
            self._connection.execute(f"delete from {statement}")
        return self._connection.total_changes() - before

    def mark(self, cuts: list[tuple[str, dict[str, Any]]]) -> None:
        """Say in logs what was lost of them."""
        for start in range(0, len(cuts), AT_ONCE):
            transaction = Transaction(self._scene, {}, epoch=0, now=self._now)
            for session_id, cut in cuts[start : start + AT_ONCE]:
                transaction.commit(session_id, CutLog({**cut, "epoch": self._epoch}))
            transaction.flush()

    def _session(self, row: SessionRow) -> Salvaged | None:
        found = Findings()
        check = SessionCheck(self._connection, self._key, row, found)
        check.run()
        if not found.kinds:
            return None
        session_id, reason = row.id, found.kept[0].kind
        left = None
        if check.trail.seq == 0:
            left = "not even its first event proves itself"
        elif row.min_reader > SESSION_VERSION:
            left = "a newer build wrote it; repair it with that"
        elif not check.is_ours:
            left = "its snapshot was not written by this store"
        if left is not None:
            return Salvaged(session_id, check.trail.seq, check.lost, reason, left)
        self._rewrite(row.n, check, fence=max(row.fence, check.fence_seen))
        return Salvaged(session_id, check.trail.seq, check.lost, reason)

    def _rewrite(self, n: int, check: SessionCheck, *, fence: int) -> None:
        connection, trail = self._connection, check.trail
        base = n << SEQ_BITS
        connection.execute("delete from event where id > ? and id <= ?", (base + trail.seq, (n + 1) << SEQ_BITS))
        connection.execute("delete from blob_ref where session = ? and seq > ?", (n, trail.seq))
        rewriter = _Rewriter(connection, n, trail.session_id, trail.seq)
        walk(connection, n, Trail(trail.session_id, rewriter), Findings(), step=lambda: None)
        text = state_to_json(trail.state)
        digest = rows.digest_of(text)
        connection.execute(
            "insert into state (n, doc) values (?, ?) on conflict (n) do update set doc = excluded.doc",
            (n, text.decode()),
        )
        assert trail.created is not None
        mac = rows.seal(self._key, trail.session_id, trail.seq, trail.chain, crc=trail.crc, state_digest=digest)
        min_reader = SESSION_VERSION if rewriter.refers else PLAIN_SESSION_VERSION
        connection.execute(
            "update session set head = ?, chain = ?, crc = ?, mac = ?, state_digest = ?, title = ?, workspace = ?,"
            " fence = ?, owner = null, min_reader = max(min_reader, ?) where n = ?",
            (
                *(trail.seq, trail.chain, trail.crc, mac, digest, trail.state.title),
                *(workspace_of(trail.created["snapshot"]), fence, min_reader, n),
            ),
        )


class _Rewriter:
    """Writes the rows beside a log anew, as the log is walked."""

    def __init__(self, connection: apsw.Connection, n: int, session_id: str, last: int) -> None:
        self.refers = False
        self._connection = connection
        self._n = n
        self._session_id = session_id
        self._last = last
        mine = "from idem where scope = ? or (scope = 0 and session_id = ?)"
        select = f"select scope, key, seq, turn_id {mine}"
        self._keys = {row[:2]: row[2:] for row in every(connection, select, (n, session_id))}
        connection.execute(f"delete {mine}", (n, session_id))
        connection.execute("delete from turn where session = ?", (n,))

    def event(self, state: State, event: Event) -> None:
        """See `walk.Taker`."""
        key = key_record(state, event)
        if key is not None:
            scope = 0 if event.type == "session.created" else self._n
            seq, turn_id = self._keys.get((scope, key[0]), (event.seq, None))
            # The answer stands at the end of the step that used the key, which its old row alone tells.
            seq = seq if event.seq <= seq <= self._last else event.seq
            turn_id = turn_id if scope == 0 else key[1].turn_id
            self._connection.execute(
                "insert or replace into idem (scope, key, digest, session_id, seq, turn_id, steer_id)"
                " values (?, ?, ?, ?, ?, ?, ?)",
                (scope, key[0], key[1].digest, self._session_id, seq, turn_id, key[1].steer_id),
            )
        for reference in all_references(event.type, event.data):
            self.refers = True
            self._connection.execute(
                "insert or ignore into blob_ref (session, sha256, seq) select ?, sha256, ? from blob where sha256 = ?",
                (self._n, event.seq, bytes.fromhex(reference["sha256"])),
            )

    def turn(self, turn: Turn) -> None:
        """See `walk.Taker`."""
        text = turn_to_json(turn)
        self._connection.execute(
            "insert into turn (session, n, turn_id, status, crc, doc) values (?, ?, ?, ?, ?, ?)",
            (self._n, turn.n, turn.turn_id, turn.status, crc32(text), text.decode()),
        )
