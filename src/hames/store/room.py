"""How much room a repair needs, told before it begins: a disk that is full is a common cause of what is to be repaired.

Rule: contents are not counted. The backup names their files a second time, and copies none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from hames.protocol.errors import HarnessFault
from hames.store.faults import full

COPIED: Final = ("store.db", "store.db-wal", "store.db-shm", "witness", "key")
"""Copied byte for byte into the backup, before anything opens them."""

COPIES: Final = 3
"""The backup, the database made anew or the WAL that mends it, and a copy of one that was cut off."""

LEAST_BYTES: Final = 2**17
"""For what SQLite needs beside, whatever the size."""


def needed_bytes(directory: Path) -> int:
    """The most that a repair of the store takes beside what is there."""
    sizes = [(directory / name).stat().st_size for name in COPIED if (directory / name).is_file()]
    return COPIES * sum(sizes) + LEAST_BYTES


def require(directory: Path) -> None:
    """Go on only where there is room for a repair.

    Raises:
        HarnessFault: `store_full {neededBytes, freeBytes}`. Nothing was changed.
    """
    if _free_bytes(directory) < needed_bytes(directory):
        raise lacking(directory)


def lacking(directory: Path) -> HarnessFault:
    """`store_full`, with how much a repair needs, and how much is free."""
    fault = full(directory)
    needed, free = needed_bytes(directory), _free_bytes(directory)
    message = (
        f"The store {directory} has no room to be repaired: that takes up to {_mib(needed)}, {_mib(free)} are free. "
        "Free space on its file system, then repair; nothing was changed."
    )
    details = {**fault.details, "neededBytes": needed, "freeBytes": free}
    return HarnessFault("store_full", message, boundary="artifact_store", **details)


def _free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"
