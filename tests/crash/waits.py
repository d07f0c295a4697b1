"""Waiting for what the operating system shows: files, processes, conditions; all bounded."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

WAIT_S = 20.0


def until(condition: Callable[[], object], what: str) -> None:
    """Look again and again until `condition`."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"not in {WAIT_S} s: {what}"
        time.sleep(0.005)


def until_file(path: Path) -> None:
    until(path.exists, f"{path} is there")


def runs(pid: int) -> bool:
    """A process of this pid is there and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


def until_gone(pid: int) -> None:
    until(lambda: not runs(pid), f"{pid} is gone")


def marked(mark: str) -> list[int]:
    """The processes that have `mark` in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in environment and runs(int(entry)):
                found.append(int(entry))
    return found
