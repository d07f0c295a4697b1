"""Cut text to size: pure, and what comes out is valid Unicode on whole lines where that can be.

Rule 1: sizes are bytes of UTF-8, lines end with a line feed; a character is never cut in two.
"""

from __future__ import annotations

from hames.core.records import record


@record
class Clip:
    """What is left of a text: `lines` and `size` (bytes of UTF-8) of `text`, and whether anything is missing."""

    text: str
    lines: int
    size: int
    cut: bool


def split_lines(data: bytes) -> list[bytes]:
    """The lines of `data` with their ends; unlike `bytes.splitlines`, a carriage return ends none."""
    parts = data.split(b"\n")
    last = parts.pop()
    return [part + b"\n" for part in parts] + ([last] if last else [])


def tail(data: bytes, *, total: int, max_lines: int, max_bytes: int) -> Clip:
    """The end of a stream of `total` bytes of which `data` is the end.

    What is no UTF-8, and NUL, which providers and databases refuse, become U+FFFD. A line that was cut is left
    out, unless that would cost half of the text or more.
    """
    cut = total > len(data)
    if cut:
        data = _after_partial_character(data)
    encoded = data.decode("utf-8", "replace").replace("\0", "\ufffd").encode()
    if len(encoded) > max_bytes:
        cut = True
        encoded = _after_partial_character(encoded[-max_bytes:])
    if cut:
        end_of_partial = encoded.find(b"\n", 0, len(encoded) // 2) + 1
        encoded = encoded[end_of_partial:]
    lines = split_lines(encoded)
    if len(lines) > max_lines:
        cut = True
        lines = lines[-max_lines:]
        encoded = b"".join(lines)
    return Clip(encoded.decode(), len(lines), len(encoded), cut)


def prefix(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` that has at most `max_bytes` bytes."""
    return text.encode()[:max_bytes].decode("utf-8", "ignore")


def one_line(text: str, limit: int = 200) -> str:
    """`text` for people: white space and what cannot be printed become single spaces, at most `limit` characters."""
    words = "".join(char if char.isprintable() else " " for char in text[: 4 * limit]).split()
    line = " ".join(words)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def valid(text: str) -> str:
    """`text` without lone surrogates: what stood for bytes that are no UTF-8 becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _after_partial_character(data: bytes) -> bytes:
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
