"""What an image is, by its first bytes: its type and its size in pixels; and whether it is whole.

Rule: only what a model may be sent is recognised, and nothing is shown that was not checked: a provider that is sent
anything else refuses the request, and with it every later one of the session.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from hames.core.records import record

HEADER_BYTES: Final = 64 * 1024
"""Of an image that are looked at: a JPEG's size stands behind its comments and colour profile."""


@record
class Measured:
    """An image: its media type, width and height in pixels."""

    media_type: str
    width: int
    height: int


def measure(data: bytes) -> Measured | None:
    """What `data`, an image or its beginning, is; None where it is none of those that can be sent."""
    for media_type, (begins, size) in _FORMATS.items():
        if begins(data):
            try:
                width, height = size(data)
            except (struct.error, IndexError):
                return None
            return Measured(media_type, width, height) if width and height else None
    return None


def check(data: bytes, media_type: str) -> None:
    """Prove that `data` is a whole image of the type, as far as that can be without decoding it. Of a large image it
    takes a second: not for the event loop.

    Raises:
        Broken: it is not; the text says what is wrong.
    """
    # Here, since few sessions show an image.
    from hames.core.bitmaps import gif, jpeg, png, webp

    checks = {"image/png": png.check, "image/jpeg": jpeg.check, "image/gif": gif.check, "image/webp": webp.check}
    checks[media_type](data)


def _png(data: bytes) -> tuple[int, int]:
    """W3C PNG, 11.2.1: IHDR comes first."""
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int]:
    """GIF89a, 18: the logical screen."""
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _webp(data: bytes) -> tuple[int, int]:
    """RFC 9649, 2.5 to 2.7: lossy, lossless and extended files."""
    kind = data[12:16]
    if kind == b"VP8X":
        if len(data) < 30:
            return 0, 0
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def _jpeg(data: bytes) -> tuple[int, int]:
    """ITU T.81, B.2: segments up to the first start of a frame, SOF0 to SOF15 without DHT, JPG and DAC."""
    at = 2
    while at < len(data):
        if data[at] != 0xFF:
            return 0, 0
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return 0, 0


_FORMATS: Final[Mapping[str, tuple[Callable[[bytes], bool], Callable[[bytes], tuple[int, int]]]]] = {
    "image/png": (lambda data: data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR", _png),
    "image/jpeg": (lambda data: data.startswith(b"\xff\xd8\xff"), _jpeg),
    "image/gif": (lambda data: data.startswith((b"GIF87a", b"GIF89a")), _gif),
    "image/webp": (lambda data: data.startswith(b"RIFF") and data[8:12] == b"WEBP", _webp),
}
"""By media type: how it begins, and where its size stands."""
