"""Whether the files of an open store are still the ones that were opened, and as long as SQLite's index says.

SQLite works on by the descriptors it has when a file is unlinked, replaced, cut or overwritten; what it commits then
is lost with the next start. So nothing is committed, and no question answered, unless `StoreFiles.check` holds, and
nothing is acknowledged unless `confirm` does.

Rule 1: a check costs some 15 microseconds: four `stat`, and where the platform shows SQLite's descriptors four `pread`.
Rule 2: a database file is never opened here: closing it would drop the locks of the whole process
(sqlite.org/howtocorrupt.html, 2.2). The WAL carries no locks, so it may be.
Rule 3: another thread or program may commit, checkpoint, truncate the WAL or vacuum at any moment: a mismatch counts
only if the index is the same before and after the look.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hames.protocol.errors import HarnessFault
from hames.store.faults import translate, unavailable

LOOKS: Final = 100
"""While the index changes under them. It takes more than one where others commit in between, never as many."""

WAL_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
LARGEST_PAGE_BYTES: Final = 65536
"""sqlite.org/fileformat2.html, 4.1; a page size of 1 stands for the largest (1.3.2)."""

WAL_ROOM_BYTES: Final = 2**20
"""Zeros written ahead of the WAL's last frame at a time: a commit that overwrites them costs half of one that makes the
file grow (measured: 0.18 against 0.38 ms)."""

WAL_LOW_BYTES: Final = 2**17
"""When less than that is left, more is made."""

WAL_MOST_BYTES: Final = 16 * 2**20
"""Beyond it nothing is written ahead: SQLite cuts the file to this length (`journal_size_limit`)."""

_ZEROS: Final = bytes(WAL_ROOM_BYTES)

_INDEX: Final = struct.Struct("=14xHII8s8s8x")
"""The head of the -shm file: page size, last valid frame, pages of the database, checksum of that frame, salts
(sqlite.org/walformat.html, 2.1)."""

_PAIR: Final = struct.Struct("=2I")
_PAIR_BIG: Final = struct.Struct(">2I")
"""A checksum is in the machine's byte order in the index, big-endian in a frame."""

FORMAT: Final = b"SQLite format 3\0"
"""What a database begins with."""

HEADER: Final = struct.Struct(">16xH10xI")
"""Page size and pages in a database's header (sqlite.org/fileformat2.html, 1.3); a size of 1 would be the largest."""

_OURS: Final = frozenset(
    {"store.db", "store.db-wal", "store.db-shm", "gate.lock", "key", "witness", "ballast", "sandbox.json"}
)
_OUR_DIRECTORIES: Final = frozenset({"live", "bell", "heirs", "reaper", "backups", "repairing", "repaired", "blobs"})


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


@dataclass(slots=True)
class _Seen:
    """How large the database's file was at the last look, of whichever thread."""

    size_bytes: int


class StoreFiles:
    """The files as they were at open. `own`: SQLite's descriptors by suffix (`""`, `-shm`), as far as they are known;
    `gate_fd` of who may write."""

    def __init__(self, directory: Path, own: Mapping[str, int], *, gate_fd: int | None = None) -> None:
        self._directory = directory
        self._database_fd = own.get("")
        self._index_fd = own.get("-shm")
        self._database = os.fspath(directory / "store.db")
        self._wal = f"{self._database}-wal"
        database = os.stat(self._database)
        self._seen = _Seen(database.st_size)
        self._wal_fd = os.open(self._wal, (os.O_RDONLY if gate_fd is None else os.O_RDWR) | os.O_CLOEXEC)
        self._wal_used_bytes = 0
        self._kept = {self._database: _identity(database), self._wal: _identity(os.fstat(self._wal_fd))}
        if self._index_fd is not None:
            self._kept[f"{self._database}-shm"] = _identity(os.fstat(self._index_fd))
        if gate_fd is not None:
            self._kept[os.fspath(directory / "gate.lock")] = _identity(os.fstat(gate_fd))

    def for_reading(self) -> StoreFiles:
        """The same files, for a reader that has no part in the gate; before it opens them, since SQLite maps a
        shared memory that was cut off and dies of it."""
        files = StoreFiles(self._directory, {} if self._index_fd is None else {"-shm": self._index_fd})
        files._seen = self._seen
        return files

    def check(self) -> None:
        """Nothing was taken away, as far as it shows.

        Raises:
            HarnessFault: `store_unavailable {file, damage}`: this process must not go on with the store.
        """
        try:
            for _ in range(LOOKS):
                index = self._index()
                wrong = self._look(index)
                if wrong is None:
                    return
                if index == self._index():
                    raise self._lost(*wrong)
        except OSError as error:
            raise translate(error, self._directory) from error

    def confirm(self) -> None:
        """What was checked before a commit was there for it too: the two files that hold it.

        Raises:
            HarnessFault: as `check`.
        """
        try:
            wrong = self._changed((self._database, self._wal), [])
        except OSError as error:
            raise translate(error, self._directory) from error
        if wrong is not None:
            raise self._lost(*wrong)

    def make_room(self) -> None:
        """Write zeros behind the WAL's last frame where few are left; called within a write transaction, so that
        nobody else makes the file grow meanwhile. Zeros are no frame: whoever recovers the WAL stops at them, as at
        what an earlier round left (sqlite.org/fileformat2.html, 4.1).
        """
        try:
            end = os.fstat(self._wal_fd).st_size
            if end - self._wal_used_bytes >= WAL_LOW_BYTES or end + WAL_ROOM_BYTES > WAL_MOST_BYTES:
                return
            try:
                written = os.pwrite(self._wal_fd, _ZEROS, end)
            except OSError:
                written = 0
            if written < WAL_ROOM_BYTES:
                # No room on the disk: what little there is belongs to the commit.
                os.ftruncate(self._wal_fd, end)
        except OSError:
            # It only makes commits faster; whether they can be made, they say themselves.
            return

    def close(self) -> None:
        """Close what was opened here."""
        os.close(self._wal_fd)

    def _index(self) -> bytes:
        return b"" if self._index_fd is None else os.pread(self._index_fd, _INDEX.size, 0)

    def _look(self, index: bytes) -> tuple[str, str] | None:
        sizes: list[int] = []
        wrong = self._changed(self._kept, sizes)
        if wrong is not None:
            return wrong
        size_bytes, wal_bytes = sizes[:2]
        pages = page_bytes = 0
        if self._index_fd is not None:
            if len(index) < _INDEX.size:
                return "store.db-shm", "cut off"
            page_bytes, frames, pages, checksum, salts = _INDEX.unpack(index)
            page_bytes = LARGEST_PAGE_BYTES if page_bytes == 1 else page_bytes
            self._wal_used_bytes = WAL_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page_bytes)
            damage = self._wal_damage(wal_bytes, frames, page_bytes, last=(salts, checksum)) if frames else None
            if damage is not None:
                return "store.db-wal", damage
        # Who vacuums makes it smaller, and says so in the index first.
        if size_bytes < self._seen.size_bytes and (size_bytes < pages * page_bytes or size_bytes == 0):
            return "store.db", "cut off"
        if self._database_fd is not None and os.pread(self._database_fd, len(FORMAT), 0) != FORMAT:
            return "store.db", "overwritten"
        self._seen.size_bytes = size_bytes
        return None

    def _changed(self, paths: Iterable[str], sizes: list[int]) -> tuple[str, str] | None:
        for path in paths:
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return os.path.basename(path), "removed"
            if (found.st_dev, found.st_ino) != self._kept[path]:
                return os.path.basename(path), "replaced"
            sizes.append(found.st_size)
        return None

    def _wal_damage(self, wal_bytes: int, frames: int, page_bytes: int, *, last: tuple[bytes, bytes]) -> str | None:
        """By its length, its header and the header of its `last` frame: salts and checksum, as in the index."""
        last_at = WAL_HEADER_BYTES + (frames - 1) * (FRAME_HEADER_BYTES + page_bytes)
        if wal_bytes < last_at + FRAME_HEADER_BYTES + page_bytes:
            return "cut off"
        salts, checksum = last
        big_endian = _PAIR_BIG.pack(*_PAIR.unpack(checksum))
        header = os.pread(self._wal_fd, WAL_HEADER_BYTES, 0)
        frame = os.pread(self._wal_fd, FRAME_HEADER_BYTES, last_at)
        is_whole = header[16:24] == salts and frame[8:16] == salts and frame[16:24] == big_endian
        return None if is_whole else "overwritten"

    def _lost(self, name: str, damage: str) -> HarnessFault:
        why = (
            f"{name} was {damage} while it was open, so nothing more is acknowledged; "
            "end every process that uses the store, then restore it from a copy or start anew with what is left"
        )
        return unavailable(self._directory, why, retryable=False, file=name, damage=damage)


def make_private(directory: Path) -> None:
    """Take what others may do from this user's files of a store, and from the directory if it holds nothing else.

    The key has always been the user's alone, so nobody else could use the store before.
    """
    names = os.listdir(directory)
    for name in names:
        if name in _OURS or name in _OUR_DIRECTORIES:
            _tighten(directory / name)
    if all(_is_ours(name) for name in names):
        _tighten(directory)


def _is_ours(name: str) -> bool:
    return name in _OURS or name in _OUR_DIRECTORIES or name.startswith("reaper-")


def _tighten(path: Path) -> None:
    with suppress(FileNotFoundError, PermissionError):
        found = os.lstat(path)
        is_open = stat.S_IMODE(found.st_mode) & 0o077
        is_shared = found.st_mode & stat.S_ISVTX
        if is_open and not is_shared and not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid():
            os.chmod(path, stat.S_IMODE(found.st_mode) & ~0o077)


def make_directory(path: Path) -> None:
    """A directory of the store, the user's alone."""
    path.mkdir(mode=0o700, exist_ok=True)


def sync(path: Path) -> None:
    """What a file holds, or which files a directory names, is on the medium."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems have nothing to sync for a directory.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def make_database_file(directory: Path) -> None:
    """An empty `store.db` that is the user's alone, whatever the umask; SQLite gives -wal and -shm the same mode."""
    with suppress(FileExistsError):
        descriptor = os.open(directory / "store.db", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)


def keep_key(directory: Path, key: bytes) -> None:
    """Write the key back if it was removed: without it the store cannot be opened again. One `stat` otherwise."""
    path = f"{directory}/key"
    if os.path.lexists(path):
        return
    spare = directory / f"key.{os.getpid()}"
    descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, key)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(spare, path)
