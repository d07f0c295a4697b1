"""Rows `initialize` and `session`: from the spawn to the answers, beside the imports that any such server needs."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from hames.bench.bed import INITIALIZE, Bed, median, session
from hames.bench.table import Figure

IMPORTS = "import anyio, pydantic, orjson; print(flush=True)"
"""The declared dependencies of the protocol layer, in a fresh interpreter."""


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """Server and floor in turns, so that both meet the same noise; each started once before, untimed."""
    n = bed.times(10, 3)
    answered: list[float] = []
    durable: list[float] = []
    floor: list[float] = []
    for _ in range(n + 1):
        place = bed.place()
        with bed.spawn(place, "-c", IMPORTS) as peer:
            peer.line()
            floor.append((perf_counter() - peer.spawned_at) * 1000)
        with bed.serve(place) as peer:
            peer.call("initialize", INITIALIZE)
            answered.append((perf_counter() - peer.spawned_at) * 1000)
            session(peer, place, "text")
            durable.append((perf_counter() - peer.spawned_at) * 1000)
    del answered[0], durable[0], floor[0]
    return [
        Figure("initialize", median(answered), n, min(answered), median(floor)),
        Figure("session", median(durable), n, min(durable), median(floor)),
    ]
