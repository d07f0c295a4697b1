"""The published fields of attribution are those that are sent."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from hames.core.attribution import FIELDS, headers, published
from hames.protocol.objects import ATTRIBUTION_PATTERN

VALUES = st.from_regex(ATTRIBUTION_PATTERN, fullmatch=True)


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES))
def test_every_field_that_is_given_is_sent_under_its_published_header(attribution: dict[str, str]) -> None:
    names = {field["name"]: field["header"] for field in published("hames/1")["fields"]}

    assert headers(attribution) == {names[name]: value for name, value in attribution.items()}


@given(VALUES)
def test_a_value_has_no_room_for_a_text_or_an_address(value: str) -> None:
    assert len(value) <= 48
    assert not re.search(r"[\s@/:\\]", value)


def test_what_callers_supply_and_what_is_inferred_are_told_apart() -> None:
    fields = published("hames/1")["fields"]

    assert {field["name"] for field in fields if field["supplied"] == "caller"} == set(FIELDS)
    assert [field["name"] for field in fields if field["supplied"] == "inferred"] == ["harness"]


def test_a_field_that_this_build_does_not_know_is_not_sent() -> None:
    assert headers({"application": "a", "later": "b"}) == {"hames-application": "a"}
