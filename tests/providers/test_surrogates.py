"""Halves of pairs: joined where both come, else replaced, and nothing else is changed."""

from __future__ import annotations

import json

import orjson
from hypothesis import given
from hypothesis import strategies as st

from hames.providers.surrogates import PairJoiner, without_lone_escapes, without_surrogates

ANY_TEXT = st.lists(st.sampled_from('\ud83d\ude00\udc00\ud800é😀\\"ud8') | st.characters()).map("".join)
"""`st.text` gives no surrogates, and they are what this is about."""


def cleaned(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@given(ANY_TEXT)
def test_text_becomes_valid_unicode_and_pairs_become_whole(text: str) -> None:
    result = without_surrogates(text)

    result.encode()
    assert result == cleaned(text)


@given(st.text())
def test_valid_text_stays_as_it_is(text: str) -> None:
    assert without_surrogates(text) is text


@given(st.lists(ANY_TEXT))
def test_pieces_joined_are_the_whole_text_cleaned(pieces: list[str]) -> None:
    joiner = PairJoiner()

    out = [joiner.join(piece) for piece in pieces]
    out.append(joiner.rest())

    for piece in out:
        piece.encode()
    assert "".join(out) == cleaned("".join(pieces))


@given(st.recursive(ANY_TEXT, lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner), max_leaves=8))
def test_json_text_becomes_strict_by_replacing_escapes_of_lone_halves(value: object) -> None:
    raw = json.dumps(value)

    strict = without_lone_escapes(raw)

    assert orjson.loads(strict) == json.loads(cleaned_json(raw))


def cleaned_json(raw: str) -> str:
    return (
        json.dumps(json.loads(raw), ensure_ascii=False)
        .encode("utf-16-le", "surrogatepass")
        .decode("utf-16-le", "replace")
    )


def test_an_escaped_backslash_before_u_is_no_escape() -> None:
    assert without_lone_escapes(r'{"a":"\\ud83d \ud83d \ud83d\ude00"}') == r'{"a":"\\ud83d \ufffd \ud83d\ude00"}'
