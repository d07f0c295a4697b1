"""Rows `parallel*`: eight sessions at once in one process, and the memory that takes, beside the prototype's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter

from hames.bench import processes
from hames.bench.bed import Bed, median, session, submit
from hames.bench.driver import Peer
from hames.bench.table import Figure

SESSIONS = tuple(f"s{number}" for number in range(8))

_SESSION = re.compile(rb'"sessionId":"(s\d)"')


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """Each session submits its next turn when it sees the end of the one before; the first of each is untimed."""
    turns = bed.times(20, 6)
    with bed.server() as (peer, place):
        for session_id in SESSIONS:
            session(peer, place, "text", session_id=session_id)
        rates = _rounds(peer, turns, bed.times(3, 2), lambda session_id: submit(peer, session_id))
        rss = processes.rss_mb(peer.pid) if processes.KNOWN else 0.0
    with bed.prototype() as peer:
        floor = _rounds(
            peer, turns, 2, lambda session_id: peer.send("turn", {"sessionId": session_id, "script": "text"})
        )
        floor_rss = processes.rss_mb(peer.pid) if processes.KNOWN else 0.0
    figures = [Figure("parallel", median(rates), len(rates) * turns * 8, max(rates), median(floor))]
    if processes.KNOWN:
        figures.append(Figure("parallel_rss", rss, 1, floor=floor_rss))
    return figures


def _rounds(peer: Peer, turns: int, rounds: int, begin: Callable[[str], int]) -> list[float]:
    """Turns a second in each round."""
    _round(peer, 1, begin)
    return [_round(peer, turns, begin) for _ in range(rounds)]


def _round(peer: Peer, turns: int, begin: Callable[[str], int]) -> float:
    started = perf_counter()
    left = Counter({session_id.encode(): turns for session_id in SESSIONS})
    for session_id in SESSIONS:
        begin(session_id)
    while left:
        found = _SESSION.search(peer.terminal())
        assert found is not None
        left[found[1]] -= 1
        if left[found[1]]:
            begin(found[1].decode())
        else:
            del left[found[1]]
    return turns * len(SESSIONS) / (perf_counter() - started)
