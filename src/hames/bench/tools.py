"""Row `tool_turn`: the model calls `true`, then answers, beside the prototype that does the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from hames.bench.bed import Bed, median, session, submit
from hames.bench.driver import Peer
from hames.bench.table import Figure

WARM_UP = 3


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """The model's own time of both answers is taken off."""
    n = bed.times(50, 10)
    with bed.server() as (peer, place):
        session(peer, place, "tool")
        overhead = _turns(bed, peer, n, lambda: submit(peer))
    with bed.prototype() as peer:
        floor = _turns(bed, peer, n, lambda: peer.send("turn", {"sessionId": "s", "script": "tool"}))
    return [Figure("tool_turn", median(overhead), n, min(overhead), median(floor))]


def _turns(bed: Bed, peer: Peer, n: int, begin: Callable[[], int]) -> list[float]:
    overhead: list[float] = []
    for number in range(WARM_UP + n):
        if number == WARM_UP:
            overhead.clear()
        bed.spent_ms()
        started = perf_counter()
        begin()
        peer.terminal()
        passed_ms = (perf_counter() - started) * 1000
        overhead.append(passed_ms - sum(bed.spent_ms()))
    return overhead
