"""A page of a text file, by line numbers.

Rule 1: whole lines; following the next offset gives every byte of the file once, but for the rest of a line that is
larger than a page.
Rule 2: no more of a file is read than the answer needs: its size says nothing about the time.
"""

from __future__ import annotations

from typing import Protocol

import anyio.to_thread

from hames.core.records import record
from hames.ports import OpenFile
from hames.protocol.errors import ToolFailed
from hames.tools.clip import prefix, split_lines, valid

BLOCK_BYTES = 2**20
"""Read at once while looking for a line. Larger files are read in a worker thread, so that a slow disk holds up
nobody else."""

SNIFF_BYTES = 8 * 1024
"""A NUL in so much of the beginning makes a file binary, as for git and grep."""


@record
class Page:
    """Lines `first` to `last` of a file. `following`: the next line exists; None when it was not looked for long
    enough. `prefix_only`: `text` is the beginning of one line that is larger than a page."""

    text: str
    first: int
    last: int
    following: bool | None
    prefix_only: bool = False


class Source(Protocol):
    """What pages are read from: a file, or output that was kept (`ports.KeptOutput`)."""

    size: int
    path: str

    async def read_at(self, offset: int, length: int) -> bytes: ...


class FileSource:
    """A file of the workspace; parts of a large one are read in a worker thread."""

    def __init__(self, file: OpenFile) -> None:
        self.size = file.size
        self.path = file.path
        self._file = file

    async def read_at(self, offset: int, length: int) -> bytes:
        """See `ports.OpenFile.read`."""
        if self.size <= BLOCK_BYTES:
            return self._file.read(offset, length)
        return await anyio.to_thread.run_sync(self._file.read, offset, length)


async def read_page(file: Source, offset: int, *, lines: int, size: int, any_bytes: bool = False) -> Page:
    """The page that begins with line `offset`: at most `lines` lines and `size` bytes of UTF-8. With `any_bytes` binary
    content is shown too, as text with marks for what is none.

    Raises:
        ToolFailed: `binary_file`, `offset_past_end`, or the file cannot be read.
    """
    start = await _line_start(file, offset)
    window = await file.read_at(start, size + 1)
    if not any_bytes and (b"\0" in window or b"\0" in await file.read_at(0, SNIFF_BYTES)):
        raise ToolFailed("binary_file", f"{valid(file.path)} is a binary file; use bash to look into it.")
    at_end = len(window) <= size
    shown: list[str] = []
    used = 0
    found = split_lines(window)
    for line in found[:lines]:
        text = _text(line)
        used += len(text.encode())
        if used > size or not (at_end or line.endswith(b"\n")):
            break
        shown.append(text)
    if found and not shown:
        start_of_line = prefix(_text(window), size)
        return Page(start_of_line, offset, offset, await _line_follows(file, start), prefix_only=True)
    following = not at_end or len(shown) < len(found)
    return Page("".join(shown), offset, offset + len(shown) - 1, following)


def _text(data: bytes) -> str:
    # NUL as in the output of `bash`: providers and databases refuse it.
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


async def _line_start(file: Source, offset: int) -> int:
    """Where line `offset` begins."""
    place, line, last = 0, 1, b"\n"
    while line < offset:
        block = await file.read_at(place, BLOCK_BYTES)
        if not block:
            raise _beyond(offset, line if last != b"\n" else line - 1)
        count = block.count(b"\n")
        if line + count >= offset:
            place += after_lines(block, offset - line)
            line = offset
        else:
            place, line, last = place + len(block), line + count, block[-1:]
    if offset > 1 and not await file.read_at(place, 1):
        raise _beyond(offset, offset - 1)
    return place


def after_lines(block: bytes, count: int) -> int:
    """Where in `block` the line begins that comes after `count` line ends, by halves: lines may be empty."""
    start, end = 0, len(block)
    while count:
        middle = (start + end + 1) // 2
        before = block.count(b"\n", start, middle)
        if before >= count:
            if middle == end:
                return end
            end = middle
        else:
            count -= before
            start = middle
    return start


async def _line_follows(file: Source, place: int) -> bool | None:
    """Whether another line comes after the one at `place`; None when that one goes on for very long."""
    for _ in range(64):
        block = await file.read_at(place, BLOCK_BYTES)
        end = block.find(b"\n")
        if end >= 0:
            return bool(await file.read_at(place + end + 1, 1))
        if len(block) < BLOCK_BYTES:
            return False
        place += len(block)
    return None


def _beyond(offset: int, lines: int) -> ToolFailed:
    return ToolFailed("offset_past_end", f"Line {offset} does not exist: the file has {lines} lines.", lines=lines)
