"""What the store's tests are played with: stores of both kinds, commands, and a reader that trusts nobody."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import anyio

from hames.core.commands import CreateSession, Draft, Ending, EndTurn, Record, StartTurn, SubmitTurn
from hames.core.limits import DEFAULTS
from hames.core.session import Event, fold
from hames.core.state import State
from hames.ports import Committed, Lease, Owner, ReaperRecord, Store
from hames.store import MemoryDisk, MemoryStore, SqliteStore

BY = {"principal": "user", "client": "test", "connectionId": "c-1"}
SNAPSHOT = {"version": 1, "workspace": {"path": "/work", "device": 1, "inode": 2}}
SNAPSHOT_DIGEST = "ab" * 32
LIMITS: Mapping[str, int] = {**DEFAULTS, "gateMs": 20_000, "reserveBytes": 64 * 1024}


@dataclass
class World:
    """A place where several processes' stores can meet: a directory, or a disk in memory."""

    kind: str
    directory: Path
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    limits: Mapping[str, int] = field(default_factory=lambda: LIMITS)

    def make(self, reaper: Callable[[], ReaperRecord | None] = lambda: None) -> Store:
        """One more process's store, not opened."""
        if self.kind == "memory":
            return MemoryStore(self.disk, limits=self.limits, reaper=reaper)
        return SqliteStore(self.directory, limits=self.limits, reaper=reaper)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Store]:
        """One more process's store, open."""
        store = self.make()
        await store.open()
        try:
            yield store
        finally:
            await store.aclose()


def creation(store: Store, session_id: str, *, key: str | None = None, turn: SubmitTurn | None = None) -> CreateSession:
    """Make a session as this store's user."""
    keyed = store.keyed(SNAPSHOT_DIGEST)
    return CreateSession(
        SNAPSHOT, SNAPSHOT_DIGEST, keyed, "content", BY, key=key, title=f"Title of {session_id}", turn=turn
    )


def submission(turn_id: str, *, key: str | None = None, digest: str = "content") -> SubmitTurn:
    """Admit a turn."""
    return SubmitTurn(turn_id, ({"role": "command", "type": "text", "text": "hello"},), digest, BY, key=key)


def start(fence: int) -> StartTurn:
    """Start the next turn."""
    return StartTurn(fence, {"pid": 1}, 1_767_225_600_000, 60_000)


def chunk(fence: int, turn_id: str, offset: int, text: str = "x") -> Record:
    """One event of an attempt that leaves the lifecycle as it is."""
    return Record(fence, turn_id, (Draft("message.chunk", {"itemId": "i-1", "offset": offset, "text": text}),))


def completion(fence: int, turn_id: str) -> EndTurn:
    """End the turn well."""
    return EndTurn(fence, turn_id, Ending("completed", text="done"))


async def create(store: Store, session_id: str = "s-1") -> Committed:
    """Make a session."""
    return await store.commit(session_id, creation(store, session_id)).wait()


async def running(store: Store, session_id: str = "s-1", turn_id: str = "t-1") -> int:
    """Make a session with a running turn; the fence it runs under."""
    await store.commit(session_id, creation(store, session_id, turn=submission(turn_id))).wait()
    fence = await take(store, session_id)
    await store.commit(session_id, start(fence)).wait()
    return fence


async def take(store: Store, session_id: str = "s-1", *, force: bool = False) -> int:
    """Take the lease; its fence."""
    lease = await store.claim(session_id, force=force)
    assert isinstance(lease, Lease), lease
    return lease.fence


async def stale_owner(store: Store, session_id: str = "s-1") -> Owner:
    """Wait until the lease's holder was silent for too long."""
    with anyio.fail_after(30):
        while True:
            holder = await store.claim(session_id)
            assert isinstance(holder, Owner)
            if holder.stale:
                return holder
            await anyio.sleep(0.02)


async def fill(store: Store, count: int, session_id: str = "s-1", text: str = "x") -> int:
    """Make a session whose log has `count` events; the fence of its running turn."""
    fence = await running(store, session_id)
    tickets = [store.commit(session_id, chunk(fence, "t-1", at, text)) for at in range(count - 3)]
    for ticket in tickets:
        await ticket.wait()
    return fence


async def whole(store: Store, session_id: str = "s-1", **bounds: Any) -> list[dict[str, Any]]:
    """Every `{cursor, event}` of a log, page by page."""
    entries: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = await store.read(session_id, after=after, **{"limit": 1000, "max_bytes": 2**19, **bounds})
        entries += parse(page.lines)
        after = page.cursor
        if not page.more:
            return entries


def parse(lines: bytes) -> list[dict[str, Any]]:
    """The `{cursor, event}` of a page's lines."""
    return [json.loads(b"{" + line + b"}") for line in lines.split(b"\n")[:-1]]


def check_chain(session_id: str, lines: bytes) -> None:
    """Recompute the chain from the bytes alone, as anybody can."""
    digest = blake2b(b"hames-log-1\0" + session_id.encode(), digest_size=32).digest()
    for seq, line in enumerate(lines.split(b"\n")[:-1], 1):
        head, _, event = line.partition(b',"event":')
        digest = blake2b(digest + event, digest_size=32).digest()
        assert head == f'"cursor":"{seq}.{digest.hex()[:12]}"'.encode()


def folded(session_id: str, entries: Sequence[Mapping[str, Any]]) -> State:
    """The state that a log leads to, as the store keeps it."""
    return replace(fold(session_id, [Event.of(entry["event"]) for entry in entries]), ended=None)
