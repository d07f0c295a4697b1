"""The limit of what a turn costs: what is folded of its cost, and when that ends it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.context import Conversation
from hames.core.cost import micros, usd
from hames.core.limits import DEFAULTS
from hames.core.plan import AskModel, Complete, LimitReached, Progress, StopAtLimit, TurnBounds, next_step
from hames.core.session import Event

COST = {"reported": {"amount": "0.5", "currency": "USD"}, "estimated": {"amount": "0.25", "currency": "USD"}}


def bounds(limit: int) -> TurnBounds:
    return TurnBounds.of(DEFAULTS, {"costMicros": limit})


@given(st.decimals(0, 10**6, places=9), st.integers(1, 10**12))
def test_a_turn_goes_on_while_what_it_cost_is_below_its_limit(cost: Decimal, limit: int) -> None:
    progress = Progress("t", text="so far", cost_usd=format(cost, "f"))

    step = next_step(progress, bounds(limit))

    spent = micros(progress.cost_usd)
    if cost * 1_000_000 > limit - 1:
        assert step == StopAtLimit(LimitReached("costMicros", limit, spent), "so far")
    else:
        assert step == AskModel(1, fallback=False)


def test_an_answer_that_is_paid_for_is_not_thrown_away() -> None:
    assert next_step(Progress("t", phase="final", text="done", cost_usd="9"), bounds(1)) == Complete("done")


@given(st.decimals(0, 10**6, places=9))
def test_millionths_are_never_less_than_the_amount(amount: Decimal) -> None:
    found = micros(format(amount, "f"))

    assert found - 1 < amount * 1_000_000 <= found


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (COST, "0.25"),
        ({"reported": COST["reported"]}, "0.5"),
        ({"estimated": {"amount": "1", "currency": "EUR"}}, "0"),
        ({"estimated": {"amount": "1", "currency": "EUR"}, "reported": COST["reported"]}, "0.5"),
        ({}, "0"),
    ],
)
def test_what_counts_is_the_estimate_in_dollars_else_what_was_reported(cost: dict[str, Any], expected: str) -> None:
    assert usd(cost) == expected


def test_the_cost_of_a_turn_is_folded_from_its_records_and_begins_anew_with_the_next() -> None:
    conversation = Conversation()
    record = {"counters": {}, "cost": COST}
    begun = {"attempt": 1, "fence": 1, "deadlineAt": ""}
    events: list[tuple[str, dict[str, Any]]] = [
        ("turn.started", begun),
        ("usage.recorded", record),
        ("usage.recorded", {"counters": {}, "costReason": "unsupported_pricing"}),
        ("usage.recorded", record),
    ]
    for seq, (kind, data) in enumerate(events, 1):
        conversation.apply(Event(seq, "", kind, data, "t1"))
    assert conversation.progress is not None
    assert conversation.progress.cost_usd == "0.5"

    conversation.apply(Event(5, "", "turn.completed", {"text": ""}, "t1"))
    conversation.apply(Event(6, "", "usage.recorded", record, "t1"))
    conversation.apply(Event(7, "", "turn.started", begun, "t2"))
    assert conversation.progress.turn_id == "t2"
    assert conversation.progress.cost_usd == "0"
