"""What `grep` and `glob` share: where to search, output as records, and paths as the model may use them.

Rule 1: a search runs in the directory it searches, entered by descriptor, so a path that changes meanwhile leads
nowhere else; it follows no link and leaves `.git` out.
Rule 2: memory is bounded whatever the search prints: a record is cut when it comes, not when it is shown.
Rule 3: the order of results is that of their bytes, in every locale.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from contextlib import closing

import anyio

from hames.core.records import record
from hames.ports import ProcessResult, ToolContext
from hames.protocol.errors import ToolFailed
from hames.tools.clip import valid

ENVIRONMENT = {"LC_ALL": "C"}
"""Patterns and order mean the same everywhere: bytes."""


@record
class Place:
    """Where to search: a directory to run in, and in it one file or everything (`.`).

    `prefix` goes before the paths found, so that they are relative to the session's working directory.
    """

    directory: str
    target: str
    prefix: str

    def shown(self, found: bytes) -> str:
        """A path that was found, as the model may give it to another tool."""
        return posixpath.normpath(posixpath.join(self.prefix, os.fsdecode(found)))


def locate(context: ToolContext, path: str) -> Place:
    """The place called `path`.

    Raises:
        ToolFailed: it is no directory or readable file in the workspace.
    """
    sandbox = context.sandbox
    base = sandbox.resolve(".")
    try:
        directory = sandbox.directory(path)
    except ToolFailed as failure:
        if failure.kind != "not_a_directory":
            raise
        with closing(sandbox.open(path)) as file:
            folder, name = posixpath.split(file.path)
        return Place(sandbox.directory(_up(base, folder)), f"./{name}", _up(base, folder))
    return Place(directory, ".", _up(base, sandbox.resolve(path)))


def _up(base: str, key: str) -> str:
    return posixpath.relpath(f"/{key}", f"/{base}")


class Records:
    """Splits output into records at `end`, and passes on the first `keep_bytes` of each."""

    def __init__(self, end: bytes, *, keep_bytes: int, take: Callable[[bytes], None]) -> None:
        self._end = end
        self._keep_bytes = keep_bytes
        self._take = take
        self._held = b""

    def feed(self, chunk: bytes) -> None:
        """Take more output."""
        first, *rest = chunk.split(self._end)
        self._hold(first)
        for part in rest:
            self._take(self._held)
            self._held = b""
            self._hold(part)

    def _hold(self, part: bytes) -> None:
        self._held += part[: max(0, self._keep_bytes - len(self._held))]


class Access:
    """Which of the paths found a tool may show: those that the file tools would open."""

    def __init__(self, context: ToolContext) -> None:
        self._sandbox = context.sandbox
        self._known: dict[str, bool] = {}

    def allows(self, path: str) -> bool:
        """False below a reserved directory."""
        return self._knows(posixpath.dirname(path) or ".")

    def allows_content(self, path: str) -> bool:
        """False besides for another name of a reserved file."""
        return self.allows(path) and self._knows(path)

    def _knows(self, path: str) -> bool:
        if path not in self._known:
            self._known[path] = self._reachable(path)
        return self._known[path]

    def _reachable(self, path: str) -> bool:
        try:
            self._sandbox.resolve(path)
        except ToolFailed:
            return False
        return True


async def search(
    context: ToolContext,
    argv: list[str],
    *,
    place: Place,
    on_output: Callable[[bytes], None],
    enough: anyio.CancelScope,
) -> ProcessResult | None:
    """Run a search until it ends or `enough` is cancelled (then None).

    Raises:
        ToolFailed: it took too long.
    """
    result: ProcessResult | None = None
    with enough:
        result = await context.sandbox.run(
            argv,
            cwd=place.directory,
            env={**ENVIRONMENT, "HAMES_CALL": context.call_id},
            timeout_ms=context.limits["searchTimeoutMs"],
            grace_ms=context.limits["termGraceMs"],
            keep_bytes=4096,
            keep_end=False,
            on_output=on_output,
        )
    if result is not None and result.timed_out:
        limit = context.limits["searchTimeoutMs"]
        raise ToolFailed("timed_out", f"The search took longer than {limit} ms; search a smaller directory.")
    return result


def line(path: str) -> str:
    """A path on one line of valid Unicode."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in valid(path))
