"""Images of any size: real files of their type, and how a vendor decodes them, by a decoder that is not ours."""

from __future__ import annotations

import random
import struct
import zlib
from functools import lru_cache
from io import BytesIO
from typing import Any


def png(width: int = 4, height: int = 3, *, size_bytes: int = 0, seed: int = 1) -> bytes:
    """A grey PNG; a private chunk of noise, which nothing can make smaller, makes it at least `size_bytes` long."""
    noise = random.Random(seed).randbytes(size_bytes)
    pixels = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(height)))
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
            chunk(b"noIs", noise),
            chunk(b"IDAT", pixels),
            chunk(b"IEND", b""),
        ]
    )


def chunk(name: bytes, data: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def gif(width: int = 4, height: int = 3) -> bytes:
    """A GIF."""
    return drawn("GIF", "P", width, height)


def jpeg(width: int = 4, height: int = 3) -> bytes:
    """A progressive JPEG in colours; fill bytes stand before its frame."""
    data = drawn("JPEG", "RGB", width, height, progressive=True)
    return data.replace(b"\xff\xc2", b"\xff\xff\xff\xc2", 1)


def webp(width: int = 4, height: int = 3, kind: bytes = b"VP8X") -> bytes:
    """A WebP of a kind: extended, lossless or lossy."""
    if kind == b"VP8X":
        return drawn("WEBP", "RGBA", width, height)
    return drawn("WEBP", "RGB", width, height, lossless=kind == b"VP8L")


@lru_cache(maxsize=256)
def drawn(kind: str, mode: str, width: int, height: int, *, seed: int = 1, frames: int = 1, **options: Any) -> bytes:
    """An image with some noise in it, as another library writes it."""
    from PIL import Image

    drawer = random.Random(seed)
    pictures: list[Image.Image] = []
    for _ in range(frames):
        small = Image.frombytes("RGBA", (16, 16), drawer.randbytes(16 * 16 * 4)).resize((width, height))
        pictures.append((small.convert("RGB") if mode in ("1", "L", "P", "CMYK") else small).convert(mode))
    if frames > 1:
        options |= {"save_all": True, "append_images": pictures[1:]}
    file = BytesIO()
    pictures[0].save(file, kind, **options)
    return file.getvalue()


def frames_of(data: bytes) -> int:
    """How many another library finds in an image."""
    from PIL import Image

    with Image.open(BytesIO(data)) as image:
        return int(getattr(image, "n_frames", 1))


def why_not_decoded(data: bytes) -> str | None:
    """Why no vendor could make pixels of `data`; None where all frames can be decoded."""
    from PIL import Image

    try:
        with Image.open(BytesIO(data), formats=("PNG", "JPEG", "GIF", "WEBP")) as image:
            for frame in range(getattr(image, "n_frames", 1)):
                image.seek(frame)
                image.load()
    # Each format fails in its own way.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
