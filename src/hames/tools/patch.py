"""The grammar of `apply_patch` (v4a): text becomes sections, one for each file. Pure.

Rule 1: a text that is not wholly understood is refused: nothing is guessed that would change a file.
Rule 2: what is forgiven changes no meaning: white space around markers, the shell's heredoc around the whole, a first
hunk without `@@`, blank lines between hunks, the line numbers of a unified diff.
Rule 3: what is wrong is told by the number of the line and the rule, never by repeating it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NoReturn

from hames.core.records import record
from hames.protocol.errors import ToolFailed

BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
END_OF_FILE: Final = "*** End of File"

MOST_CHARS: Final = 2**20
"""Of a patch: what is more than a model writes in one answer takes minutes to match against files."""

MOST_SECTIONS: Final = 2_000
"""Files of one patch. Each is read, written and recorded by itself."""

_HEREDOC: Final = re.compile(r"(?:apply_patch\s+)?<<\s*(['\"]?)(\w+)\1")
_HEADER: Final = re.compile(r"\*\*\* (Add|Delete|Update) File:\s*(.*)")
_MOVE: Final = re.compile(r"\*\*\* Move to:\s*(.*)")
_UNIFIED: Final = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")


@record
class Hunk:
    """One place of a file: `rows` of (` `, `-` or `+`, text), below all lines of `contexts`; `at_end` of the file."""

    contexts: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]
    at_end: bool = False


@record
class AddFile:
    """A file that is not there yet, and its lines."""

    path: str
    lines: tuple[str, ...]


@record
class DeleteFile:
    """A file that goes."""

    path: str


@record
class UpdateFile:
    """A file that changes, its name, its content, or both."""

    path: str
    moved_to: str | None
    hunks: tuple[Hunk, ...]


Section = AddFile | DeleteFile | UpdateFile


def parse(text: str) -> tuple[Section, ...]:
    """The sections of a patch, at least one.

    Raises:
        ToolFailed: `bad_patch`, with the number of the `line`; `too_large`.
    """
    if len(text) > MOST_CHARS:
        _too_large(f"{len(text)} characters, and {MOST_CHARS} are the most")
    lines = text.split("\n")
    if all(line.endswith("\r") for line in lines[:-1]):
        lines = [line.removesuffix("\r") for line in lines]
    first, last = 0, len(lines)
    while first < last and not lines[first].strip():
        first += 1
    while last > first and not lines[last - 1].strip():
        last -= 1
    heredoc = _HEREDOC.fullmatch(lines[first].strip()) if last - first >= 2 else None
    if heredoc is not None and lines[last - 1].strip() == heredoc[2]:
        first, last = first + 1, last - 1
    if first >= last or lines[first].strip() != BEGIN:
        _refuse(min(first, len(lines) - 1), f"the patch begins with the line `{BEGIN}`")
    if last - first < 2 or lines[last - 1].strip() != END:
        _refuse(last - 1, f"the patch ends with the line `{END}`, and nothing comes after it")
    sections = _Reader(lines, first + 1, last - 1).sections()
    if not sections:
        _refuse(first + 1, "the patch names no file")
    return sections


def _refuse(place: int, rule: str) -> NoReturn:
    message = f"Line {place + 1} of the patch: {rule}. Nothing was changed."
    raise ToolFailed("bad_patch", message, line=place + 1)


def _too_large(seen: str) -> NoReturn:
    message = f"The patch is too large: it has {seen}. Send it in parts. Nothing was changed."
    raise ToolFailed("too_large", message)


@dataclass(slots=True)
class _Reader:
    """Reads `lines` from `at` up to `end`."""

    lines: list[str]
    at: int
    end: int
    found: list[Section] = field(default_factory=list)

    def sections(self) -> tuple[Section, ...]:
        while self._more():
            header = _HEADER.fullmatch(self.lines[self.at].strip())
            if header is None:
                rule = "a section begins with `*** Add File: `, `*** Delete File: ` or `*** Update File: ` and a path"
                _refuse(self.at, rule)
            if len(self.found) == MOST_SECTIONS:
                _too_large(f"more than {MOST_SECTIONS} sections, one for each file")
            path = self._path(header[2])
            self.at += 1
            if header[1] == "Add":
                self.found.append(AddFile(path, self._added()))
            elif header[1] == "Delete":
                self.found.append(DeleteFile(path))
            else:
                self.found.append(self._updated(path))
        return tuple(self.found)

    def _more(self) -> bool:
        """Skip blank lines; whether anything follows."""
        while self.at < self.end and not self.lines[self.at].strip():
            self.at += 1
        return self.at < self.end

    def _path(self, text: str) -> str:
        path = text.strip()
        if not path:
            _refuse(self.at, "a path follows the colon")
        return path

    def _added(self) -> tuple[str, ...]:
        lines: list[str] = []
        while self.at < self.end and self.lines[self.at].startswith("+"):
            lines.append(self.lines[self.at][1:])
            self.at += 1
        if self._more() and not self.lines[self.at].strip().startswith("*** "):
            _refuse(self.at, "every line of an added file begins with `+`")
        return tuple(lines)

    def _updated(self, path: str) -> UpdateFile:
        moved_to = None
        if self.at < self.end and (move := _MOVE.fullmatch(self.lines[self.at].strip())):
            moved_to = self._path(move[1])
            self.at += 1
        hunks: list[Hunk] = []
        while self._more() and (not self.lines[self.at].startswith("*** ") or self._is(END_OF_FILE)):
            if not self.lines[self.at].startswith((" ", "+", "-", "@@")):
                if _HEADER.fullmatch(self.lines[self.at].strip()):
                    break
                _refuse(self.at, "a hunk begins with `@@`, and each of its lines with a space, `-` or `+`")
            hunks.append(self._hunk())
        if not hunks and moved_to is None:
            _refuse(self.at - 1, "an update has at least one hunk")
        return UpdateFile(path, moved_to, tuple(hunks))

    def _is(self, marker: str) -> bool:
        return self.lines[self.at].strip() == marker

    def _hunk(self) -> Hunk:
        start = self.at
        contexts: list[str] = []
        while self._more() and self.lines[self.at].startswith("@@"):
            unified = _UNIFIED.match(self.lines[self.at])
            context = self.lines[self.at][unified.end() if unified else 2 :].removeprefix(" ").rstrip()
            if context:
                contexts.append(context)
            self.at += 1
        rows: list[tuple[str, str]] = []
        while self.at < self.end:
            line = self.lines[self.at]
            if line[:1] in (" ", "+", "-") and line:
                rows.append((line[0], line[1:]))
                self.at += 1
            elif not line.strip() and (blank := self._blank_rows()):
                rows += [(" ", "")] * blank
                self.at += blank
            else:
                break
        at_end = self.at < self.end and self._is(END_OF_FILE)
        if not rows:
            _refuse(start, "a hunk has lines that begin with a space, `-` or `+`")
        if at_end:
            self.at += 1
        return Hunk(tuple(contexts), tuple(rows), at_end)

    def _blank_rows(self) -> int:
        """How many blank lines are rows whose space somebody took away: those that another row comes after."""
        place = self.at
        while place < self.end and not self.lines[place].strip():
            place += 1
        return place - self.at if place < self.end and self.lines[place].startswith((" ", "+", "-")) else 0
