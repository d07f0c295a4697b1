"""What happens to sessions within one transaction of the writer: commands decided step by step, leases, rows.

Rule 1: a command that is refused leaves no rows: everything that can refuse comes before the first write.
Rule 2: nothing here outlives a rollback: the writer takes over `changed` only after COMMIT.
Rule 3: a session that another process may have moved is looked at again; one used for the first time is proved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from zlib import crc32

import apsw

from hames.core.commands import CancelTurn, CloseSession, Command, CreateSession, EndTurn, KeyRecord, Known, named_key
from hames.core.records import record
from hames.core.state import Turn, state_to_json, turn_to_json
from hames.ports import Artifact, Committed, Lease, Owner
from hames.protocol.chain import cursor
from hames.protocol.errors import Refused
from hames.store import blob_rows, removal, rows
from hames.store.blobs import BlobFiles, FileSpool
from hames.store.faults import Damage, full
from hames.store.log import (
    DIGEST_BYTES,
    NOT_OWNED,
    Head,
    Step,
    advance,
    empty_head,
    known_turn,
    moved,
)
from hames.store.owners import Owners
from hames.store.schema import PLAIN_SESSION_VERSION, REFERRING_SESSION_VERSION, SEQ_BITS, SESSION_VERSION, one
from hames.store.snapshots import workspace_of

ENDING: Final = (EndTurn, CancelTurn, CloseSession)
"""Commands that are given the last room of a disk: they end what runs."""


@record
class Held:
    """A session as the writer knows it; sure as long as no other process commits (`epoch`)."""

    n: int
    head: Head
    state_digest: bytes
    fence: int
    owner: str | None
    epoch: int


@record
class Scene:
    """What all transactions of a process share."""

    connection: apsw.Connection
    key: bytes
    owners: Owners
    damage: Damage
    blobs: BlobFiles
    is_tight: bool = False
    """The disk is full, and what little room there is belongs to what ends a turn."""


class Transaction:
    """One transaction, begun and ended by the writer. `now` is RFC 3339; `cache` is only read."""

    def __init__(self, scene: Scene, cache: Mapping[str, Held], *, epoch: int, now: str) -> None:
        self.changed: dict[str, Held] = {}
        self.appended: dict[str, int] = {}
        self.removed: set[str] = set()
        self.lines: list[tuple[str, int, list[bytes]]] = []
        self.dirty = False
        self._scene = scene
        self._connection = scene.connection
        self._owner_id = scene.owners.owner_id
        self._cache = cache
        self._epoch = epoch
        self._now = now
        self._moved: set[str] = set()
        self._turns: dict[tuple[int, str], Turn] = {}
        self._events: list[tuple[int, bytes, int, str]] = []

    def commit(self, session_id: str, command: Command) -> Committed:
        """Decide `command` and append what follows.

        Raises:
            Refused: by `decide`, or because a newer build wrote the session.
            HarnessFault: `session_corrupt`, `store_full`.
        """
        self._scene.damage.refuse(session_id)
        held = self._session(session_id)
        head = held.head if held is not None else empty_head(session_id)
        step = advance(head, command, self._known(held, head, command), now=self._now)
        if step.reply.repeated:
            return self._repeated(session_id, step)
        if step.events:
            if not isinstance(command, ENDING):
                self._need_room()
            self._append(session_id, held, step, command)
        at = step.head.cursor
        contents = {content.artifact: content.data for _, content in step.contents.values()}
        return Committed(step.state, step.events, step.reply, at, at, contents)

    def _need_room(self) -> None:
        if self._scene.is_tight:
            raise full(self._scene.blobs.directory, reserve_used=True)

    def _session(self, session_id: str) -> Held | None:
        held = self.changed.get(session_id)
        if held is not None:
            return held
        held = self._cache.get(session_id)
        if held is not None and held.epoch == self._epoch and session_id not in self.removed:
            return held
        row = rows.find(self._connection, self._scene.key, session_id)
        if row is None:
            removal.refuse(self._connection, session_id)
            return None
        if held is not None and held.head.chain == row.chain and row.min_reader <= SESSION_VERSION:
            held = replace(held, fence=row.fence, owner=row.owner, epoch=self._epoch)
        else:
            head, _, turns = rows.load(self._connection, row, self._scene.key)
            if held is None and not turns:
                # Once: what this process writes itself it need not look at again.
                rows.prove_turns(self._connection, row.n, head.state.count, session_id=session_id)
            held = Held(row.n, head, row.state_digest, row.fence, row.owner, self._epoch)
            if turns:
                self._turns.update({(row.n, turn_id): turn for turn_id, turn in turns.items()})
                self._moved.add(session_id)
                self.dirty = True
        self.changed[session_id] = held
        return held

    def _known(self, held: Held | None, head: Head, command: Command) -> Known:
        key = named_key(command)
        record: KeyRecord | None = None
        if key is not None and (held is not None or key[0] == "store"):
            scope = 0 if key[0] == "store" or held is None else held.n
            record = rows.key_row(self._connection, scope, key[1])
            if record is not None and scope == 0:
                removal.refuse(self._connection, record.session_id)
        if held is None:
            return Known(None, record, NOT_OWNED)
        turn_id, turn = known_turn(command, head.state)
        if turn_id is not None:
            turn = self._turns.get((held.n, turn_id)) or rows.turn_row(
                self._connection, held.n, turn_id, session_id=head.state.session_id
            )
        return Known(turn, record, held.fence if held.owner == self._owner_id else NOT_OWNED)

    def _repeated(self, session_id: str, step: Step) -> Committed:
        original_id = step.reply.session_id or session_id
        held = self._session(original_id)
        if held is None:
            raise Refused("session_not_found", sessionId=original_id)
        seq = step.reply.seq or held.head.state.seq
        self._write_events()
        found = one(self._connection, "select digest from event where id = ?", ((held.n << SEQ_BITS) + seq,))
        if found is None:
            raise rows.not_proved(original_id, seq, "an idempotency key names an event that is not there")
        return Committed(held.head.state, (), step.reply, held.head.cursor, cursor(seq, found[0]))

    def _append(self, session_id: str, held: Held | None, step: Step, command: Command) -> None:
        self.dirty = True
        before = held.head.state if held is not None else None
        if held is None:
            held = Held(self._new_session(session_id, command), step.head, b"", 0, None, self._epoch)
        if step.contents or step.named:
            self._keep(held.n, step)
        if any(event.type == "process.started" for event in step.events):
            self._needs_build(held.n, SESSION_VERSION)
        base = held.n << SEQ_BITS
        self._events += [(base + row.seq, row.digest[:DIGEST_BYTES], row.crc, row.line.decode()) for row in step.rows]
        for used in step.keys:
            record = used.record
            self._connection.execute(
                "insert into idem (scope, key, digest, session_id, seq, turn_id, steer_id)"
                " values (?, ?, ?, ?, ?, ?, ?)",
                (
                    0 if used.in_store else held.n,
                    used.key,
                    record.digest,
                    record.session_id,
                    record.seq,
                    record.turn_id,
                    record.steer_id,
                ),
            )
        self._turns.update({(held.n, turn_id): turn for turn_id, turn in step.turns.items()})
        if before is None or moved(before, step.head.state):
            self._moved.add(session_id)
        self.changed[session_id] = Held(held.n, step.head, held.state_digest, held.fence, held.owner, held.epoch)
        self.appended[session_id] = step.head.state.seq
        self.lines.append((session_id, step.rows[0].seq, [row.line for row in step.rows]))

    def _keep(self, n: int, step: Step) -> None:
        blob_rows.keep(self._connection, self._scene.blobs, n, step.contents.values(), now=self._now)
        blob_rows.name(self._connection, n, step.named)
        self._needs_build(n, REFERRING_SESSION_VERSION)

    def _needs_build(self, n: int, version: int) -> None:
        self._connection.execute("update session set min_reader = ?1 where n = ?2 and min_reader < ?1", (version, n))

    def keep_spooled(self, session_id: str, spool: FileSpool, *, media_type: str, name: str) -> Artifact:
        """As `Store.keep`."""
        self._need_room()
        n = self._existing(session_id).n
        self.dirty = True
        return blob_rows.keep_spooled(
            self._connection, n, spool, seq=0, media_type=media_type, name=name, now=self._now
        )

    def begin_collecting(self, now_ms: int, every_ms: int) -> bool:
        """Whether so long has gone since the last collection of the store; if so, one begins now."""
        last = one(self._connection, "select value from meta where key = 'collected'")
        if last is not None and last[0] <= now_ms < last[0] + every_ms:
            return False
        if one(self._connection, "select 1 from blob limit 1") is None:
            return False
        self._connection.execute("insert or replace into meta values ('collected', ?)", (now_ms,))
        self.dirty = True
        return True

    def use(self, digest: bytes) -> None:
        """A content that no event refers to was used."""
        self.dirty = True
        blob_rows.used(self._connection, digest, now=self._now)

    def collect(self, before: str) -> int:
        """Remove some contents that nobody refers to, last used `before`; how many."""
        collected = blob_rows.collect(self._connection, self._scene.blobs, before=before)
        self.dirty = self.dirty or self._connection.changes() > 0
        return collected

    def sweep(self, folder: str, older_than_s: float) -> int:
        """Remove files of `blobs/<folder>` that were given up; how many."""
        return blob_rows.sweep(self._connection, self._scene.blobs, folder, older_than_s=older_than_s)

    def _new_session(self, session_id: str, command: Command) -> int:
        workspace = workspace_of(command.snapshot) if isinstance(command, CreateSession) else None
        (n,) = one(
            self._connection,
            "insert into session (id, head, chain, crc, state_digest, mac, fence, min_reader, workspace)"
            " values (?, 0, x'', 0, x'', x'', 0, ?, ?) returning n",
            (session_id, PLAIN_SESSION_VERSION, workspace),
        )
        return int(n)

    def delete(self, session_id: str, by: str | None) -> str | Owner:
        """As `Store.delete`. A session that does not prove itself can be deleted all the same."""
        at = removal.deleted_at(self._connection, session_id)
        if at is not None:
            return at
        row = one(self._connection, "select n, owner, min_reader from session where id = ?", (session_id,))
        if row is None:
            raise Refused("session_not_found", sessionId=session_id)
        n, owner, min_reader = row
        if min_reader > SESSION_VERSION:
            raise Refused("session_incompatible", sessionId=session_id, needs=min_reader, supported=SESSION_VERSION)
        holder = None if owner is None else self._scene.owners.look(owner)
        if holder is not None and holder.alive and not holder.mine:
            return holder
        self.dirty = True
        self._forget(session_id, n)
        removal.bury(self._connection, n, session_id, by=by, now=self._now)
        return self._now

    def _forget(self, session_id: str, n: int) -> None:
        """What earlier commands of this transaction would still write of a session is not written."""
        self.removed.add(session_id)
        self.changed.pop(session_id, None)
        self.appended.pop(session_id, None)
        self._moved.discard(session_id)
        self.lines = [entry for entry in self.lines if entry[0] != session_id]
        self._events = [row for row in self._events if row[0] >> SEQ_BITS != n]
        self._turns = {place: turn for place, turn in self._turns.items() if place[0] != n}

    def remove_some(self) -> bool:
        """Remove a little of what was deleted; whether there is more."""
        before = self._connection.total_changes()
        more = removal.remove_some(self._connection, self._scene.blobs)
        self.dirty = self.dirty or self._connection.total_changes() > before
        return more

    def claim(self, session_id: str, *, force: bool) -> Lease | Owner:
        """As `Store.claim`."""
        held = self._existing(session_id)
        if held.owner is not None:
            holder = self._scene.owners.look(held.owner)
            if holder.mine and not force:
                return Lease(session_id, held.fence)
            if holder.alive and not holder.mine and not (force and holder.stale):
                return holder
        self._lease(session_id, held, owner=self._owner_id, fence=held.fence + 1)
        return Lease(session_id, held.fence + 1)

    def release(self, session_id: str) -> None:
        """As `Store.release`."""
        held = self._existing(session_id)
        if held.owner == self._owner_id:
            self._lease(session_id, held, owner=None, fence=held.fence)

    def release_all(self) -> None:
        """As `Store.release_all`."""
        self._connection.execute("update session set owner = null where owner = ?", (self._owner_id,))
        self.dirty = self.dirty or self._connection.changes() > 0
        for session_id, held in {**self._cache, **self.changed}.items():
            if held.owner == self._owner_id:
                self.changed[session_id] = replace(held, owner=None)

    def touch(self) -> None:
        """Commit though nothing changed: to see that it works."""
        self._need_room()
        self.dirty = True

    def _existing(self, session_id: str) -> Held:
        held = self._session(session_id)
        if held is None:
            raise Refused("session_not_found", sessionId=session_id)
        return held

    def _lease(self, session_id: str, held: Held, *, owner: str | None, fence: int) -> None:
        self.dirty = True
        self._connection.execute("update session set owner = ?, fence = ? where n = ?", (owner, fence, held.n))
        self.changed[session_id] = replace(held, owner=owner, fence=fence)

    def flush(self) -> None:
        """Write the rows of events, sessions and turns as they stand after all commands."""
        self._write_events()
        if self._turns:
            self._connection.executemany(
                "insert into turn (session, n, turn_id, status, crc, doc) values (?, ?, ?, ?, ?, ?)"
                " on conflict (session, n) do update set status = excluded.status, crc = excluded.crc,"
                " doc = excluded.doc",
                [_turn_values(n, turn) for (n, _), turn in self._turns.items()],
            )
        if self._moved:
            docs = [self._seal_state(session_id) for session_id in self._moved]
            # Not `or replace`: it would empty columns that a newer build has added.
            self._connection.executemany(
                "insert into state (n, doc) values (?, ?) on conflict (n) do update set doc = excluded.doc", docs
            )
        self._connection.executemany(
            "update session set head = ?, chain = ?, crc = ?, mac = ?, state_digest = ?, title = ? where n = ?",
            [self._session_values(session_id) for session_id in self.appended.keys() | self._moved],
        )

    def _write_events(self) -> None:
        events, self._events = self._events, []
        self._connection.executemany("insert into event (id, digest, crc, line) values (?, ?, ?, ?)", events)

    def _seal_state(self, session_id: str) -> tuple[int, str]:
        held = self.changed[session_id]
        text = state_to_json(held.head.state)
        self.changed[session_id] = replace(held, state_digest=rows.digest_of(text))
        return held.n, text.decode()

    def _session_values(self, session_id: str) -> tuple[Any, ...]:
        held = self.changed[session_id]
        head, digest = held.head, held.state_digest
        seq = head.state.seq
        mac = rows.seal(self._scene.key, session_id, seq, head.chain, crc=head.crc, state_digest=digest)
        return seq, head.chain, head.crc, mac, digest, head.state.title, held.n


def _turn_values(n: int, turn: Turn) -> tuple[int, int, str, str, int, str]:
    text = turn_to_json(turn)
    return n, turn.n, turn.turn_id, turn.status, crc32(text), text.decode()
