"""Floors that need no process of their own: what the disk takes."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

from hames.bench.prototype import sync

LINE = b"x" * 599 + b"\n"
"""As long as the event of a short submit."""


def append_durably(path: Path, times: int, *, lines: int = 1) -> list[float]:
    """Append `lines` lines and sync, `times` times; milliseconds of each."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    taken: list[float] = []
    try:
        for _ in range(times):
            started = perf_counter()
            os.write(descriptor, LINE * lines)
            sync(descriptor)
            taken.append((perf_counter() - started) * 1000)
    finally:
        os.close(descriptor)
    return taken
