"""Rows `idle_*`: what a server costs after a turn while nothing happens."""

from __future__ import annotations

from collections.abc import Sequence
from time import sleep

from hames.bench import processes
from hames.bench.bed import Bed, session, submit
from hames.bench.table import Figure

SETTLE_S = 0.3
"""After the terminal event: what is done behind it belongs to the turn."""


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """Nothing where the kernel does not tell."""
    if not processes.KNOWN:
        return []
    seconds = bed.times(3, 1)
    with bed.server() as (peer, place):
        session(peer, place, "text")
        submit(peer)
        peer.terminal()
        sleep(SETTLE_S)
        cpu_ms, wakeups = processes.cpu_ms(peer.pid), processes.wakeups(peer.pid)
        sleep(seconds)
        cpu_ms, wakeups = processes.cpu_ms(peer.pid) - cpu_ms, processes.wakeups(peer.pid) - wakeups
    return [Figure("idle_cpu", cpu_ms / seconds, 1), Figure("idle_wakeups", wakeups / seconds, 1)]
