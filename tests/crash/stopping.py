"""Stopping a process that writes to a store, at a moment that the test has chosen.

Who is stopped within the gate keeps everybody else from writing, as a rule and not as a fault (they get
`store_unavailable` until it goes on): a test of anything else stops its process outside.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from crash.waits import until


class Stoppable(Protocol):
    """A process that a test started."""

    @property
    def pid(self) -> int: ...

    def signal(self, number: signal.Signals, /) -> object: ...


def stop_within_the_gate(process: Stoppable, store: Path) -> None:
    """Stop it when it may write to the store of this directory, and nobody else may."""
    _stop_when(process, lambda: holds(process.pid, store / "gate.lock"), "within the gate")


def stop_outside_the_gate(process: Stoppable, store: Path) -> None:
    """Stop it when it is in nobody's way: it has neither the gate nor the turnstile before it."""
    _stop_when(process, lambda: not any(holds(process.pid, path) for path in (store / "gate.lock", store)), "outside")


def _stop_when(process: Stoppable, condition: Callable[[], bool], what: str) -> None:
    for _ in range(2_000):
        process.signal(signal.SIGSTOP)
        until(lambda: state(process.pid) == "T", "it is stopped")
        if condition():
            return
        process.signal(signal.SIGCONT)
    raise AssertionError(f"it was never found {what}")


def holds(pid: int, path: Path) -> bool:
    """The process has the file's `flock` (proc_locks(5): type, mode, access, pid, device and inode)."""
    inode = str(path.stat().st_ino)
    locks = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
    return any(
        lock[1] == "FLOCK" and lock[4] == str(pid) and lock[5].rpartition(":")[2] == inode
        for lock in locks
        if lock[1] != "->"
    )


def state(pid: int) -> str:
    """The letter of its state (proc_pid_stat(5))."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    return stat[stat.rindex(")") + 2]
