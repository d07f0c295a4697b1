"""Room kept beside the store: a file that is given up when the disk is full, so that what runs can be settled.

Rule 1: once it is given up, nothing new is admitted by this process until it could be made again: the room is for ends,
not for beginnings.
Rule 2: a part of it is given up only to remove something: who frees the room that is missing must be able to.
Rule 3: it is never missed: a store without it works, and fails a little earlier.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

NAME: Final = "ballast"

LAST_PART: Final = 4
"""One part in so many is kept for removals: rows that go are written to the log of SQLite before there is more room."""


class Reserve:
    """The file of one store, of `size_bytes`; 0 for none. Used by the writer's thread, with the gate held."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.is_used = False
        """This process gave it up, and there was no room since."""
        self._path = directory / NAME

    def make(self) -> bool:
        """Make it if it is not there and the disk has room for it twice; whether it is there, or is not wanted."""
        self.is_used = self.is_used and not self._made()
        return not self.is_used

    def give_up(self, *, to_remove: bool = False) -> bool:
        """The disk is full: free its room, all of it `to_remove` something; whether there was some to free."""
        self.is_used = self.size_bytes > 0
        last_bytes = self.size_bytes // LAST_PART
        try:
            if to_remove:
                self._path.unlink()
            elif self._path.stat().st_size <= last_bytes:
                return False
            else:
                os.truncate(self._path, last_bytes)
        except OSError:
            return False
        return True

    def keep(self) -> bool:
        """Make it, if it is not there; what fails is left to another day. Never more to do."""
        self._made()
        return False

    def _made(self) -> bool:
        try:
            if os.stat(self._path).st_size == self.size_bytes:
                return True
        except FileNotFoundError:
            pass
        except OSError:
            return False
        try:
            return self._fill()
        except OSError:
            with suppress(OSError):
                self._path.unlink()
            return False

    def _fill(self) -> bool:
        disk = os.statvfs(self._path.parent)
        if not self.size_bytes or disk.f_bavail * disk.f_frsize < 2 * self.size_bytes:
            return not self.size_bytes
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Not only a length: blocks.
            os.posix_fallocate(descriptor, 0, self.size_bytes)
        finally:
            os.close(descriptor)
        return True
