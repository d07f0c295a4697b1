from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.commands.visible import in_a_row, one_line, visible

OBEYED = {"Cc", "Cs", "Zl", "Zp"}


@given(st.text(st.characters(exclude_categories=[])))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) in OBEYED and c not in "\n\t"]


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_plain_text_is_not_changed(text: str) -> None:
    assert visible(text) == text


@given(st.text(), st.text())
def test_text_may_be_cut_anywhere(before: str, after: str) -> None:
    assert visible(before) + visible(after) == visible(before + after)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("over\rwritten", "over\\x0dwritten"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_what_a_terminal_obeys_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(), st.integers(2, 50))
def test_a_name_is_one_line_with_all_of_it_visible_and_no_longer_than_asked(text: str, limit: int) -> None:
    shown = in_a_row(text, limit)
    assert len(shown) <= limit
    assert not [c for c in shown if unicodedata.category(c) in OBEYED]


@given(st.text(), st.integers(2, 50))
def test_one_line_is_one_line_and_no_longer_than_asked(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert "\n" not in line
