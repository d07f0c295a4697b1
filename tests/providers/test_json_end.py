"""Whether pieces are one object so far is told as by reading all of them at each piece."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from hames.providers.json_end import ObjectEnd

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(st.sampled_from('a"\\{}[]\n\u00a0é')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('a"}')), inner, max_size=3),
    max_leaves=6,
).map(lambda value: orjson.dumps(value).decode())
PIECES = st.text(st.sampled_from('{}[]",:\\ \n1a\u00a0'), max_size=6)


def is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def agree(pieces: list[str]) -> None:
    end, text = ObjectEnd(), ""
    for piece in pieces:
        end.feed(piece)
        text += piece
        assert end.is_whole == is_object(text), text


@given(JSON, st.lists(PIECES, max_size=2), st.data())
def test_an_object_is_whole_at_its_last_bracket_and_not_behind_more(
    text: str, more: list[str], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))

    agree([text[at:end] for at, end in zip([0, *cuts], [*cuts, len(text)], strict=True)] + more)


@given(st.lists(PIECES))
def test_what_is_no_json_is_never_whole(pieces: list[str]) -> None:
    agree(pieces)
