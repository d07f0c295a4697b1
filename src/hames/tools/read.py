"""`read`: a page of a text file, by line numbers; an image as it is.

Rule: the limits count the lines of the file that are shown; notices come on top, in brackets, after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import anyio

from hames.core.artifacts import HANDLE
from hames.core.bitmaps import Animated, Broken
from hames.core.conversation import ToolSpec
from hames.core.images import HEADER_BYTES, Measured, measure
from hames.image_proofs import prove
from hames.ports import Effect, ToolContext, ToolImage, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools.clip import one_line, valid
from hames.tools.page import FileSource, Page, Source, read_page


class ReadTool:
    """Show lines of a text file."""

    effect: Effect = "read"
    spec = ToolSpec(
        name="read",
        description=(
            "Read a text file, or see an image (PNG, JPEG, GIF, WebP). Of a text it shows at most 2000 lines or 50 KiB "
            "from line `offset` (the first is 1), and says at which offset to read on. Lines are shown as they are, "
            "without numbers. Output of an earlier call that was kept is read by its handle as the path."
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
            ToolFailed: no such file, not a text file, `offset` beyond its end, or not found in time; see `show_image`.
        """
        limits = context.limits
        offset = int(arguments.get("offset", 1))
        lines = min(int(arguments.get("limit", limits["readLines"])), limits["readLines"])

        async def page_of(source: Source, *, any_bytes: bool) -> ToolOutcome:
            try:
                with anyio.fail_after(limits["searchTimeoutMs"] / 1000):
                    page = await read_page(source, offset, lines=lines, size=limits["readBytes"], any_bytes=any_bytes)
            except TimeoutError as error:
                raise ToolFailed("timed_out", f"Line {offset} was not found in time; use grep or bash.") from error
            return _outcome(page, source)

        if arguments["path"].startswith(HANDLE) and context.kept is not None:
            return await page_of(await context.kept(arguments["path"]), any_bytes=True)
        with closing(context.sandbox.open(arguments["path"])) as file:
            source = FileSource(file)
            image = measure(await source.read_at(0, HEADER_BYTES))
            return await (page_of(source, any_bytes=False) if image is None else show_image(source, image, limits))


async def show_image(file: Source, image: Measured, limits: Mapping[str, int]) -> ToolOutcome:
    """The image that `file` holds.

    Raises:
        ToolFailed: `image_too_large`, `broken_image`, `animated_image`.
    """
    path = valid(file.path)
    what = f"{path}: {image.media_type}, {image.width} x {image.height} pixels, {file.size} bytes"
    if file.size > limits["imageBytes"] or max(image.width, image.height) > limits["imagePixels"]:
        most = f"{limits['imageBytes']} bytes and {limits['imagePixels']} pixels wide and high"
        raise ToolFailed("image_too_large", f"{what}. At most {most} can be shown; make it smaller with bash.")
    data = await file.read_at(0, file.size)
    if measure(data) != image:
        raise ToolFailed("broken_image", f"{what}. It changed while it was read; look again.")
    await check_image(data, image, what)
    details = {"path": one_line(path, 1_000), "mediaType": image.media_type, "fileBytes": file.size}
    details |= {"width": image.width, "height": image.height}
    shown = ToolImage(image.media_type, data, one_line(path, 1_000))
    return ToolOutcome(text=f"[{what}. It is shown.]", details=details, images=(shown,))


async def check_image(data: bytes, image: Measured, what: str) -> None:
    """Prove that the image, introduced as `what`, is whole and stands still.

    Raises:
        ToolFailed: `broken_image`, `animated_image`.
    """
    try:
        await prove(data, image.media_type)
    except Animated as animated:
        raise ToolFailed("animated_image", f"{what}. It cannot be shown: {animated}, with bash.") from animated
    except Broken as broken:
        message = f"{what}. It cannot be shown: {broken}. Get or make it anew, or mend it with bash."
        raise ToolFailed("broken_image", message) from broken


def _outcome(page: Page, file: Source) -> ToolOutcome:
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
