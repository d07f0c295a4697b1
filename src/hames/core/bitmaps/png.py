"""PNG (W3C, third edition): every chunk by its checksum and by its place, and the pixels inflated to exactly what the
header names."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from hames.core.bitmaps import Broken
from hames.core.bitmaps.png_chunks import Beside, Shape

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"

PIECE_BYTES: Final = 256 * 1024
"""Inflated at once: what a bomb costs in memory."""

_DEPTHS: Final = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_SAMPLES: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By colour type: the allowed bits of a sample (11.2.1), and the samples of a pixel."""

_PASSES: Final = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Of Adam7: the first column and row, and the steps between them (8.2)."""

MOST_BYTES: Final = 2**29
"""Of pixels, inflated: as many as 8000 x 8000 of them have, the most that vendors take, of 64 bits each."""


def check(data: bytes) -> None:
    """Raises `Broken`: `data` does not begin with a whole PNG."""
    if not data.startswith(SIGNATURE):
        raise Broken("it has no PNG signature")
    image: _Image | None = None
    for name, body in _chunks(data):
        if (name == b"IHDR") != (image is None):
            raise Broken("IHDR is not its first chunk, and the only one")
        if image is None:
            image = _header(body)
        elif name == b"IEND":
            if body:
                raise Broken("IEND holds something")
            image.pixels.end()
            return
        else:
            image.take(name, body)
    raise Broken("it ends before IEND")


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        name, end = data[at + 4 : at + 8], at + 8 + length
        if end + 4 > len(data):
            raise Broken("a chunk goes beyond its end")
        if not (name.isascii() and name.isalpha()):
            raise Broken("the name of a chunk is none")
        body = data[at + 8 : end]
        if zlib.crc32(body, zlib.crc32(name)) != int.from_bytes(data[end : end + 4], "big"):
            raise Broken(f"the checksum of {name.decode()} is wrong")
        yield name, body
        at = end + 4


def _header(body: bytes) -> _Image:
    if len(body) != 13:
        raise Broken("IHDR has not 13 bytes")
    width, height, depth, colour, compression, filtering, interlace = struct.unpack(">IIBBBBB", body)
    if not 0 < width < 2**31 or not 0 < height < 2**31:
        raise Broken("its width or height is out of range")
    if depth not in _DEPTHS.get(colour, ()) or compression or filtering or interlace > 1:
        raise Broken("IHDR names a colour type, depth, compression, filter or interlacing that is not of PNG")
    bits = depth * _SAMPLES[colour]
    sizes = [(width, height)]
    if interlace:
        sizes = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in _PASSES]
    rows = [((wide * bits + 7) // 8 + 1, high) for wide, high in sizes if wide > 0 and high > 0]
    if sum(wide * high for wide, high in rows) > MOST_BYTES:
        raise Broken(f"its pixels take more than {MOST_BYTES} bytes")
    return _Image(Shape(colour, depth), _Pixels(rows))


class _Image:
    """What the chunks between the header and the end have said."""

    def __init__(self, shape: Shape, pixels: _Pixels) -> None:
        self.pixels = pixels
        self._shape = shape
        self._beside = Beside()
        self._palette = False
        self._last = b""
        self._begun = False

    def take(self, name: bytes, body: bytes) -> None:
        """One more chunk."""
        if name == b"PLTE":
            self._take_palette(body)
        elif name == b"IDAT":
            self._check_order()
            self._begun = True
            self.pixels.feed(body)
        elif not name[0] & 0x20:
            raise Broken("it has a critical chunk that is not of PNG")
        else:
            self._beside.take(name, body, self._shape, palette=self._palette, pixels=self._begun)
        self._last = name

    def _take_palette(self, body: bytes) -> None:
        colour, late = self._shape.colour, self._palette or self._begun
        if colour in (0, 4) or late or len(body) % 3 or not 3 <= len(body) <= 768:
            raise Broken("its palette is in the wrong place, or of a wrong size")
        self._beside.end_before_palette()
        self._palette = True
        self._shape = replace(self._shape, colours=len(body) // 3)

    def _check_order(self) -> None:
        if self._last != b"IDAT" and self._begun:
            raise Broken("its IDAT chunks do not follow each other")
        if self._shape.colour == 3 and not self._palette:
            raise Broken("its palette is missing")


class _Pixels:
    """The rows of an image as they are inflated; `passes` are the bytes of a row with its filter, and how many."""

    def __init__(self, passes: list[tuple[int, int]]) -> None:
        self._passes = passes
        self._left = passes[0][0] * passes[0][1]
        self._packed = zlib.decompressobj()

    def feed(self, body: bytes) -> None:
        """More of the stream."""
        if self._packed.eof and body:
            raise Broken("its pixels go on after their end")
        while True:
            try:
                piece = self._packed.decompress(body, PIECE_BYTES)
            except zlib.error:
                raise Broken("its pixels cannot be inflated") from None
            self._take(piece)
            body = self._packed.unconsumed_tail
            # What was taken in whole may still have something to give.
            if not body and len(piece) < PIECE_BYTES:
                break
        if self._packed.unused_data:
            raise Broken("its pixels go on after their end")

    def end(self) -> None:
        """Nothing more comes."""
        if self._passes or not self._packed.eof:
            raise Broken("its pixels end too early")

    def _take(self, piece: bytes) -> None:
        at = 0
        while at < len(piece):
            if not self._passes:
                raise Broken("it has more pixels than its header says")
            row = self._passes[0][0]
            part = piece[at : at + self._left]
            # Each row begins with its filter, 0 to 4 (9.2).
            if max(part[self._left % row :: row], default=0) > 4:
                raise Broken("a row has a filter that is not of PNG")
            self._left -= len(part)
            at += len(part)
            if not self._left:
                self._passes = self._passes[1:]
                self._left = self._passes[0][0] * self._passes[0][1] if self._passes else 0
