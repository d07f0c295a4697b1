"""Rows `*_large`, `open_after_kill`, `replay_rss`: what must not grow with a store, beside the same in a small one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio

from hames.bench.bed import Bed, Place, median, session, stopwatch, submit
from hames.bench.processes import KNOWN, peak_mb, rss_mb
from hames.bench.stores import crowd, fill, opened
from hames.bench.table import Figure
from hames.ports import Store

EVENTS = 1_000_000
SESSIONS = 10_000
SMALL_EVENTS = 1_000
SMALL_SESSIONS = 100
"""Enough for whole pages; the ratio of the two stores is what is bounded, so a short run is judged as well."""

PAGE = 500
PAGE_BYTES = 2**19
LISTED = 50

SETTLE_S = 0.3
"""Until an idle writer has made its checkpoint: some five times what that takes."""

Times = dict[str, list[float]]


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """Both stores are made through the store; each is opened by processes of its own after that."""
    small, large = bed.place(), bed.place()
    events = bed.times(EVENTS, EVENTS // 40)
    anyio.run(_make, small.home, SMALL_EVENTS, SMALL_SESSIONS)
    anyio.run(_make, large.home, events, bed.times(SESSIONS, SESSIONS // 20))
    times = bed.times(15, 5)
    floors = anyio.run(_times, small.home, times)
    figures = [
        Figure(name, median(taken), len(taken), min(taken), median(floors[name]))
        for name, taken in anyio.run(_times, large.home, times).items()
    ]
    if "replay_rss" in names and KNOWN:
        figures.append(Figure("replay_rss", _replay(bed, large), 1))
    if "open_after_kill" in names:
        killed = [_open_after_kill(bed, large, number) for number in range(bed.times(7, 2))]
        figures.append(Figure("open_after_kill", median(killed), len(killed), min(killed)))
    return figures


async def _make(home: Path, events: int, sessions: int) -> None:
    async with opened(home) as store:
        await crowd(store, sessions)
        await fill(store, "s", events)
        # An idle writer moves the WAL into the database, and the next commit starts it anew: what its recovery takes,
        # some 5 ms at the most, says nothing of the store.
        for _ in range(3):
            await anyio.sleep(SETTLE_S)
            await store.check()


async def _times(home: Path, times: int) -> Times:
    """Milliseconds of each thing, by row. The store is opened anew each time; nothing is warm in it but its pages."""
    found: Times = {}

    async def time(name: str, action: Callable[[], Awaitable[Any]]) -> None:
        with stopwatch() as taken:
            await action()
        found.setdefault(name, []).extend(taken)

    for _ in range(times):
        with stopwatch() as taken:
            async with opened(home) as store:
                opened_at = perf_counter()
                await _pages(store, time)
            closed_at = perf_counter()
        found.setdefault("open_large", []).append(taken[0] - (closed_at - opened_at) * 1000)
    return found


async def _pages(store: Store, time: Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[None]]) -> None:
    head = (await store.load("s")).cursor
    await time("list_large", lambda: store.sessions(workspace=None, query=None, before=None, limit=LISTED))
    await time("first_page_large", lambda: store.read("s", limit=PAGE, max_bytes=PAGE_BYTES))
    await time("last_page_large", lambda: store.read("s", before=head, limit=PAGE, max_bytes=PAGE_BYTES))


def _replay(bed: Bed, place: Place) -> float:
    """Megabytes above what the server had after its first page, at the most."""
    head = anyio.run(_head, place.home)
    with bed.server(place) as (peer, _):
        peer.call("events/read", {"sessionId": "s", "limit": 1})
        before = rss_mb(peer.pid)
        peer.send("events/subscribe", {"sessionId": "s"})
        peer.until(b'"cursor":"' + head.encode())
        return peak_mb(peer.pid) - before


async def _head(home: Path) -> str:
    async with opened(home) as store:
        return (await store.load("s")).cursor


def _open_after_kill(bed: Bed, place: Place, number: int) -> float:
    """Milliseconds until a store whose server was killed within a turn is open, and that turn's session proved."""
    session_id = f"killed-{number}"
    with bed.server(place) as (peer, _):
        session(peer, place, "stall", session_id=session_id)
        submit(peer, session_id)
        peer.until(b'"type":"model.requested"')
        peer.process.kill()
    return anyio.run(_open, place.home, session_id)


async def _open(home: Path, session_id: str) -> float:
    started = perf_counter()
    async with opened(home) as store:
        await store.load(session_id)
        return (perf_counter() - started) * 1000
