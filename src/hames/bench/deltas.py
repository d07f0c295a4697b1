"""Rows `deltas_*`: how fast previews reach a subscribed client, one frame each, beside encoding and writing them."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from hames.bench.bed import Bed, median, session, submit
from hames.bench.driver import TERMINAL, BenchFailed, Peer
from hames.bench.table import Figure

_DELTA = b'"method":"delta"'
_TAIL = 64 * 1024
"""Where the terminal event is looked for: larger than one."""


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """Delivered frames over the time from the send to the terminal event."""
    figures: list[Figure] = []
    sent = delivered = 0
    for count in (5_000, 50_000):
        name = f"deltas_{count}"
        runs = bed.times(3, 1)
        if name not in names and "deltas_dropped" not in names:
            continue
        rates: list[float] = []
        with bed.server() as (peer, place):
            session(peer, place, f"deltas-{count}")
            # The first turn imports the HTTP client; the model makes its answer.
            _run(peer, lambda peer=peer: submit(peer))
            for _ in range(runs):
                frames, seconds = _run(peer, lambda peer=peer: submit(peer))
                rates.append(frames / seconds)
                sent += count
                delivered += frames
        with bed.prototype() as peer:
            _run(peer, lambda peer=peer: peer.send("deltas", {"count": 1}))
            floor = []
            for _ in range(runs):
                frames, seconds = _run(peer, lambda peer=peer, count=count: peer.send("deltas", {"count": count}))
                floor.append(frames / seconds)
        figures.append(Figure(name, median(rates), runs, max(rates), median(floor)))
    figures.append(Figure("deltas_dropped", sent - delivered, sent))
    return figures


def _run(peer: Peer, begin: object) -> tuple[int, float]:
    """Frames delivered, and the seconds it took."""
    assert callable(begin)
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
