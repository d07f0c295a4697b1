"""Rows `deltas_*`: how fast previews reach a subscribed client, one frame each, beside encoding and writing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

from hames.bench.bed import Bed, median, session, submit
from hames.bench.driver import TERMINAL, BenchFailed, Peer
from hames.bench.table import Figure

COUNTS = (5_000, 50_000)

_DELTA = b'"method":"delta"'
_TAIL = 64 * 1024
"""Where the terminal event is looked for: larger than one."""


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """Delivered frames over the time from the send to the terminal event.

    What was dropped is told by the frames that are missing of all that the model sent.
    """
    counts = [count for count in COUNTS if f"deltas_{count}" in names] or COUNTS
    runs = bed.times(3, 1)
    with bed.server() as (peer, place):
        for count in counts:
            session(peer, place, f"deltas-{count}", session_id=f"s{count}")
        # The first turn loads the HTTP client.
        _run(peer, partial(submit, peer, f"s{counts[0]}"))
        served = [_runs(peer, runs, partial(submit, peer, f"s{count}")) for count in counts]
    with bed.prototype() as peer:
        _run(peer, partial(peer.send, "deltas", {"count": 1}))
        floors = [_runs(peer, runs, partial(peer.send, "deltas", {"count": count})) for count in counts]
    figures = []
    for count, (_, rates), (_, floor) in zip(counts, served, floors, strict=True):
        figures.append(Figure(f"deltas_{count}", median(rates), runs, max(rates), median(floor)))
    sent = runs * sum(counts)
    figures.append(Figure("deltas_dropped", sent - sum(frames for frames, _ in served), sent))
    return figures


def _runs(peer: Peer, runs: int, begin: Callable[[], int]) -> tuple[int, list[float]]:
    """Frames of all runs, and frames a second of each."""
    found = [_run(peer, begin) for _ in range(runs)]
    return sum(frames for frames, _ in found), [frames / seconds for frames, seconds in found]


def _run(peer: Peer, begin: Callable[[], int]) -> tuple[int, float]:
    """Frames delivered, and the seconds it took."""
    started = perf_counter()
    begin()
    blocks: list[bytes] = []
    tail = b""
    while (found := TERMINAL.search(tail)) is None:
        block = peer.read()
        blocks.append(block)
        tail = tail[-_TAIL:] + block
    seconds = perf_counter() - started
    if found[1] != b"completed":
        raise BenchFailed(f"a turn ended as {found[1].decode()}: {tail[-400:].decode(errors='replace')}")
    peer.unread(tail[found.end() :])
    return b"".join(blocks).count(_DELTA), seconds
