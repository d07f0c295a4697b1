"""Halves of UTF-16 pairs in a model's text: joined where both came, else replaced by U+FFFD.

A stream may cut an emoji into two escapes, one a delta. A half that stays alone cannot be encoded as UTF-8, and
once stored it would make every later request invalid.
"""

from __future__ import annotations

import re

from hames.core.redaction import MARK, RedactedStream

REPLACEMENT = "\ufffd"

_HALF = re.compile("[\ud800-\udfff]")
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALVED = r"u[dD][89a-fA-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rf"(?:[^\\]++|{_PAIR}|\\(?!{_HALVED}).)++|(?P<lone>\\{_HALVED})", re.DOTALL)
"""All that comes before the escape of a lone half, or that: a text of nothing but other escapes is one match."""


def without_surrogates(text: str) -> str:
    """`text` with pairs joined and lone halves replaced. Text without any is returned as it is."""
    if text.isascii() or _HALF.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def without_lone_escapes(json_text: str) -> str:
    """JSON text with the escape of each lone half replaced by that of U+FFFD; the rest byte for byte."""
    if "\\u" not in json_text:
        return json_text
    return _ESCAPE.sub(lambda found: r"\ufffd" if found["lone"] else found[0], json_text)


class PairJoiner:
    """One text that comes in pieces. What `join` gives out never ends within a pair, and never holds `secret`."""

    def __init__(self, secret: str | None = None) -> None:
        self._half = ""
        self._stream = None if secret is None else RedactedStream(secret, MARK)

    def join(self, piece: str) -> str:
        """`piece` as it can be shown; what may be half of something at its end waits for the next piece."""
        piece = self._joined(piece)
        return piece if self._stream is None else self._stream.feed(piece)

    def _joined(self, piece: str) -> str:
        if not self._half and piece.isascii():
            return piece
        piece, self._half = self._half + piece, ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        return without_surrogates(piece)

    def rest(self) -> str:
        """What still waits, replaced: the text has ended."""
        half, self._half = self._half, ""
        rest = REPLACEMENT if half else ""
        return rest if self._stream is None else self._stream.feed(rest) + self._stream.rest()
