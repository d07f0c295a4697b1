"""What breaks a store from outside, at a place that is known."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

WAL_HEADER_BYTES = 32
FRAME_BYTES = 24 + 4096


def close_in_passing(directory: Path) -> None:
    """Open and close the database's files in this process, as a search through the directory does."""
    for path in directory.glob("store.db*"):
        with open(path, "rb") as stray:
            stray.read(1)


def checkpoint(directory: Path) -> None:
    """Move everything from the WAL into the database."""
    with closing(sqlite3.connect(directory / "store.db")) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")


def frames(directory: Path) -> int:
    """Frames of the WAL that count: those of its current round."""
    data = (directory / "store.db-wal").read_bytes()
    salts = data[16:24]
    at, count = WAL_HEADER_BYTES, 0
    while at + FRAME_BYTES <= len(data) and data[at + 8 : at + 16] == salts:
        at, count = at + FRAME_BYTES, count + 1
    return count


def zero(path: Path, start: int, length: int) -> None:
    """A stretch of a file becomes zeros."""
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(bytes(length))


def flip_bits(path: Path, count: int, seed: int, *, start: int = 0) -> None:
    """So many bits at random places behind `start`."""
    chance = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(count):
        data[chance.randrange(start, len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def flip_bit(path: Path, at: int) -> None:
    """One bit at a known place."""
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def older(directory: Path) -> Mapping[str, bytes]:
    """The store's files as they are now, to be put back by `put_back`."""
    return {name: (directory / name).read_bytes() for name in os.listdir(directory) if (directory / name).is_file()}


def put_back(directory: Path, files: Mapping[str, bytes], *names: str) -> None:
    """Put files back as they were; the index is made anew by SQLite."""
    (directory / "store.db-shm").unlink(missing_ok=True)
    for name in names or files:
        if name != "store.db-shm":
            (directory / name).write_bytes(files[name])
