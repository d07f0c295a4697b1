"""Row `restart`: the server is killed; a new one gives the client its whole log, beside imports and a copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from hames.bench.bed import INITIALIZE, Bed, Place, median, session, submit
from hames.bench.table import Figure

COPY = "import sys, anyio, pydantic, orjson; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
TURNS = 200


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """From the spawn to the last event of the log."""
    n = bed.times(5, 2)
    turns = bed.times(TURNS, TURNS // 4)
    place = bed.place()
    with bed.server(place) as (peer, _):
        session(peer, place, "text")
        for _ in range(turns):
            submit(peer)
            last = peer.terminal()
        peer.process.kill()
    cursor = last[last.index(b'"cursor":"') : last.index(b'","event"')]
    times: list[float] = []
    for _ in range(n):
        passed_ms, copy = _replay(bed, place, cursor)
        times.append(passed_ms)
    path = bed.directory / "restart-floor"
    path.write_bytes(copy)
    floor = [_floor(bed, path, cursor) for _ in range(n)]
    return [Figure("restart", median(times), n, min(times), median(floor))]


def _replay(bed: Bed, place: Place, cursor: bytes) -> tuple[float, bytes]:
    lines: list[bytes] = []
    with bed.serve(place) as peer:
        peer.call("initialize", INITIALIZE)
        peer.call("events/subscribe", {"sessionId": "s"})
        while not lines or cursor not in lines[-1]:
            lines.append(peer.line())
        passed_ms = (perf_counter() - peer.spawned_at) * 1000
        peer.process.kill()
    return passed_ms, b"\n".join(lines) + b"\n"


def _floor(bed: Bed, path: Path, cursor: bytes) -> float:
    with bed.spawn(bed.place(), "-c", COPY, str(path)) as peer:
        peer.until(cursor)
        return (perf_counter() - peer.spawned_at) * 1000
