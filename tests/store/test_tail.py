"""The newest lines in memory: whatever they answer, the store answers too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.commands import UpdateSession
from hames.core.session import Event
from hames.ports import Store
from hames.protocol.chain import cursor, first_digest
from hames.store.log import cursor_in, next_row
from hames.store.pages import Bounds, Sizes, read_forward
from hames.store.tail import Tail
from store.play import BY, World, chunk, fill, whole

TYPES = ("message.chunk", "turn.started", "step.started")
ZERO = cursor(0, first_digest("s-1"))
SESSION_BYTES = 2_000
"""Of the tails here: a log of some dozen events is shortened."""


@dataclass
class Log:
    """The whole log, as a store holds it."""

    lines: list[bytes]
    session_id: str = "s-1"

    @property
    def head_seq(self) -> int:
        return len(self.lines)

    @property
    def head_cursor(self) -> str:
        return self.cursor(len(self.lines))

    def cursor(self, seq: int) -> str:
        return cursor_in(self.lines[seq - 1]) if seq else ZERO

    def fetch(self, low: int, high: int) -> bytes:
        return b"\n".join(self.lines[low:high])


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[list[bytes], bool]]:
    """Commits of a log: the lines of each, and whether another process made it."""
    event = st.tuples(st.sampled_from(TYPES), st.integers(0, 300))
    commit = st.tuples(st.lists(event, min_size=1, max_size=8), st.integers(0, 4).map(lambda n: n == 0))
    chain, crc, seq = first_digest("s-1"), 0, 0
    made: list[tuple[list[bytes], bool]] = []
    for events, is_foreign in draw(st.lists(commit, min_size=1, max_size=12)):
        lines: list[bytes] = []
        for type_, length in events:
            seq += 1
            row = next_row("s-1", Event(seq, "2026-01-01T00:00:00.000Z", type_, {"text": "x" * length}), chain, crc)
            chain, crc = row.digest, row.crc
            lines.append(row.line)
        made.append((lines, is_foreign))
    return made


bounds = st.builds(
    Bounds,
    st.integers(1, 40),
    st.integers(1, 6_000),
    st.none() | st.frozensets(st.sampled_from([t.encode() for t in TYPES]), min_size=1),
)


@given(batches(), bounds)
def test_at_every_cursor_a_page_of_the_tail_is_the_page_of_the_store(
    commits: list[tuple[list[bytes], bool]], allowed: Bounds
) -> None:
    tail = Tail(session_bytes=SESSION_BYTES)
    log = Log([])
    for lines, is_foreign in commits:
        first_seq = log.head_seq + 1
        log.lines += lines
        if not is_foreign:
            tail.add("s-1", first_seq, lines)
        served = []
        for seq in range(log.head_seq + 1):
            at = log.cursor(seq)
            page = tail.read("s-1", at, allowed, head=log.head_seq)
            if page is not None:
                served.append(seq)
                assert page == read_forward(log, allowed, Sizes(), low=seq, low_cursor=at, high=log.head_seq)
        # A reader that is caught up is served, unless another process wrote last.
        assert (log.head_seq in served) is not is_foreign
        assert served == list(range(log.head_seq + 1 - len(served), log.head_seq + 1))


@given(batches())
def test_a_tail_is_bounded_by_its_bytes_and_keeps_the_newest_line(commits: list[tuple[list[bytes], bool]]) -> None:
    tail = Tail(session_bytes=SESSION_BYTES)
    log = Log([])
    for lines, _ in commits:
        tail.add("s-1", log.head_seq + 1, lines)
        log.lines += lines
        everything = Bounds(10_000, 2**20)
        held = [tail.read("s-1", log.cursor(seq), everything, head=log.head_seq) for seq in range(log.head_seq + 1)]
        sizes = [len(page.lines) - page.count for page in held if page is not None]
        assert sizes[-1] == 0
        assert max(sizes) <= 2 * SESSION_BYTES


def test_a_cursor_of_another_log_is_left_to_the_store() -> None:
    tail = Tail()
    rows = [next_row("s-1", Event(seq, "t", "warning", {}), bytes(32), 0) for seq in (1, 2)]
    tail.add("s-1", 1, [row.line for row in rows])

    assert tail.read("s-1", cursor(2, rows[1].digest), Bounds(9, 999), head=2) is not None
    assert tail.read("s-1", cursor(2, b"\xff" * 32), Bounds(9, 999), head=2) is None
    assert tail.read("s-1", cursor(3, rows[1].digest), Bounds(9, 999), head=2) is None
    assert tail.read("s-1", None, Bounds(9, 999), head=2) is None
    assert tail.read("s-1", cursor(2, rows[1].digest), Bounds(9, 999), head=3) is None
    assert tail.read("s-2", cursor(2, rows[1].digest), Bounds(9, 999), head=2) is None


def test_of_many_sessions_the_tail_keeps_those_written_to_last() -> None:
    tail = Tail(sessions=3)
    row = next_row("s", Event(1, "t", "warning", {}), bytes(32), 0)
    at = cursor(1, row.digest)
    for number in range(10_000):
        tail.add(f"s-{number}", 1, [row.line])

    kept = [n for n in range(10_000) if tail.read(f"s-{n}", at, Bounds(9, 999), head=1) is not None]
    assert kept == [9_997, 9_998, 9_999]


async def pages(
    store: Store, cursors: list[str], types: Sequence[str] | None
) -> list[tuple[bytes, int, str, int, str]]:
    """A page of three events at each cursor."""
    read = [await store.read("s-1", after=after, limit=3, max_bytes=2**20, types=types) for after in cursors]
    return [(page.lines, page.last_seq, page.cursor, page.head_seq, page.head_cursor) for page in read]


@pytest.mark.anyio
async def test_the_writing_process_reads_what_a_fresh_one_reads_also_between_foreign_commits(world: World) -> None:
    with anyio.fail_after(30):
        async with world.open() as one:
            fence = await fill(one, 12)
            cursors = [entry["cursor"] for entry in await whole(one)]
            alone = {types: await pages(one, cursors, types) for types in (None, ("message.chunk",))}
            async with world.open() as two:
                for types, mine in alone.items():
                    assert await pages(two, cursors, types) == mine

                for number in range(3):
                    foreign = await two.commit("s-1", UpdateSession(f"Title {number}", BY)).wait()
                    assert (await one.read("s-1", after=cursors[-1], limit=9, max_bytes=2**20)).count == 2 * number + 1
                    own = await one.commit("s-1", chunk(fence, "t-1", number)).wait()
                    for types in alone:
                        newest = [*cursors, foreign.cursor, own.cursor]
                        assert await pages(one, newest, types) == await pages(two, newest, types)
