"""`edit`: replace exact text in a file.

Rule 1: works on bytes, so whatever the match does not touch stays as it is: line ends, a byte order mark, a missing
last line feed, bytes that are no UTF-8.
Rule 2: without `replaceAll` the text must occur once; occurrences that overlap count apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import anyio.to_thread

from hames.core.conversation import ToolSpec
from hames.ports import Effect, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools import changes
from hames.tools.clip import one_line, valid
from hames.tools.write import encoded


class EditTool:
    """Exact replacement."""

    effect: Effect = "write"
    spec = ToolSpec(
        name="edit",
        description=(
            "Replace `oldText` by `newText` in a file. `oldText` must be exactly what the file holds, and occur once "
            "unless `replaceAll` is true. Changes that a running shell command makes to the same file are not waited "
            "for."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "description": "Relative to the working directory."},
                "oldText": {"type": "string", "description": "The text to replace, with enough context to be unique."},
                "newText": {"type": "string", "description": "What to put in its place."},
                "replaceAll": {"type": "boolean", "description": "Replace every occurrence; false by default."},
            },
            "required": ["path", "oldText", "newText"],
            "additionalProperties": False,
        },
    )

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """The file itself, whatever it is called."""
        return context.sandbox.resolve(arguments["path"])

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """The path."""
        return one_line(f"edit {arguments['path']}" + (" everywhere" if arguments.get("replaceAll") else ""))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Replace it.

        Raises:
            ToolFailed: no match, more than one, nothing to change, or the file cannot be read or written.
        """
        return await anyio.to_thread.run_sync(_edit, arguments, context)


def replaced(content: bytes, old: bytes, new: bytes, *, everywhere: bool) -> tuple[bytes, int]:
    """`content` with `old` replaced, and how many times. Pure.

    Raises:
        ToolFailed: `no_match`, `ambiguous` with the count, `empty_old_text`, `nothing_to_change`.
    """
    if not old:
        raise ToolFailed("empty_old_text", "`oldText` is empty; to fill or make a file, use write.")
    if old == new:
        raise ToolFailed("nothing_to_change", "`oldText` and `newText` are the same.")
    first = content.find(old)
    if first < 0:
        hint = ""
        if b"\r\n" in content and b"\n" in old and b"\r\n" not in old:
            hint = " The lines of this file end with CR LF; those of `oldText` do not."
        raise ToolFailed("no_match", f"`oldText` is not in the file: it must match exactly, white space too.{hint}")
    if everywhere:
        return content.replace(old, new), content.count(old)
    count, place = 1, first
    while (place := content.find(old, place + 1)) >= 0:
        count += 1
    if count > 1:
        message = f"`oldText` occurs {count} times: give more of the surrounding text, or set `replaceAll`."
        raise ToolFailed("ambiguous", message, count=count)
    return content[:first] + new + content[first + len(old) :], 1


def _edit(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
    path = arguments["path"]
    old, new = encoded(arguments["oldText"], "oldText"), encoded(arguments["newText"], "newText")
    limit = context.limits["fileBytes"]
    with closing(context.sandbox.open(path)) as file:
        changes.check_size(file.size, limit)
        content = file.read(0, limit + 1)
        changes.check_size(len(content), limit)
        key = file.path
    after, count = replaced(content, old, new, everywhere=bool(arguments.get("replaceAll", False)))
    changes.check_size(len(after), limit)
    context.sandbox.replace(path, after)
    before = changes.Before(hashlib.sha256(content).hexdigest(), content)
    return ToolOutcome(
        text=f"Edited {valid(path)}: {count} {'occurrence' if count == 1 else 'occurrences'} replaced.",
        details={"path": one_line(valid(key), 1_000), "replacements": count},
        changes=(changes.describe(key, before, after),),
    )
