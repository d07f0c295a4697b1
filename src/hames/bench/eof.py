"""Rows `eof_*`: the client closes stdin and waits for the end of the process, beside an interpreter that only reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hames.bench.bed import Bed, Place, median, session, submit
from hames.bench.cancel import running_pids
from hames.bench.driver import Peer
from hames.bench.table import Figure

READER = "import sys, anyio, pydantic, orjson; print(flush=True); sys.stdin.read()"


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """Each time a process of its own, which has run a turn before."""
    n = bed.times(5, 1)
    cases: list[tuple[str, Callable[[Peer, Place], None]]] = [
        ("eof_idle", _idle),
        ("eof_busy_stream", _streaming),
        ("eof_busy_tool", _running),
    ]
    floor = median([_floor(bed) for _ in range(n)])
    figures: list[Figure] = []
    for name, prepare in cases:
        if name in names:
            times = [_end(bed, prepare) for _ in range(n)]
            figures.append(Figure(name, median(times), n, min(times), floor))
    return figures


def _end(bed: Bed, prepare: Callable[[Peer, Place], None]) -> float:
    with bed.server() as (peer, place):
        prepare(peer, place)
        peer.end_input()
        return peer.exit_ms()


def _idle(peer: Peer, place: Place) -> None:
    session(peer, place, "text")
    submit(peer)
    peer.terminal()


def _streaming(peer: Peer, place: Place) -> None:
    session(peer, place, "stall")
    submit(peer)
    peer.until(b'"method":"delta"')


def _running(peer: Peer, place: Place) -> None:
    session(peer, place, "sleep")
    submit(peer)
    running_pids(place.workspace / "pids")


def _floor(bed: Bed) -> float:
    with bed.spawn(bed.place(), "-c", READER) as peer:
        peer.line()
        peer.end_input()
        return peer.exit_ms()
