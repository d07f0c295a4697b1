"""A secret never comes through, however the text is cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hames.core.redaction import MARK, RedactedStream, redact, worth_hiding

SECRET = "sk-sk-s1"
TEXTS = st.text("sk-1x").map(lambda text: text.replace("x", SECRET))


@given(TEXTS, st.lists(st.integers(0, 60)))
def test_a_stream_shows_what_the_whole_text_would_whatever_its_pieces(text: str, cuts: list[int]) -> None:
    stream = RedactedStream(SECRET, MARK)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(places)]

    shown = "".join([*map(stream.feed, pieces), stream.rest()])

    assert shown == text.replace(SECRET, MARK)


@given(st.text("abc "))
def test_text_that_can_be_no_beginning_of_the_secret_waits_for_nothing(text: str) -> None:
    assert RedactedStream(SECRET, MARK).feed(text) == text


def test_a_value_is_redacted_in_names_and_items() -> None:
    value = {f"a{SECRET}": [SECRET, 1, None, {"b": f"{SECRET}{SECRET}"}]}

    assert redact(value, SECRET) == {f"a{MARK}": [MARK, 1, None, {"b": MARK * 2}]}


def test_a_placeholder_is_not_worth_hiding() -> None:
    assert [worth_hiding(key) for key in (None, "", "EMPTY", "none", SECRET)] == [None] * 4 + [SECRET]
