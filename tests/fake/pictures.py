"""Images of any size: real files of their type, with noise that nothing can make smaller."""

from __future__ import annotations

import random
import struct
import zlib


def png(width: int = 4, height: int = 3, *, size_bytes: int = 0, seed: int = 1) -> bytes:
    """A grey PNG; a private chunk of noise makes it at least `size_bytes` long."""
    noise = random.Random(seed).randbytes(size_bytes)
    pixels = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(height)))
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
            _chunk(b"noIs", noise),
            _chunk(b"IDAT", pixels),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def gif(width: int = 4, height: int = 3) -> bytes:
    """The beginning of a GIF."""
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x80\0\0" + bytes(6) + b";"


def jpeg(width: int = 4, height: int = 3) -> bytes:
    """The beginning of a JPEG: an APP0, a table, a fill byte, a frame."""
    app0 = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9)
    table = b"\xff\xc4" + struct.pack(">H", 5) + bytes(3)
    frame = b"\xff\xff\xc2" + struct.pack(">HBHHB", 8, 8, height, width, 1)
    return b"\xff\xd8" + app0 + table + frame


def webp(width: int = 4, height: int = 3, kind: bytes = b"VP8X") -> bytes:
    """The beginning of a WebP of a kind."""
    if kind == b"VP8X":
        body = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
    else:
        body = bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return b"RIFF" + struct.pack("<I", 12 + len(body)) + b"WEBP" + kind + struct.pack("<I", len(body)) + body
