"""Whether an image is whole: what is admitted can be decoded by a decoder that is not ours, whatever happened to it."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.damage import KINDS, fault, images, is_large, mutated
from fake.pictures import drawn, frames_of, gif, jpeg, png, webp, why_not_decoded
from hames.core.bitmaps import Animated, Broken
from hames.core.bitmaps.gif import is_animated
from hames.core.images import check, measure


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

    assert fault(image) is not None or is_large(image) or why_not_decoded(image) is None


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

    assert fault(image) is not None or is_large(image) or why_not_decoded(image) is None


@given(st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_is_cut_is_refused(kind: str, data: st.DataObject) -> None:
    image = data.draw(images(kind))

    assert fault(image[: data.draw(st.integers(0, len(image) - 1))]) is not None


@given(st.integers(1, 20), st.integers(1, 20), st.integers(2, 4))
@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP"])
def test_an_animation_is_refused_as_one(kind: str, width: int, height: int, frames: int) -> None:
    moving = drawn(kind, "RGB", width, height, frames=frames)
    # Frames that are alike are written as one.
    assume(frames_of(moving) > 1)
    found = measure(moving)
    assert found is not None

    with pytest.raises(Animated):
        check(moving, found.media_type)


@given(st.data())
def test_a_gif_is_told_to_move_where_another_decoder_finds_frames(data: st.DataObject) -> None:
    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        return mutated(draw, whole)

    whole = drawn("GIF", "P", 9, 9, frames=data.draw(st.integers(1, 3)), seed=data.draw(st.integers(1, 3)))

    assert is_animated(whole) == (frames_of(whole) > 1)
    is_animated(whole[: data.draw(st.integers(0, len(whole)))])
    is_animated(data.draw(damaged()))


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
        b"!\xfe\3abc\1d\0" + frame(FOUR),
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
        SCREEN + frame(FOUR) + frame(FOUR) + b";",
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


LOSSY = parts_of(webp(kind=b"VP8 "))[0]
LOSSLESS = parts_of(webp(kind=b"VP8L"))[0]
CLEAR = (b"ALPH", b"\0" + bytes(12))


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
        riff(extended(0x02), LOSSY),
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
