"""The entries of a directory that is held open: files put in place and taken away, names in order.

Rule: everything is done by the directory's descriptor and a name in it, never by a path (`paths.py`). Foreign
errors are left to the caller, who knows the path that was asked for.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress

from hames.ports import Entry

Identity = tuple[int, int]


def identity(status: os.stat_result) -> Identity:
    """What tells a file from every other: device and inode."""
    return status.st_dev, status.st_ino


def in_order(directory: int, *, most: int, hidden: Collection[Identity]) -> tuple[list[Entry], int]:
    """See `ports.Sandbox.entries`; those that are `hidden` are left out."""
    fd = os.open(f"/proc/self/fd/{directory}", os.O_RDONLY | os.O_DIRECTORY)
    count = 0

    def found() -> Iterator[tuple[bytes, os.stat_result]]:
        nonlocal count
        with os.scandir(fd) as listing:
            for entry in listing:
                with suppress(FileNotFoundError):  # gone meanwhile
                    status = entry.stat(follow_symlinks=False)
                    if identity(status) not in hidden:
                        count += 1
                        yield os.fsencode(entry.name), status

    try:
        # No two names are equal, so statuses are never compared.
        first = heapq.nsmallest(most, found())
    finally:
        os.close(fd)
    return [_entry(os.fsdecode(name), status) for name, status in first], count


def _entry(name: str, status: os.stat_result) -> Entry:
    if stat.S_ISREG(status.st_mode):
        return Entry(name, "file", status.st_size)
    if stat.S_ISDIR(status.st_mode):
        return Entry(name, "directory", 0)
    return Entry(name, "link" if stat.S_ISLNK(status.st_mode) else "special", 0)


def check_writable(fd: int) -> None:
    """Renaming over a file needs no permission on it, but one that may not be written stays as it is."""
    try:
        os.close(os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ETXTBSY:
            # ETXTBSY, a running program, is no obstacle: it keeps the old file.
            raise


def put(parent: int, name: str, content: bytes, old: os.stat_result | None, *, mode: int | None) -> None:
    """Write `content` beside `name`, make it durable and put it in place, with the mode of `old`, else `mode`."""
    temporary = f".hames-{os.urandom(8).hex()}.tmp"
    # A new file gets the mode that the umask leaves; one that takes another's place shows nobody its content before.
    fd = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600 if old else 0o666, dir_fd=parent
    )
    try:
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            if old is not None:
                made = os.fstat(fd)
                if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
                    with suppress(PermissionError):
                        os.fchown(fd, old.st_uid, old.st_gid)
                mode = stat.S_IMODE(old.st_mode)
            if mode is not None:
                os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    _sync_directory(parent)


def take_away(parent: int, name: str) -> None:
    """Remove the file `name`, durably."""
    os.unlink(name, dir_fd=parent)
    _sync_directory(parent)


def _sync_directory(parent: int) -> None:
    fd = os.open(f"/proc/self/fd/{parent}", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
