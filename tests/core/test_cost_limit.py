"""The limit of what a turn costs: what is folded of its cost, and when that ends it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.context import Conversation
from hames.core.cost import micros, usd
from hames.core.limits import DEFAULTS, NO_COST_LIMIT
from hames.core.plan import AskModel, Complete, LimitReached, Progress, StopAtLimit, TurnBounds, next_step
from hames.core.session import Event
from hames.core.spending import NOTHING_SPENT, Spending

COST = {"reported": {"amount": "0.5", "currency": "USD"}, "estimated": {"amount": "0.25", "currency": "USD"}}


def bounds(limit: int) -> TurnBounds:
    return TurnBounds.of(DEFAULTS, {"costMicros": limit})


@given(st.decimals(0, 10**6, places=9), st.integers(1, NO_COST_LIMIT - 1))
def test_a_turn_goes_on_while_what_it_cost_is_below_its_limit(cost: Decimal, limit: int) -> None:
    progress = Progress("t", text="so far", spending=Spending(format(cost, "f")))

    step = next_step(progress, bounds(limit))

    spent = micros(progress.spending.amount)
    if cost * 1_000_000 > limit - 1:
        assert step == StopAtLimit(LimitReached("costMicros", limit, spent), "so far")
    else:
        assert step == AskModel(1, fallback=False)


def test_an_answer_that_is_paid_for_is_not_thrown_away() -> None:
    assert next_step(Progress("t", phase="final", text="done", spending=Spending("9")), bounds(1)) == Complete("done")


@given(st.decimals(0, 10**6, places=9))
def test_millionths_are_never_less_than_the_amount(amount: Decimal) -> None:
    found = micros(format(amount, "f"))

    assert found - 1 < amount * 1_000_000 <= found


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (COST, "0.25"),
        ({"reported": COST["reported"]}, "0.5"),
        ({"estimated": {"amount": "1", "currency": "EUR"}}, None),
        ({"estimated": {"amount": "1", "currency": "EUR"}, "reported": COST["reported"]}, "0.5"),
        ({}, None),
    ],
)
def test_what_counts_is_the_estimate_in_dollars_else_what_was_reported(
    cost: dict[str, Any], expected: str | None
) -> None:
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
    assert conversation.progress.spending.amount == "0.5"

    conversation.apply(Event(5, "", "turn.completed", {"text": ""}, "t1"))
    conversation.apply(Event(6, "", "usage.recorded", record, "t1"))
    conversation.apply(Event(7, "", "turn.started", begun, "t2"))
    assert conversation.progress.turn_id == "t2"
    assert conversation.progress.spending == NOTHING_SPENT


# --- what was not told --------------------------------------------------------------------------------------------


def asked(most: str | None = None, **data: Any) -> tuple[str, dict[str, Any]]:
    bound = {} if most is None else {"costAtMost": {"amount": most, "currency": "USD"}}
    return "model.requested", {**bound, **data}


def told(cost: str | None = None, most: str | None = None, *, partial: bool = False) -> tuple[str, dict[str, Any]]:
    data: dict[str, Any] = {"counters": {}, "partial": True} if partial else {"counters": {}}
    if cost is None:
        data["costReason"] = "missing_provider_detail"
    else:
        data["cost"] = {"reported": {"currency": "USD", "amount": cost}}
    if most is not None:
        data["costAtMost"] = {"currency": "USD", "amount": most}
    return "usage.recorded", data


def failed(**details: Any) -> tuple[str, dict[str, Any]]:
    return "model.retried", {"error": {"message": "", "kind": "model_gateway", "details": details}}


@pytest.mark.parametrize(
    ("events", "spent", "assumed", "is_bounded"),
    [
        ([asked("1"), told(cost="0.25")], "0.25", "0", True),
        ([asked(), told(cost="0.25")], "0.25", "0", True),
        ([asked("1")], "1", "1", True),
        ([asked("1"), asked("2")], "3", "3", True),
        ([asked("1"), told(most="0.5")], "0.5", "0.5", True),
        ([asked("1"), told()], "1", "1", True),
        ([asked("1"), told(cost="0.25"), asked("2"), failed(phase="idle")], "2.25", "2", True),
        ([asked("1"), failed(phase="connect"), asked("1"), told(cost="0.25")], "0.25", "0", True),
        ([asked("1"), failed(phase="first_byte", status=503), asked("1"), told(cost="0.25")], "0.25", "0", True),
        ([asked("1"), asked("1", purpose="summary", trigger="overflow"), told(cost="0.5")], "0.5", "0", True),
        ([asked("1"), asked("1", trigger="overflow", afterText=True), told(cost="0.5")], "1.5", "1", True),
        ([asked(), asked("1", trigger="overflow", afterText=True), told(cost="0.5")], "0.5", "0", False),
        ([asked("9"), told(cost="0.25", most="4")], "4", "4", True),
        ([asked("9"), told(cost="0.25", most="4", partial=True)], "4", "4", True),
        ([asked("9"), told(cost="10", most="4", partial=True)], "10", "10", True),
        ([asked("9"), told(cost="0.25", partial=True)], "9", "9", True),
        ([asked(), told(cost="0.25", partial=True)], "0", "0", False),
        ([asked("1"), asked("1", purpose="summary", trigger="threshold"), told(cost="0.5")], "1.5", "1", True),
        ([asked()], "0", "0", False),
        ([asked(), told()], "0", "0", False),
        ([asked(), failed(phase="connect"), asked("1")], "1", "1", True),
    ],
)
def test_what_was_not_told_of_a_request_counts_at_its_most_and_what_was_refused_for_nothing(
    events: list[tuple[str, dict[str, Any]]], spent: str, assumed: str, is_bounded: bool
) -> None:
    conversation = Conversation()
    begun = ("turn.started", {"attempt": 1, "fence": 1, "deadlineAt": ""})
    for seq, (kind, data) in enumerate([begun, *events], 1):
        conversation.apply(Event(seq, "", kind, data, "t1"))

    assert conversation.progress is not None
    found = conversation.progress.spending.settled()
    assert (found.amount, found.assumed, found.is_bounded) == (spent, assumed, is_bounded)


def test_what_is_asked_and_told_of_no_turn_moves_nothing() -> None:
    conversation = Conversation()

    for seq, (kind, data) in enumerate([asked("1"), failed(phase="idle"), told(cost="1")], 1):
        conversation.apply(Event(seq, "", kind, data, "t1"))

    assert conversation.progress is None


def test_a_cost_that_nobody_can_tell_ends_a_turn_that_bounds_it_and_no_other() -> None:
    progress = Progress("t", text="so far", spending=Spending("0.5", "0.25", is_bounded=False))

    reached = LimitReached("costMicros", 600_000, 500_000, 250_000, "cost_unknown")
    assert next_step(progress, bounds(600_000)) == StopAtLimit(reached, "so far")
    used_up = LimitReached("costMicros", 500_000, 500_000, 250_000)
    assert next_step(progress, bounds(500_000)) == StopAtLimit(used_up, "so far")
    assert next_step(progress, bounds(NO_COST_LIMIT)) == AskModel(1, fallback=False)
