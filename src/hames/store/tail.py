"""The newest lines of sessions, kept in the loop as they are committed: a reader that is caught up asks no disk.

Rule 1: a cache and nothing more: what is not here is read and proved from the store; who asks knows that no other
process writes. Rule 2: lines of a session stand here without a gap; a commit that does not follow the last one (another
process wrote between) starts anew.
Rule 3: only the event loop touches it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from hames.ports import Page
from hames.protocol.chain import parse_cursor
from hames.store.log import cursor_in
from hames.store.pages import Bounds, Sizes, read_forward

SESSION_BYTES: Final = 128 * 1024
"""Of lines kept for a session."""

SESSIONS: Final = 64
"""Sessions that lines are kept of: those that were written to last."""


class _Lines:
    """The last lines of one session, those of events `low + 1` to `high`. Implements `pages.Lines`."""

    def __init__(self, session_id: str, low: int) -> None:
        self.session_id = session_id
        self.low = low
        self.lines: list[bytes] = []
        self.size_bytes = 0

    @property
    def head_seq(self) -> int:
        return self.low + len(self.lines)

    @property
    def head_cursor(self) -> str:
        return cursor_in(self.lines[-1])

    def fetch(self, low: int, high: int) -> bytes:
        return b"\n".join(self.lines[low - self.low : high - self.low])

    def add(self, lines: Sequence[bytes], most_bytes: int) -> None:
        self.lines += lines
        self.size_bytes += sum(map(len, lines))
        if self.size_bytes > 2 * most_bytes:
            self._shorten(most_bytes)

    def _shorten(self, most_bytes: int) -> None:
        # The newest line stays whatever its size: its cursor is the head's.
        drop = 0
        while self.size_bytes > most_bytes and drop < len(self.lines) - 1:
            self.size_bytes -= len(self.lines[drop])
            drop += 1
        del self.lines[:drop]
        self.low += drop

    def place(self, cursor: str) -> int | None:
        """The seq of a cursor whose event stands here."""
        seq, _ = parse_cursor(cursor)
        if not self.low < seq <= self.head_seq or cursor_in(self.lines[seq - self.low - 1]) != cursor:
            return None
        return seq


class Tail:
    """The newest lines of the sessions that this process wrote to last."""

    def __init__(self, *, session_bytes: int = SESSION_BYTES, sessions: int = SESSIONS) -> None:
        self._session_bytes = session_bytes
        self._most_sessions = sessions
        self._sessions: OrderedDict[str, _Lines] = OrderedDict()

    def add(self, session_id: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Lines that were committed, from event `first_seq` on."""
        kept = self._sessions.get(session_id)
        if kept is None or kept.head_seq + 1 != first_seq:
            kept = self._sessions[session_id] = _Lines(session_id, first_seq - 1)
            if len(self._sessions) > self._most_sessions:
                self._sessions.popitem(last=False)
        kept.add(lines, self._session_bytes)
        self._sessions.move_to_end(session_id)

    def forget(self, session_id: str) -> None:
        """The session is gone."""
        self._sessions.pop(session_id, None)

    def read(self, session_id: str, after: str | None, bounds: Bounds, *, head: int) -> Page | None:
        """A page after a cursor that stands here; None where the store must be asked, as when it knows of more."""
        kept = self._sessions.get(session_id)
        if kept is None or after is None or kept.head_seq != head:
            return None
        low = kept.place(after)
        if low is None:
            return None
        return read_forward(kept, bounds, Sizes(), low=low, low_cursor=after, high=head)
