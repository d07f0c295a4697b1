"""Contents as files: `blobs/<2 hex>/<62 hex>` by their SHA-256, each written once and proved before it is used.

Rule 1: a file is whole and durable when it has its name: written beside, synced, renamed, its directory synced.
Rule 2: what is there already is not written again, unless it is missing, cut or damaged.
Rule 3: a large file is proved once for as long as it looks the same (size, time of change, inode), in pieces, and then
read where it is asked for: memory holds a piece, never the file.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from hames.protocol.errors import HarnessFault
from hames.store.files import sync
from hames.store.unproved import corrupt

ROW_BYTES: Final = 64 * 1024
"""Up to this size a content stands in the database: there it costs half of a file, above, it is the reverse."""

PIECE_BYTES: Final = 2**20
"""Read or written at once."""

UNNAMED: Final = "tmp"
"""The directory of files without a name."""

PROVED_KEPT: Final = 4096
"""Files that are remembered as proved."""

_Looks = tuple[int, int, int]


@dataclass(slots=True)
class BlobFiles:
    """The files below `directory`, the store's. May be used by several threads."""

    directory: Path
    _proved: dict[bytes, _Looks] = field(default_factory=dict)

    def path(self, digest: bytes) -> Path:
        """Where the content of this digest is."""
        name = digest.hex()
        return self.directory / "blobs" / name[:2] / name[2:]

    def put(self, digest: bytes, data: bytes) -> None:
        """Make `data`, whose digest it is, durable under its name.

        Raises:
            OSError: it could not be written.
        """
        if self._stands(digest, len(data)):
            return
        temporary = self.temporary()
        try:
            with open(temporary, "xb", buffering=0, opener=_private) as file:
                _write_all(file.fileno(), data)
                os.fsync(file.fileno())
            self._name(temporary, digest)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise

    def adopt(self, temporary: Path, digest: bytes, size_bytes: int) -> None:
        """Give a file that is written and synced its name.

        Raises:
            OSError: it could not be done.
        """
        if self._stands(digest, size_bytes):
            temporary.unlink()
        else:
            self._name(temporary, digest)

    def temporary(self) -> Path:
        """A path for a file that has no name yet, in a directory that is there."""
        folder = self.directory / "blobs" / UNNAMED
        _make_folder(folder)
        return folder / f"{os.getpid()}-{secrets.token_hex(8)}"

    def read(self, digest: bytes, size_bytes: int, *, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset` on, of a file that was proved.

        Raises:
            HarnessFault: `artifact_corrupt`.
            OSError: it could not be read.
        """
        path = self.path(digest)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise corrupt(digest, "is missing", file=str(path)) from error
        try:
            self._prove(descriptor, digest, size_bytes)
            data = os.pread(descriptor, max(0, min(length, size_bytes - offset)), offset)
            while len(data) < min(length, size_bytes - offset):
                more = os.pread(descriptor, min(length, size_bytes - offset) - len(data), offset + len(data))
                if not more:
                    raise corrupt(digest, "was cut while it was read", file=str(path))
                data += more
            return data
        finally:
            os.close(descriptor)

    def remove(self, digest: bytes) -> None:
        """Remove the file, if it is there."""
        self._proved.pop(digest, None)
        path = self.path(digest)
        with suppress(FileNotFoundError):
            path.unlink()
        with suppress(OSError):
            path.parent.rmdir()

    def leftovers(self, older_than_s: float) -> Iterator[Path]:
        """Files without a name that nobody has written to for so long."""
        before = time.time() - older_than_s
        with os.scandir(self.directory / "blobs" / UNNAMED) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        yield Path(entry.path)

    def folders(self) -> list[str]:
        """Names of the directories that files are in, those without a name last."""
        with suppress(FileNotFoundError):
            return sorted(os.listdir(self.directory / "blobs"))
        return []

    def named(self, folder: str, older_than_s: float) -> Iterator[bytes]:
        """Digests of files in a directory that were there before: who collects looks which of them the store knows."""
        before = time.time() - older_than_s
        for entry in os.listdir(self.directory / "blobs" / folder):
            with suppress(ValueError, FileNotFoundError):
                digest = bytes.fromhex(folder + entry)
                if len(digest) == 32 and self.path(digest).stat().st_mtime < before:
                    yield digest

    def _stands(self, digest: bytes, size_bytes: int) -> bool:
        """The content is there, whole; one that is not is written anew by whoever asks."""
        try:
            descriptor = os.open(self.path(digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            self._prove(descriptor, digest, size_bytes)
        except HarnessFault:
            return False
        finally:
            os.close(descriptor)
        return True

    def _prove(self, descriptor: int, digest: bytes, size_bytes: int) -> None:
        found = os.fstat(descriptor)
        looks = (found.st_size, found.st_mtime_ns, found.st_ino)
        if self._proved.get(digest) == looks:
            return
        self._proved.pop(digest, None)
        if found.st_size != size_bytes:
            raise corrupt(digest, f"has {found.st_size} bytes instead of {size_bytes}", file=str(self.path(digest)))
        seen = sha256()
        for at in range(0, size_bytes, PIECE_BYTES):
            seen.update(os.pread(descriptor, PIECE_BYTES, at))
        if seen.digest() != digest:
            raise corrupt(
                digest, f"has the digest {seen.hexdigest()}", file=str(self.path(digest)), found=seen.hexdigest()
            )
        if len(self._proved) >= PROVED_KEPT:
            self._proved.clear()
        self._proved[digest] = looks

    def _name(self, temporary: Path, digest: bytes) -> None:
        path = self.path(digest)
        _make_folder(path.parent)
        os.rename(temporary, path)
        sync(path.parent)


class FileSpool:
    """`ports.Spool`: in memory up to `ROW_BYTES`, then a file without a name. `translate` makes faults of errors."""

    def __init__(self, files: BlobFiles, translate: Callable[[OSError], HarnessFault]) -> None:
        self.size_bytes = 0
        self._files = files
        self._translate = translate
        self._seen = sha256()
        self._small = bytearray()
        self._path: Path | None = None
        self._descriptor: int | None = None
        self._is_open = True

    def write(self, data: bytes) -> None:
        """See `Spool.write`."""
        self._seen.update(data)
        self.size_bytes += len(data)
        try:
            if self._descriptor is None:
                self._small += data
                if len(self._small) <= ROW_BYTES:
                    return
                self._path = self._files.temporary()
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                data, self._small = bytes(self._small), bytearray()
            _write_all(self._descriptor, data)
        except OSError as error:
            self.discard()
            raise self._translate(error) from error

    def sync(self) -> None:
        """See `Spool.sync`."""
        if self._descriptor is None:
            return
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self.discard()
            raise self._translate(error) from error

    def discard(self) -> None:
        """See `Spool.discard`."""
        self._is_open = False
        self._close()
        path, self._path = self._path, None
        if path is not None:
            with suppress(OSError):
                path.unlink()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    @property
    def digest(self) -> bytes:
        """Of what was written."""
        return self._seen.digest()

    @property
    def small(self) -> bytes | None:
        """The content where it is small enough for a row."""
        return None if self._path is not None or self.size_bytes > ROW_BYTES else bytes(self._small)

    def settle(self) -> None:
        """Give the content its name in the files, durable; nothing for a small one.

        Raises:
            OSError: it could not be done.
            HarnessFault: it was discarded.
        """
        if not self._is_open:
            raise HarnessFault("internal", "What was spooled was discarded.", boundary="artifact_store")
        if self._path is None:
            return
        if self._descriptor is not None:
            os.fsync(self._descriptor)
            self._close()
        self._files.adopt(self._path, self.digest, self.size_bytes)
        self._path = None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view[:PIECE_BYTES]) :]


def _make_folder(folder: Path) -> None:
    """Make it, the user's alone, and make that durable up to the store's directory."""
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        _make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    sync(folder.parent)
