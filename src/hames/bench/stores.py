"""A store in this process, with sessions whose attempts write: for figures of the store alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hames.core.commands import CreateSession, Draft, Record, StartTurn, SubmitTurn
from hames.core.limits import DEFAULTS
from hames.ports import Lease, Store
from hames.store import SqliteStore

DRAFTS = 500
"""Events written in one commit while a long log is made."""

BY = {"principal": "bench", "client": "hames-bench", "connectionId": "c-1"}
TEXT = "the quick brown fox jumps over the lazy dog and runs on "
"""Of one event; with its envelope an event takes about 300 bytes."""


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Store]:
    """The store in `home`."""
    store = SqliteStore(home, limits=DEFAULTS, reaper=lambda: None)
    await store.open()
    try:
        yield store
    finally:
        await store.aclose()


def creation(store: Store) -> CreateSession:
    """Make a session."""
    snapshot: dict[str, Any] = {"version": 1, "workspace": {"path": "/bench", "device": 1, "inode": 1}, "limits": {}}
    digest = "ab" * 32
    return CreateSession(snapshot, digest, store.keyed(digest), "content", BY)


def submission(turn_id: str) -> SubmitTurn:
    """Admit a turn."""
    return SubmitTurn(turn_id, ({"role": "command", "type": "text", "text": TEXT},), "content", BY)


async def running(store: Store, session_id: str) -> Lease:
    """A session whose turn `t` runs."""
    await store.commit(session_id, creation(store)).wait()
    await store.commit(session_id, submission("t")).wait()
    lease = await store.claim(session_id)
    assert isinstance(lease, Lease)
    await store.commit(session_id, StartTurn(lease.fence, {"pid": 1}, 0, 2**40)).wait()
    return lease


def facts(lease: Lease, first: int, count: int) -> Record:
    """`count` events of the attempt that leave the lifecycle as it is."""
    drafts = tuple(
        Draft("message.chunk", {"itemId": "i", "offset": number * len(TEXT), "text": TEXT})
        for number in range(first, first + count)
    )
    return Record(lease.fence, "t", drafts)


async def fill(store: Store, session_id: str, events: int) -> None:
    """A session whose turn runs and has told `events` facts."""
    lease = await running(store, session_id)
    for first in range(0, events, DRAFTS):
        await store.room()
        pending = store.commit(session_id, facts(lease, first, min(DRAFTS, events - first)))
    await pending.wait()


async def crowd(store: Store, sessions: int) -> None:
    """Many sessions without turns."""
    for number in range(sessions):
        await store.room()
        pending = store.commit(f"x-{number}", creation(store))
    await pending.wait()
