"""Rows `long_*`: a session of a thousand turns, whose context is made shorter whenever it nears the model's window."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from hames.bench.bed import INITIALIZE, Bed, median, session, stopwatch, submit
from hames.bench.driver import Peer
from hames.bench.table import Figure
from hames.core.compaction import CHARS_PER_TOKEN

WINDOW_TOKENS = 8_000
"""Small, so that it is reached many times."""

WINDOW = {"HAMES_LIMIT_CONTEXT_TOKENS": str(WINDOW_TOKENS)}

YOUNG = 50
"""Turns of another session, which the last ones of the long session are held against: as many of each, one after the
other, so that both meet the same noise."""

COMPARED = 10


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """Turns one after the other; then the server is killed, and another one takes the session up."""
    turns = bed.times(1_000, 120)
    place = bed.place()
    early: list[float] = []
    late: list[float] = []
    bed.request_bytes()
    with bed.server(place, WINDOW) as (peer, _):
        for session_id, before in (("s", turns - COMPARED), ("young", YOUNG)):
            session(peer, place, "long", session_id=session_id)
            for _ in range(before):
                _turn_ms(peer, session_id)
        for _ in range(COMPARED):
            late.append(_turn_ms(peer, "s"))
            early.append(_turn_ms(peer, "young"))
        peer.process.kill()
    largest = max(bed.request_bytes()) / CHARS_PER_TOKEN / WINDOW_TOKENS
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
    with bed.server(place, WINDOW) as (peer, _):
        query = {"sessionId": "s", "types": ["context.replaced"], "limit": 1_000}
        shorter = len(peer.call("events/read", query)["events"])
    return [
        Figure("long_growth", median(late) / median(early), turns),
        Figure("long_request", largest, turns),
        Figure("long_shorter", shorter, turns),
        Figure("long_resume", median(resumed), n, min(resumed)),
    ]


def _turn_ms(peer: Peer, session_id: str) -> float:
    started = perf_counter()
    submit(peer, session_id)
    peer.terminal()
    return (perf_counter() - started) * 1000
