"""`view_image`: an image of the workspace, shown to the model as `read` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from hames.core.conversation import ToolSpec
from hames.core.images import HEADER_BYTES, measure
from hames.ports import Effect, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools.clip import one_line
from hames.tools.page import FileSource
from hames.tools.read import show_image


class ViewImageTool:
    """See an image."""

    effect: Effect = "read"
    spec = ToolSpec(
        name="view_image",
        description="See an image of the workspace: PNG, JPEG, GIF or WebP.",
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "description": "Relative to the working directory."}
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    )

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """Reads run freely."""
        return None

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """The path."""
        return one_line(f"view_image {arguments['path']}")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Show it.

        Raises:
            ToolFailed: no such file, no image of these types, broken, an animation, or too large.
        """
        with closing(context.sandbox.open(arguments["path"])) as file:
            source = FileSource(file)
            image = measure(await source.read_at(0, HEADER_BYTES))
            if image is None:
                message = (
                    f"{one_line(file.path)} is no PNG, JPEG, GIF or WebP image; use read, or convert it with bash."
                )
                raise ToolFailed("not_an_image", message)
            return await show_image(source, image, context.limits)
