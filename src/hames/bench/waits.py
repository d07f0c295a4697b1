"""Rows `cancel_in_*` and `limit_in_*`: a turn is ended in each of its waits, beside what has to be made durable for it.

Rule: the figure is the slowest, since the bound is a promise; the model closes nothing, so nothing else ends a wait.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter, sleep

import orjson

from hames.bench.bed import Bed, Place, median, session
from hames.bench.cancel import running_pids
from hames.bench.driver import BenchFailed, Peer
from hames.bench.floors import append_durably
from hames.bench.processes import alive
from hames.bench.table import Figure
from hames.core.records import record
from hames.core.times import epoch_ms

WALL_MS = 400
"""Of a turn that ends at its time: enough to come to any of the waits."""

SETTLE_S = 0.05
"""From the event before a wait that no event tells of, until it has begun."""

WORDS = "word " * 700
TURNS_BEFORE = 4
"""Of so many words: enough that something of them can be left out."""

REQUESTED = b'"type":"model.requested"'


@record
class _Wait:
    """A wait: what the model does, and how it is known that the turn waits."""

    script: str
    reached: Callable[[Peer, Place], Sequence[int]]
    prepare: Callable[[Peer], None] = lambda peer: None
    connects: bool = True


def measure(bed: Bed, names: Sequence[str]) -> list[Figure]:
    """Each wait in a session of its own, ended again and again."""
    figures: list[Figure] = []
    for name, wait in _WAITS.items():
        rows = [row for row in (f"cancel_in_{name}", f"limit_in_{name}") if row in names]
        if not rows:
            continue
        with ExitStack() as resources:
            settings = {} if wait.connects else {"HAMES_COMPATIBLE_BASE_URL": resources.enter_context(_full_backlog())}
            peer, place = resources.enter_context(bed.server(settings=settings))
            session(peer, place, wait.script)
            wait.prepare(peer)
            figures += [_ended(bed, row, wait, peer, place) for row in rows]
    return figures


def _ended(bed: Bed, row: str, wait: _Wait, peer: Peer, place: Place) -> Figure:
    end, syncs, n = (_cancelled, 2, bed.times(10, 2)) if row.startswith("cancel") else (_timed_out, 1, bed.times(5, 1))
    end(wait, peer, place)  # the first one imports what an end needs
    times = [end(wait, peer, place) for _ in range(n)]
    floor = [sum(append_durably(bed.directory / "waits-floor", syncs)) for _ in range(10)]
    return Figure(row, max(times), n, min(times), median(floor))


def _cancelled(wait: _Wait, peer: Peer, place: Place) -> float:
    _submit(peer)
    pids = wait.reached(peer, place)
    started = perf_counter()
    peer.send("turn/cancel", {"sessionId": "s"})
    peer.terminal(b"cancelled")
    passed_ms = (perf_counter() - started) * 1000
    _check_gone(pids)
    return passed_ms


def _timed_out(wait: _Wait, peer: Peer, place: Place) -> float:
    _submit(peer, limits={"wallTimeMs": WALL_MS})
    started = orjson.loads(peer.until(b'"type":"turn.started"'))["params"]["event"]
    pids = wait.reached(peer, place)
    line = peer.terminal(b"failed")
    passed_ms = time.time() * 1000 - epoch_ms(started["data"]["deadlineAt"])
    if b'"limit":"wallTimeMs"' not in line:
        raise BenchFailed(f"a turn did not end at its time: {line[-400:].decode(errors='replace')}")
    _check_gone(pids)
    return passed_ms


def _check_gone(pids: Sequence[int]) -> None:
    if left := [pid for pid in pids if alive(pid)]:
        raise BenchFailed(f"the turn has ended, and of its command run {left}")


def _submit(peer: Peer, text: str = "go", limits: Mapping[str, int] | None = None) -> None:
    said = [{"type": "text", "text": text}]
    peer.send("turn/submit", {"sessionId": "s", "input": said, **({"limits": limits} if limits else {})})


def _grow(peer: Peer) -> None:
    for _ in range(TURNS_BEFORE):
        _submit(peer, WORDS)
        peer.terminal()
    # It stands until it is done: every further turn begins with the summary.
    peer.call("session/compact", {"sessionId": "s"})


def _asked(peer: Peer, place: Place) -> Sequence[int]:
    peer.until(REQUESTED)
    sleep(SETTLE_S)
    return ()


def _answering(peer: Peer, place: Place) -> Sequence[int]:
    peer.until(b'"method":"delta"')
    return ()


def _sleeping(peer: Peer, place: Place) -> Sequence[int]:
    peer.until(b'"type":"model.retried"')
    return ()


def _summing_up(peer: Peer, place: Place) -> Sequence[int]:
    peer.until(b'"purpose":"summary"')
    sleep(SETTLE_S)
    return ()


def _running(peer: Peer, place: Place) -> Sequence[int]:
    return running_pids(place.workspace / "pids")


_WAITS: Mapping[str, _Wait] = {
    "connect": _Wait("text", _asked, connects=False),
    "first_byte": _Wait("never", _asked),
    "stall": _Wait("stall", _answering),
    "retry": _Wait("busy", _sleeping),
    "compaction": _Wait("compact", _summing_up, prepare=_grow),
    "tool": _Wait("sleep", _running),
}


@contextmanager
def _full_backlog() -> Iterator[str]:
    """The URL of a server that listens, and to which no further connection is made: a further SYN is not answered."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            client = sockets.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
