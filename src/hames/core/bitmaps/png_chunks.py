"""What stands beside the pixels of a PNG (W3C, third edition, 11.3): of every chunk that decoders read its place, how
often it is there, its length and its values.

Rule: decoders disagree about which of these they look at, and a broken one makes some refuse the whole image: so all of
them are held to the specification, and what they inflate to, to one sum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Final

from hames.core.bitmaps import Animated, Broken
from hames.core.records import record

TEXT_BYTES: Final = 2**20
"""Of one compressed text or colour profile: beyond it decoders take the image for a bomb."""

ALL_TEXT_BYTES: Final = 4 * TEXT_BYTES
"""Of all that an image has: a short file of many keeps a decoder, and this check, busy for seconds."""

_KEYWORD_BYTES: Final = 79
_LARGEST: Final = 2**31 - 1
"""Of a number of four bytes (7.1)."""

_COMPRESSED: Final = (b"zTXt", b"iTXt", b"iCCP")
_ANIMATED: Final = (b"acTL", b"fcTL", b"fdAT")
_BEFORE_PALETTE: Final = frozenset({b"cHRM", b"cICP", b"cLLI", b"gAMA", b"iCCP", b"mDCV", b"sBIT", b"sRGB"})
_BEHIND_PALETTE: Final = frozenset({b"bKGD", b"hIST", b"tRNS"})
_BEFORE_PIXELS: Final = frozenset(
    {*_BEFORE_PALETTE, *_BEHIND_PALETTE, b"oFFs", b"pCAL", b"pHYs", b"sCAL", b"sPLT", b"sTER"}
)
_ONCE: Final = (_BEFORE_PIXELS | {b"eXIf", b"tIME"}) - {b"sPLT"}


@record
class Shape:
    """What the values depend on: the colour type, the bits of a sample, and the colours of the palette, 0 without."""

    colour: int
    depth: int
    colours: int = 0


class Beside:
    """The chunks so far that are neither the header, the palette nor pixels."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._inflated = 0

    def take(self, name: bytes, body: bytes, shape: Shape, *, palette: bool, pixels: bool) -> None:
        """One more, behind the `palette` or `pixels` or not.

        Raises:
            Broken: it is not as the specification has it.
        """
        if name in _ANIMATED:
            raise Animated
        if name in _ONCE and name in self._seen:
            raise Broken(f"it has {name.decode()} twice")
        if (pixels and name in _BEFORE_PIXELS) or (palette and name in _BEFORE_PALETTE):
            raise Broken(f"{name.decode()} stands behind what it is about")
        if name in _COMPRESSED:
            self._inflated += _inflated(name, body)
            if self._inflated > ALL_TEXT_BYTES:
                raise Broken(f"its texts and its colour profile are larger than {ALL_TEXT_BYTES} bytes together")
        is_sound = _CHECKS.get(name)
        if is_sound is not None and not is_sound(body, shape):
            raise Broken(f"{name.decode()} has a length or values that are not of PNG")
        self._seen.add(name)

    def end_before_palette(self) -> None:
        """The palette comes now.

        Raises:
            Broken: what belongs behind it was there before.
        """
        if self._seen & _BEHIND_PALETTE:
            raise Broken("its palette stands behind what is about it")


def _inflated(name: bytes, body: bytes) -> int:
    """The size of a text or of a profile (11.3.3): behind a keyword, NUL and a method of compression, which is 0."""
    keyword, _, rest = body.partition(b"\0")
    if name == b"iTXt":
        # The flag of compression, its method, the language and the translated keyword.
        head, texts = rest[:2], rest[2:].split(b"\0", 2)
        if not _is_keyword(keyword) or head not in (b"\0\0", b"\1\0") or len(texts) < 3:
            raise Broken("iTXt is not whole")
        if head == b"\0\0":
            return 0
        rest = b"\0" + texts[2]
    packed = zlib.decompressobj()
    try:
        size = len(packed.decompress(rest[1:], TEXT_BYTES))
    except zlib.error:
        raise Broken(f"{name.decode()} cannot be inflated") from None
    if not _is_keyword(keyword) or rest[:1] != b"\0" or not packed.eof:
        raise Broken(f"{name.decode()} is not whole, or larger than {TEXT_BYTES} bytes")
    return size


def _is_keyword(name: bytes) -> bool:
    return 0 < len(name) <= _KEYWORD_BYTES


def _of_length(length: int) -> Callable[[bytes, Shape], bool]:
    return lambda body, shape: len(body) == length


def _numbers(count: int, *, least: int = 0) -> Callable[[bytes, Shape], bool]:
    """So many of four bytes each."""

    def is_sound(body: bytes, shape: Shape) -> bool:
        if len(body) != 4 * count:
            return False
        return all(least <= each <= _LARGEST for each in struct.unpack(f">{count}I", body))

    return is_sound


def _clear(body: bytes, shape: Shape) -> bool:
    """See 11.3.1.1: which colour is transparent, or how much each of the palette is."""
    if shape.colour == 3:
        return 0 < len(body) <= shape.colours
    return len(body) == {0: 2, 2: 6}.get(shape.colour)


def _significant(body: bytes, shape: Shape) -> bool:
    """See 11.3.2.6: the bits that each sample had before."""
    most = 8 if shape.colour == 3 else shape.depth
    return len(body) == {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}[shape.colour] and all(0 < bits <= most for bits in body)


def _background(body: bytes, shape: Shape) -> bool:
    """See 11.3.4.1."""
    if shape.colour == 3:
        return len(body) == 1 and body[0] < shape.colours
    return len(body) == (6 if shape.colour & 2 else 2)


def _suggested(body: bytes, shape: Shape) -> bool:
    """See 11.3.4.4: a palette, each colour with how often it is used."""
    name, _, rest = body.partition(b"\0")
    size = {8: 6, 16: 10}.get(rest[0]) if rest else None
    return _is_keyword(name) and size is not None and (len(rest) - 1) % size == 0


def _text(body: bytes, shape: Shape) -> bool:
    keyword, nul, _ = body.partition(b"\0")
    return _is_keyword(keyword) and bool(nul)


_CHECKS: Final[Mapping[bytes, Callable[[bytes, Shape], bool]]] = {
    b"bKGD": _background,
    b"cHRM": _numbers(8),
    b"cICP": lambda body, shape: len(body) == 4 and body[2] == 0 and body[3] <= 1,
    b"cLLI": _numbers(2),
    b"eXIf": lambda body, shape: bool(body),
    b"gAMA": _numbers(1, least=1),
    b"hIST": lambda body, shape: 0 < shape.colours == len(body) / 2,
    b"mDCV": _of_length(24),
    b"oFFs": lambda body, shape: len(body) == 9 and body[8] <= 1,
    b"pHYs": lambda body, shape: _numbers(2)(body[:8], shape) and len(body) == 9 and body[8] <= 1,
    b"sBIT": _significant,
    b"sPLT": _suggested,
    b"sRGB": lambda body, shape: len(body) == 1 and body[0] <= 3,
    b"sTER": lambda body, shape: len(body) == 1 and body[0] <= 1,
    b"tEXt": _text,
    b"tIME": _of_length(7),
    b"tRNS": _clear,
}
"""By chunk: whether its body is as the specification, or its register of extensions, has it."""
