"""`read`: a page of a text file, by line numbers; an image as it is.

Rule 1: whole lines; following the next offset that is shown gives every byte of the file once, but for the rest
of a line that is larger than a page.
Rule 2: the limits count the lines of the file that are shown; notices come on top, in brackets, after them.
Rule 3: no more of a file is read than the answer needs: its size says nothing about the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread

from hames.core.conversation import ToolSpec
from hames.core.images import HEADER_BYTES, Measured, measure
from hames.ports import Effect, OpenFile, ToolContext, ToolImage, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools.clip import one_line, prefix, split_lines, valid

BLOCK_BYTES = 2**20
"""Read at once while looking for a line. Larger files are read in a worker thread, so that a slow disk holds up
nobody else."""

SNIFF_BYTES = 8 * 1024
"""A NUL in so much of the beginning makes a file binary, as for git and grep."""


@dataclass(frozen=True, slots=True)
class Page:
    """Lines `first` to `last` of a file. `following`: the next line exists; None when it was not looked for long
    enough. `prefix_only`: `text` is the beginning of one line that is larger than a page."""

    text: str
    first: int
    last: int
    following: bool | None
    prefix_only: bool = False


class ReadTool:
    """Show lines of a text file."""

    effect: Effect = "read"
    spec = ToolSpec(
        name="read",
        description=(
            "Read a text file, or see an image (PNG, JPEG, GIF, WebP). Of a text it shows at most 2000 lines or 50 KiB "
            "from line `offset` (the first is 1), and says at which offset to read on. Lines are shown as they are, "
            "without numbers."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "description": "Relative to the working directory."},
                "offset": {"type": "integer", "minimum": 1, "description": "The first line to show; 1 by default."},
                "limit": {"type": "integer", "minimum": 1, "description": "How many lines to show at most."},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    )

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """Reads run freely."""
        return None

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """The path, and the first line when it is not 1."""
        offset = arguments.get("offset", 1)
        return one_line(f"read {arguments['path']}" + (f" from line {offset}" if offset != 1 else ""))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Show the page.

        Raises:
            ToolFailed: no such file, not a text file, `offset` beyond its end, or not found in time.
        """
        limits = context.limits
        offset = int(arguments.get("offset", 1))
        lines = min(int(arguments.get("limit", limits["readLines"])), limits["readLines"])
        with closing(context.sandbox.open(arguments["path"])) as file:
            image = measure(await _read(file, 0, HEADER_BYTES))
            if image is not None:
                return await _shown(file, image, limits)
            try:
                with anyio.fail_after(limits["searchTimeoutMs"] / 1000):
                    page = await _page(file, offset, lines=lines, size=limits["readBytes"])
            except TimeoutError as error:
                raise ToolFailed("timed_out", f"Line {offset} was not found in time; use grep or bash.") from error
            return _outcome(page, file)


async def _shown(file: OpenFile, image: Measured, limits: Mapping[str, int]) -> ToolOutcome:
    path = valid(file.path)
    what = f"{path}: {image.media_type}, {image.width} x {image.height} pixels, {file.size} bytes"
    if file.size > limits["imageBytes"] or max(image.width, image.height) > limits["imagePixels"]:
        most = f"{limits['imageBytes']} bytes and {limits['imagePixels']} pixels wide and high"
        raise ToolFailed("image_too_large", f"{what}. At most {most} can be shown; make it smaller with bash.")
    data = await _read(file, 0, file.size)
    details = {"path": one_line(path, 1_000), "mediaType": image.media_type, "fileBytes": file.size}
    details |= {"width": image.width, "height": image.height}
    shown = ToolImage(image.media_type, data, one_line(path, 1_000))
    return ToolOutcome(text=f"[{what}. It is shown.]", details=details, images=(shown,))


async def _page(file: OpenFile, offset: int, *, lines: int, size: int) -> Page:
    start = await _line_start(file, offset)
    window = await _read(file, start, size + 1)
    if b"\0" in window or b"\0" in await _read(file, 0, SNIFF_BYTES):
        raise ToolFailed("binary_file", f"{valid(file.path)} is a binary file; use bash to look into it.")
    at_end = len(window) <= size
    shown: list[str] = []
    used = 0
    found = split_lines(window)
    for line in found[:lines]:
        text = line.decode("utf-8", "replace")
        used += len(text.encode())
        if used > size or not (at_end or line.endswith(b"\n")):
            break
        shown.append(text)
    if found and not shown:
        start_of_line = prefix(window.decode("utf-8", "replace"), size)
        return Page(start_of_line, offset, offset, await _line_follows(file, start), prefix_only=True)
    following = not at_end or len(shown) < len(found)
    return Page("".join(shown), offset, offset + len(shown) - 1, following)


async def _line_start(file: OpenFile, offset: int) -> int:
    """Where line `offset` begins."""
    place, line, last = 0, 1, b"\n"
    while line < offset:
        block = await _read(file, place, BLOCK_BYTES)
        if not block:
            raise _beyond(offset, line if last != b"\n" else line - 1)
        count = block.count(b"\n")
        if line + count >= offset:
            end = -1
            for _ in range(offset - line):
                end = block.index(b"\n", end + 1)
            place += end + 1
            line = offset
        else:
            place, line, last = place + len(block), line + count, block[-1:]
    if offset > 1 and not await _read(file, place, 1):
        raise _beyond(offset, offset - 1)
    return place


async def _line_follows(file: OpenFile, place: int) -> bool | None:
    """Whether another line comes after the one at `place`; None when that one goes on for very long."""
    for _ in range(64):
        block = await _read(file, place, BLOCK_BYTES)
        end = block.find(b"\n")
        if end >= 0:
            return bool(await _read(file, place + end + 1, 1))
        if len(block) < BLOCK_BYTES:
            return False
        place += len(block)
    return None


async def _read(file: OpenFile, place: int, length: int) -> bytes:
    if file.size <= BLOCK_BYTES:
        return file.read(place, length)
    return await anyio.to_thread.run_sync(file.read, place, length)


def _beyond(offset: int, lines: int) -> ToolFailed:
    return ToolFailed("offset_past_end", f"Line {offset} does not exist: the file has {lines} lines.", lines=lines)


def _outcome(page: Page, file: OpenFile) -> ToolOutcome:
    path = valid(file.path)
    details = {"path": one_line(path, 1_000), "startLine": page.first, "endLine": page.last, "fileBytes": file.size}
    if not page.text:
        return ToolOutcome(text=f"[{path} is empty: 0 lines.]", details=details)
    if not page.prefix_only and not page.following:
        return ToolOutcome(text=page.text, details=details)
    shown = len(page.text.encode())
    following = page.last + 1
    go_on = f" Read on with offset {following}." if page.following else ""
    if page.prefix_only:
        notice = f"Only the first {shown} bytes of line {page.first} are shown: it is longer than a page, and its "
        notice += f"rest cannot be reached by line offsets.{go_on}"
    else:
        notice = f"Lines {page.first}-{page.last} are shown.{go_on}"
    truncation: dict[str, Any] = {"mode": "head", "shownLines": page.last - page.first + 1, "shownBytes": shown}
    truncation["totalBytes"] = file.size
    if page.following:
        truncation["nextOffset"] = following
    gap = "" if page.text.endswith("\n") else "\n"
    return ToolOutcome(text=f"{page.text}{gap}[{notice}]", details=details, truncation=truncation)
