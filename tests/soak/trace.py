"""A trace of what is done to files, and the part of it that SQLite does: `soak.recorded` adds the others.

Rule: a record is written with what it tells of, in one order for all threads.
"""

from __future__ import annotations

import itertools
import os
import pickle
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import apsw

from soak.disk import SCENERY

_CREATES_SYNCED = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
"""SQLite syncs the directory with the first sync of such a file, if it made it (os_unix.c: `UNIXFILE_DIRSYNC`)."""


class Trace:
    """The records, in the order of what they tell: tuples in a file of pickles."""

    def __init__(self, path: Path, root: Path) -> None:
        self.root = os.path.realpath(root)
        self._write = os.write
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._lock = threading.RLock()
        self._names = itertools.count(1)

    def within(self, path: object, dir_fd: int | None = None) -> str | None:
        """The path from the root, None when it is elsewhere or scenery."""
        if not isinstance(path, str | os.PathLike):
            return None
        full = os.fspath(path)
        if dir_fd is not None:
            full = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), full)
        full = os.path.abspath(full)
        if full != self.root and not full.startswith(self.root + os.sep):
            # A root that is reached by a link.
            full = os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))
        inner = os.path.relpath(full, self.root)
        if inner.startswith("..") or any(part.startswith(SCENERY) for part in inner.split(os.sep)):
            return None
        return inner

    def name(self) -> str:
        """A name for what was opened."""
        return f"{os.getpid()}:{next(self._names)}"

    def alone(self) -> AbstractContextManager[object]:
        """Keep others from what is recorded meanwhile."""
        return self._lock

    def note(self, *record: object) -> None:
        """Write a record."""
        with self._lock:
            self._write(self._fd, pickle.dumps(record))

    @contextmanager
    def noted(self, *record: object) -> Iterator[None]:
        """Write a record and do it, before anybody else does anything."""
        with self._lock:
            self.note(*record)
            yield

    @contextmanager
    def synced(self, *record: object) -> Iterator[None]:
        """Write that a sync begins, and that it has ended."""
        self.note("sync", *record)
        yield
        self.note("synced", *record)


# --- SQLite -------------------------------------------------------------------------------------------------------


class RecordedFile(apsw.VFSFile):
    """A file of SQLite."""

    def __init__(self, trace: Trace, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._trace = trace
        self._inner = trace.within(path)
        self._handle = trace.name()
        is_new = path is not None and not os.path.exists(path)
        self._directory = None
        if self._inner is not None and flags[0] & apsw.SQLITE_OPEN_CREATE:
            trace.note("open", self._handle, self._inner, os.O_CREAT)
            if is_new and flags[0] & _CREATES_SYNCED:
                self._directory = os.path.dirname(self._inner) or "."
        elif self._inner is not None:
            trace.note("open", self._handle, self._inner, 0)
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        """Record and write."""
        if self._inner is None:
            return super().xWrite(data, offset)
        with self._trace.noted("write", self._handle, offset, bytes(data)):
            super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        """Record and truncate."""
        if self._inner is None:
            return super().xTruncate(newsize)
        with self._trace.noted("truncate", self._handle, newsize):
            super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        """Record and sync."""
        if self._inner is None:
            return super().xSync(flags)
        with self._trace.synced(self._handle):
            super().xSync(flags)
        if self._directory is not None:
            self._trace.note("sync_directory", self._directory)
            self._directory = None


class RecordedVFS(apsw.VFS):
    """What SQLite does to files."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        super().__init__("recorded", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file that is recorded."""
        return RecordedFile(self._trace, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Record and delete."""
        inner = self._trace.within(filename)
        if inner is None:
            return super().xDelete(filename, syncdir)
        with self._trace.noted("unlink", inner):
            super().xDelete(filename, syncdir)
        if syncdir:
            self._trace.note("sync_directory", os.path.dirname(inner) or ".")
