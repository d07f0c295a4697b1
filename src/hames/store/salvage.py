"""What of a damaged session proves itself stays; its row, state, turns and keys are made anew from that.

Rule 1: a log is kept up to its first break and no further; no event is ever made up for one that is gone.
Rule 2: where events are gone, or may be, the log says so itself, by `log.recovered`: a client's later cursor is then
ahead of the log or foreign to it, never taken for a place in it.
Rule 3: all of it happens in the caller's transaction.
Rule 4: a session of which not even the first event proves itself can never be used again: it is in the backup alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import apsw

from hames.core.commands import CutLog
from hames.core.records import record
from hames.core.session import Event, key_record
from hames.core.state import State, Turn, state_to_json, turn_to_json
from hames.store import removal, rows
from hames.store.blobs import BlobFiles
from hames.store.faults import Damage
from hames.store.findings import Findings
from hames.store.owners import Owners, new_owner_id
from hames.store.schema import MOST_SESSIONS, SEQ_BITS, every, one, session_version
from hames.store.session_check import COLUMNS, MOST_FENCE, SessionCheck, SessionRow, references_of
from hames.store.snapshots import workspace_of
from hames.store.transaction import Scene, Transaction
from hames.store.walk import Amends, Trail, walk

AT_ONCE: Final = 500
"""Sessions whose logs are marked together: their states are in memory meanwhile."""


@record
class Salvaged:
    """A session that was damaged. `lost` events, None where nobody can tell; `amended` events whose row was not right;
    `left`: why nothing was done. `gone`: nothing of it proves itself, and nothing of it is left."""

    session_id: str
    last_good_seq: int
    lost: int | None
    reason: str
    left: str | None = None
    amended: int = 0
    gone: bool = False

    @property
    def is_cut(self) -> bool:
        """Events of it are gone, or may be."""
        return self.left is None and self.lost != 0


class Salvage:
    """Mends the sessions of one store over a connection that is in a transaction. `now` is RFC 3339."""

    def __init__(self, connection: apsw.Connection, key: bytes, directory: Path, *, epoch: int, now: str) -> None:
        self.is_of_key = False
        """The first event of some session was written by who has the key."""
        self._connection = connection
        self._key = key
        self._epoch = epoch
        self._now = now
        owners = Owners(directory, new_owner_id(), lease_ms=0, reaper=lambda: None)
        self._scene = Scene(connection, key, owners, Damage(), BlobFiles(directory))

    def sessions(self, session_id: str | None) -> Iterator[Salvaged]:
        """Mend every session that is damaged, or one; what became of each that is."""
        select = f"select n from session where not {removal.IS_DELETED} and (?1 is null or id = ?1)"
        for (n,) in every(self._connection, select, (session_id,)):
            row = one(self._connection, f"select {COLUMNS} from session where n = ?", (n,))
            salvaged = self._session(SessionRow(*row))
            if salvaged is not None:
                yield salvaged

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
        self.is_of_key = self.is_of_key or check.is_ours
        if not found.kinds:
            return None
        session_id, reason, seq = row.id, found.kept[0].kind, check.trail.seq
        if check.why_left is not None:
            return Salvaged(session_id, seq, check.lost, reason, check.why_left)
        if seq == 0:
            self._remove(row)
            return Salvaged(session_id, 0, check.lost or None, reason, gone=True)
        fence = row.fence if row.fence < MOST_FENCE else 0
        self._rewrite(row.n, check, fence=max(fence, check.fence_seen))
        return Salvaged(session_id, seq, check.lost, reason, amended=check.amended)

    def _remove(self, row: SessionRow) -> None:
        connection, n = self._connection, row.n
        if 0 < n <= MOST_SESSIONS:
            connection.execute("delete from event where id > ? and id < ?", (n << SEQ_BITS, (n + 1) << SEQ_BITS))
        connection.execute("delete from idem where scope = ? or (scope = 0 and session_id = ?)", (n, row.id))
        for table in ("turn where session", "blob_ref where session", "state where n", "session where n"):
            connection.execute(f"delete from {table} = ?", (n,))

    def _rewrite(self, n: int, check: SessionCheck, *, fence: int) -> None:
        connection, trail = self._connection, check.trail
        base = n << SEQ_BITS
        connection.execute("delete from event where id > ? and id <= ?", (base + trail.seq, (n + 1) << SEQ_BITS))
        rewriter = _Rewriter(connection, n, trail.session_id, trail.seq)
        walk(connection, n, Trail(trail.session_id, rewriter), Findings(), step=lambda: None)
        rewriter.finish()
        text = state_to_json(trail.state)
        digest = rows.digest_of(text)
        connection.execute(
            "insert into state (n, doc) values (?, ?) on conflict (n) do update set doc = excluded.doc",
            (n, text.decode()),
        )
        assert trail.created is not None
        mac = rows.seal(self._key, trail.session_id, trail.seq, trail.chain, crc=trail.crc, state_digest=digest)
        min_reader = session_version(refers=rewriter.refers, has_processes=rewriter.has_processes)
        connection.execute(
            "update session set head = ?, chain = ?, crc = ?, mac = ?, state_digest = ?, title = ?, workspace = ?,"
            " fence = ?, owner = null, min_reader = ? where n = ?",
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
        select = "select sha256, media_type, name from blob_ref where session = ?"
        self._named = {sha256: facts for sha256, *facts in every(connection, select, (n,))}
        connection.execute("delete from blob_ref where session = ? and seq <> 0", (n,))
        self._first_turn: str | None = None
        self.has_processes = False

    def amend(self, amends: Amends) -> None:
        """See `walk.Taker`."""
        row = amends.row
        self._connection.execute(
            "update event set digest = ?, crc = ?, line = ? where id = ?",
            (row.digest, row.crc, row.line.decode(), (self._n << SEQ_BITS) + row.seq),
        )

    def finish(self) -> None:
        """The log was walked to its end."""
        # A creation that brought a turn names it in its key's row, and the log does not tell whether it did.
        self._connection.execute(
            "update idem set turn_id = ?1 where scope = 0 and session_id = ?2 and turn_id is not ?1"
            " and turn_id is not null",
            (self._first_turn, self._session_id),
        )

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
        if event.type == "turn.queued" and state.count == 1:
            self._first_turn = event.turn_id
        self.has_processes = self.has_processes or event.type == "process.started"
        for reference in references_of(event):
            self.refers = True
            digest = bytes.fromhex(reference["sha256"])
            self._connection.execute(
                "insert into blob_ref (session, sha256, seq, media_type, name) values (?, ?, ?, ?, ?)"
                " on conflict (session, sha256) do update set seq = excluded.seq where seq = 0",
                (self._n, digest, event.seq, *self._named.get(digest, (None, None))),
            )

    def turn(self, turn: Turn) -> None:
        """See `walk.Taker`."""
        text = turn_to_json(turn)
        # An id that was used twice, by a store whose first row of it was lost, is that of the later turn.
        self._connection.execute(
            "update turn set turn_id = '/' || n where session = ? and turn_id = ?", (self._n, turn.turn_id)
        )
        self._connection.execute(
            "insert into turn (session, n, turn_id, status, crc, doc) values (?, ?, ?, ?, ?, ?)",
            (self._n, turn.n, turn.turn_id, turn.status, crc32(text), text.decode()),
        )
