"""Taking the room away from a server, and giving it back."""

from __future__ import annotations

import contextlib
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.driver import Server

LEAST_BYTES = 512
"""A file of the server may have so much: less than any has."""

_ZEROS = bytes(1 << 16)


@contextmanager
def no_room(server: Server, largest_bytes: int = LEAST_BYTES) -> Iterator[None]:
    """No file of the server may grow beyond `largest_bytes`: writing fails at once, as on a full disk."""
    before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (largest_bytes, before[1]))
    try:
        yield
    finally:
        if server.process.poll() is None:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)


def some_room(server: Server, chance: random.Random) -> int:
    """How large files may be so that the next commits fail: at once, or in their midst."""
    # Zeros are written ahead of the last commit.
    used = (server.home / "store/store.db-wal").read_bytes().rstrip(b"\0")
    return chance.choice((LEAST_BYTES, len(used) + chance.randrange(40_000)))


@contextmanager
def filled(mount: Path, left_bytes: int) -> Iterator[None]:
    """The file system is really full, save for `left_bytes`."""
    filler = mount / "filler"
    try:
        with open(filler, "wb", buffering=0) as file:
            size = 0
            with contextlib.suppress(OSError):
                while True:
                    size += file.write(_ZEROS)
            file.truncate(max(0, size - left_bytes))
        yield
    finally:
        filler.unlink()
