"""Rows `cancel*`: a running command is cancelled, a daemon of its own included, beside signal, wait and sync."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, sleep

from hames.bench.bed import Bed, median, session, submit
from hames.bench.driver import WAIT_S, BenchFailed
from hames.bench.floors import append_durably
from hames.bench.processes import alive
from hames.bench.table import Figure

LOOK_S = 0.002


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """From the send of the cancel to the terminal event; what then still lives is counted."""
    n = bed.times(15, 5)
    times: list[float] = []
    orphans = 0
    with bed.server() as (peer, place):
        session(peer, place, "sleep")
        for number in range(n + 1):
            submit(peer)
            pids = running_pids(place.workspace / "pids")
            started = perf_counter()
            peer.send("turn/cancel", {"sessionId": "s"})
            peer.terminal(b"cancelled")
            if number:
                times.append((perf_counter() - started) * 1000)
            orphans += sum(alive(pid) for pid in pids)
    floor = [_floor(bed) for _ in range(5)]
    return [
        Figure("cancel", median(times), n, min(times), median(floor)),
        Figure("cancel_orphans", orphans, n + 1),
    ]


def running_pids(path: Path) -> list[int]:
    """The processes of `model.SLEEPER`, once both run; the file that names them is taken away."""
    limit = perf_counter() + WAIT_S
    while perf_counter() < limit:
        try:
            pids = [int(word) for word in path.read_text().split()]
        except FileNotFoundError:
            sleep(LOOK_S)
            continue
        path.unlink()
        return pids
    raise BenchFailed(f"the command did not start within {WAIT_S:.0f} s")


def _floor(bed: Bed) -> float:
    """A group is killed and waited for, and that is made durable."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    started = perf_counter()
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    append_durably(bed.directory / "cancel-floor", 1)
    return (perf_counter() - started) * 1000
