"""`glob`: files by name, as `find -name`.

Rule 1: the pattern is one for names, not for paths, and is always data to `find`.
Rule 2: the same tree gives the same answer: all that is found is sorted before it is cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from hames.core.conversation import ToolSpec
from hames.ports import Effect, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools.clip import one_line
from hames.tools.search import Access, Place, Records, line, locate, search

PATH_BYTES = 4_096
"""Longest path that is shown: PATH_MAX of Linux."""


class GlobTool:
    """Find files by name."""

    effect: Effect = "read"
    spec = ToolSpec(
        name="glob",
        description=(
            "Find files by name in a directory and all below it: `*`, `?` and `[...]` match within a file name, never "
            "a path. Shows at most 1000 paths, sorted. Hidden files are found; `.git` is left out, links are not "
            "followed."
        ),
        parameters={
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1, "description": "For example `*.py`."},
                "cwd": {"type": "string", "minLength": 1, "description": "Where to search."},
                "maxMatches": {"type": "integer", "minimum": 1},
            },
            "required": ["pattern"],
            "additionalProperties": False,
        },
    )

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """Searches run freely."""
        return None

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """The pattern, and where."""
        return one_line(f"glob {arguments['pattern']} in {arguments.get('cwd', '.')}")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Find them.

        Raises:
            ToolFailed: no such directory, or the search took too long.
        """
        pattern = arguments["pattern"]
        most = min(int(arguments.get("maxMatches", context.limits["globPaths"])), context.limits["globPaths"])
        place = locate(context, arguments.get("cwd", "."))
        if place.target != ".":
            raise ToolFailed("not_a_directory", f"{line(arguments['cwd'])} is not a directory.")
        if "/" in pattern:
            text = "[No files: the pattern is for file names, and none holds a `/`. Give the directory as `cwd`.]"
            return ToolOutcome(text=text, details={"matches": 0, "shown": 0})
        found = _Smallest(most, place, Access(context))
        records = Records(b"\0", keep_bytes=PATH_BYTES, take=found.add)
        argv = ["find", ".", "-name", ".git", "-prune", "-o", "!", "-type", "d", "-name", pattern, "-print0"]
        script = ["sh", "-c", 'exec "$@" 2>/dev/null', "sh", *argv]
        result = await search(context, script, place=place, on_output=records.feed, enough=anyio.CancelScope())
        assert result is not None
        return _outcome(found, complete=result.exit_code == 0)


class _Smallest:
    """The first paths in byte order, of any number."""

    def __init__(self, most: int, place: Place, access: Access) -> None:
        self.total = 0
        self._most = most
        self._place = place
        self._access = access
        self._found: list[bytes] = []
        self._folder, self._allowed = b"", True

    def add(self, path: bytes) -> None:
        """Take one more."""
        # What `find` prints of one directory comes together, and all of it is allowed or nothing.
        folder = path.rpartition(b"/")[0]
        if folder != self._folder:
            self._folder, self._allowed = folder, self._access.allows(self._place.shown(path))
        if self._allowed:
            self.total += 1
            self._found.append(path)
            if len(self._found) >= 4 * self._most + 1_000:
                self._cut()

    def paths(self) -> list[str]:
        """The smallest of them, sorted."""
        self._cut()
        return [line(self._place.shown(path)) for path in self._found]

    def _cut(self) -> None:
        self._found.sort()
        del self._found[self._most :]


def _outcome(found: _Smallest, *, complete: bool) -> ToolOutcome:
    paths = found.paths()
    notes: list[str] = []
    truncation: dict[str, Any] | None = None
    if found.total > len(paths):
        notes.append(f"The first {len(paths)} of {found.total} paths are shown; use a narrower pattern.")
        truncation = {"mode": "head", "totalLines": found.total, "shownLines": len(paths)}
    elif not paths:
        notes.append("No files.")
    if not complete:
        notes.append("Some directories could not be read.")
    text = "\n".join([*paths, *(f"[{note}]" for note in notes)])
    details = {"matches": found.total, "shown": len(paths), "complete": complete}
    return ToolOutcome(text=text, details=details, truncation=truncation)
