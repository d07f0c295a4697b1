"""What an image is, by its first bytes; and which ones a conversation shows."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake.pictures import drawn, gif, jpeg, png, webp
from hames.core.images import Measured, measure
from hames.core.pictures import ALL_TYPES, Pictures, types_taken


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


def _image(data: bytes, label: str | None = None, media_type: str = "image/png") -> dict[str, Any]:
    image: dict[str, Any] = {"type": "image", "mediaType": media_type, "data": data}
    return image if label is None else {**image, "label": label}


def test_an_image_is_shown_once_and_named_again() -> None:
    pictures = Pictures()

    texts, shown = pictures.said([{"type": "text", "text": "Look:"}, _image(b"a", "a.png"), _image(b"a")])

    assert [slot["text"] for slot in texts] == ["Look:", "[image a.png]", "[image: the same as image a.png above]"]
    assert [picture.data for picture in shown] == [b"a"]
    assert pictures.said([_image(b"b")])[1][0].data == b"b"


def test_an_image_whose_content_is_lost_is_said_and_not_shown() -> None:
    texts, shown = Pictures().said([{**_image(b"", "a.png"), "data": None}])

    assert ([slot["text"] for slot in texts], shown) == (["[image a.png: its content is lost]"], ())


def test_images_beyond_the_limits_are_left_out_and_said() -> None:
    few, small = Pictures(most=1), Pictures(most_bytes=3)
    few.said([_image(b"a")])

    assert [few.said([_image(b"b", "b.png")])[1], small.said([_image(b"abcd")])[1]] == [(), ()]
    assert few.said([_image(b"c", "c.png")])[0][0]["text"].startswith("[image c.png: left out")
    assert small.said([_image(b"abc")])[1][0].data == b"abc"


def test_a_model_is_shown_only_what_it_takes() -> None:
    none, no_gif = Pictures(types=types_taken("openai", False)), Pictures(types=types_taken("gemini", True))
    slots = [_image(png(), "a.png"), _image(gif(), None, "image/gif"), _image(png(), "a.png")]

    assert [slot["text"] for slot in none.said(slots)[0]] == [
        "[image a.png: not shown, since this model takes no images]",
        "[image: not shown, since this model takes no images]",
        "[image a.png: not shown, since this model takes no images]",
    ]
    texts, shown = no_gif.said(slots)
    assert texts[1]["text"] == "[image: not shown, since this model takes no image/gif]"
    assert [picture.data for picture in shown] == [png()]
    assert (none.not_taken, no_gif.not_taken, none.left_out) == (3, 1, 0)
    assert types_taken("anthropic", None) == types_taken("openai", True) == ALL_TYPES


def test_an_animation_that_is_in_the_log_is_shown_to_no_model() -> None:
    pictures = Pictures()
    moving = drawn("GIF", "P", 4, 3, frames=2)

    texts, shown = pictures.said([_image(moving, "a.gif", "image/gif"), _image(gif(), "b.gif", "image/gif")])

    assert texts[0]["text"] == "[image a.gif: not shown, since it is an animation]"
    assert [picture.data for picture in shown] == [gif()]
    assert pictures.not_taken == 1


TYPES = st.frozensets(st.sampled_from(sorted(ALL_TYPES)))


@given(st.lists(st.sampled_from(sorted(ALL_TYPES)), max_size=6), TYPES, TYPES, st.integers(0, 6))
def test_what_fits_another_model_is_what_that_would_have_been_shown(
    kinds: list[str], one: frozenset[str], other: frozenset[str], switched: int
) -> None:
    slots = [_image(str(number).encode(), None, kind) for number, kind in enumerate(kinds)]
    before, anew = Pictures(types=one), Pictures(types=other)
    first = before.said(slots[:switched])

    fits = before.fits(other)

    assert fits == (anew.said(slots[:switched]) == first)
    if fits:
        assert before.said(slots[switched:]) == anew.said(slots[switched:])


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
