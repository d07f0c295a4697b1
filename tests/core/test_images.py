"""What an image is, by its first bytes; and which ones a conversation shows."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake.pictures import gif, jpeg, png, webp
from hames.core.images import Measured, measure
from hames.core.pictures import Pictures


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (png(700, 300), "image/png"),
        (gif(700, 300), "image/gif"),
        (jpeg(700, 300), "image/jpeg"),
        (webp(700, 300), "image/webp"),
        (webp(700, 300, b"VP8L"), "image/webp"),
        (webp(700, 300, b"VP8 "), "image/webp"),
    ],
)
def test_type_and_size_are_read_from_the_first_bytes(data: bytes, media_type: str) -> None:
    assert measure(data) == Measured(media_type, 700, 300)


def test_a_picture_whose_segments_do_not_follow_each_other_has_no_size() -> None:
    data = jpeg(700, 300)

    assert measure(data[:20] + b"\0" + data[20:]) in (None, Measured("image/jpeg", 0, 0))


@given(st.sampled_from([png(), gif(), jpeg(), webp()]), st.data())
def test_an_image_that_is_cut_is_none_or_what_it_was(data: bytes, draw: st.DataObject) -> None:
    cut = data[: draw.draw(st.integers(0, len(data)))]

    assert measure(cut) in (None, measure(data))


@given(st.binary(max_size=200))
def test_anything_may_be_looked_at(data: bytes) -> None:
    for start in (b"", b"\xff\xd8\xff", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8 ", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"):
        measure(start + data)


def _image(data: bytes, label: str | None = None) -> dict[str, Any]:
    image: dict[str, Any] = {"type": "image", "mediaType": "image/png", "data": data}
    return image if label is None else {**image, "label": label}


def test_an_image_is_shown_once_and_named_again() -> None:
    pictures = Pictures()

    texts, shown = pictures.said([{"type": "text", "text": "Look:"}, _image(b"a", "a.png"), _image(b"a")])

    assert [slot["text"] for slot in texts] == ["Look:", "[image a.png]", "[image: the same as image a.png above]"]
    assert [picture.data for picture in shown] == [b"a"]
    assert pictures.said([_image(b"b")])[1][0].data == b"b"


def test_images_beyond_the_limits_are_left_out_and_said() -> None:
    few, small = Pictures(most=1), Pictures(most_bytes=3)
    few.said([_image(b"a")])

    assert [few.said([_image(b"b", "b.png")])[1], small.said([_image(b"abcd")])[1]] == [(), ()]
    assert few.said([_image(b"c", "c.png")])[0][0]["text"].startswith("[image c.png: left out")
    assert small.said([_image(b"abc")])[1][0].data == b"abc"


@given(st.lists(st.sampled_from([100, 2_000, 2_001, 7_000]), max_size=60))
def test_of_many_images_none_is_large(sides: list[int]) -> None:
    pictures = Pictures(most=30)
    shown: list[int] = []
    for number, side in enumerate(sides):
        header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIB", 13, b"IHDR", 10, side, number)
        if pictures.said([_image(header)])[1]:
            shown.append(side)

    assert len(shown) <= 20 or max(shown) <= 2_000
    assert pictures.left_out == len(sides) - len(shown)
    assert len(shown) >= min(len(sides), 20)
