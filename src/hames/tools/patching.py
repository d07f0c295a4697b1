"""What a patch makes of a file: where its hunks belong, and the new content. Pure.

Rule 1: a hunk belongs where all the lines are that it keeps and removes, in order and together, after the hunk before
it. Where that is in two places, `@@` must tell which.
Rule 2: what is not removed stays as it is, to the byte: also where a line was only recognised without its white space.
An added line ends as the lines around it. The content that comes out ends with a line end.
Rule 3: linear in the size of the file, and of the patch, unless its hunks are of lines that are all over the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NoReturn

from hames.protocol.errors import ToolFailed
from hames.tools.clip import prefix, split_lines, valid
from hames.tools.patch import Hunk

BOM: Final = b"\xef\xbb\xbf"

MOST_BYTES: Final = 4 * 2**20
"""Most of a file that is patched. It is taken apart into its lines, which may be empty, and each takes memory."""

EXCERPT_LINES: Final = 12
EXCERPT_BYTES: Final = 1_000
"""Most that is shown of the place that a hunk was perhaps meant for."""

COMMON: Final = 50
"""A line that is in a file more often says nothing about the place."""

_PLAIN: Final = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    }
)


def _plain(text: str) -> str:
    return text.translate(_PLAIN).strip()


LEVELS: Final[tuple[Callable[[str], str], ...]] = (str, str.rstrip, str.strip, _plain)
"""How lines are compared, the strictest first: as they are, without white space at the end, without any around them,
and with typographic quotes, dashes and spaces as plain ones."""


def patched(content: bytes, hunks: Sequence[Hunk], *, before_each: Callable[[], object] = lambda: None) -> bytes:
    """`content` with all hunks applied; `before_each` of them is asked whether to go on, and raises if not.

    Raises:
        ToolFailed: `no_match` or `ambiguous`, with the number of the `hunk`; `invalid_text`; `too_large`.
    """
    if len(content) > MOST_BYTES:
        raise ToolFailed("too_large", f"A file of more than {MOST_BYTES} bytes cannot be patched; use edit.")
    mark = BOM if content.startswith(BOM) else b""
    file = _File(content[len(mark) :])
    made: list[bytes] = []
    done = 0
    for number, hunk in enumerate(hunks, 1):
        before_each()
        place = _place(file, hunk, done, number)
        made += file.lines[done:place]
        done = place
        for sign, text in hunk.rows:
            if sign == "+":
                end = file.end_near(done)
                made.append(_encoded(text.removesuffix("\r") if end == b"\r\n" else text) + end)
                continue
            if sign == " ":
                made.append(file.lines[done])
            done += 1
    made += file.lines[done:]
    whole = b"".join(line if line.endswith(b"\n") else line + file.end_near(len(file.lines)) for line in made)
    return mark + whole if whole else b""


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed("invalid_text", "The patch is not valid Unicode: a lone surrogate.") from error


def occurrences(lines: Sequence[str], block: Sequence[str], start: int, *, most: int) -> list[int]:
    """Where `block`, which is not empty, stands in `lines` from `start` on: the first `most` places. Linear."""
    fall_back = [0] * len(block)
    length = 0
    for place in range(1, len(block)):
        while length and block[place] != block[length]:
            length = fall_back[length - 1]
        length += block[place] == block[length]
        fall_back[place] = length
    found: list[int] = []
    length = 0
    for place in range(start, len(lines)):
        while length and lines[place] != block[length]:
            length = fall_back[length - 1]
        length += lines[place] == block[length]
        if length == len(block):
            found.append(place - length + 1)
            if len(found) == most:
                break
            length = fall_back[length - 1]
    return found


class _File:
    """The lines of a file, and how they read at each level of strictness."""

    def __init__(self, content: bytes) -> None:
        self.lines = split_lines(content)
        self._read: dict[int, list[str]] = {}
        self._index: dict[int, dict[str, list[int]]] = {}

    @cached_property
    def texts(self) -> list[str]:
        """The lines without their ends."""
        return [line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape") for line in self.lines]

    def end_near(self, place: int) -> bytes:
        """The line end that is used before line `place`, or at it where it is the first."""
        near = self.lines[max(0, place - 1)] if self.lines else b"\n"
        if not near.endswith(b"\n"):
            near = self.lines[0]
        return b"\r\n" if near.endswith(b"\r\n") else b"\n"

    def find(self, block: Sequence[str], start: int) -> list[int]:
        """Up to two places of `block`, at the strictest level that has any."""
        for level, read in enumerate(LEVELS):
            found = self._find(level, [read(line) for line in block], start)
            if found:
                return found
        return []

    def _find(self, level: int, block: list[str], start: int) -> list[int]:
        lines, places = self._at(level), self._places(level)
        rarest = min(range(len(block)), key=lambda offset: len(places.get(block[offset], ())))
        candidates = places.get(block[rarest], [])
        if len(candidates) > COMMON:
            return occurrences(lines, block, start, most=2)
        begins = [place - rarest for place in candidates if place - rarest >= start]
        return [place for place in begins if lines[place : place + len(block)] == block][:2]

    def _places(self, level: int) -> dict[str, list[int]]:
        """Where each line is."""
        if level not in self._index:
            index = self._index[level] = {}
            for place, line in enumerate(self._at(level)):
                index.setdefault(line, []).append(place)
        return self._index[level]

    def ends_with(self, block: Sequence[str], start: int) -> bool:
        """The file ends with `block`, which begins at `start` or later."""
        place = len(self.lines) - len(block)
        if place < start:
            return False
        return any(self._at(level)[place:] == [read(line) for line in block] for level, read in enumerate(LEVELS))

    def _at(self, level: int) -> list[str]:
        if level not in self._read:
            self._read[level] = [LEVELS[level](line) for line in self.texts]
        return self._read[level]

    def nearest(self, block: Sequence[str]) -> int | None:
        """Where most lines of `block` are as they should be; None where none is."""
        places = self._places(2)
        votes = Counter(
            max(0, place - offset)
            for offset, line in enumerate(line.strip() for line in block)
            if line and len(places.get(line, ())) <= COMMON
            for place in places.get(line, ())
        )
        return min(votes, key=lambda place: (-votes[place], place)) if votes else None


def _place(file: _File, hunk: Hunk, start: int, number: int) -> int:
    """The first line of the hunk's place, `start` or later."""
    told_apart = bool(hunk.contexts)
    above = start
    for depth, context in enumerate(hunk.contexts):
        found = file.find([context], start)
        if not found:
            _no_match(file, [context], number, "the line of its `@@` is not in the file" + _after(number))
        if depth == 0 and len(found) > 1:
            told_apart = False
        above, start = found[0], found[0] + 1
    old = [text for sign, text in hunk.rows if sign != "+"]
    if not old:
        return start if hunk.contexts and not hunk.at_end else len(file.lines)
    if hunk.at_end and file.ends_with(old, above):
        return len(file.lines) - len(old)
    # From the line of `@@` on: many repeat it as the first line of the hunk.
    found = file.find(old, above)
    if not found:
        _no_match(file, old, number, "the lines that it keeps and removes are not in the file" + _after(number))
    if len(found) > 1 and not told_apart:
        message = f"Hunk {number} fits in more than one place: give more of the lines around it, or name a line above "
        raise ToolFailed("ambiguous", message + "it that occurs once, as `@@ class Name`.", hunk=number)
    return found[0]


def _after(number: int) -> str:
    return "" if number == 1 else " after the hunk before it (hunks stand in the order of the file)"


def _no_match(file: _File, block: Sequence[str], number: int, what: str) -> NoReturn:
    message = f"Hunk {number} does not fit: {what}."
    place = file.nearest(block)
    if place is not None:
        rows = [f"{place + row + 1}: {text}" for row, text in enumerate(file.texts[place : place + EXCERPT_LINES])]
        excerpt = prefix(valid("\n".join(rows[: max(1, len(block))])), EXCERPT_BYTES)
        message += f" The nearest place, with line numbers:\n{excerpt}"
    raise ToolFailed("no_match", message, hunk=number)
