"""Whether one session of a store is what was written to it: its log, its row, its state, its turns, its keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final
from zlib import crc32

import apsw
import orjson

from hames.archive.findings import FindingKind
from hames.core.artifacts import all_references
from hames.core.commands import KeyRecord
from hames.core.records import replaced
from hames.core.session import Event, key_record
from hames.core.state import State, Turn, state_from_json, turn_from_json
from hames.store import rows
from hames.store.findings import Findings
from hames.store.schema import SESSION_VERSION, one
from hames.store.snapshots import matches, workspace_of
from hames.store.walk import Trail, walk

COLUMNS: Final = f"{rows.COLUMNS}, workspace, title"


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session's row of `COLUMNS`, not proved."""

    n: int
    id: str
    head: int
    chain: bytes
    crc: int
    state_digest: bytes
    mac: bytes
    fence: int
    owner: str | None
    min_reader: int
    workspace: str | None
    title: str | None


class SessionCheck:
    """One session. `counts`: what there was to look at."""

    def __init__(
        self,
        connection: apsw.Connection,
        key: bytes | None,
        row: SessionRow,
        found: Findings,
        *,
        step: Callable[[], object] = lambda: None,
    ) -> None:
        self._connection = connection
        self._key = key
        self._found = found
        self._step = step
        self.row = row
        self.fence_seen = 0
        self.last = 0
        self.counts = {"events": 0, "turns": 0, "keys": 0, "storeKeys": 0}
        self.trail = Trail(self.row.id, self, folds=self.row.min_reader <= SESSION_VERSION)

    @property
    def is_whole(self) -> bool:
        """Every event up to the head proves itself."""
        return self.trail.seq == self.row.head and self.trail.chain == self.row.chain and self.trail.crc == self.row.crc

    def run(self) -> None:
        """Look at all of it, and say what is wrong."""
        self._found.part(f"session {self.row.id}")
        try:
            self._look()
        except (apsw.CorruptError, LookupError, TypeError, ValueError, AttributeError):
            # Values of a form that was never written.
            self._found.add("edited", "the tables are damaged there")

    def _look(self) -> None:
        row = self.row
        self.last = walk(self._connection, row.n, self.trail, self._found, step=self._count, head=row.head)
        self._look_at_head(self.last)
        if self.trail.seq:
            self._look_at_creation()
        if self.is_whole and self.row.min_reader <= SESSION_VERSION:
            self._look_at_state()
            self._look_at_rest()

    @property
    def is_sealed(self) -> bool:
        """Who has the store's key wrote the session's row, or nobody can tell."""
        if self._key is None:
            return True
        row = self.row
        mac = rows.seal(self._key, row.id, row.head, row.chain, crc=row.crc, state_digest=row.state_digest)
        return compare_digest(row.mac, mac)

    @property
    def lost(self) -> int | None:
        """How many events are gone behind the trail; None where nothing that is there tells."""
        if self.is_sealed:
            return max(self.row.head - self.trail.seq, 0)
        return 0 if self.trail.chain == self.row.chain else None

    @property
    def is_ours(self) -> bool:
        """The session began in this store, by the key."""
        created, trail = self.trail.created, self.trail
        return created is not None and self._key is not None and matches(created, trail.state, self._key)

    def _count(self) -> None:
        self.counts["events"] += 1
        self._step()

    # --- what the log leads to --------------------------------------------------------------------------------

    def event(self, state: State, event: Event) -> None:
        """See `walk.Taker`."""
        at = f"event {event.seq}"
        if event.type == "turn.started":
            if event.data["fence"] < self.fence_seen:
                self._found.add("swapped", "an older attempt wrote behind a newer one", at=at)
            self.fence_seen = max(self.fence_seen, event.data["fence"])
        key = key_record(state, event)
        if key is not None:
            record = KeyRecord(key[1].digest, self.row.id, event.seq, key[1].turn_id, key[1].steer_id)
            self._look_at_key(event.type == "session.created", key[0], record)
        for reference in all_references(event.type, event.data):
            self._look_at_reference(bytes.fromhex(reference["sha256"]), reference["sizeBytes"], at)

    def turn(self, turn: Turn) -> None:
        """See `walk.Taker`."""
        self.counts["turns"] += 1
        at = f"turn {turn.turn_id}"
        select = "select turn_id, status, crc, doc from turn where session = ? and n = ?"
        row = one(self._connection, select, (self.row.n, turn.n))
        if row is None:
            self._found.add("missing", "its row is not there", at=at)
        elif crc32(row[3].encode()) != row[2]:
            self._found.add("edited", "its row does not match its checksum", at=at)
        elif row[:2] != (turn.turn_id, turn.status) or turn_from_json(orjson.loads(row[3])) != turn:
            self._found.add("edited", "its row is not what the log leads to", at=at)

    def _look_at_key(self, in_store: bool, key: str, record: KeyRecord) -> None:
        self.counts["storeKeys" if in_store else "keys"] += 1
        found = rows.key_row(self._connection, 0 if in_store else self.row.n, key)
        at = f"idempotency key of event {record.seq}"
        if found is None:
            self._found.add("missing", "its row is not there", at=at)
            return
        # A creation that brings a turn names it; the answer stands where the whole step ends.
        turn_id = found.turn_id if in_store else record.turn_id
        same = found == KeyRecord(record.digest, self.row.id, found.seq, turn_id, record.steer_id)
        if not same or not record.seq <= found.seq <= self.row.head:
            self._found.add("edited", "its row is not what the log leads to", at=at)

    def _look_at_reference(self, sha256: bytes, size_bytes: int, at: str) -> None:
        select = "select size_bytes from blob_ref join blob using (sha256) where session = ? and blob_ref.sha256 = ?"
        row = one(self._connection, select, (self.row.n, sha256))
        if row is None:
            self._found.add("missing", f"its artifact {sha256.hex()[:32]} is not there", at=at)
        elif row[0] != size_bytes:
            self._found.add("edited", f"its artifact {sha256.hex()[:32]} is of {row[0]} bytes", at=at)

    # --- what stands beside the log ---------------------------------------------------------------------------

    def _look_at_head(self, last: int) -> None:
        found, trail, row, sealed = self._found, self.trail, self.row, self.is_sealed
        if not sealed:
            found.add("edited", "its row does not match its seal", at="head")
        if last < row.head:
            found.add("torn", "are not there" if last + 1 < row.head else "is not there", at=_span(last, row.head))
        elif last > row.head:
            kind: FindingKind = "swapped" if sealed and trail.seq > row.head else "duplicated"
            found.add(kind, f"its row tells of {row.head} events, {last} are there", at="head")
        elif trail.seq == last and not self.is_whole and sealed:
            found.add("edited", "the log does not lead to what its row tells", at="head")
        if row.fence < self.fence_seen:
            found.add("edited", "its row has an older fence than its log", at="head")

    def _look_at_creation(self) -> None:
        created = self.trail.created
        if created is None or self._key is None:
            return
        if not self.is_ours:
            self._found.add("edited", "its snapshot was not written by this store", at="event 1")
        if workspace_of(created["snapshot"]) != self.row.workspace:
            self._found.add("edited", "its row names another workspace", at="head")

    def _look_at_state(self) -> None:
        found = self._found
        row = one(self._connection, "select doc from state where n = ?", (self.row.n,))
        if row is None:
            found.add("missing", "is not there", at="state")
            return
        if rows.digest_of(row[0].encode()) != self.row.state_digest:
            found.add("edited", "does not match its seal", at="state")
            return
        state = state_from_json(orjson.loads(row[0]))
        # Of another version of the fold: it is folded anew when the session is used.
        if state is not None and replaced(state, seq=self.row.head) != self.trail.state:
            found.add("edited", "is not what the log leads to", at="state")
        if self.row.title != self.trail.state.title:
            found.add("edited", "its row has another title", at="head")

    def _look_at_rest(self) -> None:
        for name, table, seen in (
            ("turns", "turn where session = ?", self.counts["turns"]),
            ("idempotency keys", "idem where scope = ?", self.counts["keys"]),
        ):
            (count,) = one(self._connection, f"select count(*) from {table}", (self.row.n,))
            if count > seen:
                self._found.add("duplicated", f"{count} rows are there, the log leads to {seen}", at=name)


def _span(last: int, head: int) -> str:
    return f"event {head}" if last + 1 == head else f"events {last + 1} to {head}"
