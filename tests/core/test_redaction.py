"""A secret never comes through, however the text is cut."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from copy import deepcopy
from html import escape
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.redaction import (
    MARK,
    RedactedStream,
    redact,
    without_spelled,
    without_spelled_before_cut,
    worth_hiding,
)

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


def many_lists(depth: int) -> list[Any]:
    value: list[Any] = [SECRET]
    for _ in range(depth):
        value = [value]
    return value


VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3) | st.tuples(inner, inner),
)


@given(VALUES)
def test_a_value_in_place_becomes_what_a_copy_does_and_the_copy_leaves_its_own(value: Any) -> None:
    before = deepcopy(value)

    copy = redact(value, SECRET)

    assert value == before
    assert SECRET not in repr(copy)
    assert redact(value, SECRET, in_place=True) == copy


def test_names_that_are_no_text_stay() -> None:
    assert redact({1: SECRET}, SECRET) == {1: MARK}
    assert redact([{1: SECRET}], SECRET, in_place=True) == [{1: MARK}]


def test_the_depth_of_a_value_is_no_matter() -> None:
    value = redact(many_lists(100_000), SECRET)

    for _ in range(100_000):
        (value,) = value
    assert value == [MARK]


def calls(function: Callable[[], object]) -> int:
    """How many functions `function` calls, those in C too: its work, the same on every machine."""
    count = 0

    def on_event(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("item", [[], [[]], {"a": {}}, [SECRET]], ids=repr)
def test_twice_the_value_takes_twice_the_work(item: Any) -> None:
    once, twice = ([deepcopy(item) for _ in range(number)] for number in (2_000, 4_000))

    assert calls(lambda: redact(twice, SECRET)) <= 2 * calls(lambda: redact(once, SECRET))


def in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def in_hex(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


def in_numbers(text: str) -> str:
    return "".join(f"&#{ord(char)};" for char in text)


SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    str.upper,
    in_json,
    lambda text: repr(text)[1:-1],
    lambda text: in_json(in_json(text)),
    lambda text: in_json(repr(in_json(text))),
    in_hex,
    lambda text: in_json(in_hex(text)),
    lambda text: "".join(f"\\x{ord(char):02X}" for char in text),
    quote,
    lambda text: quote(quote(text)),
    escape,
    lambda text: escape(escape(text)),
    in_numbers,
    lambda text: "".join(f"&#X{ord(char):x};" for char in text),
)
KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40)


@given(st.text(), KEYS, st.sampled_from(SPELLINGS), st.text())
def test_a_secret_is_found_however_it_is_spelled(
    before: str, key: str, spell: Callable[[str], str], after: str
) -> None:
    # Between texts that end and begin as nothing which would make one character of it with the key.
    shown = without_spelled(f"{before} |{spell(key)}| {after}", key)

    assert MARK in shown
    assert f"|{spell(key)}|" not in shown


@given(st.text("\\%&ux0a"), st.text("0abf", min_size=8))
def test_a_secret_in_plain_text_is_found_whatever_stands_before_it(before: str, key: str) -> None:
    assert key not in without_spelled(before + key, key)


def test_a_secret_of_nothing_but_backslashes_is_found_as_it_stands() -> None:
    assert without_spelled("a" + "\\" * 8 + "b", "\\" * 8) == f"a{MARK}b"


@given(st.text("ab \\%&;#x0u"))
def test_text_without_the_secret_is_not_changed(text: str) -> None:
    assert without_spelled(text, SECRET) == text


@pytest.mark.parametrize("spell", SPELLINGS)
@given(cut=st.integers(0, 400))
def test_the_beginning_of_a_secret_at_the_end_of_a_cut_text_is_left_out(spell: Callable[[str], str], cut: int) -> None:
    text = "-" * 1_000 + spell(SECRET)

    assert set(without_spelled_before_cut(text[: 1_000 + cut], SECRET)) <= {"-"}


def test_a_cut_text_that_is_shorter_than_a_secret_may_be_is_left_out() -> None:
    assert without_spelled_before_cut("sk-", SECRET) == ""


@pytest.mark.parametrize("piece", ["\\", "%25", "%", "&amp;", "&#1", "\\u00", SECRET[:-1], "s"])
def test_much_of_anything_is_looked_at_once(piece: str) -> None:
    once, twice = (piece * number for number in (2_000, 4_000))

    assert calls(lambda: without_spelled(twice, SECRET)) <= 2 * calls(lambda: without_spelled(once, SECRET))
