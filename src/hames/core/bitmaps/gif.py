"""GIF (89a): every block to the trailer, and of its one frame the codes, which stand for exactly its pixels."""

from __future__ import annotations

import struct
from typing import Final

from hames.core.bitmaps import Animated, Broken

_MOST_CODES: Final = 4096
_CONTROL: Final = 0xF9


def check(data: bytes) -> None:
    """Raises `Broken`: `data` does not begin with a whole GIF."""
    if not data.startswith((b"GIF87a", b"GIF89a")):
        raise Broken("it has no GIF signature")
    if len(data) < 13:
        raise Broken("it ends within its header")
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    if not width or not height:
        raise Broken("its width or height is 0")
    at = 13 + _table_bytes(flags)
    frames = 0
    while at < len(data):
        kind = data[at]
        if kind == 0x3B:
            if not frames:
                raise Broken("it has no frame")
            return
        if kind == 0x21:
            at = _extension(data, at)
        elif kind == 0x2C:
            if frames:
                raise Animated
            at = _frame(data, at, (width, height, flags))
            frames += 1
        else:
            raise Broken("it has a block that is not of GIF")
    raise Broken("it ends before its trailer")


def is_animated(data: bytes) -> bool:
    """Whether `data`, a GIF, has more than one frame; of a broken one, as far as it can be followed."""
    if len(data) < 13:
        return False
    at, frames = 13 + _table_bytes(data[10]), 0
    try:
        while data[at] in (0x21, 0x2C) and frames < 2:
            is_frame = data[at] == 0x2C
            _, at = _blocks(data, at + 11 + _table_bytes(data[at + 9]) if is_frame else at + 2)
            frames += is_frame
    except (IndexError, Broken):
        pass
    return frames > 1


def _table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _blocks(data: bytes, at: int) -> tuple[list[bytes], int]:
    """The sub-blocks from `at` on, up to the empty one, and where what follows stands."""
    found: list[bytes] = []
    while at < len(data):
        size = data[at]
        if not size:
            return found, at + 1
        found.append(data[at + 1 : at + 1 + size])
        at += 1 + size
    raise Broken("a block goes beyond its end")


def _extension(data: bytes, at: int) -> int:
    blocks, following = _blocks(data, at + 2)
    if data[at + 1] == _CONTROL and [len(block) for block in blocks] != [4]:
        raise Broken("a graphic control extension has not 4 bytes")
    return following


def _frame(data: bytes, at: int, screen: tuple[int, int, int]) -> int:
    if len(data) < at + 10:
        raise Broken("it ends within a frame")
    left, top, width, height, flags = struct.unpack_from("<HHHHB", data, at + 1)
    if not width or not height or left + width > screen[0] or top + height > screen[1]:
        raise Broken("a frame is empty or goes beyond the screen")
    if not (flags | screen[2]) & 0x80:
        raise Broken("a frame has no colours")
    at += 10 + _table_bytes(flags)
    if at >= len(data) or not 2 <= data[at] <= 8:
        raise Broken("a frame has codes of a size that is not of GIF")
    blocks, following = _blocks(data, at + 1)
    if _pixels(b"".join(blocks), data[at], width * height) != width * height:
        raise Broken("a frame has fewer or more pixels than it says")
    return following


def _pixels(packed: bytes, size: int, most: int) -> int:
    """How many pixels the codes stand for (appendix F); counting ends beyond `most`.

    Of the table only the lengths are kept: what a code adds to the image is as long as the code before it, and one.
    """
    clear = 1 << size
    lengths = [1] * (clear + 2)
    width, before, count, held, bits = size + 1, 0, 0, 0, 0
    for byte in packed:
        held |= byte << bits
        bits += 8
        while bits >= width:
            code = held & (1 << width) - 1
            held >>= width
            bits -= width
            if code == clear:
                del lengths[clear + 2 :]
                width, before = size + 1, 0
                continue
            if code == clear + 1 or count > most:
                return count
            known = len(lengths)
            # The first code after a clear stands for itself; a later one may be the one that it makes.
            if code > known or (code == known and not before):
                raise Broken("a frame has a code that stands for nothing yet")
            length = lengths[code] if code < known else before + 1
            if before and known < _MOST_CODES:
                lengths.append(before + 1)
                if known + 1 == 1 << width and width < 12:
                    width += 1
            before = length
            count += length
    return count
