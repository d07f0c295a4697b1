"""Bytes of the client to frames and back, without I/O.

Rule 1: only the byte LF ends a line; whatever else Unicode calls a line end is text.
Rule 2: the framing is told apart once, by the first line that is not blank, and then holds for the connection.
Rule 3: what is wrong costs one fault and never the stream: after it, reading goes on with the next line or the next
header block.
Rule 4: no more than `max_bytes` and one chunk are kept, and each byte is looked at a bounded number of times.
Rule 5: this module is on the way to the answer of `initialize`, so it imports nothing heavy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from hames.core.records import record
from hames.protocol.errors import HAMES_ERROR, INVALID_REQUEST, PARSE_ERROR, Refused

Framing = Literal["line", "header"]

MAX_HEADER_BYTES: Final = 8 * 1024
"""A header block has one or two short lines; more is not a header block."""

_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r\n"
_HEADER_STARTS: Final = (b"content-length:", b"content-type:")
_NAME: Final = re.compile(rb"[0-9A-Za-z-]+")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_RESTART: Final = re.compile(rb"Content-(?:Length|Type):[^\n{}\[\]\"]*\n\Z", re.IGNORECASE)
"""A line whose end is a header: where reading goes on after a bad header block. A body ends without LF, so that
the header may follow on the same line."""
_RESTART_TAIL: Final = 256
"""Bytes kept of a line without end while looking for `_RESTART`: a header line is shorter."""


@record
class FrameFault:
    """Bytes that are no frame. Answer with a JSON-RPC error of this code and data, and id null."""

    code: int
    message: str
    data: Mapping[str, Any] | None = None


Frames = list["bytes | FrameFault"]


def encode_frame(payload: bytes, framing: Framing) -> bytes:
    """`payload`, JSON text without LF, as it goes out."""
    if framing == "header":
        return b"Content-Length: %d\r\n\r\n%b" % (len(payload), payload)
    return payload + b"\n"


def encode_lines(head: bytes, lines: bytes) -> bytes:
    """A frame a line for each of `lines`, which end with LF: `head`, the line, and two closing braces. Two copies,
    whatever the number of lines."""
    framed = lines.replace(b"\n", b"}}\n" + head)
    # The last LF was followed by another head.
    return b"".join((head, memoryview(framed)[: -len(head)]))


class FrameDecoder:
    """Cuts the byte stream of one connection into frames of 1 to `max_bytes` bytes.

    Give it every chunk with `feed`, then `end` once. A byte order mark at the very start is dropped.
    """

    def __init__(self, max_bytes: int, framing: Literal["auto", "line", "header"] = "auto") -> None:
        self._max_bytes = max_bytes
        self._wanted = framing
        self._head = b""
        self._past_bom = False
        self._reader: _LineReader | _HeaderReader | None = None

    @property
    def framing(self) -> Framing:
        """The framing to answer in; lines until it is known."""
        return self._reader.framing if self._reader else "header" if self._wanted == "header" else "line"

    def feed(self, data: bytes) -> Frames:
        """The frames and faults that `data` completes, in order."""
        if self._reader is None:
            data = self._head + data
            if not self._decide(data):
                return []
            data, self._head = self._head, b""
        assert self._reader is not None
        return self._reader.feed(data)

    def end(self) -> Frames:
        """What the end of the stream completes: a last line needs no LF; a cut frame with headers is a fault."""
        if self._reader is None:
            head, self._head = self._head, b""
            self._reader = self._make("header" if self._wanted == "header" else "line")
            return self._reader.feed(head) + self._reader.end()
        return self._reader.end()

    def _decide(self, data: bytes) -> bool:
        """Make the reader once the first bytes tell which; leave what it is to read in `_head`."""
        self._head = data
        if not self._past_bom:
            if len(data) < len(_BOM) and _BOM.startswith(data):
                return False
            self._past_bom = True
            self._head = data.removeprefix(_BOM)
        if self._wanted != "auto":
            self._reader = self._make(self._wanted)
            return True
        self._head = self._head.lstrip(_BLANK)
        start = self._head[: max(map(len, _HEADER_STARTS))].lower()
        if start.startswith(_HEADER_STARTS):
            self._reader = self._make("header")
        elif not any(header.startswith(start) for header in _HEADER_STARTS):
            self._reader = self._make("line")
        return self._reader is not None

    def _make(self, framing: Framing) -> _LineReader | _HeaderReader:
        return _HeaderReader(self._max_bytes) if framing == "header" else _LineReader(self._max_bytes)


def _too_large(actual_bytes: int, max_bytes: int) -> FrameFault:
    message = f"A frame of {actual_bytes} bytes came; at most {max_bytes} are allowed. Send less, or refer to a file."
    refusal = Refused("frame_too_large", message, actualBytes=actual_bytes, maxBytes=max_bytes)
    return FrameFault(HAMES_ERROR, refusal.message, refusal.data())


@dataclass(slots=True)
class _LineReader:
    """Newline-delimited frames. `dropped` counts the bytes of a line that is too large while it goes on.

    A header block in this framing is a fault. Its body, which has no LF, sticks to the line that follows; so where
    that line has the end of one message and the start of another at `body_bytes`, it is cut there.
    """

    max_bytes: int
    framing: Framing = "line"
    line: bytearray = field(default_factory=bytearray)
    dropped: int = 0
    body_bytes: int = 0

    def feed(self, data: bytes) -> Frames:
        found: Frames = []
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._complete(end, found)
        self._keep(rest)
        return found

    def end(self) -> Frames:
        found: Frames = []
        self._complete(b"", found)
        return found

    def _complete(self, end: bytes, found: Frames) -> None:
        if self.dropped:
            found.append(_too_large(self.dropped + len(end), self.max_bytes))
            self.dropped = 0
            return
        if self.line:
            self.line += end
            end = bytes(self.line)
            self.line = bytearray()
        end = end.removesuffix(b"\r")
        if len(end) > self.max_bytes:
            found.append(_too_large(len(end), self.max_bytes))
        elif end[:1] in (b"C", b"c") and end.lower().startswith(_HEADER_STARTS):
            length = end.partition(b":")[2].strip()
            self.body_bytes = int(length) if _LENGTH.fullmatch(length) else self.body_bytes
            found.append(FrameFault(PARSE_ERROR, "A header came on a connection that began with one message a line."))
        elif end.strip(_BLANK):
            body, rest = end[: self.body_bytes], end[self.body_bytes :]
            glued = body.endswith((b"}", b"]")) and rest.startswith((b"{", b"["))
            found += (body, rest) if glued else (end,)
            self.body_bytes = 0

    def _keep(self, rest: bytes) -> None:
        if self.dropped:
            self.dropped += len(rest)
        elif len(self.line) + len(rest) > self.max_bytes + 1:
            # One more than allowed may still be the CR of a CRLF.
            self.dropped = len(self.line) + len(rest)
            self.line = bytearray()
        else:
            self.line += rest


@dataclass(slots=True)
class _HeaderReader:
    """Frames with `Content-Length` headers.

    Reads the lines of a block until the blank one, then `missing` bytes of body, which are dropped where the frame is
    too large. `lost` after a bad block: lines are dropped until one ends in a header.
    """

    max_bytes: int
    framing: Framing = "header"
    line: bytearray = field(default_factory=bytearray)
    block_bytes: int = 0
    lengths: list[bytes] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    missing: int = 0
    dropping: bool = False
    lost: bool = False

    def feed(self, data: bytes) -> Frames:
        found: Frames = []
        at = 0
        while at < len(data):
            if self.missing:
                at = self._read_body(data, at, found)
            else:
                stop = data.find(b"\n", at) + 1 or len(data)
                self._read_line(data[at:stop], found)
                at = stop
        return found

    def end(self) -> Frames:
        if self.lost or self.dropping or not (self.missing or self.block_bytes or self.line):
            return []
        self.missing = self.block_bytes = 0
        self.line.clear()
        return [FrameFault(PARSE_ERROR, "The stream ended within a frame; nothing of it was used.")]

    def _read_body(self, data: bytes, at: int, found: Frames) -> int:
        stop = min(len(data), at + self.missing)
        self.missing -= stop - at
        if not self.dropping:
            self.body += data[at:stop]
        if not self.missing:
            if not self.dropping:
                found.append(bytes(self.body))
            self.body = bytearray()
            self.dropping = False
        return stop

    def _read_line(self, part: bytes, found: Frames) -> None:
        self.line += part
        if not self.lost and self.block_bytes + len(self.line) > MAX_HEADER_BYTES:
            self._lose(f"The header block is larger than {MAX_HEADER_BYTES} bytes.", found)
        if self.lost:
            self._look_for_restart()
        if not self.line.endswith(b"\n"):
            return
        line = bytes(self.line)
        self.line.clear()
        name, colon, value = line.partition(b":")
        if not line.strip(_BLANK):
            if self.block_bytes:
                self._end_block(found)
        elif colon and _NAME.fullmatch(name):
            self.block_bytes += len(line)
            if name.lower() == b"content-length":
                self.lengths.append(value.strip())
        else:
            self._lose("A line is no header; this connection began with `Content-Length` headers.", found)
            self._read_line(line, found)

    def _end_block(self, found: Frames) -> None:
        lengths, self.lengths, self.block_bytes = self.lengths, [], 0
        if len(lengths) != 1:
            self._lose(f"The header block has {len(lengths)} `Content-Length` headers; it needs one.", found)
        elif not _LENGTH.fullmatch(lengths[0]):
            self._lose("`Content-Length` must be a decimal number of bytes, at most 15 digits.", found)
        elif not (missing := int(lengths[0])):
            found.append(FrameFault(INVALID_REQUEST, "A frame of 0 bytes came; a message has at least 2."))
        else:
            self.missing, self.dropping = missing, missing > self.max_bytes
            if self.dropping:
                found.append(_too_large(missing, self.max_bytes))

    def _lose(self, message: str, found: Frames) -> None:
        found.append(FrameFault(INVALID_REQUEST, f"{message} Reading goes on at the next header block."))
        self.lost, self.block_bytes, self.lengths = True, 0, []

    def _look_for_restart(self) -> None:
        """Leave in `line` a whole header, or nothing, or the last bytes of a line that goes on."""
        del self.line[:-_RESTART_TAIL]
        if self.line.endswith(b"\n"):
            restart = _RESTART.search(self.line)
            self.lost = restart is None
            del self.line[: restart.start() if restart else len(self.line)]
