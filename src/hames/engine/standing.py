"""Where a session stands."""

from __future__ import annotations

from hames.core.state import State
from hames.ports import Store


async def standing(store: Store, session_id: str) -> tuple[State, str]:
    """The session's state at the head that this process knows of, and its cursor; read only when another process
    moved it."""
    known = store.latest(session_id)
    if known is None or known[0].seq < store.head(session_id):
        loaded = await store.load(session_id)
        known = loaded.state, loaded.cursor
    return known
