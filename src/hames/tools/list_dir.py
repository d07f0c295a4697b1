"""`list_dir`: what stands in a directory, and on request in those below it.

Rule 1: the same tree gives the same answer: names in the order of their bytes, a directory before what is in it.
Rule 2: memory is bounded by what is shown, whatever the directory holds.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

import anyio.to_thread

from hames.core.conversation import ToolSpec
from hames.ports import Effect, Entry, Sandbox, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools.clip import one_line
from hames.tools.search import line

MAX_DEPTH = 5
"""Levels shown at most; further down, one searches."""


class ListDirTool:
    """Show a directory."""

    effect: Effect = "read"
    spec = ToolSpec(
        name="list_dir",
        description=(
            "Show what is in a directory, sorted: `name/` is a directory, a file has its size in bytes, links are not "
            "followed. With `depth` also what is in the directories in it; `.git` is not opened. Shows at most 1000."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "description": "The working directory by default."},
                "depth": {"type": "integer", "minimum": 1, "maximum": MAX_DEPTH, "description": "1 by default."},
            },
            "additionalProperties": False,
        },
    )

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """Reads run freely."""
        return None

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """The path."""
        return one_line(f"list_dir {arguments.get('path', '.')}")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """List it.

        Raises:
            ToolFailed: not a directory in the workspace, or not readable.
        """
        listing = _Listing(context.sandbox, context.limits["globPaths"])
        path, depth = arguments.get("path", "."), int(arguments.get("depth", 1))
        await anyio.to_thread.run_sync(listing.add, path, depth)
        return listing.outcome(path)


class _Listing:
    """The rows of a listing, `most` at most."""

    def __init__(self, sandbox: Sandbox, most: int) -> None:
        self._sandbox = sandbox
        self._most = most
        self._rows: list[str] = []
        self._left_out = 0
        self._unreadable = 0

    def add(self, directory: str, depth: int) -> None:
        """The entries of `directory`, and of those in it down to `depth` levels."""
        room = self._most - len(self._rows)
        entries, count = self._sandbox.entries(directory, most=room)
        self._left_out += count - len(entries)
        for place, entry in enumerate(entries):
            if len(self._rows) >= self._most:
                self._left_out += len(entries) - place
                return
            path = posixpath.normpath(posixpath.join(directory, entry.name))
            self._rows.append(_row(path, entry))
            if entry.kind == "directory" and depth > 1 and entry.name != ".git":
                try:
                    self.add(path, depth - 1)
                except ToolFailed:
                    self._unreadable += 1

    def outcome(self, path: str) -> ToolOutcome:
        """What the model is shown."""
        notes: list[str] = []
        if self._left_out:
            notes.append(f"The first {len(self._rows)} entries are shown; there are more. List a directory below.")
        elif not self._rows:
            notes.append("The directory is empty.")
        if self._unreadable:
            notes.append("Some directories could not be read.")
        details = {"path": one_line(path, 1_000), "shown": len(self._rows), "more": self._left_out > 0}
        return ToolOutcome(
            text="\n".join([*self._rows, *(f"[{note}]" for note in notes)]),
            details={**details, "complete": not self._unreadable},
            truncation={"mode": "head", "shownLines": len(self._rows)} if self._left_out else None,
        )


def _row(path: str, entry: Entry) -> str:
    shown = line(path)
    if entry.kind == "directory":
        return f"{shown}/"
    return f"{shown} ({entry.size} bytes)" if entry.kind == "file" else f"{shown} ({entry.kind})"
