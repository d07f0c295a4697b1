"""Frames on a byte stream: one JSON text a line, ended by the byte LF and by nothing else."""

from __future__ import annotations

import json
from typing import Any

MAX_FRAME_BYTES = 64 * 2**20
"""The most that a server may publish as `limits.frameOutBytes`."""


class FrameTooLarge(Exception):
    """A line longer than any server may send: this is not a Hames server."""


class Splitter:
    """Cuts a stream into lines. Holds at most one unfinished line of `MAX_FRAME_BYTES`."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their LF.

        Raises:
            FrameTooLarge: the unfinished line is too long.
        """
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join(self._parts) + lines[0]
            self._parts, self._held_bytes = [], 0
        if rest:
            self._parts.append(rest)
            self._held_bytes += len(rest)
            if self._held_bytes > MAX_FRAME_BYTES:
                raise FrameTooLarge(f"a line of more than {MAX_FRAME_BYTES} bytes")
        return lines


def encode(message: dict[str, Any]) -> bytes:
    """A message as a frame.

    Raises:
        ValueError: NaN or an infinity, which JSON does not have.
        TypeError: a value that JSON does not have.
    """
    text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        # A lone surrogate is not UTF-8, but may be escaped; the server makes U+FFFD of it.
        return json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def decode(frame: bytes) -> dict[str, Any] | None:
    """The message in a line; None for a line that holds none, such as a banner that a wrapper printed."""
    try:
        message = json.loads(frame)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
