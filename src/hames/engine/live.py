"""Previews of what is being produced: deltas and heartbeats, for whoever listens in this process.

Rule 1: nothing here is kept or promised; what counts is in the log. Rule 2: a listener never waits and never
raises; it drops what it cannot take. Rule 3: an item's deltas end before its `*.completed` is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from io import StringIO
from typing import Literal

import anyio

Kind = Literal["message", "reasoning", "toolArguments", "toolOutput"]


@dataclass(slots=True)
class LiveItem:
    """An item in the making. `base_seq` is the event that began it; `size` counts UTF-8 bytes."""

    item_id: str
    turn_id: str
    kind: Kind
    base_seq: int
    size: int = 0
    _text: StringIO = field(default_factory=StringIO)

    def add(self, text: str) -> None:
        """More text."""
        self.size += len(text) if text.isascii() else len(text.encode())
        self._text.write(text)

    def text(self, offset: int = 0) -> str:
        """The text from `offset` bytes on; a code point that `offset` splits is left out."""
        whole = self._text.getvalue()
        start = self.size - len(whole.encode())
        if offset <= start:
            return whole
        return whole.encode()[offset - start :].decode("utf-8", "ignore")

    def forget(self, keep: int = 64 * 1024) -> None:
        """Keep only about the last `keep` characters: a flood of output costs no memory."""
        if self._text.tell() > 2 * keep:
            kept = self._text.getvalue()[-keep:]
            self._text = StringIO()
            self._text.write(kept)


class Listener:
    """What a subscription overrides."""

    def delta(self, item: LiveItem, offset: int, text: str) -> None:
        """`text` was added to `item` at `offset`."""

    def heartbeat(self, turn_id: str, phase: str, since_ms: int) -> None:
        """The turn waits in `phase`."""


class Live:
    """The items of one session that are being produced, and who listens."""

    def __init__(self) -> None:
        self.items: dict[str, LiveItem] = {}
        self.listeners: set[Listener] = set()
        self._phase = "queued"
        self._since = 0.0

    def open(self, item_id: str, turn_id: str, kind: Kind, base_seq: int) -> LiveItem:
        """Begin an item."""
        item = LiveItem(item_id, turn_id, kind, base_seq)
        self.items[item_id] = item
        return item

    def add(self, item: LiveItem, text: str) -> None:
        """Tell of more text."""
        offset = item.size
        item.add(text)
        for listener in self.listeners:
            listener.delta(item, offset, text)

    def close(self, item: LiveItem) -> None:
        """The item is whole, or withdrawn: the log says which."""
        self.items.pop(item.item_id, None)

    def enter(self, phase: str) -> None:
        """The turn now waits in `phase`."""
        self._phase, self._since = phase, anyio.current_time()

    def beat(self, turn_id: str) -> None:
        """Tell the listeners what the turn waits for, and since when."""
        since_ms = int((anyio.current_time() - self._since) * 1000)
        for listener in self.listeners:
            listener.heartbeat(turn_id, self._phase, since_ms)
