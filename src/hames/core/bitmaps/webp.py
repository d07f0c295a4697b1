"""WebP (RFC 9649): the container to its end, and the headers of what is in it.

What is not proved: the compressed pixels. They have no checksum, and to follow them is to decode them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from hames.core.bitmaps import Animated, Broken

_ANIMATED: Final = 0x02
_FLAGS: Final = 0x3E
"""All that a header may say: a profile, transparency, Exif, XMP, animation (2.7.1)."""

_PICTURES: Final = (b"VP8 ", b"VP8L")
Chunk = tuple[bytes, bytes]


def check(data: bytes) -> None:
    """Raises `Broken`: `data` is no whole WebP."""
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        raise Broken("it has no WebP signature")
    if int.from_bytes(data[4:8], "little") + 8 != len(data):
        raise Broken("its size is not what it says")
    chunks = list(_chunks(data))
    if chunks and chunks[0][0] in _PICTURES:
        _picture(chunks[0])
        return
    header = chunks[0][1] if chunks and chunks[0][0] == b"VP8X" else b""
    if len(header) != 10 or header[0] & ~_FLAGS:
        raise Broken("its first chunk holds no picture, and no header that is of WebP")
    canvas = (int.from_bytes(header[4:7], "little") + 1, int.from_bytes(header[7:10], "little") + 1)
    if header[0] & _ANIMATED:
        raise Animated
    if _still(chunks[1:]) != canvas:
        raise Broken("its picture is not of the size of its canvas")


def _chunks(data: bytes) -> Iterator[Chunk]:
    at, end = 12, len(data)
    while at < end:
        if at + 8 > end:
            raise Broken("a chunk goes beyond its end")
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if at + 8 + size + size % 2 > end:
            raise Broken("a chunk goes beyond its end")
        yield name, data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2


def _still(chunks: list[Chunk]) -> tuple[int, int]:
    """The size of the one picture in `chunks`; a lossy one may have its transparency right before it."""
    pictures = [place for place, (name, _) in enumerate(chunks) if name in _PICTURES]
    if len(pictures) != 1:
        raise Broken("it has not exactly one picture where one belongs")
    (place,) = pictures
    width, height = _picture(chunks[place])
    clear = [(at, body) for at, (name, body) in enumerate(chunks) if name == b"ALPH"]
    if clear:
        if len(clear) > 1 or clear[0][0] != place - 1 or chunks[place][0] != b"VP8 ":
            raise Broken("its transparency is not right before a lossy picture")
        _transparency(clear[0][1], width * height)
    return width, height


def _transparency(body: bytes, pixels: int) -> None:
    """2.7.1.2: reserved bits, preprocessing, filter, and how it is compressed."""
    if not body or body[0] & 0xC0 or body[0] >> 4 & 3 > 1 or body[0] & 3 > 1:
        raise Broken("its transparency has a header that is not of WebP")
    if body[0] & 3 == 0 and len(body) - 1 < pixels:
        raise Broken("its transparency ends too early")


def _picture(chunk: Chunk) -> tuple[int, int]:
    name, body = chunk
    width, height = _lossless(body) if name == b"VP8L" else _lossy(body)
    if not width or not height:
        raise Broken("its width or height is 0")
    return width, height


def _lossless(body: bytes) -> tuple[int, int]:
    """3.4: a signature, the size, whether there is transparency, a version."""
    if len(body) < 6 or body[0] != 0x2F or body[4] >> 5:
        raise Broken("its lossless picture has a header that is not of WebP")
    bits = int.from_bytes(body[1:5], "little")
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


def _lossy(body: bytes) -> tuple[int, int]:
    """RFC 6386, 9.1: a frame that stands alone and is shown, its version, the size of the first partition."""
    if len(body) < 11 or body[3:6] != b"\x9d\x01\x2a":
        raise Broken("its lossy picture has a header that is not of WebP")
    bits = int.from_bytes(body[:3], "little")
    if bits & 1 or bits >> 1 & 7 > 3 or not bits & 0x10 or bits >> 5 > len(body) - 10:
        raise Broken("its lossy picture is no whole frame that stands alone")
    width, height = struct.unpack_from("<HH", body, 6)
    return width & 0x3FFF, height & 0x3FFF
