from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from hames.core.digests import canonical_digest, content_digest
from hames.protocol.errors import InvalidParams

PARAMS = st.dictionaries(st.text("abc", max_size=2), st.none() | st.booleans() | st.integers(-9, 9) | st.text("é𝄞a"))


@given(PARAMS, st.randoms())
def test_the_order_of_members_does_not_matter(params: dict[str, Any], chance: Any) -> None:
    names = list(params)
    chance.shuffle(names)

    assert content_digest({name: params[name] for name in names}) == content_digest(params)


@given(PARAMS)
def test_what_may_differ_when_a_request_is_repeated_does_not_matter(params: dict[str, Any]) -> None:
    again = {**params, "_meta": {"n": 2}, "idempotencyKey": "k", "subscribe": {}}

    assert content_digest(again) == content_digest(params)


@given(PARAMS, PARAMS)
def test_other_content_has_another_digest(first: dict[str, Any], second: dict[str, Any]) -> None:
    same = first == second and [type(first[name]) for name in first] == [type(second[name]) for name in first]

    assert (content_digest(first) == content_digest(second)) == same


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(JSON)
def test_the_digest_is_that_of_rfc_8785(value: Any) -> None:
    try:
        canonical = rfc8785.dumps(value)
    except ValueError:
        with pytest.raises((ValueError, TypeError), match=r"."):
            canonical_digest(value)
    else:
        assert canonical_digest(value) == sha256(canonical).hexdigest()


def test_the_digest_is_over_canonical_json() -> None:
    assert canonical_digest({"b": 1.0, "a": "é"}) == sha256('{"a":"é","b":1}'.encode()).hexdigest()


@pytest.mark.parametrize("value", [2**60, float("nan"), "\ud800"])
def test_a_value_without_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(InvalidParams, match="without a canonical JSON form"):
        content_digest({"sound": 1, "x": value})
