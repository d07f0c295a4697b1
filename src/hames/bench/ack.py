"""Rows `ack*`: how soon a submit is durable, and how much 64 sessions write, beside appending and syncing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import anyio

from hames.bench.bed import Bed, median, stopwatch
from hames.bench.floors import append_durably
from hames.bench.stores import creation, facts, opened, running, submission
from hames.bench.table import Figure
from hames.ports import Lease, Store

WRITERS = 64
WARM_UP = 20


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """In this process: a store, and no server before it."""
    n = bed.times(300, 100)
    each = bed.times(100, 30)
    figures: list[Figure] = []
    if "ack" in names:
        acks = anyio.run(_acks, bed.place().home, n)
        floor = append_durably(bed.directory / "ack-floor", n)
        figures.append(Figure("ack", median(acks), n, min(acks), median(floor)))
    if "ack64" in names:
        rate = anyio.run(_rate, bed.place().home, each)
        floor = append_durably(bed.directory / "ack64-floor", each, lines=WRITERS)
        figures.append(Figure("ack64", rate, WRITERS * each, floor=WRITERS * 1000 / median(floor)))
    return figures


async def _acks(home: Path, n: int) -> list[float]:
    async with opened(home) as store:
        # A session each: a queue that grows would be measured too.
        for number in range(WARM_UP + n):
            await store.commit(f"s{number}", creation(store)).wait()
        acks: list[float] = []
        for number in range(WARM_UP + n):
            with stopwatch() as taken:
                await store.commit(f"s{number}", submission("t")).wait()
            acks += taken
        return acks[WARM_UP:]


async def _rate(home: Path, each: int) -> float:
    """Events a second when each session writes its next when the one before is durable."""
    async with opened(home) as store:
        leases = [await running(store, f"s{number}") for number in range(WRITERS)]
        started = perf_counter()
        async with anyio.create_task_group() as writers:
            for lease in leases:
                writers.start_soon(_write, store, lease, each)
        return WRITERS * each / (perf_counter() - started)


async def _write(store: Store, lease: Lease, count: int) -> None:
    for number in range(count):
        await store.commit(lease.session_id, facts(lease, number, 1)).wait()
