"""PNG: what is admitted can be decoded by a decoder that is not ours, whatever is wrong under right checksums."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.damage import fault, images, is_large, mutated
from fake.pictures import chunk, why_not_decoded


@given(st.data())
def test_a_png_whose_checksums_are_made_to_fit_is_refused_or_can_be_decoded(data: st.DataObject) -> None:
    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        return _with_checksums(mutated(draw, draw(images("PNG")), ways=["flip"]))

    image = data.draw(damaged())

    assert fault(image) is not None or is_large(image) or why_not_decoded(image) is None


def _with_checksums(data: bytes) -> bytes:
    made, at = bytearray(data), 8
    while at + 12 <= len(made):
        end = at + 8 + int.from_bytes(made[at : at + 4], "big")
        if end + 4 > len(made):
            break
        made[end : end + 4] = zlib.crc32(made[at + 4 : end]).to_bytes(4, "big")
        at = end + 4
    return bytes(made)


CHUNKS = {
    b"gAMA": struct.pack(">I", 45_455),
    b"cHRM": struct.pack(">8I", 31_270, 32_900, 64_000, 33_000, 30_000, 60_000, 15_000, 6_000),
    b"sRGB": b"\0",
    b"iCCP": b"icc\0\0" + zlib.compress(b"profile" * 9),
    b"cICP": b"\1\15\0\1",
    b"mDCV": bytes(24),
    b"cLLI": bytes(8),
    b"sBIT": b"\3",
    b"pHYs": struct.pack(">IIB", 2_835, 2_835, 1),
    b"oFFs": struct.pack(">iiB", -1, 2, 0),
    b"sTER": b"\1",
    b"sPLT": b"name\0\10" + bytes(12),
    b"bKGD": b"\0\7",
    b"tRNS": b"\0\7",
    b"tIME": struct.pack(">H5B", 2_026, 1, 2, 3, 4, 5),
    b"tEXt": b"Title\0words",
    b"zTXt": b"Title\0\0" + zlib.compress(b"words"),
    b"iTXt": b"Title\0\0\0en\0Titel\0words",
    b"eXIf": b"MM\0*\0\0\0\10\0\0",
    b"priV": b"anything",
}
"""Of a grey image, each as it can stand before its pixels."""


@st.composite
def png_with_chunks(draw: st.DrawFn, mend: bool) -> bytes:
    """A PNG with chunks beside its pixels, some of them broken, of which the checksums are made to fit."""
    names = draw(st.lists(st.sampled_from(sorted(CHUNKS)), max_size=6, unique=not mend))
    chunks = [(name, CHUNKS[name]) for name in names]
    if mend:
        chunks = [(name, mutated(draw, body) if draw(st.booleans()) else body) for name, body in chunks]
        at = draw(st.integers(0, len(chunks)))
        return of_chunks(header(), *chunks[:at], PIXELS, *chunks[at:], END)
    return of_chunks(header(), *chunks, PIXELS, END)


@given(png_with_chunks(mend=False))
def test_a_png_is_whole_with_any_chunks_beside_its_pixels(image: bytes) -> None:
    assert fault(image) is None
    assert why_not_decoded(image) is None


@given(png_with_chunks(mend=True))
def test_a_png_whose_chunks_are_broken_under_right_checksums_is_refused_or_can_be_decoded(image: bytes) -> None:
    assert fault(image) is not None or why_not_decoded(image) is None


def of_chunks(*chunks: tuple[bytes, bytes]) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(name, body) for name, body in chunks)


def header(
    width: int = 4, height: int = 3, *, depth: int = 8, colour: int = 0, interlace: int = 0
) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)


ROWS = b"\0\1\2\3\4" * 3
PIXELS = (b"IDAT", zlib.compress(ROWS))
END = (b"IEND", b"")
PALETTE = (b"PLTE", bytes(6))
DARK = (b"IDAT", zlib.compress(bytes(15)))
COLOURED = (b"IDAT", zlib.compress(bytes(13 * 3)))
JUST = zlib.compress(bytes(2**20))
"""As much as one text may inflate to."""
BOMB = zlib.compress(bytes(3 * 2**20))


@pytest.mark.parametrize(
    "chunks",
    [
        (header(), PIXELS, END),
        (header(), (b"tEXt", b"a\0b"), (b"IDAT", PIXELS[1][:5]), (b"IDAT", b""), (b"IDAT", PIXELS[1][5:]), END),
        (header(colour=3), PALETTE, DARK, END),
        (header(colour=3), PALETTE, (b"tRNS", bytes(2)), (b"bKGD", b"\1"), (b"hIST", bytes(4)), DARK, END),
        (header(colour=2), (b"sBIT", b"\1\2\3"), PALETTE, (b"bKGD", bytes(6)), (b"tRNS", bytes(6)), COLOURED, END),
        (header(), (b"zTXt", b"a\0\0" + zlib.compress(b"b")), PIXELS, END),
        (header(), *[(b"zTXt", b"a\0\0" + JUST)] * 4, PIXELS, END),
        (header(), (b"iTXt", b"a\0\0\0en\0a\0b"), PIXELS, END),
        (header(), (b"iTXt", b"a\0\1\0en\0a\0" + zlib.compress(b"b")), PIXELS, END),
        # Adam7: in the first pass one pixel, in the fourth one, in the fifth two, in the sixth three rows of two, ...
        (header(1, 1, interlace=1), (b"IDAT", zlib.compress(b"\0\7")), END),
        (header(3, 1, interlace=1), (b"IDAT", zlib.compress(b"\0\7\0\7\0\7")), END),
        (header(2000, 1500), (b"IDAT", zlib.compress(bytes(2001 * 1500))), END),
    ],
)
def test_a_png_of_these_chunks_is_whole(chunks: Sequence[tuple[bytes, bytes]]) -> None:
    assert fault(of_chunks(*chunks)) is None
    assert why_not_decoded(of_chunks(*chunks)) is None


@pytest.mark.parametrize(
    "chunks",
    [
        (header(), PIXELS),
        (header(), END),
        (header(), PIXELS, (b"IEND", b"x")),
        (header(), header(), PIXELS, END),
        ((b"IHDR", header()[1] + b"\0"), PIXELS, END),
        (header(2**31, 3), PIXELS, END),
        (header(depth=3), PIXELS, END),
        (header(colour=5), PIXELS, END),
        (header(interlace=2), PIXELS, END),
        (header(), PALETTE, PIXELS, END),
        (header(colour=3), PIXELS, END),
        (header(colour=3), PALETTE, PALETTE, PIXELS, END),
        (header(colour=3), (b"PLTE", bytes(4)), PIXELS, END),
        (header(), (b"ABCD", b""), PIXELS, END),
        (header(), (b"a b ", b""), PIXELS, END),
        (header(), (b"IDAT", PIXELS[1][:5]), (b"tEXt", b"a\0b"), (b"IDAT", PIXELS[1][5:]), END),
        (header(), (b"IDAT", PIXELS[1][:-5]), END),
        (header(), (b"IDAT", PIXELS[1] + b"x"), END),
        (header(), PIXELS, (b"IDAT", b"x"), END),
        (header(), (b"IDAT", b"\0" + PIXELS[1]), END),
        (header(height=2), PIXELS, END),
        (header(height=4), PIXELS, END),
        (header(), (b"IDAT", zlib.compress(b"\5" + ROWS[1:])), END),
        (header(), (b"IDAT", BOMB), END),
        (header(), (b"zTXt", b"a\0\0" + BOMB), PIXELS, END),
        (header(), (b"zTXt", b"a\0\0no"), PIXELS, END),
        (header(), (b"iCCP", b"a\0\1" + zlib.compress(b"b")), PIXELS, END),
        (header(), (b"iTXt", b"a\0\1\0en"), PIXELS, END),
        (header(), (b"iTXt", b"a\0\0\0en\0a"), PIXELS, END),
        (header(), (b"iTXt", b"a\0\2\0en\0a\0b"), PIXELS, END),
        (header(), (b"iTXt", b"\0\0\0en\0a\0b"), PIXELS, END),
        (header(), (b"tEXt", b"a" * 80 + b"\0b"), PIXELS, END),
        (header(), (b"tEXt", b"no end"), PIXELS, END),
        (header(), *[(b"zTXt", b"a\0\0" + JUST)] * 5, PIXELS, END),
        (header(), (b"gAMA", b"\0\1"), PIXELS, END),
        (header(), (b"gAMA", bytes(4)), PIXELS, END),
        (header(), (b"gAMA", CHUNKS[b"gAMA"]), (b"gAMA", CHUNKS[b"gAMA"]), PIXELS, END),
        (header(), PIXELS, (b"gAMA", CHUNKS[b"gAMA"]), END),
        (header(colour=3), PALETTE, (b"gAMA", CHUNKS[b"gAMA"]), PIXELS, END),
        (header(), (b"cHRM", b"\xff" * 32), PIXELS, END),
        (header(), (b"sRGB", b""), PIXELS, END),
        (header(), (b"sRGB", b"\4"), PIXELS, END),
        (header(), (b"cICP", b"\1\1\1\1"), PIXELS, END),
        (header(), (b"sBIT", b"\11"), PIXELS, END),
        (header(), (b"sBIT", b""), PIXELS, END),
        (header(), (b"pHYs", b"\0\1"), PIXELS, END),
        (header(), (b"pHYs", bytes(8) + b"\2"), PIXELS, END),
        (header(), (b"sPLT", b"name\0"), PIXELS, END),
        (header(), (b"sPLT", b"name\0\7"), PIXELS, END),
        (header(), (b"sPLT", b"name\0\20" + bytes(9)), PIXELS, END),
        (header(), (b"tRNS", b""), PIXELS, END),
        (header(colour=2), (b"tRNS", b"\0\1"), COLOURED, END),
        (header(colour=4), (b"tRNS", b"\0\1"), (b"IDAT", zlib.compress(bytes(27))), END),
        (header(colour=3), PALETTE, (b"tRNS", bytes(3)), PIXELS, END),
        (header(colour=3), (b"tRNS", b""), PALETTE, PIXELS, END),
        (header(colour=2), (b"bKGD", bytes(6)), PALETTE, COLOURED, END),
        (header(colour=3), PALETTE, (b"bKGD", b"\2"), PIXELS, END),
        (header(colour=3), PALETTE, (b"hIST", bytes(5)), PIXELS, END),
        (header(), (b"hIST", b""), PIXELS, END),
        (header(), (b"eXIf", b""), PIXELS, END),
        (header(), (b"tIME", b""), PIXELS, END),
        (header(), (b"acTL", struct.pack(">II", 2, 0)), PIXELS, END),
        (header(9_000, 9_000, depth=16, colour=6), (b"IDAT", b""), END),
    ],
)
def test_a_png_of_these_chunks_is_broken(chunks: Sequence[tuple[bytes, bytes]]) -> None:
    assert fault(of_chunks(*chunks)) is not None
