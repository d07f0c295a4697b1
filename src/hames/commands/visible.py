"""Text of a model or a tool as it may be shown in a terminal. Pure.

Rule: what a terminal would obey instead of showing (controls, escape sequences, marks that turn the order of text
round) is spelled out, so that nothing that is shown can move, hide or repaint what stands beside it.
"""

from __future__ import annotations

import re

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls (C0 save tab and line feed, DEL, C1), separators, bidirectional marks, lone surrogates."""


def visible(text: str) -> str:
    """`text` with what a terminal would obey written as an escape, like `\\x1b`; tabs and line feeds stay."""
    return _OBEYED.sub(_spelled, text)


def in_a_row(name: str, limit: int = 200) -> str:
    """A name as a row of a listing shows it: line feeds and tabs are visible too, at most `limit` characters."""
    shown = visible(name[: limit + 1]).replace("\n", "\\n").replace("\t", "\\t")
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def one_line(text: str, limit: int = 200) -> str:
    """The first line with something in it, visible, at most `limit` characters."""
    line = next((line for line in text[: limit * 20].split("\n") if line.strip()), "")
    line = visible(line.replace("\t", " ").strip())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
