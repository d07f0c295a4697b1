"""Paging as a pure matter: whatever the sizes, pages joined are the log, and damage is never stepped over."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.session import Event
from hames.ports import Page
from hames.protocol.chain import cursor, first_digest
from hames.protocol.errors import HarnessFault
from hames.store.log import cursor_in, event_in, next_row, type_in
from hames.store.pages import Bounds, Damage, Sizes, read_backward, read_forward

TYPES = ("message.chunk", "turn.started", "step.started")
ZERO = cursor(0, first_digest("s-1"))


@dataclass
class Lines:
    """A log in a list; events in `bad` do not prove themselves."""

    lines: list[bytes]
    bad: frozenset[int] = frozenset()
    session_id: str = "s-1"
    head_cursor: str = field(init=False)

    def __post_init__(self) -> None:
        self.head_cursor = cursor_in(self.lines[-1]) if self.lines else ZERO

    @property
    def head_seq(self) -> int:
        return len(self.lines)

    def fetch(self, low: int, high: int) -> bytes:
        assert 0 <= low < high <= len(self.lines)
        bad = sorted(seq for seq in self.bad if low < seq <= high)
        if bad:
            raise Damage(bad[0], bad[-1], self.lines[low : bad[0] - 1], self.lines[bad[-1] : high])
        return b"\n".join(self.lines[low:high])


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    drawn = draw(st.lists(st.tuples(st.sampled_from(TYPES), st.integers(0, 400)), max_size=150))
    chain, crc = first_digest("s-1"), 0
    lines: list[bytes] = []
    for seq, (type_, length) in enumerate(drawn, 1):
        row = next_row("s-1", Event(seq, "2026-01-01T00:00:00.000Z", type_, {"text": "x" * length}), chain, crc)
        chain, crc = row.digest, row.crc
        lines.append(row.line)
    return lines


bounds = st.builds(
    Bounds,
    st.integers(1, 60),
    st.integers(1, 20_000),
    st.none() | st.frozensets(st.sampled_from([t.encode() for t in TYPES]), max_size=2),
)


def check(page: Page, allowed: Bounds, log: Lines) -> list[bytes]:
    """A page keeps its bounds; its lines."""
    lines = page.lines.split(b"\n")[:-1]
    assert page.count == len(lines) <= allowed.limit
    assert page.count <= 1 or len(page.lines) <= allowed.max_bytes
    assert page.cursor == (cursor_in(log.lines[page.last_seq - 1]) if page.last_seq else ZERO)
    assert (page.head_seq, page.head_cursor) == (log.head_seq, log.head_cursor)
    return lines


def wanted(lines: list[bytes], allowed: Bounds) -> list[bytes]:
    return [line for line in lines if allowed.types is None or type_in(line) in allowed.types]


def forward(log: Lines, allowed: Bounds, read: list[bytes]) -> None:
    """Read page by page to the head, into `read`."""
    sizes = Sizes()
    at, at_cursor = 0, ZERO
    while True:
        page = read_forward(log, allowed, sizes, low=at, low_cursor=at_cursor, high=log.head_seq)
        read += check(page, allowed, log)
        if not page.more:
            return
        assert page.last_seq > at
        at, at_cursor = page.last_seq, page.cursor


def backward(log: Lines, allowed: Bounds, read: list[bytes]) -> None:
    """Read page by page to the start, into `read`."""
    sizes = Sizes()
    high = log.head_seq
    while high > 0:
        page = read_backward(log, allowed, sizes, low=0, low_cursor=ZERO, high=high)
        assert page.last_seq == high
        found = check(page, allowed, log)
        if not found:
            return
        read[:0] = found
        high = int(event_in(found[0])["seq"]) - 1


@given(logs(), bounds)
def test_pages_forward_joined_are_the_whole_log(lines: list[bytes], allowed: Bounds) -> None:
    read: list[bytes] = []
    forward(Lines(lines), allowed, read)
    assert read == wanted(lines, allowed)


@given(logs(), bounds)
def test_pages_backward_joined_are_the_whole_log(lines: list[bytes], allowed: Bounds) -> None:
    read: list[bytes] = []
    backward(Lines(lines), allowed, read)
    assert read == wanted(lines, allowed)


@given(logs().filter(bool), bounds, st.data())
def test_what_is_read_forward_of_a_damaged_log_ends_before_the_damage(
    lines: list[bytes], allowed: Bounds, data: st.DataObject
) -> None:
    bad = data.draw(st.frozensets(st.integers(1, len(lines)), min_size=1, max_size=3))
    read: list[bytes] = []

    with pytest.raises(HarnessFault) as caught:
        forward(Lines(lines, bad), allowed, read)

    assert caught.value.details["seq"] == min(bad)
    good = wanted(lines[: min(bad) - 1], allowed)
    assert read == (good if allowed.types is None else good[: len(read)])


@given(logs().filter(bool), bounds, st.data())
def test_what_is_read_backward_of_a_damaged_log_ends_after_the_damage(
    lines: list[bytes], allowed: Bounds, data: st.DataObject
) -> None:
    bad = data.draw(st.frozensets(st.integers(1, len(lines)), min_size=1, max_size=3))
    read: list[bytes] = []

    with pytest.raises(HarnessFault) as caught:
        backward(Lines(lines, bad), allowed, read)

    assert caught.value.details["seq"] == max(bad)
    assert read == wanted(lines[max(bad) :], allowed)
