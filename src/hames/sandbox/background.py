"""What background processes write, on disk: the newest bytes of each, in a few files of which the oldest go first.

Rule 1: a file is named by the offset of its first byte, and files follow one another without a gap. So whatever is
found after a crash tells by itself which bytes it holds.
Rule 2: one process writes, any may read; a file that goes while it is read was not to be kept any more.
Rule 3: memory holds one piece, whatever is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from hames.ports import Output, Spool
from hames.protocol.errors import HarnessFault

PARTS: Final = 4
"""Files that what is kept fills; one more is being written. So at most a quarter more than is kept lies on the disk."""

COPY_BYTES: Final = 256 * 1024

DIGITS: Final = 20


class OutputFiles:
    """The outputs of all sessions, below `directory`. Implements `ports.Outputs`."""

    def __init__(self, directory: Path, keep_bytes: int) -> None:
        self._directory = directory
        self._keep_bytes = keep_bytes

    def make(self, session_id: str, process_id: str) -> Output:
        """See `ports.Outputs.make`."""
        place = self._place(session_id, process_id)
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._directory.chmod(0o700)
        except OSError as error:
            raise HarnessFault(
                "store_unavailable",
                f"The output of a background process has no place in {self._directory}: {error.strerror}.",
                boundary="artifact_store",
            ) from error
        return OutputFile(place, self._keep_bytes)

    def find(self, session_id: str, process_id: str) -> Output | None:
        """See `ports.Outputs.find`."""
        place = self._place(session_id, process_id)
        return OutputFile(place, self._keep_bytes) if place.is_dir() else None

    def forget(self, session_id: str) -> None:
        """See `ports.Outputs.forget`."""
        with suppress(OSError):
            for name in os.listdir(self._directory / session_id):
                _remove(self._directory / session_id / name)
            (self._directory / session_id).rmdir()

    def _place(self, session_id: str, process_id: str) -> Path:
        return self._directory / session_id / process_id


class OutputFile:
    """One output, in a directory of its own. Implements `ports.Output`."""

    def __init__(self, place: Path, keep_bytes: int) -> None:
        self._place = place
        self._keep_bytes = keep_bytes
        self._part_bytes = max(1, keep_bytes // PARTS)
        self._fd: int | None = None
        self._begins = 0
        self._total: int | None = None

    @property
    def total_bytes(self) -> int:
        """See `ports.Output.total_bytes`."""
        if self._total is not None:
            return self._total
        parts = self._parts()
        return parts[-1][0] + parts[-1][1] if parts else 0

    def _parts(self) -> list[tuple[int, int]]:
        """Where each file begins and how long it is, those alone that lead to the end without a gap."""
        found: list[tuple[int, int]] = []
        with suppress(OSError):
            for name in filter(str.isdigit, os.listdir(self._place)):
                with suppress(OSError):
                    found.append((int(name), os.stat(self._place / name).st_size))
        found.sort()
        for n in range(len(found) - 1, 0, -1):
            if sum(found[n - 1]) != found[n][0]:
                return found[n:]
        return found

    def write(self, data: bytes) -> None:
        """See `ports.Output.write`."""
        if self._total is None:
            self._total = self.total_bytes
        rest = memoryview(data)
        while rest:
            piece = rest[: self._room()]
            rest = rest[len(piece) :]
            if not self._append(piece):
                self._begin_anew()
            self._total += len(piece)

    def _room(self) -> int:
        assert self._total is not None
        if self._fd is None or self._total - self._begins >= self._part_bytes:
            self._next_part()
        return self._part_bytes - (self._total - self._begins)

    def _next_part(self) -> None:
        assert self._total is not None
        self._close()
        self._begins = self._total
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with suppress(OSError):
            self._fd = os.open(self._place / f"{self._begins:0{DIGITS}}", flags, 0o600)
        oldest = self._begins - self._keep_bytes
        for begins, size in self._parts():
            if begins + size <= oldest:
                self._remove(begins)

    def _append(self, piece: memoryview) -> bool:
        if self._fd is None:
            return False
        try:
            while piece:
                piece = piece[os.write(self._fd, piece) :]
        except OSError:
            return False
        return True

    def _begin_anew(self) -> None:
        """The disk did not take what follows: what is there counts no more, and gives its room. The newest stays, for
        it says how far the output was told to be: no cursor goes back."""
        self._close()
        with suppress(OSError):
            for begins in sorted(map(int, filter(str.isdigit, os.listdir(self._place))))[:-1]:
                self._remove(begins)

    def _remove(self, begins: int) -> None:
        with suppress(OSError):
            os.unlink(self._place / f"{begins:0{DIGITS}}")

    def read(self, offset: int, length: int) -> tuple[int, bytes]:
        """See `ports.Output.read`."""
        for begins, size in self._parts():
            if offset >= begins + size:
                continue
            offset = max(offset, begins)
            with suppress(OSError), open(self._place / f"{begins:0{DIGITS}}", "rb") as file:
                data = os.pread(file.fileno(), length, offset - begins)
                if data:
                    return offset, data
        return min(offset, self.total_bytes), b""

    def pieces(self) -> Iterator[bytes]:
        """All that is kept, in order."""
        offset = 0
        while True:
            offset, data = self.read(offset, COPY_BYTES)
            if not data:
                return
            yield data
            offset += len(data)

    def copy_to(self, spool: Spool) -> None:
        """See `ports.Output.copy_to`."""
        for piece in self.pieces():
            spool.write(piece)

    def discard(self) -> None:
        """See `ports.Output.discard`."""
        self._close()
        _remove(self._place)
        with suppress(OSError):
            self._place.parent.rmdir()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _remove(place: Path) -> None:
    # Not `shutil`, which costs every start of a server some milliseconds.
    with suppress(OSError):
        for name in os.listdir(place):
            os.unlink(place / name)
        place.rmdir()
