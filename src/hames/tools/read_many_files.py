"""`read_many_files`: several text files in one answer.

Rule 1: what became of each file stands before any content, in the order asked for, so that no content can pass for it.
Rule 2: one file that cannot be read does not keep the others back; where none can, the call fails.
Rule 3: the limits of `read` hold for the answer as a whole. What has no room is named, and how to read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from hames.core.conversation import ToolSpec
from hames.core.images import HEADER_BYTES, measure
from hames.core.records import record
from hames.ports import Effect, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools.clip import one_line
from hames.tools.page import FileSource, Page, read_page

MAX_PATHS = 50

MESSAGE_CHARS = 300
"""Of what is said of one file: fifty of them are no answer that drowns the content."""


@record
class _Read:
    """What became of one file: `page` is None where it is not shown, `failure` says why where that is an error."""

    name: str
    size: int = 0
    page: Page | None = None
    failure: ToolFailed | None = None


class ReadManyFilesTool:
    """Show several files."""

    effect: Effect = "read"
    spec = ToolSpec(
        name="read_many_files",
        description=(
            "Read several text files at once: together at most 2000 lines or 50 KiB. First it says what became of each "
            "file, then follow the contents. A file that is cut or left out is read on with `read`."
        ),
        parameters={
            "type": "object",
            "properties": {
                "paths": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_PATHS,
                    "items": {"type": "string", "minLength": 1},
                    "description": "Relative to the working directory.",
                }
            },
            "required": ["paths"],
            "additionalProperties": False,
        },
    )

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """Reads run freely."""
        return None

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """The paths."""
        return one_line("read_many_files " + ", ".join(arguments["paths"]))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Show them.

        Raises:
            ToolFailed: none of them can be read.
        """
        lines, size = context.limits["readLines"], context.limits["readBytes"]
        read: list[_Read] = []
        for path in arguments["paths"]:
            one = await _read(path, context, lines=lines, size=size)
            if one.page is not None:
                lines -= one.page.last - one.page.first + 1
                size -= len(one.page.text.encode())
            read.append(one)
        if all(one.failure is not None for one in read):
            rows = [f"{one.name}: {_failure(one)}" for one in read]
            raise ToolFailed("nothing_read", "None of the files could be read.\n" + "\n".join(rows))
        return _outcome(read)


async def _read(path: str, context: ToolContext, *, lines: int, size: int) -> _Read:
    name = one_line(path, MESSAGE_CHARS)
    try:
        with closing(context.sandbox.open(path)) as file:
            source = FileSource(file)
            if measure(await source.read_at(0, HEADER_BYTES)) is not None:
                raise ToolFailed("binary_file", "It is an image; see it with read.")
            page = None
            if lines > 0 and size > 0:
                page = await read_page(source, 1, lines=lines, size=size)
            if page is not None and page.prefix_only and size < context.limits["readBytes"]:
                page = None
            return _Read(name, file.size, page)
    except ToolFailed as failure:
        return _Read(name, failure=failure)


def _failure(one: _Read) -> str:
    assert one.failure is not None
    return f"{one.failure.kind}: {one_line(one.failure.message, MESSAGE_CHARS)}"


def _said(one: _Read) -> str:
    if one.failure is not None:
        return f"error {_failure(one)}"
    if one.page is None:
        return f"{one.size} bytes, not shown: no room is left here, use read"
    if not one.page.text:
        return "0 bytes, empty"
    if one.page.prefix_only:
        return f"{one.size} bytes, only the beginning of line 1 is shown: it is longer than a page"
    lines = f"{one.size} bytes, lines 1-{one.page.last} are shown"
    return f"{lines}, read on with offset {one.page.last + 1}" if one.page.following else f"{lines}, whole"


def _outcome(read: list[_Read]) -> ToolOutcome:
    text = "".join(f"[{place}. {one.name}: {_said(one)}]\n" for place, one in enumerate(read, 1))
    shown_bytes = 0
    for place, one in enumerate(read, 1):
        if one.page is not None and one.page.text:
            shown = len(one.page.text.encode())
            shown_bytes += shown
            gap = "" if one.page.text.endswith("\n") else "\n"
            text += f"[Content of {place}, {shown} bytes:]\n{one.page.text}{gap}"
    failed = sum(one.failure is not None for one in read)
    cut = any(
        one.failure is None and (one.page is None or one.page.prefix_only or bool(one.page.following)) for one in read
    )
    truncation: dict[str, Any] | None = None
    if cut:
        total = sum(one.size for one in read)
        truncation = {"mode": "head", "totalBytes": total, "shownBytes": shown_bytes}
    return ToolOutcome(text=text, details={"files": len(read), "failed": failed}, truncation=truncation)
