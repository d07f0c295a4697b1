from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.limits import DEFAULTS, LIMITS, SESSION_LIMITS, TURN_LIMITS, Limit, check_limit
from hames.protocol.objects import SessionLimits, TurnLimits

EVERY = st.sampled_from(list(LIMITS.values()))


def test_every_limit_has_a_default_within_its_range_and_says_what_it_bounds() -> None:
    for name, limit in LIMITS.items():
        assert limit.name == name
        assert limit.minimum <= limit.default <= limit.maximum, name
        assert limit.meaning
        assert DEFAULTS[name] == limit.default


def test_the_limits_of_a_turn_are_those_that_a_caller_may_send() -> None:
    assert {*TURN_LIMITS, "fallback"} == set(TurnLimits.__annotations__)
    assert {*TURN_LIMITS, *SESSION_LIMITS, "fallback"} == set(SessionLimits.__annotations__)


@given(EVERY, st.data())
def test_a_value_within_the_range_is_taken_as_it_is(limit: Limit, data: st.DataObject) -> None:
    value = data.draw(st.integers(limit.minimum, limit.maximum))

    assert check_limit(limit.name, value) == value


@given(EVERY, st.integers())
def test_a_value_out_of_range_is_refused_with_the_range(limit: Limit, value: int) -> None:
    if limit.minimum <= value <= limit.maximum:
        value = limit.maximum + 1 + value

    with pytest.raises(ValueError, match=f"from {limit.minimum} to {limit.maximum}, not {value}$"):
        check_limit(limit.name, value)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1]])
def test_what_is_no_integer_is_refused_by_its_type(value: Any) -> None:
    with pytest.raises(ValueError, match="must be an integer, not "):
        check_limit("steps", value)


def test_an_unknown_limit_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="there is no limit 'stepps'; there are: steps, toolCalls,"):
        check_limit("stepps", 1)
