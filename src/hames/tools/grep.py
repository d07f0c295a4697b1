"""`grep`: lines of files that match a pattern, by ripgrep where there is one, else by POSIX grep.

Rule 1: both engines search the same files (all but `.git` and binary ones; no links) and give the same answer for
patterns that mean the same to both.
Rule 2: the pattern is data, never an option or shell text. One that is not valid is an error, not "no matches".
Rule 3: which engine there is, is asked once per sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import anyio

from hames.core.conversation import ToolSpec
from hames.ports import Effect, ProcessResult, Sandbox, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools.clip import one_line, valid
from hames.tools.search import Access, Place, Records, line, locate, search

PROBE_TIMEOUT_MS = 10_000

RECORD_BYTES = 8 * 1024
"""Kept of a matching line: the longest path, and more than the characters that are shown."""

RIPGREP = (
    "rg",
    "--no-config",
    "--no-messages",
    "--color=never",
    "--no-heading",
    "--with-filename",
    "--line-number",
    "--null",
    "--hidden",
    "--no-ignore",
    "--encoding=none",
    "--sort=path",
    "--glob=!.git",
)
"""Not what a `.gitignore` says: grep does not know it, and a model asks for what is there."""

POSIX = r"""
export flags="$1" pattern="$2"; target=$3 most=$4; shift 4
echo | grep "$flags" -e "$pattern" 2>&1 >/dev/null
[ $? -lt 2 ] || exit 3
exec 4>&1
failed=$({
  { find "$target" -name .git -prune -o -type f "$@" -exec sh -c '
      grep -lI "$flags" -e "$pattern" -- "$@" 2>/dev/null; [ $? -lt 2 ]' sh {} + 2>/dev/null || echo find >&3
  } | sort | while IFS= read -r file; do
    printf '\0%s\0' "$file"
    grep -nI -m "$most" "$flags" -e "$pattern" -- "$file" 2>/dev/null
  done >&4
} 3>&1)
[ -z "$failed" ] || exit 2
"""
"""Prints `NUL path NUL`, then the matching lines of that file. First the names alone, since there is no portable way
to tell a name from the text after it; a name that holds a line feed is left out. Exit codes as those of ripgrep,
and 3 for a pattern that is not valid, after the message. Descriptor 3 collects what went wrong, past the pipes."""


@dataclass(slots=True)
class _Engine:
    """Which program searches in a sandbox; "" until it was asked."""

    name: str = ""
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class GrepTool:
    """Search the content of files."""

    effect: Effect = "read"
    spec = ToolSpec(
        name="grep",
        description=(
            "Search files for lines that match a regular expression (extended), in a file or in a directory and all "
            "below it. Shows `path:line:text`, at most 100 matches and 500 characters of a line. Hidden and ignored "
            "files are searched; `.git` and binary files are not, links are not followed."
        ),
        parameters={
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1},
                "path": {"type": "string", "minLength": 1, "description": "Where to search."},
                "include": {"type": "string", "minLength": 1, "description": "File names, as `*.py` or `*.{c,h}`."},
                "ignoreCase": {"type": "boolean"},
                "literal": {"type": "boolean", "description": "The pattern is plain text."},
                "maxMatches": {"type": "integer", "minimum": 1},
            },
            "required": ["pattern"],
            "additionalProperties": False,
        },
    )

    def __init__(self) -> None:
        self._engines: WeakKeyDictionary[Sandbox, _Engine] = WeakKeyDictionary()

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """Searches run freely."""
        return None

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """The pattern, and where."""
        return one_line(f"grep {arguments['pattern']} in {arguments.get('path', '.')}")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Search.

        Raises:
            ToolFailed: the pattern is not valid, the path cannot be read, or the search took too long.
        """
        pattern = arguments["pattern"]
        if "\n" in pattern or "\0" in pattern:
            raise ToolFailed("bad_pattern", "The pattern must be one line without NUL: lines are matched one by one.")
        names = alternatives(arguments.get("include", ""))
        if any("/" in name for name in names):
            raise ToolFailed("bad_include", "`include` is for file names, and none holds a `/`. Give `path` instead.")
        place = locate(context, arguments.get("path", "."))
        engine = await self._engine(context)
        most = min(int(arguments.get("maxMatches", context.limits["grepMatches"])), context.limits["grepMatches"])
        matches = _Matches(place, Access(context), most=most, line_chars=context.limits["grepLineChars"])
        records = Records(b"\n", keep_bytes=RECORD_BYTES, take=matches.from_ripgrep if engine == "rg" else matches.take)
        argv = (_ripgrep if engine == "rg" else _posix)(arguments, names, place.target, most)
        result = await search(context, argv, place=place, on_output=records.feed, enough=matches.enough)
        if result is not None and (result.exit_code == 3 or (engine == "rg" and _is_complaint(result, matches))):
            message = valid(result.output.decode("utf-8", "replace").strip())[:500]
            raise ToolFailed("bad_pattern", f"The pattern is not valid: {message}")
        return matches.outcome(engine, complete=result is None or result.exit_code < 2)

    async def _engine(self, context: ToolContext) -> str:
        engine = self._engines.setdefault(context.sandbox, _Engine())
        async with engine.lock:
            if not engine.name:
                # With all its options: one that is too old to know them is no use.
                script = ["sh", "-c", '"$@" >/dev/null 2>&1; [ $? -lt 2 ]', "sh", *RIPGREP, "-e", "x", "/dev/null"]
                result = await context.sandbox.run(
                    script, timeout_ms=PROBE_TIMEOUT_MS, grace_ms=context.limits["termGraceMs"], keep_bytes=1
                )
                engine.name = "rg" if result.exit_code == 0 else "grep"
        return engine.name


def alternatives(include: str) -> list[str]:
    """The names that `include` stands for, its braces written out; empty for an empty one."""
    if not include:
        return []
    braces = re.search(r"\{([^{}]*)\}", include)
    if braces is None:
        return [include]
    found: list[str] = []
    for choice in braces[1].split(","):
        found += alternatives(include[: braces.start()] + choice + include[braces.end() :])
        if len(found) > 100:
            raise ToolFailed("bad_include", "`include` stands for more than 100 names; use a simpler one.")
    return found


def _ripgrep(arguments: Mapping[str, Any], names: list[str], target: str, most: int) -> list[str]:
    argv = [*RIPGREP, f"--max-count={most + 1}"]
    # A leading `!` would turn the meaning round.
    argv += ["--glob=" + (f"\\{name}" if name.startswith("!") else name) for name in names]
    if arguments.get("ignoreCase"):
        argv.append("--ignore-case")
    if arguments.get("literal"):
        argv.append("--fixed-strings")
    return [*argv, "-e", arguments["pattern"], "--", target]


def _posix(arguments: Mapping[str, Any], names: list[str], target: str, most: int) -> list[str]:
    flags = ("-F" if arguments.get("literal") else "-E") + ("i" if arguments.get("ignoreCase") else "")
    tests: list[str] = []
    for name in names:
        tests += ["-o" if tests else "(", "-name", name]
    if tests:
        tests.append(")")
    return ["sh", "-c", POSIX, "sh", flags, arguments["pattern"], target, str(most + 1), *tests]


def _is_complaint(result: ProcessResult, matches: _Matches) -> bool:
    return result.exit_code == 2 and not matches.found and result.output != b""


class _Matches:
    """The matches so far; cancels `enough` when there are more than are shown."""

    def __init__(self, place: Place, access: Access, *, most: int, line_chars: int) -> None:
        self.found: list[tuple[bytes, int, str]] = []
        self.enough = anyio.CancelScope()
        self._place = place
        self._access = access
        self._most = most
        self._line_chars = line_chars
        self._path = b""

    def from_ripgrep(self, record: bytes) -> None:
        """Take `path NUL line:text`; a record without NUL is a message."""
        path, nul, match = record.partition(b"\0")
        if nul:
            self._add(path, match)

    def take(self, record: bytes) -> None:
        """Take `line:text`, after the heading of its file in the first record."""
        while record.startswith(b"\0"):
            _, self._path, record = record.split(b"\0", 2)
        self._add(self._path, record)

    def _add(self, path: bytes, match: bytes) -> None:
        number, colon, text = match.partition(b":")
        if colon and number.isdigit() and self._access.allows_content(self._place.shown(path)):
            self.found.append((path, int(number), text.decode("utf-8", "replace").rstrip("\r")))
            if len(self.found) > self._most:
                self.enough.cancel()

    def outcome(self, engine: str, *, complete: bool) -> ToolOutcome:
        """What the model is shown."""
        shown = sorted(self.found[: self._most])
        more = len(self.found) > self._most
        rows = [f"{line(self._place.shown(path))}:{number}:{self._cut(text)}" for path, number, text in shown]
        notes: list[str] = []
        if more:
            notes.append(f"Only {len(shown)} matches are shown; there are more. Use a narrower pattern or path.")
        elif not shown:
            notes.append("No matches.")
        if not complete:
            notes.append("Some files could not be read.")
        details = {"engine": engine, "matches": len(shown), "more": more, "complete": complete}
        return ToolOutcome(
            text="\n".join([*rows, *(f"[{note}]" for note in notes)]),
            details=details,
            truncation={"mode": "head", "shownLines": len(shown)} if more else None,
        )

    def _cut(self, text: str) -> str:
        return text if len(text) <= self._line_chars else f"{text[: self._line_chars]}… [cut]"
