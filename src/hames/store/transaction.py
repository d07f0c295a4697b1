"""What happens to sessions within one transaction of the writer: commands decided step by step, leases, rows.

Rule 1: a command that is refused leaves no rows: everything that can refuse comes before the first write.
Rule 2: nothing here outlives a rollback: the writer takes over `changed` only after COMMIT.
Rule 3: a session that another process may have moved is looked at again; one used for the first time is proved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import apsw

from hames.core.commands import Command, CreateSession, KeyRecord, Known, named_key
from hames.core.state import Turn, state_to_json, turn_to_json
from hames.ports import Committed, Lease, Owner
from hames.protocol.chain import cursor
from hames.protocol.errors import Refused
from hames.store import rows
from hames.store.faults import Damage
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
from hames.store.schema import SEQ_BITS, SESSION_VERSION, one
from hames.store.snapshots import workspace_of


@dataclass(frozen=True, slots=True)
class Held:
    """A session as the writer knows it; sure as long as no other process commits (`epoch`)."""

    n: int
    head: Head
    state_digest: bytes
    fence: int
    owner: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What all transactions of a process share."""

    connection: apsw.Connection
    key: bytes
    owners: Owners
    damage: Damage


class Transaction:
    """One transaction, begun and ended by the writer. `now` is RFC 3339; `cache` is only read."""

    def __init__(self, scene: Scene, cache: Mapping[str, Held], *, epoch: int, now: str) -> None:
        self.changed: dict[str, Held] = {}
        self.appended: dict[str, int] = {}
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
            HarnessFault: `session_corrupt`.
        """
        self._scene.damage.refuse(session_id)
        held = self._session(session_id)
        head = held.head if held is not None else empty_head(session_id)
        step = advance(head, command, self._known(held, head, command), now=self._now)
        if step.reply.repeated:
            return self._repeated(session_id, step)
        if step.events:
            self._append(session_id, held, step, command)
        at = step.head.cursor
        return Committed(step.state, step.events, step.reply, at, at)

    def _session(self, session_id: str) -> Held | None:
        held = self.changed.get(session_id)
        if held is not None:
            return held
        held = self._cache.get(session_id)
        if held is not None and held.epoch == self._epoch:
            return held
        row = rows.find(self._connection, self._scene.key, session_id)
        if row is None:
            return None
        if held is not None and held.head.chain == row.chain and row.min_reader <= SESSION_VERSION:
            held = replace(held, fence=row.fence, owner=row.owner, epoch=self._epoch)
        else:
            head, _, turns = rows.load(self._connection, row, self._scene.key)
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

    def _new_session(self, session_id: str, command: Command) -> int:
        workspace = workspace_of(command.snapshot) if isinstance(command, CreateSession) else None
        (n,) = one(
            self._connection,
            "insert into session (id, head, chain, crc, state_digest, mac, fence, min_reader, workspace)"
            " values (?, 0, x'', 0, x'', x'', 0, ?, ?) returning n",
            (session_id, SESSION_VERSION, workspace),
        )
        return int(n)

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
        """Give every lease of this process back."""
        self._connection.execute("update session set owner = null where owner = ?", (self._owner_id,))
        self.dirty = self.dirty or self._connection.changes() > 0

    def touch(self) -> None:
        """Commit though nothing changed: to see that it works."""
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
            self._connection.executemany("insert or replace into state (n, doc) values (?, ?)", docs)
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
