"""Signed parts go back verbatim and in order, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.conversation import AssistantMessage, ToolCall
from hames.core.signed import (
    MOST_BYTES,
    MOST_DEPTH,
    CallItem,
    Item,
    OwnItem,
    TextItem,
    joined,
    signed_items,
    signed_parts,
)
from hames.protocol.jsontext import dumps, loads

CALLS = st.builds(ToolCall, st.just(""), st.uuids().map(str), st.text(), st.text())
EXTRAS = st.dictionaries(st.text(max_size=4), st.integers(-(2**63), 2**63 - 1) | st.text(max_size=4), max_size=2)
ITEMS = st.lists(
    st.builds(TextItem, st.text(max_size=9), EXTRAS)
    | st.builds(CallItem, CALLS, EXTRAS)
    | st.builds(OwnItem, st.dictionaries(st.text(max_size=4), st.text(max_size=9))),
    max_size=8,
)


def message(items: list[Item], dialect: str = "d", model: str = "m") -> AssistantMessage:
    """The answer that `items` are, as the log keeps it."""
    text = "".join(item.text for item in items if isinstance(item, TextItem))
    calls = tuple(item.call for item in items if isinstance(item, CallItem))
    parts = loads(dumps(signed_parts(dialect, model, items)))
    return AssistantMessage(text if text.strip() else "", calls, parts)


@pytest.mark.parametrize("most", [{"depth": MOST_DEPTH - 3}, {"size": MOST_BYTES - 100}])
def test_parts_that_are_too_deep_or_too_large_are_left_out_whole(most: dict[str, int]) -> None:
    def parts(more: int) -> object:
        deep: object = "x" * (most.get("size", 0) + more)
        for _ in range(most.get("depth", 0) + more):
            deep = [deep]
        return signed_parts("d", "m", [TextItem("Well."), OwnItem({"sealed": deep})])

    assert parts(0) != {}
    assert parts(200) == {}


def said(items: list[Item]) -> list[Item]:
    """`items` without text that is blank as a whole, which is no part of the message."""
    if "".join(item.text for item in items if isinstance(item, TextItem)).strip():
        return items
    blank = [replace(item, text="") if isinstance(item, TextItem) else item for item in items]
    return [item for item in blank if not isinstance(item, TextItem) or item.extra]


@given(ITEMS)
def test_what_came_goes_back(items: list[Item]) -> None:
    answer = message(items)

    found = signed_items(answer, "d", "m")

    assert found == (said(items) if answer.parts else None)


@given(ITEMS)
def test_an_answer_that_is_only_text_and_calls_has_no_parts_of_its_own(items: list[Item]) -> None:
    plain = [replace(item, extra={}) for item in items if not isinstance(item, OwnItem)]

    assert signed_parts("d", "m", plain) == {}


@given(ITEMS, st.sampled_from(["text", "call", "one more call", "another call", "dialect", "model"]))
def test_an_answer_that_was_changed_goes_back_without_them(items: list[Item], change: str) -> None:
    call = ToolCall("", "p", "t", "{}")
    answer = message([OwnItem({"x": 1}), TextItem("a"), *items, CallItem(call)])

    match change:
        case "text":
            changed = replace(answer, text=answer.text + "x")
        case "call":
            changed = replace(answer, calls=answer.calls[1:])
        case "one more call":
            changed = replace(answer, calls=(*answer.calls, call))
        case "another call":
            kept = [*answer.parts["items"], {"call": 99}]
            changed = replace(answer, parts={**answer.parts, "items": kept}, calls=(*answer.calls, call))
        case _:
            changed = replace(answer, parts={**answer.parts, change: "another"})

    assert signed_items(changed, "d", "m") is None


@given(ITEMS, ITEMS)
def test_two_answers_around_a_pause_are_one(first: list[Item], second: list[Item]) -> None:
    first = [item for item in first if not isinstance(item, CallItem)]
    one, two = message(first), message(second)

    both = joined(one, two)

    assert both.text == one.text + two.text
    assert both.calls == two.calls
    found = signed_items(both, "d", "m")
    if one.parts or two.parts:
        assert found is not None
        own = [item for item in [*first, *second] if isinstance(item, OwnItem)]
        assert [item for item in found if isinstance(item, OwnItem)] == own
    else:
        assert found is None


@pytest.mark.parametrize(("dialect", "model"), [("e", "m"), ("d", "n")])
def test_around_a_pause_parts_of_two_routes_are_left_out(dialect: str, model: str) -> None:
    one = message([OwnItem({"x": 1}), TextItem("a")])
    two = message([OwnItem({"y": 1}), TextItem("b")], dialect, model)

    assert joined(one, two) == AssistantMessage("ab")
