"""Rows `share*`: two processes that write to one store without a pause, beside one that has it for itself.

Run as `python -m hames.bench.share <home> <session> <seconds>`: says `ready`, begins at a line on stdin, and says how
often it wrote and how long it waited at most.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, perf_counter

import anyio
import orjson

from hames.bench.bed import Bed, Place
from hames.bench.driver import Peer
from hames.bench.stores import facts, opened, running
from hames.bench.table import Figure


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """Two writers at once on a new store, then one."""
    seconds = bed.times(6, 1)
    both = _together(bed, 2, seconds)
    (alone,) = _together(bed, 1, seconds)
    writes = [int(each["writes"]) for each in both]
    total = sum(writes)
    longest = max(each["longestMs"] for each in both)
    return [
        Figure("share", 100 * min(writes) / total, total, floor=50),
        Figure("share_wait", longest, total, floor=alone["longestMs"]),
        Figure("share_rate", total / seconds, total, floor=alone["writes"] / seconds),
    ]


def _together(bed: Bed, count: int, seconds: int) -> list[dict[str, float]]:
    place = bed.place()
    with ExitStack() as spawned:
        peers = [spawned.enter_context(_writer(bed, place, f"s{number}", seconds)) for number in range(count)]
        for peer in peers:
            peer.line()
        for peer in peers:
            peer.send_line(b"go\n")
        return [orjson.loads(peer.line()) for peer in peers]


def _writer(bed: Bed, place: Place, session_id: str, seconds: int) -> Peer:
    return bed.spawn(place, "-m", "hames.bench.share", str(place.home), session_id, str(seconds))


async def _write(home: Path, session_id: str, seconds: float) -> None:
    async with opened(home) as store:
        lease = await running(store, session_id)
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        end = monotonic() + seconds
        writes, longest = 0, 0.0
        while monotonic() < end:
            started = perf_counter()
            await store.commit(session_id, facts(lease, writes, 1)).wait()
            longest = max(longest, perf_counter() - started)
            writes += 1
        print(orjson.dumps({"writes": writes, "longestMs": longest * 1000}).decode(), flush=True)


if __name__ == "__main__":
    anyio.run(_write, Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
