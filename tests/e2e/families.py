"""A program with a family: what it starts in the background, and how to see that all of it is gone."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from e2e.processes import alive

CODE = """
import os, signal, subprocess, sys, time

def family():
    with open({pids!r}) as file:
        return file.read().split()

def born():
    with open({pids!r}, "a") as file:
        file.write(f"{{os.getpid()}}\\n")

def linger():
    born()
    time.sleep(600)
    os._exit(0)

born()
# One that holds our output, one of a session of its own that does not care to be asked, and one that is nobody's child.
if os.fork() == 0:
    linger()
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    linger()
if os.fork() == 0:
    if os.fork() == 0:
        linger()
    os._exit(0)
while len(family()) % 4:
    time.sleep(0.001)
open({stands!r}, "w").close()
{then}
"""


class Family:
    """Programs that start three processes in the background, and write down the pids, in `directory`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._program = directory / "program.py"
        self._pids = directory / "pids"
        self._stands = directory / "stands"

    def command(self, then: str) -> str:
        """The command line of a program that does `then` once all of its family is there."""
        self._program.write_text(CODE.format(pids=str(self._pids), stands=str(self._stands), then=then))
        return f"{sys.executable} -S '{self._program}'"

    def stands(self, within_s: float = 30.0) -> None:
        """Wait until it is there."""
        end = time.monotonic() + within_s
        while not self._stands.exists():
            assert time.monotonic() < end, "the program did not come up"
            time.sleep(0.005)

    def has_begun(self) -> bool:
        """One of them was started."""
        return self._pids.exists()

    def pids(self) -> list[int]:
        """All that were ever there."""
        return [int(word) for word in self._pids.read_text().split()]

    def left(self) -> list[int]:
        """Those that live."""
        return [pid for pid in self.pids() if alive(pid)] if self.has_begun() else []

    def kill(self) -> None:
        """End what a test left, by pid."""
        for pid in self.left():
            os.kill(pid, 9)
