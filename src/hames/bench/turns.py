"""Rows `turn_*`: one-chunk text turns, one after the other in one session, beside the prototype's."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from hames.bench import processes
from hames.bench.bed import Bed, median, session, submit
from hames.bench.table import Figure

WARM_UP = 20
"""Turns before the first that counts: libraries load behind the first ones."""


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """The model's own time is taken off each turn."""
    n = bed.times(100, 30)
    with bed.server() as (peer, place):
        session(peer, place, "text")
        for _ in range(WARM_UP):
            submit(peer)
            peer.terminal()
        bed.spent_ms()
        cpu_ms = processes.cpu_ms(peer.pid) if processes.KNOWN else 0.0
        accepted: list[float] = []
        ended: list[float] = []
        for _ in range(n):
            started = perf_counter()
            peer.answer(submit(peer))
            accepted.append((perf_counter() - started) * 1000)
            peer.terminal()
            ended.append((perf_counter() - started) * 1000)
        cpu_ms = (processes.cpu_ms(peer.pid) if processes.KNOWN else 0.0) - cpu_ms
    overhead = [whole - spent for whole, spent in zip(ended, bed.spent_ms(), strict=True)]
    floor_accept, floor_overhead, floor_cpu = _floor(bed, n)
    figures = [
        Figure("turn_accept", median(accepted), n, min(accepted), floor_accept),
        Figure("turn_overhead", median(overhead), n, min(overhead), floor_overhead),
        Figure("turn_growth", median(overhead[-10:]) / median(overhead[:10]), n),
    ]
    if processes.KNOWN:
        figures.append(Figure("turn_cpu", cpu_ms / n, n, floor=floor_cpu))
    return figures


def _floor(bed: Bed, n: int) -> tuple[float, float, float]:
    """Receipt, overhead and CPU of the prototype's turn, in milliseconds."""
    accepted: list[float] = []
    ended: list[float] = []
    with bed.prototype() as peer:
        params = {"sessionId": "s", "script": "text"}
        for _ in range(WARM_UP):
            peer.send("turn", params)
            peer.terminal()
        bed.spent_ms()
        cpu_ms = processes.cpu_ms(peer.pid) if processes.KNOWN else 0.0
        for _ in range(n):
            started = perf_counter()
            peer.answer(peer.send("turn", params))
            accepted.append((perf_counter() - started) * 1000)
            peer.terminal()
            ended.append((perf_counter() - started) * 1000)
        cpu_ms = (processes.cpu_ms(peer.pid) if processes.KNOWN else 0.0) - cpu_ms
    overhead = [whole - spent for whole, spent in zip(ended, bed.spent_ms(), strict=True)]
    return median(accepted), median(overhead), cpu_ms / n
