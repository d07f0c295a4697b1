"""Rows `replay*`: a long log from the store to the bytes on the wire, beside joining and copying the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import anyio

from hames.app import give_memory_back
from hames.bench.bed import Bed, Place, median, stopwatch
from hames.bench.stores import fill, opened
from hames.bench.table import Figure
from hames.ports import Store
from hames.server.frames import encode_lines
from hames.server.subscriptions import SEND_BYTES, SEND_EVENTS

EVENTS = 100_000
"""What the rows speak of. A short run reads fewer and is scaled to it."""

HEAD = b'{"jsonrpc":"2.0","method":"event","params":{"subscriptionId":"u-1",'
COPY = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """The log is made through the store, read back through it, and then by a client of a server on it."""
    give_memory_back()
    events = bed.times(EVENTS, EVENTS // 5)
    scale = EVENTS / events
    place = bed.place()
    passed, wire, cursor = anyio.run(_in_process, place.home, events, bed.times(5, 3))
    lines = wire.splitlines(keepends=True)
    joined: list[float] = []
    for _ in range(5):
        with stopwatch() as taken:
            b"".join(lines)
        joined += taken
    figures = [Figure("replay", scale * median(passed), len(passed), scale * min(passed), scale * median(joined))]
    if "replay_pipe" in names:
        path = bed.directory / "replay-floor"
        path.write_bytes(wire)
        end = cursor.encode()
        piped = [_over_pipe(bed, place, end) for _ in range(bed.times(3, 2))]
        copied = [_copy(bed, path, end) for _ in range(3)]
        figures.append(
            Figure("replay_pipe", scale * median(piped), len(piped), scale * min(piped), scale * median(copied))
        )
    return figures


async def _in_process(home: Path, events: int, times: int) -> tuple[list[float], bytes, str]:
    """Milliseconds of each read, the wire bytes, and the cursor of their end."""
    async with opened(home) as store:
        await fill(store, "s", events)
        frames: list[bytes] = []
        cursor = await _read_all(store, frames.append)
        passed: list[float] = []
        for _ in range(times):
            with stopwatch() as taken:
                # What was sent is not kept.
                await _read_all(store, len)
            passed += taken
        await store.release("s")
        return passed, b"".join(frames), cursor


async def _read_all(store: Store, send: Callable[[bytes], object]) -> str:
    """Read and frame the log in pages, as a subscription does; the cursor of its end."""
    cursor: str | None = None
    more = True
    while more:
        page = await store.read("s", after=cursor, limit=SEND_EVENTS, max_bytes=SEND_BYTES)
        send(encode_lines(HEAD, page.lines))
        cursor, more = page.cursor, page.more
    assert cursor is not None
    return cursor


def _over_pipe(bed: Bed, place: Place, end: bytes) -> float:
    with bed.server(place) as (peer, _):
        # The store is opened by the first request that needs it.
        peer.call("events/read", {"sessionId": "s", "limit": 1})
        started = perf_counter()
        peer.send("events/subscribe", {"sessionId": "s"})
        tail = b""
        while b'"cursor":"' + end not in tail:
            tail = tail[-4096:] + peer.read()
        passed_ms = (perf_counter() - started) * 1000
        peer.process.kill()
        return passed_ms


def _copy(bed: Bed, path: Path, end: bytes) -> float:
    with bed.spawn(bed.place(), "-c", COPY, str(path)) as peer:
        tail = peer.read()
        started = perf_counter()
        while b'"cursor":"' + end not in tail:
            tail = tail[-4096:] + peer.read()
        return (perf_counter() - started) * 1000
