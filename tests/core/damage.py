"""Images of every kind, damaged, and whether they are admitted."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from fake.pictures import drawn
from hames.core.bitmaps import Broken
from hames.core.images import check, measure

KINDS = ("PNG", "GIF", "JPEG", "WEBP")

MODES = {
    "PNG": ("1", "L", "P", "LA", "RGB", "RGBA"),
    "GIF": ("L", "P", "RGB"),
    "JPEG": ("L", "RGB", "CMYK"),
    "WEBP": ("RGB", "RGBA"),
}


@st.composite
def images(draw: st.DrawFn, kind: str) -> bytes:
    """A whole image of a kind, in one of the many ways to write it."""
    mode = draw(st.sampled_from(MODES[kind]))
    width, height = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    options: dict[str, object] = {}
    if kind == "JPEG":
        options = {"progressive": draw(st.booleans()), "quality": draw(st.sampled_from([10, 75, 95]))}
        if mode == "RGB":
            options["subsampling"] = draw(st.integers(0, 2))
        if draw(st.booleans()):
            options["restart_marker_blocks"] = 1
    if kind == "PNG" and draw(st.booleans()):
        options = {"icc_profile": b"profile" * 9}
    if kind == "GIF":
        options = {"interlace": draw(st.integers(0, 1))}
    if kind == "WEBP":
        options = {"lossless": draw(st.booleans())} | ({"exif": b"Exif\0\0abc"} if draw(st.booleans()) else {})
    return drawn(kind, mode, width, height, seed=draw(st.integers(1, 3)), **options)


def mutated(draw: st.DrawFn, data: bytes, *, ways: Sequence[str] = ("flip", "cut", "drop", "insert")) -> bytes:
    """`data`, damaged in one place or more."""
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(data) - 1)) | st.integers(0, min(80, max(0, len(data) - 1))))
        match draw(st.sampled_from(ways)):
            case "flip":
                data = (
                    data[:place] + bytes([data[place] ^ draw(st.integers(1, 255))] if data else []) + data[place + 1 :]
                )
            case "cut":
                data = data[:place]
            case "drop":
                data = data[:place] + data[place + draw(st.integers(1, 20)) :]
            case _:
                data = data[:place] + draw(st.binary(min_size=1, max_size=20)) + data[place:]
    return data


def fault(data: bytes) -> str | None:
    """Why the image is refused; None where it is admitted."""
    found = measure(data)
    if found is None:
        return "no image"
    try:
        check(data, found.media_type)
    except Broken as broken:
        return str(broken)
    return None


def is_large(image: bytes) -> bool:
    """Too large to be decoded in a test for every example."""
    found = measure(image)
    return found is not None and found.width * found.height > 4_000_000
