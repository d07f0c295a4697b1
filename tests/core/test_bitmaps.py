"""Whether an image is whole: what is admitted can be decoded by a decoder that is not ours, whatever happened to it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake.pictures import chunk, drawn, gif, jpeg, png, webp, why_not_decoded
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
    width, height, frames = draw(st.integers(1, 40)), draw(st.integers(1, 40)), 1
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
    if kind in ("GIF", "WEBP") and draw(st.booleans()):
        frames = 3
    return drawn(kind, mode, width, height, seed=draw(st.integers(1, 3)), frames=frames, **options)


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


@given(st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_image_is_admitted(kind: str, data: st.DataObject) -> None:
    assert fault(data.draw(images(kind))) is None


@given(st.data())
@pytest.mark.parametrize("kind", ["PNG", "GIF", "JPEG"])
def test_a_damaged_image_is_refused_or_can_be_decoded(kind: str, data: st.DataObject) -> None:
    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        return mutated(draw, draw(images(kind)))

    image = data.draw(damaged())

    assert fault(image) is not None or _is_large(image) or why_not_decoded(image) is None


@given(st.data())
def test_a_png_whose_checksums_are_made_to_fit_is_refused_or_can_be_decoded(data: st.DataObject) -> None:
    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        return _with_checksums(mutated(draw, draw(images("PNG")), ways=["flip"]))

    image = data.draw(damaged())

    assert fault(image) is not None or _is_large(image) or why_not_decoded(image) is None


@given(st.data())
def test_a_webp_that_is_damaged_outside_its_compressed_pixels_is_refused_or_can_be_decoded(
    data: st.DataObject,
) -> None:
    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        image = draw(images("WEBP"))
        place = draw(st.sampled_from(_webp_headers(image)))
        way = draw(st.sampled_from(["flip", "cut", "insert"]))
        if way == "flip":
            return image[:place] + bytes([image[place] ^ draw(st.integers(1, 255))]) + image[place + 1 :]
        if way == "cut":
            return image[: draw(st.integers(0, len(image) - 1))]
        return image[:place] + draw(st.binary(min_size=1, max_size=9)) + image[place:]

    image = data.draw(damaged())

    assert fault(image) is not None or _is_large(image) or why_not_decoded(image) is None


@given(st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_is_cut_is_refused(kind: str, data: st.DataObject) -> None:
    image = data.draw(images(kind))

    assert fault(image[: data.draw(st.integers(0, len(image) - 1))]) is not None


@given(st.binary(max_size=400))
def test_nothing_but_broken_is_raised_of_any_bytes(data: bytes) -> None:
    for whole in (png(), gif(), jpeg(), webp(), webp(kind=b"VP8 "), webp(kind=b"VP8L")):
        for size in (0, 4, 13, 20, 30, len(whole) // 2):
            for media_type in ("image/png", "image/gif", "image/jpeg", "image/webp"):
                with suppress(Broken):
                    check(whole[:size] + data, media_type)


@pytest.mark.parametrize(("image", "admitted"), [(png(), True), (gif(), True), (jpeg(), True), (webp(), False)])
def test_what_follows_the_end_is_not_looked_at_but_where_the_size_is_named(image: bytes, admitted: bool) -> None:
    assert (fault(image + b"another picture, of a camera") is None) == admitted


# --- PNG ------------------------------------------------------------------------------------------------------------


def _with_checksums(data: bytes) -> bytes:
    made, at = bytearray(data), 8
    while at + 12 <= len(made):
        end = at + 8 + int.from_bytes(made[at : at + 4], "big")
        if end + 4 > len(made):
            break
        made[end : end + 4] = zlib.crc32(made[at + 4 : end]).to_bytes(4, "big")
        at = end + 4
    return bytes(made)


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
BOMB = zlib.compress(bytes(3 * 2**20))


@pytest.mark.parametrize(
    "chunks",
    [
        (header(), PIXELS, END),
        (header(), (b"tEXt", b"a\0b"), (b"IDAT", PIXELS[1][:5]), (b"IDAT", b""), (b"IDAT", PIXELS[1][5:]), END),
        (header(colour=3), PALETTE, PIXELS, END),
        (header(), (b"zTXt", b"a\0\0" + zlib.compress(b"b")), PIXELS, END),
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
    ],
)
def test_a_png_of_these_chunks_is_broken(chunks: Sequence[tuple[bytes, bytes]]) -> None:
    assert fault(of_chunks(*chunks)) is not None


# --- GIF ------------------------------------------------------------------------------------------------------------

SCREEN = b"GIF89a" + struct.pack("<HHBBB", 4, 1, 0x80, 0, 0) + bytes(6)


def frame(codes: bytes, *, left: int = 0, width: int = 4, flags: int = 0, size: int = 2) -> bytes:
    body = bytes([len(codes)]) + codes + b"\0" if codes else b"\0"
    return b"," + struct.pack("<HHHHB", left, 0, width, 1, flags) + bytes(6 if flags else 0) + bytes([size]) + body


def packed(*codes: int, last: int | None = None) -> bytes:
    """Codes of three bits, and a `last` one of four."""
    held = sum(code << place * 3 for place, code in enumerate(codes))
    if last is not None:
        held |= last << len(codes) * 3
    return held.to_bytes((len(codes) * 3 + 4 * (last is not None) + 7) // 8, "little")


CLEAR_CODE, END_CODE, MADE = 4, 5, 6
FOUR = packed(CLEAR_CODE, 0, MADE, 0, last=END_CODE)
"""One pixel, two by the code that is just made of it, and one, with which codes get longer."""


@pytest.mark.parametrize(
    "blocks",
    [
        frame(FOUR),
        frame(packed(CLEAR_CODE, 0, 1, CLEAR_CODE, 0, 1, END_CODE)),
        frame(packed(CLEAR_CODE, 0, 1, CLEAR_CODE, 0, CLEAR_CODE, 1, CLEAR_CODE)),
        frame(FOUR, flags=0x80),
        b"!\xf9\4\0\0\0\0\0" + frame(FOUR),
        b"!\xfe\3abc\1d\0" + frame(FOUR) + frame(FOUR),
    ],
)
def test_a_gif_of_these_blocks_is_whole(blocks: bytes) -> None:
    assert fault(SCREEN + blocks + b";") is None


@pytest.mark.parametrize(
    "data",
    [
        SCREEN[:10] + b"\0",
        SCREEN + b";",
        SCREEN + frame(FOUR),
        SCREEN + frame(FOUR)[:5],
        SCREEN + frame(FOUR)[:10],
        SCREEN + frame(FOUR)[:-1],
        SCREEN + frame(FOUR) + b"?;",
        SCREEN + frame(FOUR) + b"!",
        SCREEN + b"!\xf9\3\0\0\0\0" + frame(FOUR) + b";",
        SCREEN + frame(FOUR, left=1) + b";",
        SCREEN + frame(FOUR, width=0) + b";",
        SCREEN + frame(FOUR, size=9) + b";",
        SCREEN + frame(b"") + b";",
        SCREEN + frame(packed(CLEAR_CODE, 0, MADE, END_CODE)) + b";",
        SCREEN + frame(packed(CLEAR_CODE, 0, MADE, MADE, last=END_CODE)) + b";",
        SCREEN + frame(packed(CLEAR_CODE, 0, 1, 2, last=3) * 3) + b";",
        SCREEN + frame(packed(CLEAR_CODE, MADE, 0, 0)) + b";",
        SCREEN + frame(packed(CLEAR_CODE, 0, MADE + 1, 0)) + b";",
        SCREEN[:10] + b"\0\0\0" + frame(FOUR) + b";",
        b"GIF89a" + bytes(7) + frame(FOUR) + b";",
    ],
)
def test_a_gif_of_these_blocks_is_broken(data: bytes) -> None:
    with pytest.raises(Broken):
        check(data, "image/gif")


def test_codes_of_a_gif_grow_to_twelve_bits_and_stay() -> None:
    large = drawn("GIF", "P", 300, 300, seed=4)

    assert fault(large) is None


# --- JPEG -----------------------------------------------------------------------------------------------------------


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


START, STOP = b"\xff\xd8", b"\xff\xd9"
QUANT = segment(0xDB, b"\0" + bytes([1] * 64))
DC = segment(0xC4, b"\0" + bytes([1] + [0] * 15) + b"\0")
AC = segment(0xC4, b"\x10" + bytes([1] + [0] * 15) + b"\0")
SCAN = segment(0xDA, b"\1\1\0\0\x3f\0") + b"\x1f\xff\0\xff\xd0"


def sof(*components: tuple[int, int, int], marker: int = 0xC0, height: int = 8, bits: int = 8) -> bytes:
    body = struct.pack(">BHHB", bits, height, 8, len(components)) + b"".join(map(bytes, components))
    return segment(marker, body)


GREY = sof((1, 0x11, 0))


def scan(first: int, last: int, bits: int, *names: int) -> bytes:
    chosen = names or (1,)
    body = bytes([len(chosen)]) + b"".join(bytes([name, 0]) for name in chosen) + bytes([first, last, bits])
    return segment(0xDA, body) + b"\x1f"


SOFT = sof((1, 0x11, 0), marker=0xC2)
TABLES = QUANT + DC + AC


@pytest.mark.parametrize(
    "parts",
    [
        TABLES + GREY + SCAN,
        segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")
        + segment(0xFE, b"said")
        + TABLES
        + GREY
        + segment(0xDD, b"\0\1")
        + SCAN,
        segment(0xDB, b"\x10" + b"\0\1" * 64) + DC + AC + GREY + SCAN,
        TABLES + SOFT + scan(0, 0, 1) + scan(0, 0, 0x10) + scan(1, 63, 0),
        TABLES + sof((1, 0x11, 0), (2, 0x11, 0), (3, 0x11, 0)) + scan(0, 63, 0, 1, 2, 3),
        TABLES + sof((1, 0x22, 0), (2, 0x11, 0), (3, 0x11, 0)) + scan(0, 63, 0, 1) + scan(0, 63, 0, 2, 3),
    ],
)
def test_a_jpeg_of_these_segments_is_whole(parts: bytes) -> None:
    assert fault(START + parts + STOP) is None
    assert why_not_decoded(START + parts + STOP) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xd9",
        START + TABLES + GREY + SCAN,
        START + TABLES + GREY,
        START + TABLES + GREY + STOP,
        START + STOP,
        START + TABLES + GREY + b"\0" + SCAN + STOP,
        START + TABLES + GREY[:-1],
        START + TABLES + GREY + b"\xff\xdd\0\1" + SCAN + STOP,
        START + TABLES + GREY + segment(0xDD, b"\1") + SCAN + STOP,
        START + TABLES + GREY + segment(0xF0, b"") + SCAN + STOP,
        START + TABLES + GREY + GREY + SCAN + STOP,
        START + TABLES + SCAN + STOP,
        START + TABLES + sof((1, 0x11, 0), marker=0xC9) + SCAN + STOP,
        START + TABLES + sof((1, 0x11, 0), bits=12) + SCAN + STOP,
        START + TABLES + sof((1, 0x11, 0), height=0) + SCAN + STOP,
        START + TABLES + sof((1, 0x11, 0), (2, 0x11, 0)) + scan(0, 63, 0, 1, 2) + STOP,
        START + TABLES + sof((1, 0x11, 0), (1, 0x11, 0), (3, 0x11, 0)) + SCAN + STOP,
        START + TABLES + sof((1, 0x51, 0)) + SCAN + STOP,
        START + TABLES + sof((1, 0x31, 0), (2, 0x21, 0), (3, 0x11, 0)) + scan(0, 63, 0, 1, 2, 3) + STOP,
        START + TABLES + sof((1, 0x44, 0), (2, 0x11, 0), (3, 0x11, 0)) + scan(0, 63, 0, 1, 2, 3) + STOP,
        START + TABLES + sof((1, 0x11, 0), (2, 0x11, 0), (3, 0x11, 0)) + SCAN + STOP,
        START + DC + AC + GREY + SCAN + STOP,
        START + QUANT + DC + GREY + SCAN + STOP,
        START + segment(0xDB, b"\0" + bytes(63)) + DC + AC + GREY + SCAN + STOP,
        START + segment(0xDB, b"\4" + bytes(64)) + DC + AC + GREY + SCAN + STOP,
        START + QUANT + AC + segment(0xC4, b"\0" + bytes([2] + [0] * 15) + b"\0\1") + GREY + SCAN + STOP,
        START + QUANT + AC + segment(0xC4, b"\0" + bytes([1] + [0] * 15)) + GREY + SCAN + STOP,
        START + QUANT + AC + segment(0xC4, b"\0" + bytes(3)) + GREY + SCAN + STOP,
        START + QUANT + AC + segment(0xC4, b"\x20" + bytes(16)) + GREY + SCAN + STOP,
        START + QUANT + AC + segment(0xC4, b"\0" + bytes([1] + [0] * 15) + b"\x10") + GREY + SCAN + STOP,
        START + TABLES + GREY + segment(0xDA, b"\1\1\0\0\x3f") + STOP,
        START + TABLES + GREY + scan(0, 63, 0, 2) + STOP,
        START + TABLES + GREY + scan(0, 63, 0, 1, 1) + STOP,
        START + TABLES + SOFT + scan(0, 1, 0) + STOP,
        START + TABLES + SOFT + scan(1, 64, 0) + STOP,
        START + TABLES + SOFT + scan(0, 0, 14) + STOP,
        START + TABLES + SOFT + scan(0, 0, 0x21) + scan(0, 0, 0x20) + STOP,
        START + TABLES + SOFT + scan(1, 63, 0) + STOP,
        START + QUANT + AC + SOFT + scan(0, 0, 0) + STOP,
        START + TABLES + SOFT + scan(0, 0, 0) * 501 + STOP,
    ],
)
def test_a_jpeg_of_these_segments_is_broken(data: bytes) -> None:
    with pytest.raises(Broken):
        check(data, "image/jpeg")


# --- WebP -----------------------------------------------------------------------------------------------------------


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"WEBP" + within(*chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def within(*chunks: tuple[bytes, bytes]) -> bytes:
    return b"".join(name + struct.pack("<I", len(body)) + body + bytes(len(body) % 2) for name, body in chunks)


def parts_of(data: bytes, at: int = 12) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    while at < len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        found.append((data[at : at + 4], data[at + 8 : at + 8 + size]))
        at += 8 + size + size % 2
    return found


def _webp_headers(data: bytes) -> list[int]:
    """Where the bytes stand that are not of compressed pixels."""
    places, at = list(range(12)), 12
    inside = {b"VP8 ": 10, b"VP8L": 5, b"ALPH": 1, b"ANMF": 24}
    for name, body in parts_of(data):
        places += range(at, at + 8 + min(len(body), inside.get(name, 10)))
        at += 8 + len(body) + len(body) % 2
    return places


def extended(flags: int = 0, width: int = 4, height: int = 3) -> tuple[bytes, bytes]:
    return b"VP8X", bytes([flags, 0, 0, 0]) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")


def moved(picture: Sequence[tuple[bytes, bytes]], *, left: int = 0, width: int = 4) -> tuple[bytes, bytes]:
    numbers = b"".join(number.to_bytes(3, "little") for number in (left, 0, width - 1, 2, 10))
    return b"ANMF", numbers + b"\0" + within(*picture)


LOSSY = parts_of(webp(kind=b"VP8 "))[0]
LOSSLESS = parts_of(webp(kind=b"VP8L"))[0]
CLEAR = (b"ALPH", b"\0" + bytes(12))
LOOP = (b"ANIM", bytes(6))


def changed(body: bytes, at: int, value: int) -> bytes:
    return body[:at] + bytes([value]) + body[at + 1 :]


@pytest.mark.parametrize(
    "data",
    [
        riff(LOSSY),
        riff(LOSSLESS),
        riff(LOSSY, (b"XYZW", b"a")),
        riff(extended(), LOSSY),
        riff(extended(0x10), CLEAR, LOSSY, (b"EXIF", b"a")),
        riff(extended(0x10), (b"ALPH", b"\1" + parts_of(webp())[1][1][1:]), LOSSY),
        riff(extended(0x02), LOOP, moved([LOSSY]), moved([CLEAR, LOSSY])),
    ],
)
def test_a_webp_of_these_chunks_is_whole(data: bytes) -> None:
    assert fault(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"RIFF",
        riff(),
        riff(LOSSY) + b"\0\0",
        riff(LOSSY)[:-2],
        riff((b"EXIF", b"a"), LOSSY),
        riff((b"VP8X", bytes(9)), LOSSY),
        riff(extended(0x01), LOSSY),
        riff(extended()),
        riff(extended(), LOSSY, LOSSY),
        riff(extended(width=5), LOSSY),
        riff(extended(0x10), CLEAR, (b"EXIF", b""), LOSSY),
        riff(extended(0x10), CLEAR, LOSSLESS),
        riff(extended(0x10), CLEAR, CLEAR, LOSSY),
        riff(extended(0x10), (b"ALPH", b""), LOSSY),
        riff(extended(0x10), (b"ALPH", b"\2" + bytes(12)), LOSSY),
        riff(extended(0x10), (b"ALPH", b"\0" + bytes(11)), LOSSY),
        riff(extended(0x02), LOOP),
        riff(extended(0x02), moved([LOSSY])),
        riff(extended(0x02), LOOP, (b"ANMF", bytes(15))),
        riff(extended(0x02), LOOP, moved([LOSSY], left=1)),
        riff(extended(0x02, width=9), LOOP, moved([LOSSY], width=5)),
        riff(extended(0x02), LOOP, moved([(b"EXIF", b"a"), LOSSY])),
        riff((b"VP8L", LOSSLESS[1][:5])),
        riff((b"VP8L", changed(LOSSLESS[1], 0, 0x2E))),
        riff((b"VP8L", changed(LOSSLESS[1], 4, 0xFF))),
        riff((b"VP8 ", LOSSY[1][:10])),
        riff((b"VP8 ", changed(LOSSY[1], 3, 0))),
        riff((b"VP8 ", changed(LOSSY[1], 0, LOSSY[1][0] | 1))),
        riff((b"VP8 ", changed(LOSSY[1], 2, 0xFF))),
        riff((b"VP8 ", LOSSY[1][:6] + bytes(2) + LOSSY[1][8:])),
        b"RIFF" + struct.pack("<I", 8) + b"WEBPVP8 ",
    ],
)
def test_a_webp_of_these_chunks_is_broken(data: bytes) -> None:
    with pytest.raises(Broken):
        check(data, "image/webp")


def _is_large(image: bytes) -> bool:
    """Too large to be decoded in a test for every example."""
    found = measure(image)
    return found is not None and found.width * found.height > 4_000_000
