"""A session with a long log, made at once by the store itself."""

from __future__ import annotations

from pathlib import Path

import anyio

from hames.core.limits import DEFAULTS
from hames.store import SqliteStore
from store.play import fill


def make_large(home: Path, session_id: str, events: int) -> None:
    """A session of `events` events in the store of a server that does not run yet; its turn is left running."""

    async def make() -> None:
        store = SqliteStore(home / "store", limits=DEFAULTS, reaper=lambda: None)
        await store.open()
        await fill(store, events, session_id, text="some text of a long session " * 8)
        await store.aclose()

    anyio.run(make)
