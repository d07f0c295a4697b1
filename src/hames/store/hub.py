"""Who waits for which session's head: `Store.changed` and `Store.head`.

Rule: only the event loop's thread changes it; other threads may look at `watched` and `is_watched`.
"""

from __future__ import annotations

import anyio


class Hub:
    """The heads this process knows of, and the waiters on them."""

    def __init__(self) -> None:
        self._heads: dict[str, int] = {}
        self._waiters: dict[str, list[anyio.Event]] = {}

    def head(self, session_id: str) -> int:
        """The newest seq that is known, 0 for none."""
        return self._heads.get(session_id, 0)

    def advance(self, session_id: str, seq: int) -> None:
        """The head is at `seq` or beyond."""
        if seq > self._heads.get(session_id, 0):
            self._heads[session_id] = seq
            for waiter in self._waiters.pop(session_id, ()):
                waiter.set()

    def enter(self, session_id: str) -> anyio.Event:
        """Be told of the next advance; leave when done, told or not."""
        waiter = anyio.Event()
        self._waiters.setdefault(session_id, []).append(waiter)
        return waiter

    def leave(self, session_id: str, waiter: anyio.Event) -> None:
        """Wait no longer."""
        waiters = self._waiters.get(session_id)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[session_id]

    def watched(self) -> list[str]:
        """Sessions that somebody waits for."""
        return list(self._waiters)

    def is_watched(self, session_id: str) -> bool:
        """Somebody waits for this session."""
        return session_id in self._waiters
