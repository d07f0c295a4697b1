"""`apply_patch`: a patch over several files, all of it or nothing.

Rule 1: everything is read and worked out before the first file is written.
Rule 2: a file that then cannot be written has those before it put back; what could not be put back is named.
Rule 3: nothing is overwritten unseen: a file is added, or moved to, where there is none.
Rule 4: a patch is taken apart and worked out in a thread; a call that is cancelled meanwhile has changed nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread

from hames.core.conversation import ToolSpec
from hames.ports import Effect, FileChange, Sandbox, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.tools import changes
from hames.tools.clip import one_line, valid
from hames.tools.patch import AddFile, DeleteFile, Section, UpdateFile, parse
from hames.tools.patching import patched
from hames.tools.write import encoded

NAMED_PATHS = 50
"""Most files that are named one by one to the model and to clients."""


class ApplyPatchTool:
    """A patch in the v4a format."""

    effect: Effect = "write"
    spec = ToolSpec(
        name="apply_patch",
        description=(
            "Change files by a patch: all of it is applied, or nothing. Form:\n"
            "*** Begin Patch\n*** Add File: new.py\n+every line\n*** Delete File: old.py\n*** Update File: a.py\n"
            "*** Move to: b.py\n@@ class A\n@@ def f\n context\n-removed\n+added\n*** End of File\n*** End Patch\n"
            "`Move to`, `@@` and `End of File` are optional. A hunk gives about three unchanged lines before and after "
            "its change; where those fit more than one place, `@@` names a line above it. Paths are relative to the "
            "working directory. Changes that a running shell command makes to the same files are not waited for."
        ),
        parameters={
            "type": "object",
            "properties": {"patch": {"type": "string", "minLength": 1, "description": "The whole patch."}},
            "required": ["patch"],
            "additionalProperties": False,
        },
    )

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> tuple[str, ...]:
        """Every file that the patch names."""
        return tuple(sorted({context.sandbox.resolve(_relative(path)) for path in _paths(parse(arguments["patch"]))}))

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """The files."""
        return one_line("apply_patch to " + ", ".join(_paths(parse(arguments["patch"]))))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Apply it.

        Raises:
            ToolFailed: the patch cannot be understood or does not fit, a file cannot be read or written. Nothing is
                changed then, unless `partly_applied` says what is.
        """
        limit = context.limits["searchTimeoutMs"]
        try:
            with anyio.fail_after(limit / 1000):
                # A thread, since working it out may take long, and making files durable waits for the disk. It is not
                # abandoned: it looks by itself whether it shall go on, until the first file is written.
                return await anyio.to_thread.run_sync(_apply, arguments["patch"], context)
        except TimeoutError as error:
            message = f"The patch was not worked out in {limit} ms; send less at once. Nothing was changed."
            raise ToolFailed("timed_out", message) from error


def _paths(sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        yield section.path
        if isinstance(section, UpdateFile) and section.moved_to is not None:
            yield section.moved_to


def _relative(path: str) -> str:
    if path.startswith("/"):
        raise ToolFailed("invalid_path", "A path in a patch is relative to the working directory. Nothing was changed.")
    return path


@dataclass(slots=True)
class _Staged:
    """A file as it was and as it shall be; None where there is none. `mode` is what it has, or is made with."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None


class _Stage:
    """The files of a patch, worked out in memory, by their canonical names."""

    def __init__(self, context: ToolContext) -> None:
        self._sandbox = context.sandbox
        self._room = context.limits["fileBytes"]
        self.files: dict[str, _Staged] = {}
        self.done: list[str] = []

    def apply(self, section: Section) -> None:
        """Work out one section; those before it hold."""
        match section:
            case AddFile():
                self._make(section.path, encoded("".join(f"{line}\n" for line in section.lines), "patch"), mode=None)
                self.done.append(f"A {valid(section.path)}")
            case DeleteFile():
                self._existing(section.path).after = None
                self.done.append(f"D {valid(section.path)}")
            case UpdateFile():
                self._update(section)

    def _update(self, section: UpdateFile) -> None:
        file = self._existing(section.path)
        assert file.after is not None
        content = file.after
        try:
            if section.hunks:
                content = patched(content, section.hunks, before_each=anyio.from_thread.check_cancelled)
        except ToolFailed as failed:
            message = f"{one_line(section.path)}: {failed.message}\nNothing was changed."
            raise ToolFailed(failed.kind, message, path=one_line(section.path, 1_000), **failed.details) from failed
        if section.moved_to is None:
            self._take(len(content))
            if content == file.after:
                message = f"{one_line(section.path)}: the hunks change nothing. Nothing was changed."
                raise ToolFailed("nothing_to_change", message)
            file.after = content
            self.done.append(f"M {valid(section.path)}")
        else:
            file.after = None
            self._make(section.moved_to, content, mode=file.mode)
            self.done.append(f"R {valid(section.path)} -> {valid(section.moved_to)}")

    def _make(self, path: str, content: bytes, *, mode: int | None) -> None:
        file = self._look(path)
        if file.after is not None:
            message = f"{one_line(path)} exists already: update it, or delete it first. Nothing was changed."
            raise ToolFailed("file_exists", message, path=one_line(path, 1_000))
        self._take(len(content))
        file.after, file.mode = content, mode if file.before is None else file.mode

    def _existing(self, path: str) -> _Staged:
        file = self._look(path)
        if file.after is None:
            raise ToolFailed("not_found", f"{one_line(path)} does not exist. Nothing was changed.")
        return file

    def _look(self, path: str) -> _Staged:
        key = self._sandbox.resolve(_relative(path))
        if key not in self.files:
            self.files[key] = self._read(path)
        return self.files[key]

    def _read(self, path: str) -> _Staged:
        try:
            file = self._sandbox.open(path)
        except ToolFailed as failed:
            if failed.kind == "not_found":
                return _Staged(path, None, None, None)
            raise
        with closing(file):
            content = file.read(0, self._room + 1)
            self._take(len(content))
            return _Staged(path, content, content, file.mode)

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise ToolFailed("too_large", "The files of the patch are too large together. Nothing was changed.")


def _apply(patch: str, context: ToolContext) -> ToolOutcome:
    sections = parse(patch)
    stage = _Stage(context)
    for section in sections:
        anyio.from_thread.check_cancelled()
        stage.apply(section)
    anyio.from_thread.check_cancelled()
    changed = {key: file for key, file in stage.files.items() if file.before != file.after}
    # Those that go, last: until then every content is on disk.
    order = sorted(changed.values(), key=lambda file: file.after is None)
    _write(context.sandbox, order)
    more = len(stage.done) - NAMED_PATHS
    rows = [one_line(row, 1_000) for row in stage.done[:NAMED_PATHS]] + ([f"[And {more} more.]"] if more > 0 else [])
    return ToolOutcome(
        text="\n".join(["Applied:", *rows]),
        details={"files": len(changed), "sections": len(sections)},
        changes=tuple(_described(key, file) for key, file in changed.items()),
    )


def _write(sandbox: Sandbox, order: Sequence[_Staged]) -> None:
    for place, file in enumerate(order):
        try:
            _put(sandbox, file.path, file.after, file.mode)
        except ToolFailed as failed:
            left = _put_back(sandbox, order[:place])
            if not left:
                message = f"{failed.message} Nothing is changed: what had been written was put back."
                raise ToolFailed(failed.kind, message, **failed.details) from failed
            names = ", ".join(one_line(path) for path in left[:NAMED_PATHS])
            message = f"{failed.message} These files are changed already and could not be put back: {names}."
            raise ToolFailed("partly_applied", message, cause=failed.kind, files=len(left)) from failed


def _put_back(sandbox: Sandbox, written: Sequence[_Staged]) -> list[str]:
    """Undo; the files where that failed."""
    left: list[str] = []
    for file in reversed(written):
        try:
            _put(sandbox, file.path, file.before, file.mode)
        except ToolFailed:
            left.append(file.path)
    return left


def _put(sandbox: Sandbox, path: str, content: bytes | None, mode: int | None) -> None:
    if content is None:
        sandbox.remove(path)
    else:
        sandbox.replace(path, content, mode=mode)


def _described(key: str, file: _Staged) -> FileChange:
    before = None if file.before is None else changes.Before(hashlib.sha256(file.before).hexdigest(), file.before)
    if file.after is None:
        assert before is not None
        return changes.removed(key, before)
    return changes.describe(key, before, file.after)
