"""Whether what lies in a store's directory is of its kind: a file to be opened, a directory to put files into."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FILES: Final = ("store.db", "store.db-wal", "store.db-shm", "gate.lock", "key", "witness", "ballast")
DIRECTORIES: Final = ("live", "bell", "heirs", "reaper", "backups", "repairing", "repaired", "blobs")

_HELD: Final = frozenset({"store.db", "store.db-wal", "store.db-shm", "key", "blobs"})
"""Not made anew by who needs them: what stands in their place is the user's to move."""

_DATABASE: Final = frozenset({"store.db", "store.db-wal", "store.db-shm"})


def misplaced(directory: Path) -> Iterator[tuple[str, str, bool]]:
    """What is of the wrong kind: its name, what is wrong and what to do, and whether a repair moves it away."""
    for name in (*FILES, *DIRECTORIES):
        try:
            mode = os.lstat(directory / name).st_mode
        except OSError:
            continue
        if stat.S_ISLNK(mode) and name in _DATABASE:
            yield name, "is a symbolic link, and its WAL is not beside it; put the files themselves here", False
            continue
        try:
            mode = os.stat(directory / name).st_mode
        except OSError:
            yield name, "is a symbolic link to nothing; remove it", name not in _HELD
            continue
        is_file = name in FILES
        if not (stat.S_ISREG(mode) if is_file else stat.S_ISDIR(mode)):
            wanted = "a file" if is_file else "a directory"
            found = "a directory" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "of another kind"
            yield name, f"is {found} and has to be {wanted}; move it away", name not in _HELD
