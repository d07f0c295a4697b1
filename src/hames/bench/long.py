"""Rows `long_*`: a session of a thousand turns, whose context is made shorter whenever it nears the model's window."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from hames.bench.bed import INITIALIZE, Bed, median, session, stopwatch, submit
from hames.bench.table import Figure

WINDOW = {"HAMES_LIMIT_CONTEXT_TOKENS": "8000"}
"""Small, so that it is reached many times."""

EARLY = slice(50, 60)
LATE = slice(-10, None)


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """Turns one after the other; then the server is killed, and another one takes the session up."""
    turns = bed.times(1_000, 120)
    place = bed.place()
    passed: list[float] = []
    with bed.server(place, WINDOW) as (peer, _):
        session(peer, place, "text")
        for _ in range(turns):
            started = perf_counter()
            submit(peer)
            peer.terminal()
            passed.append((perf_counter() - started) * 1000)
        peer.process.kill()
    n = bed.times(5, 2)
    resumed: list[float] = []
    for _ in range(n):
        with bed.serve(place, WINDOW) as peer:
            peer.call("initialize", INITIALIZE)
            peer.call("session/list", {})  # loaded, as it is when a person has chosen a session
            with stopwatch() as watch:
                peer.call("session/resume", {"sessionId": "s", "subscribe": {"deltas": True}})
            resumed += watch
            peer.process.kill()
    early, late = median(passed[EARLY]), median(passed[LATE])
    return [Figure("long_growth", late / early, turns), Figure("long_resume", median(resumed), n, min(resumed))]
