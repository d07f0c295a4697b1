"""Whether text that comes in pieces is one JSON object so far, without I/O.

Rule: no character is looked at twice, but for one reading of the whole text where its brackets first close. Who asks
after each piece must not pay for all pieces each time.
"""

from __future__ import annotations

import re

import orjson

_STRING = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
"""On to the end of a string, or to what may be half an escape."""

_STRUCTURE = re.compile(r'[^"{}\[\]]*+')


class ObjectEnd:
    """A text in pieces: `feed` them in order. `is_whole`: it is one JSON object, and perhaps white space."""

    def __init__(self) -> None:
        self.is_whole = False
        self._pieces: list[str] = []
        self._depth = 0
        self._is_string = False
        self._escape = ""
        """The backslash that the piece before ended with, within a string."""
        self._is_over = False
        """Its brackets have closed: with more than white space behind, it is no object any more."""

    def feed(self, piece: str) -> None:
        """The next piece."""
        if self._is_over:
            self.is_whole = self.is_whole and not piece.strip(" \t\n\r")
            return
        self._pieces.append(piece)
        text, self._escape = self._escape + piece, ""
        place: int | None = 0
        while place is not None and place < len(text):
            place = self._within(text, place) if self._is_string else self._between(text, place)
        if place is None:
            self._is_over = True
            self._close()

    def _within(self, text: str, place: int) -> int:
        found = _STRING.match(text, place)
        assert found is not None
        place = found.end()
        if place == len(text):
            return place
        if text[place] == "\\":
            self._escape = "\\"
        else:
            self._is_string = False
        return place + 1

    def _between(self, text: str, place: int) -> int | None:
        """None where the brackets have closed."""
        found = _STRUCTURE.match(text, place)
        assert found is not None
        place = found.end()
        if place == len(text):
            return place
        match text[place]:
            case '"':
                self._is_string = True
            case "{" | "[":
                self._depth += 1
            case _:
                self._depth -= 1
                if self._depth <= 0:
                    return None
        return place + 1

    def _close(self) -> None:
        text, self._pieces = "".join(self._pieces), []
        try:
            self.is_whole = isinstance(orjson.loads(text), dict)
        except orjson.JSONDecodeError:
            self.is_whole = False
