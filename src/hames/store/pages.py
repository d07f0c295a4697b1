"""Pages of a session's log, the same way for every store: bounded by count and bytes, filtered, forward or backward.

Rule 1: only proven lines are looked at; a bad event ends the page before it, and starts none (`session_corrupt`).
Rule 2: a filter looks at the proven line, never at an index beside it that could be wrong by itself.
Rule 3: sequence numbers have no gaps, so a range of them is a number of events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from hames.core.records import record
from hames.ports import Page
from hames.protocol.errors import HarnessFault
from hames.store.log import cursor_in, type_in

FIRST_ROWS: Final = 64
"""Events asked for while their size is not known yet."""

ENOUGH: Final = 0.75
"""Of the bytes allowed: fuller than that, a page is not filled up with another query."""

SCAN_BYTES: Final = 8 * 2**20
"""Looked at for one filtered page that has something in it: other readers wait meanwhile."""

FETCH_BYTES: Final = 2**20
"""Asked for in one fetch: buffers of this size are reused by the allocator and stay in the processor's cache."""


class Damage(Exception):
    """Events `first_bad` to `last_bad` do not prove themselves; lines around them do."""

    def __init__(self, first_bad: int, last_bad: int, before: list[bytes], after: list[bytes]) -> None:
        self.first_bad = first_bad
        self.last_bad = last_bad
        self.before = before
        self.after = after
        super().__init__(f"event {first_bad}")


class Lines(Protocol):
    """A session's log as a store keeps it."""

    @property
    def session_id(self) -> str: ...

    @property
    def head_seq(self) -> int: ...

    @property
    def head_cursor(self) -> str: ...

    def fetch(self, low: int, high: int) -> bytes:
        """Lines of the events after `low` up to `high`, joined by LF, proven; called with `low < high`.

        Raises:
            Damage: not all are as they were written.
        """
        ...


@dataclass(slots=True)
class Sizes:
    """The average size of a session's events, as far as they were seen: how many to ask for."""

    rows: int = 0
    size_bytes: int = 0

    def saw(self, rows: int, size_bytes: int) -> None:
        """`rows` events took `size_bytes`; older sight counts less and less."""
        if self.rows > 4096:
            self.rows //= 2
            self.size_bytes //= 2
        self.rows += rows
        self.size_bytes += size_bytes

    def fitting(self, room_bytes: int) -> int:
        """How many events should fit into `room_bytes`, at least one; rather too few, since the rest is thrown away."""
        if self.rows == 0:
            return FIRST_ROWS
        return max(1, room_bytes * self.rows * 15 // max(1, self.size_bytes * 16))


@record
class Bounds:
    """What a page may hold: `limit` events, `max_bytes` (one event may be larger), of `types` only."""

    limit: int
    max_bytes: int
    types: frozenset[bytes] | None = None

    def pass_over(self, block: bytes) -> bool:
        """No line of the block is of `types`: seen without a look at each, a hundred times faster."""
        return self.types is not None and not any(b'"type":"%b"' % type_ in block for type_ in self.types)

    @staticmethod
    def of(limit: int, max_bytes: int, types: Sequence[str] | None) -> Bounds:
        """From the arguments of `Store.read`."""
        return Bounds(limit, max_bytes, None if types is None else frozenset(t.encode() for t in types))


class _Filling:
    """A page being filled, in the order of reading; `blocks` are lines, joined by LF."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.blocks: list[bytes] = []
        self.count = 0
        self.size_bytes = 0
        self.scanned_bytes = 0
        self.full = False

    def wants(self) -> bool:
        bounds = self.bounds
        if self.full or self.count >= bounds.limit or self.size_bytes >= bounds.max_bytes * ENOUGH:
            return False
        return self.count == 0 or self.scanned_bytes < SCAN_BYTES

    def rows(self, sizes: Sizes) -> int:
        wanted = sizes.fitting(min(self.bounds.max_bytes - self.size_bytes, FETCH_BYTES))
        return wanted if self.bounds.types is not None else min(wanted, self.bounds.limit - self.count)

    def add_block(self, block: bytes, rows: int) -> int:
        """Take of `rows` lines what fits, without a look at each; how many that are. Not for a filtered page."""
        room_bytes = max(0, self.bounds.max_bytes - self.size_bytes)
        if len(block) >= room_bytes:
            end = block.rfind(b"\n", 0, room_bytes)
            if end < 0 and self.count == 0:
                end = block.find(b"\n")
                end = len(block) if end < 0 else end
            self.full = end < len(block)
            if end < 0:
                return 0
            if self.full:
                block = block[:end]
                rows = block.count(b"\n") + 1
        self.blocks.append(block)
        self.count += rows
        self.size_bytes += len(block) + 1
        return rows

    def add_lines(self, lines: Sequence[bytes]) -> int:
        """Take lines until the page is full; how many were looked at."""
        bounds = self.bounds
        for looked, line in enumerate(lines):
            if self.count >= bounds.limit:
                self.full = True
                return looked
            if bounds.types is not None and type_in(line) not in bounds.types:
                continue
            if self.count and self.size_bytes + len(line) + 1 > bounds.max_bytes:
                self.full = True
                return looked
            self.blocks.append(line)
            self.count += 1
            self.size_bytes += len(line) + 1
        return len(lines)


def read_forward(log: Lines, bounds: Bounds, sizes: Sizes, *, low: int, low_cursor: str, high: int) -> Page:
    """The events after `low`, whose cursor is `low_cursor`, up to `high`.

    Raises:
        HarnessFault: `session_corrupt`: the first event that is asked for is bad.
    """
    filling = _Filling(bounds)
    at, at_cursor = low, low_cursor
    while at < high and filling.wants():
        upto = min(high, at + filling.rows(sizes))
        try:
            block = log.fetch(at, upto)
        except Damage as damage:
            looked = filling.add_lines(damage.before)
            if filling.count == 0:
                raise corrupt(log.session_id, damage.first_bad) from damage
            if looked:
                at, at_cursor = at + looked, cursor_in(damage.before[looked - 1])
            break
        sizes.saw(upto - at, len(block) + 1)
        filling.scanned_bytes += len(block) + 1
        if bounds.types is None:
            looked = filling.add_block(block, upto - at)
            last = _last(filling.blocks[-1])
        elif bounds.pass_over(block):
            looked, last = upto - at, _last(block)
        else:
            lines = block.split(b"\n")
            looked = filling.add_lines(lines)
            last = lines[looked - 1]
        if looked:
            at, at_cursor = at + looked, cursor_in(last)
    return Page(_ended(filling.blocks), filling.count, at, at_cursor, log.head_seq, log.head_cursor)


def read_backward(log: Lines, bounds: Bounds, sizes: Sizes, *, low: int, low_cursor: str, high: int) -> Page:
    """The last events of those after `low` up to `high`, ascending.

    Raises:
        HarnessFault: `session_corrupt`: the last event that is asked for is bad.
    """
    filling = _Filling(bounds)
    at, last_cursor = high, low_cursor
    while at > low and filling.wants():
        down = max(low, at - filling.rows(sizes))
        damaged = False
        try:
            block = log.fetch(down, at)
            lines = block.split(b"\n")
        except Damage as damage:
            lines, damaged = damage.after, True
            if not lines and filling.count == 0:
                raise corrupt(log.session_id, damage.last_bad) from damage
        size_bytes = sum(len(line) + 1 for line in lines)
        sizes.saw(len(lines), size_bytes)
        filling.scanned_bytes += size_bytes
        if at == high and lines:
            last_cursor = cursor_in(lines[-1])
        passed = not damaged and bounds.pass_over(block)
        at -= len(lines) if passed else filling.add_lines(lines[::-1])
        if damaged:
            if filling.count == 0:
                raise corrupt(log.session_id, at)
            break
    return Page(_ended(filling.blocks[::-1]), filling.count, high, last_cursor, log.head_seq, log.head_cursor)


def _last(block: bytes) -> bytes:
    return block[block.rfind(b"\n") + 1 :]


def _ended(blocks: list[bytes]) -> bytes:
    """Each ended by LF: one copy, whatever their number."""
    return b"\n".join([*blocks, b""])


def corrupt(session_id: str, seq: int, why: str = "does not match its checksum") -> HarnessFault:
    """`session_corrupt`, naming the event."""
    return HarnessFault(
        "session_corrupt",
        f"Event {seq} of session {session_id} {why}. Events before it can be read. See `hames verify`.",
        boundary="artifact_store",
        sessionId=session_id,
        seq=seq,
    )
