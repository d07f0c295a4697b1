"""Whether one session of a store is what was written to it: its log, its row, its state, its turns, its keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from hmac import compare_digest
from typing import Any, Final
from zlib import crc32

import apsw
import orjson

from hames.archive.findings import FindingKind
from hames.core.artifacts import KEEPING, all_references
from hames.core.commands import KeyRecord
from hames.core.records import record, replaced
from hames.core.session import Event, key_record
from hames.core.state import State, Turn, state_from_json, state_to_json, turn_from_json
from hames.store import blob_rows, rows
from hames.store.findings import Findings
from hames.store.schema import SESSION_VERSION, one, session_version
from hames.store.snapshots import matches, workspace_of
from hames.store.walk import Amends, Trail, walk

COLUMNS: Final = f"{rows.COLUMNS}, workspace, title"

MOST_FENCE: Final = 2**53
"""Times that a session was taken: beyond it the number was not counted, and JSON would not carry it."""

_OWNER: Final = re.compile("[0-9a-f]{16}")
"""See `owners.new_owner_id`."""


@record
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
        self.counts = {"events": 0, "turns": 0, "keys": 0}
        self._refers = 0
        self._has_processes = False
        self._made_turn: str | None = None
        self._first_turn: str | None = None
        self._amended = 0
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
        except (apsw.CorruptError, LookupError, TypeError, ValueError, AttributeError, OverflowError):
            # Values of a form that was never written.
            self._found.add("edited", "the tables are damaged there")
        if self.why_left is not None:
            self._found.leave()

    @property
    def why_left(self) -> str | None:
        """Why a repair leaves the session as it is, None where it does not."""
        if self.row.min_reader > SESSION_VERSION:
            return "a newer build wrote it; repair it with that"
        if self.trail.seq and self._key is not None and not self.is_ours:
            return "its snapshot was not written by this store"
        return None

    @property
    def amended(self) -> int:
        """Events whose text is whole and whose row is not."""
        return self._amended

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
        return 0 if self.trail.chain == self.row.chain or self._ends_at_seal else None

    @property
    def _ends_at_seal(self) -> bool:
        """The row's seal is that of the trail's end, whatever the other columns hold."""
        if self._key is None or not self.trail.seq:
            return False
        trail, doc = self.trail, one(self._connection, "select doc from state where n = ?", (self.row.n,))
        digests = [self.row.state_digest, rows.digest_of(state_to_json(trail.state))]
        digests += [] if doc is None else [rows.digest_of(doc[0].encode())]
        return any(
            compare_digest(
                self.row.mac,
                rows.seal(self._key, trail.session_id, trail.seq, trail.chain, crc=trail.crc, state_digest=digest),
            )
            for digest in digests
        )

    @property
    def is_ours(self) -> bool:
        """The session began in this store, by the key."""
        created, trail = self.trail.created, self.trail
        return created is not None and self._key is not None and matches(created, trail.state, self._key)

    def _count(self) -> None:
        self.counts["events"] += 1
        self._step()

    # --- what the log leads to --------------------------------------------------------------------------------

    def amend(self, amends: Amends) -> None:
        """See `walk.Taker`."""
        self._amended += 1

    def event(self, state: State, event: Event) -> None:
        """See `walk.Taker`."""
        at = f"event {event.seq}"
        if event.type == "turn.queued" and state.count == 1:
            self._first_turn = event.turn_id
        self._has_processes = self._has_processes or event.type == "process.started"
        if event.type == "turn.started":
            if event.data["fence"] < self.fence_seen:
                self._found.add("swapped", "an older attempt wrote behind a newer one", at=at)
            self.fence_seen = max(self.fence_seen, event.data["fence"])
        key = key_record(state, event)
        if key is not None:
            record = KeyRecord(key[1].digest, self.row.id, event.seq, key[1].turn_id, key[1].steer_id)
            self._look_at_key(event.type == "session.created", key[0], record)
        for sha256, size_bytes in {(each["sha256"], each["sizeBytes"]) for each in references_of(event)}:
            self._look_at_reference(bytes.fromhex(sha256), size_bytes, event.seq)

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
        elif (
            row[0] not in (turn.turn_id, rows.second_name(turn.n))
            or row[1] != turn.status
            or turn_from_json(orjson.loads(row[3])) != turn
        ):
            self._found.add("edited", "its row is not what the log leads to", at=at)

    def _look_at_key(self, in_store: bool, key: str, record: KeyRecord) -> None:
        self.counts["keys"] += not in_store
        found = rows.key_row(self._connection, 0 if in_store else self.row.n, key)
        at = f"idempotency key of event {record.seq}"
        if found is None:
            self._found.add("missing", "its row is not there", at=at)
            return
        # A creation that brings a turn names it; the answer stands where the whole step ends.
        turn_id = found.turn_id if in_store else record.turn_id
        self._made_turn = found.turn_id if in_store else self._made_turn
        same = found == KeyRecord(record.digest, self.row.id, found.seq, turn_id, record.steer_id)
        if not same or not record.seq <= found.seq <= self.row.head:
            self._found.add("edited", "its row is not what the log leads to", at=at)

    def _look_at_reference(self, sha256: bytes, size_bytes: int, seq: int) -> None:
        select = (
            "select r.seq, b.size_bytes from blob_ref r left join blob b using (sha256)"
            " where r.session = ? and r.sha256 = ?"
        )
        row = one(self._connection, select, (self.row.n, sha256))
        name, at = f"its artifact {sha256.hex()[:32]}", f"event {seq}"
        self._refers += row is not None and row[0] == seq
        if row is None or (row[1] is None and not blob_rows.is_lost(self._connection, sha256)):
            self._found.add("missing", f"{name} is not there", at=at)
            return
        if not 0 < row[0] <= seq:
            self._found.add("edited", f"{name} is told to be of event {row[0]}", at=at)
        elif row[1] not in (None, size_bytes):
            self._found.add("edited", f"{name} is of {row[1]} bytes", at=at)

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
        if not self.fence_seen <= row.fence < MOST_FENCE:
            found.add("edited", f"its row has the fence {row.fence}, its log {self.fence_seen}", at="head")
        if row.owner is not None and _OWNER.fullmatch(row.owner) is None:
            found.add("edited", "its row names an owner that no process is called", at="head")

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
        if self.row.min_reader < session_version(refers=self._refers > 0, has_processes=self._has_processes):
            self._found.add("edited", f"its row lets builds of version {self.row.min_reader} use it", at="head")
        if self._made_turn not in (None, self._first_turn):
            self._found.add("edited", "its row names another turn", at="idempotency key of event 1")
        for name, table, seen in (
            ("turns", "turn where session = ?", self.counts["turns"]),
            ("idempotency keys", "idem where scope = ?", self.counts["keys"]),
            ("artifacts", "blob_ref where session = ? and seq <> 0", self._refers),
        ):
            (count,) = one(self._connection, f"select count(*) from {table}", (self.row.n,))
            if count > seen:
                self._found.add("duplicated", f"{count} rows are there, the log leads to {seen}", at=name)


def references_of(event: Event) -> Iterator[Mapping[str, Any]]:
    """What the session refers to from this event on: contents of its own, and what was kept before it."""
    yield from all_references(event.type, event.data)
    if event.type in KEEPING and "artifact" in event.data:
        yield event.data["artifact"]


def _span(last: int, head: int) -> str:
    return f"event {head}" if last + 1 == head else f"events {last + 1} to {head}"
