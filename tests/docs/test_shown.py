"""Examples as Markdown."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hames.protocol import shown

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=10,
)


def block(markdown: str) -> str:
    [body] = re.findall(r"^```json\n(.*?)\n```$", markdown, re.MULTILINE | re.DOTALL)
    return str(body)


@given(values)
def test_what_is_shown_is_the_value(value: Any) -> None:
    assert json.loads(block(shown.single({"entry": value}, "entry"))) == value


def test_a_value_that_fits_a_line_stands_on_one_and_a_longer_one_is_broken() -> None:
    rows = {"first": ["a" * 45, "b" * 45], "second": {"small": 1}}

    lines = block(shown.single({"entry": rows}, "entry")).split("\n")

    assert lines == ["{", f'  "first": {json.dumps(rows["first"])},', '  "second": {"small": 1}', "}"]


def test_without_an_example_nothing_is_shown() -> None:
    assert (shown.exchange(None), shown.single(None, "entry"), shown.refusal(None)) == ("", "", "")


def test_a_kind_without_an_example_says_why() -> None:
    assert shown.refusal({"note": "It does not happen."}) == "It does not happen.\n"
