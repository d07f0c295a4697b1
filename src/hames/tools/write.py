"""`write`: put content in place of a file, whole and at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio.to_thread

from hames.core.conversation import ToolSpec
from hames.ports import Effect, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools import changes
from hames.tools.clip import one_line, valid


def encoded(text: str, name: str) -> bytes:
    """`text` as it goes into a file.

    Raises:
        ToolFailed: it holds half a surrogate pair, which no file can.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed("invalid_text", f"`{name}` is not valid Unicode: a lone surrogate.") from error


class WriteTool:
    """Replace a file, or make it."""

    effect: Effect = "write"
    spec = ToolSpec(
        name="write",
        description=(
            "Write `content` to a file, in place of what it held; missing directories are made. Changes that a "
            "running shell command makes to the same file are not waited for."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "description": "Relative to the working directory."},
                "content": {"type": "string", "description": "The whole new content."},
            },
            "required": ["path", "content"],
            "additionalProperties": False,
        },
    )

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """The file itself, whatever it is called."""
        return context.sandbox.resolve(arguments["path"])

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """The path and how much is written."""
        return one_line(f"write {len(arguments['content'])} characters to {arguments['path']}")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Write it.

        Raises:
            ToolFailed: the path cannot be written, or the content is too large.
        """
        content = encoded(arguments["content"], "content")
        changes.check_size(len(content), context.limits["fileBytes"])
        # A thread, since making it durable waits for the disk. It is not abandoned when the call is cancelled.
        return await anyio.to_thread.run_sync(_write, context, arguments["path"], content)


def _write(context: ToolContext, path: str, content: bytes) -> ToolOutcome:
    before = changes.look(context.sandbox, path, limit=context.limits["fileBytes"])
    context.sandbox.replace(path, content)
    change = changes.describe(context.sandbox.resolve(path), before, content)
    verb = "Created" if before is None else "Replaced"
    return ToolOutcome(
        text=f"{verb} {valid(path)}: {len(content)} bytes.",
        details={"path": one_line(change.path, 1_000), "bytes": len(content), "created": before is None},
        changes=(change,),
    )
