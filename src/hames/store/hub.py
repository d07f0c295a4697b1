"""Who waits for which session's head, and what this process knows of sessions: `Store.changed`, `head`, `latest`.

Rule 1: only the event loop's thread changes it; other threads may look at `watched` and `is_watched`.
Rule 2: what is known is bounded: of `SESSIONS` sessions, those that moved last; the rest is asked of the store.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from hames.core.state import State
from hames.threads import Signal, signal

SESSIONS: Final = 1024
"""Sessions whose head and state are kept: more than run at once, and a few MiB at most."""


class Hub:
    """The heads and states this process knows of, and the waiters."""

    def __init__(self) -> None:
        self._heads: OrderedDict[str, int] = OrderedDict()
        self._latest: dict[str, tuple[State, str]] = {}
        self._waiters: dict[str, list[Signal]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def head(self, session_id: str) -> int:
        """The newest seq that is known, 0 for none."""
        return self._heads.get(session_id, 0)

    def latest(self, session_id: str) -> tuple[State, str] | None:
        """The newest state that is known, and its cursor."""
        return self._latest.get(session_id)

    def advance(self, session_id: str, seq: int) -> None:
        """The head is at `seq` or beyond."""
        if session_id in self._gone:
            return
        heads = self._heads
        if seq > heads.get(session_id, 0):
            heads[session_id] = seq
            for waiter in self._waiters.pop(session_id, ()):
                waiter.set()
        if session_id in heads:
            heads.move_to_end(session_id)
            if len(heads) > SESSIONS:
                forgotten, _ = heads.popitem(last=False)
                self._latest.pop(forgotten, None)

    def know(self, state: State, cursor: str) -> None:
        """`state` stood when `cursor` was the head's."""
        if state.session_id in self._gone:
            return
        known = self._latest.get(state.session_id)
        if known is None or known[0].seq < state.seq:
            self._latest[state.session_id] = (state, cursor)
        self.advance(state.session_id, state.seq)

    def forget(self, session_id: str) -> None:
        """The session is gone, for good: who waits for it looks again, and what was on its way here is not heard."""
        self._gone[session_id] = None
        if len(self._gone) > SESSIONS:
            self._gone.popitem(last=False)
        self._heads.pop(session_id, None)
        self._latest.pop(session_id, None)
        for waiter in self._waiters.pop(session_id, ()):
            waiter.set()

    def enter(self, session_id: str) -> Signal:
        """Be told of the next advance, or of the end; leave when done, told or not."""
        waiter = signal()
        self._waiters.setdefault(session_id, []).append(waiter)
        return waiter

    def leave(self, session_id: str, waiter: Signal) -> None:
        """Wait no longer."""
        waiters = self._waiters.get(session_id)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[session_id]

    def end(self) -> None:
        """Tell everybody who waits: nothing will move any more."""
        waiting, self._waiters = self._waiters, {}
        for waiters in waiting.values():
            for waiter in waiters:
                waiter.set()

    def watched(self) -> list[str]:
        """Sessions that somebody waits for."""
        return list(self._waiters)

    def is_watched(self, session_id: str) -> bool:
        """Somebody waits for this session."""
        return session_id in self._waiters
