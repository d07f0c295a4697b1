"""A store in memory with the semantics of the real one: for tests, and for sessions that need not outlive the process.

Rule 1: it passes the same contract tests as `SqliteStore`; what it answers, the other answers.
Rule 2: a command is decided when it is given, so `commit` order is the log's order; there is nothing to wait for.
Several `MemoryStore` on one `MemoryDisk` are several processes on one store.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from anyio.lowlevel import checkpoint

from hames.core.commands import Command, KeyRecord, Known, named_key
from hames.core.limits import DEFAULTS
from hames.core.state import State, Turn
from hames.core.times import rfc3339
from hames.ports import COLLECT_GRACE_MS, Artifact, Committed, Lease, Loaded, Owner, Page, Pending, ReaperRecord, Spool
from hames.protocol.chain import check_cursor, cursor, first_digest, parse_cursor
from hames.protocol.errors import HarnessFault, Refused
from hames.store.hub import Hub
from hames.store.log import DIGEST_BYTES, NOT_OWNED, Head, advance, empty_head, event_in, known_turn
from hames.store.memory_blobs import MemorySpool, find, name, page
from hames.store.memory_disk import MemoryDisk, MemorySession
from hames.store.pages import Bounds, Sizes, read_backward, read_forward
from hames.store.snapshots import keyed_digest, matches, workspace_of
from hames.store.ticket import Ticket


class MemoryStore:
    """`ports.Store` on a `MemoryDisk`."""

    def __init__(
        self,
        disk: MemoryDisk | None = None,
        *,
        limits: Mapping[str, int] = DEFAULTS,
        reaper: Callable[[], ReaperRecord | None] = lambda: None,
    ) -> None:
        self.owner_id = secrets.token_hex(8)
        self._disk = disk if disk is not None else MemoryDisk()
        self._lease_ms = limits["leaseMs"]
        self._reaper = reaper
        self._hub = Hub()
        self._open = False
        self._was_closed = False
        self._since_ms = 0
        self._beat_ns = 0

    async def open(self) -> None:
        await checkpoint()
        if not self._open:
            self._open, self._was_closed = True, False
            self._since_ms = _now_ms()
            self._disk.stores[self.owner_id] = self
            self.beat()

    async def aclose(self) -> None:
        await checkpoint()
        self.die()
        for session in self._disk.sessions.values():
            if session.owner == self.owner_id:
                session.owner = None

    def die(self) -> None:
        """Be gone without a word, as a killed process is: leases stay where they are."""
        self._was_closed = self._was_closed or self._open
        self._open = False
        self._disk.stores.pop(self.owner_id, None)
        self._hub.end()

    # --- writing ------------------------------------------------------------------------------------------

    def commit(self, session_id: str, command: Command) -> Pending:
        ticket: Ticket[Committed] = Ticket()
        try:
            self._check_open()
            ticket.settle(self._commit(session_id, command))
        except (Refused, HarnessFault) as error:
            ticket.settle(error)
        return ticket

    def _commit(self, session_id: str, command: Command) -> Committed:
        session = self._disk.sessions.get(session_id)
        if session is None:
            self._disk.refuse_deleted(session_id)
        head = session.head if session is not None else empty_head(session_id)
        step = advance(head, command, self._known(session, head, command), now=rfc3339(_now_ms()))
        if step.reply.repeated:
            original = self._disk.sessions[step.reply.session_id or session_id]
            seq = step.reply.seq or original.head_seq
            reply_cursor = cursor(seq, original.digest(seq) or b"")
            return Committed(original.head.state, (), step.reply, original.head_cursor, reply_cursor)
        if session is None:
            self._disk.made += 1
            session = MemorySession(self._disk.made, head)
            self._disk.sessions[session_id] = session
        session.head = step.head
        session.lines += [row.line for row in step.rows]
        session.digests += [row.digest[:DIGEST_BYTES] for row in step.rows]
        session.turns.update(step.turns)
        self._disk.blobs.keep(session.references, step.contents.values())
        name(session.references, step.named)
        for used in step.keys:
            (self._disk.keys if used.in_store else session.keys)[used.key] = used.record
        for store in list(self._disk.stores.values()):
            store._hub.advance(session_id, session.head_seq)
        contents = {content.artifact: content.data for _, content in step.contents.values()}
        return Committed(step.state, step.events, step.reply, step.head.cursor, step.head.cursor, contents)

    def _known(self, session: MemorySession | None, head: Head, command: Command) -> Known:
        key = named_key(command)
        record: KeyRecord | None = None
        if key is not None and key[0] == "store":
            record = self._disk.keys.get(key[1])
            if record is not None:
                self._disk.refuse_deleted(record.session_id)
        elif key is not None and session is not None:
            record = session.keys.get(key[1])
        turn_id, turn = known_turn(command, head.state)
        if session is None:
            return Known(None, record, NOT_OWNED)
        if turn_id is not None:
            turn = session.turns.get(turn_id)
        return Known(turn, record, session.fence if session.owner == self.owner_id else NOT_OWNED)

    async def delete(self, session_id: str, *, by: str | None = None) -> str | Owner:
        await checkpoint()
        self._check_open()
        at = self._disk.deleted.get(session_id)
        if at is not None:
            return at
        session = self._find(session_id)
        holder = self._owner(session.owner)
        if holder is not None and holder.alive and not holder.mine:
            return holder
        del self._disk.sessions[session_id]
        at = self._disk.deleted[session_id] = rfc3339(_now_ms())
        self._disk.blobs.forget(session.references, (each.references for each in self._disk.sessions.values()))
        for store in list(self._disk.stores.values()):
            store._hub.forget(session_id)
        return at

    async def room(self) -> None:
        await checkpoint()

    # --- reading ------------------------------------------------------------------------------------------

    async def load(self, session_id: str) -> Loaded:
        await checkpoint()
        return self._loaded(self._find(session_id))

    def _loaded(self, session: MemorySession) -> Loaded:
        created = event_in(session.lines[0])["data"]
        if not matches(created, session.head.state, self._disk.key):
            raise HarnessFault(
                "session_corrupt",
                f"The snapshot of session {session.session_id} was not written by this store.",
                boundary="artifact_store",
                sessionId=session.session_id,
                seq=1,
            )
        return Loaded(
            session.head.state,
            created["snapshot"],
            created["keyedDigest"],
            created.get("metadata"),
            session.head_cursor,
            self._owner(session.owner),
        )

    async def turn(self, session_id: str, turn_id: str) -> tuple[Turn, str]:
        await checkpoint()
        session = self._find(session_id)
        turn = session.turns.get(turn_id)
        if turn is None:
            raise Refused("turn_not_found", turnId=turn_id)
        return turn, session.head_cursor

    async def turns(
        self, session_id: str, *, before: int | None, limit: int, status: str | None
    ) -> tuple[list[Turn], str]:
        await checkpoint()
        session = self._find(session_id)
        found = [
            turn
            for turn in session.turns.values()
            if (before is None or turn.n < before) and status in (None, turn.status)
        ]
        found.sort(key=lambda turn: -turn.n)
        return found[:limit], session.head_cursor

    async def sessions(
        self, *, workspace: str | None, query: str | None, before: int | None, limit: int
    ) -> list[tuple[int, Loaded]]:
        await checkpoint()
        found: list[tuple[int, Loaded]] = []
        for session in sorted(self._disk.sessions.values(), key=lambda session: -session.n):
            if len(found) == limit:
                break
            title = session.head.state.title or ""
            if before is not None and session.n >= before:
                continue
            if query is not None and query.casefold() not in f"{title}\n{session.session_id}".casefold():
                continue
            try:
                loaded = self._loaded(session)
            except HarnessFault:
                continue
            if workspace in (None, workspace_of(loaded.snapshot)):
                found.append((session.n, loaded))
        return found

    async def read(
        self,
        session_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int,
        max_bytes: int,
        types: Sequence[str] | None = None,
    ) -> Page:
        await checkpoint()
        session = self._find(session_id)
        low = 0 if after is None else self._place(session, after)
        low_cursor = after or cursor(0, first_digest(session_id))
        bounds = Bounds.of(limit, max_bytes, types)
        if before is None:
            high = session.head_seq
            return read_forward(session, bounds, Sizes(), low=low, low_cursor=low_cursor, high=high)
        high = max(low, self._place(session, before) - 1)
        return read_backward(session, bounds, Sizes(), low=low, low_cursor=low_cursor, high=high)

    async def place(self, session_id: str, seq: int) -> str:
        await checkpoint()
        session = self._find(session_id)
        digest = session.digest(seq)
        if digest is None:
            raise Refused("cursor_ahead", headSeq=session.head_seq, seq=seq)
        return cursor(seq, digest)

    def _place(self, session: MemorySession, text: str) -> int:
        seq, hex_ = parse_cursor(text)
        check_cursor(text, seq, hex_, session.digest(seq), session.head_seq)
        return seq

    def _find(self, session_id: str) -> MemorySession:
        self._check_open()
        session = self._disk.sessions.get(session_id)
        if session is None:
            self._disk.refuse_deleted(session_id)
            raise Refused("session_not_found", sessionId=session_id)
        return session

    # --- artifacts ----------------------------------------------------------------------------------------

    async def contents(self, session_id: str, artifacts: Collection[str]) -> Mapping[str, bytes]:
        await checkpoint()
        references = self._find(session_id).references
        return {each: self._disk.blobs.read(references, each, session_id=session_id) for each in artifacts}

    async def artifact(self, session_id: str, artifact: str) -> Artifact:
        await checkpoint()
        return find(self._find(session_id).references, artifact, session_id=session_id)

    async def artifacts(self, session_id: str, *, after: str | None, limit: int) -> list[Artifact]:
        await checkpoint()
        return page(self._find(session_id).references, after, limit)

    async def read_artifact(self, session_id: str, artifact: str, *, offset: int, length: int) -> bytes:
        return (await self.contents(session_id, [artifact]))[artifact][offset : offset + length]

    async def keep(self, session_id: str, spool: Spool, *, media_type: str, name: str) -> Artifact:
        await checkpoint()
        references = self._find(session_id).references
        assert isinstance(spool, MemorySpool)
        return self._disk.blobs.keep_spooled(references, spool, media_type=media_type, name=name)

    def spool(self) -> Spool:
        return MemorySpool()

    async def collect(self, *, grace_ms: int = COLLECT_GRACE_MS) -> int:
        await checkpoint()
        self._check_open()
        return self._disk.blobs.collect((each.references for each in self._disk.sessions.values()), grace_ms)

    # --- heads --------------------------------------------------------------------------------------------

    def head(self, session_id: str) -> int:
        return self._hub.head(session_id)

    def latest(self, session_id: str) -> tuple[State, str] | None:
        session = self._disk.sessions.get(session_id)
        return None if session is None else (session.head.state, session.head.cursor)

    async def changed(self, session_id: str, after_seq: int) -> int:
        await checkpoint()
        session = self._find(session_id)
        while session.head_seq <= after_seq:
            waiter = self._hub.enter(session_id)
            try:
                await waiter.wait()
            finally:
                self._hub.leave(session_id, waiter)
            self._find(session_id)
        return session.head_seq

    # --- leases -------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, *, force: bool = False) -> Lease | Owner:
        await checkpoint()
        session = self._find(session_id)
        holder = self._owner(session.owner)
        if holder is not None:
            if holder.mine and not force:
                return Lease(session_id, session.fence)
            if holder.alive and not holder.mine and not (force and holder.stale):
                return holder
        session.owner = self.owner_id
        session.fence += 1
        return Lease(session_id, session.fence)

    async def release(self, session_id: str) -> None:
        await checkpoint()
        session = self._find(session_id)
        if session.owner == self.owner_id:
            session.owner = None

    async def release_all(self) -> None:
        await checkpoint()
        for session in self._disk.sessions.values():
            if session.owner == self.owner_id:
                session.owner = None

    async def owner(self, session_id: str) -> Owner | None:
        await checkpoint()
        return self._owner(self._find(session_id).owner)

    def _owner(self, owner_id: str | None) -> Owner | None:
        if owner_id is None:
            return None
        store = self._disk.stores.get(owner_id)
        if store is None:
            now = rfc3339(_now_ms())
            return Owner(owner_id, socket.gethostname(), 0, now, now, alive=False, stale=False, mine=False)
        silent_ms = (self._disk.clock_ns() - store._beat_ns) // 1_000_000
        return Owner(
            owner_id,
            socket.gethostname(),
            os.getpid(),
            rfc3339(store._since_ms),
            rfc3339(_now_ms() - silent_ms + self._lease_ms),
            alive=True,
            stale=silent_ms > self._lease_ms,
            mine=store is self,
            reaper=store._reaper(),
        )

    def stand_by(self, session_id: str, waiting: bool) -> None:
        heirs = self._disk.heirs.setdefault(session_id, set())
        (heirs.add if waiting else heirs.discard)(self.owner_id)

    async def heir(self, session_id: str) -> Owner | None:
        await checkpoint()
        for owner_id in sorted(self._disk.heirs.get(session_id, ())):
            owner = self._owner(owner_id)
            if owner is not None and owner.alive and not owner.stale and not owner.mine:
                return owner
        return None

    def beat(self) -> None:
        self._beat_ns = self._disk.clock_ns()

    # --- itself -------------------------------------------------------------------------------------------

    def keyed(self, digest: str) -> str:
        return keyed_digest(self._disk.key, digest)

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "memory", "storeId": self._disk.store_id, "durable": False}

    async def check(self) -> Mapping[str, Any]:
        await checkpoint()
        return {"status": "ok"} if self._open else {"status": "unavailable", "why": "The store is not open."}

    def _check_open(self) -> None:
        if not self._open:
            why = "closed" if self._was_closed else "not open"
            raise HarnessFault("store_unavailable", f"The store is {why}.", boundary="artifact_store", why=why)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
