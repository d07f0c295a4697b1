from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.conversation import ToolCall
from hames.core.limits import DEFAULTS
from hames.core.plan import (
    AskModel,
    Complete,
    Continue,
    LimitReached,
    Progress,
    RunTools,
    SettleCancelled,
    SettleFailed,
    StopAtLimit,
    TellOfLoop,
    TurnBounds,
    loop_in,
    next_step,
    plan_recovery,
)

BOUNDS = TurnBounds(steps=3, tool_calls=4, wall_time_ms=1_000, output_bytes=100)

PHASES: st.SearchStrategy[Any] = st.sampled_from(["ask", "asked", "called", "final"])


def _calls(count: int) -> dict[str, ToolCall]:
    return {f"c{n}": ToolCall(f"c{n}", f"p{n}", "read", "{}") for n in range(count)}


@st.composite
def progresses(draw: st.DrawFn) -> Progress:
    open_ = _calls(draw(st.integers(0, 4)))
    return Progress(
        "t1",
        phase=draw(PHASES),
        steps=draw(st.integers(0, 5)),
        fallback=draw(st.booleans()),
        tool_calls=len(open_) + draw(st.integers(0, 4)),
        output_bytes=draw(st.integers(0, 200)),
        cut=draw(st.booleans()),
        text=draw(st.sampled_from(["", "Done."])),
        open=open_,
    )


BOUNDS_OF_ANY_KIND = st.builds(
    TurnBounds,
    steps=st.integers(1, 5),
    tool_calls=st.integers(0, 6),
    wall_time_ms=st.just(1_000),
    output_bytes=st.integers(1, 200),
    fallback=st.booleans(),
)


@given(progresses(), BOUNDS_OF_ANY_KIND)
def test_open_calls_come_before_everything_and_none_is_lost(progress: Progress, bounds: TurnBounds) -> None:
    step = next_step(progress, bounds)

    assert isinstance(step, RunTools) == bool(progress.open)
    if isinstance(step, RunTools):
        assert [*step.calls, *step.cut] == list(progress.open.values())
        before = progress.tool_calls - len(progress.open)
        assert before + len(step.calls) <= max(before, bounds.tool_calls)
        assert not step.cut or before + len(step.calls) >= bounds.tool_calls


@given(progresses(), BOUNDS_OF_ANY_KIND)
def test_a_turn_asks_at_most_its_steps_and_one_fallback(progress: Progress, bounds: TurnBounds) -> None:
    step = next_step(progress, bounds)

    if isinstance(step, AskModel):
        assert not progress.fallback
        assert step.step == progress.steps + 1
        assert step.fallback == (progress.steps >= bounds.steps)
        assert bounds.fallback or not step.fallback
        assert progress.phase != "final"


@given(progresses(), BOUNDS_OF_ANY_KIND)
def test_a_turn_completes_only_with_a_final_answer_within_its_limits(progress: Progress, bounds: TurnBounds) -> None:
    step = next_step(progress, bounds)

    if isinstance(step, Complete):
        assert progress.phase == "final"
        assert not progress.fallback
        assert progress.output_bytes <= bounds.output_bytes
        assert step.text == progress.text
    if isinstance(step, StopAtLimit):
        assert step.text == progress.text


@pytest.mark.parametrize(
    ("members", "reached"),
    [
        # The first of the list that is reached is the one that is named.
        ({"output_bytes": 101, "cut": True, "fallback": True}, LimitReached("outputBytes", 100, 101)),
        ({"cut": True, "tool_calls": 5, "fallback": True}, LimitReached("toolCalls", 4, 5)),
        ({"fallback": True, "steps": 3, "phase": "final"}, LimitReached("steps", 3, 3)),
        ({"fallback": True, "steps": 3, "phase": "asked"}, LimitReached("steps", 3, 3)),
        ({"output_bytes": 101, "phase": "final"}, LimitReached("outputBytes", 100, 101)),
    ],
)
def test_a_limit_that_is_reached_is_named(members: dict[str, Any], reached: LimitReached) -> None:
    assert next_step(Progress("t1", text="So far.", **members), BOUNDS) == StopAtLimit(reached, "So far.")


def test_a_final_answer_in_the_last_step_is_a_success() -> None:
    progress = Progress("t1", phase="final", steps=3, output_bytes=100, text="Done.")

    assert next_step(progress, BOUNDS) == Complete("Done.")


def test_without_fallback_the_step_limit_ends_the_turn() -> None:
    bounds = TurnBounds(steps=3, tool_calls=4, wall_time_ms=1, output_bytes=100, fallback=False)

    assert next_step(Progress("t1", steps=2), bounds) == AskModel(3, fallback=False)
    assert next_step(Progress("t1", steps=3), bounds) == StopAtLimit(LimitReached("steps", 3, 3), "")
    assert next_step(Progress("t1", steps=3), BOUNDS) == AskModel(4, fallback=True)


def test_calls_beyond_the_limit_are_cut_in_order() -> None:
    calls = _calls(3)
    step = next_step(Progress("t1", phase="called", tool_calls=6, open=calls), BOUNDS)

    assert isinstance(step, RunTools)
    assert [call.call_id for call in step.calls] == ["c0"]
    assert [call.call_id for call in step.cut] == ["c1", "c2"]


LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.integers(1, 9),
        "toolCalls": st.integers(0, 9),
        "wallTimeMs": st.integers(1, 9),
        "outputBytes": st.integers(1, 9),
        "fallback": st.booleans(),
    },
)


@given(LIMITS, LIMITS)
def test_a_turn_only_lowers_the_limits_of_its_session(session: dict[str, Any], turn: dict[str, Any]) -> None:
    alone, both = TurnBounds.of(session, {}), TurnBounds.of(session, turn)

    for name, member in (
        ("steps", "steps"),
        ("toolCalls", "tool_calls"),
        ("wallTimeMs", "wall_time_ms"),
        ("outputBytes", "output_bytes"),
    ):
        assert getattr(alone, member) == session.get(name, DEFAULTS[name])
        assert getattr(both, member) == min(getattr(alone, member), turn.get(name, DEFAULTS[name]))
    assert both.fallback == (session.get("fallback", True) and turn.get("fallback", True))


@given(
    st.dictionaries(st.sampled_from(["c0", "c1", "c2"]), st.sampled_from(["read", "write", "execute"])),
    st.booleans(),
    st.sampled_from(["continue", "fail"]),
)
def test_only_a_turn_without_unknown_effects_goes_on(started: dict[str, str], cancelled: bool, recover: Any) -> None:
    progress = Progress("t1", open=_calls(3), started=started)

    plan = plan_recovery(progress, cancelled=cancelled, recover=recover)

    unknown = tuple(call for call in started if started[call] != "read")
    if cancelled:
        assert plan == SettleCancelled()
    elif unknown:
        assert plan == SettleFailed("calls_with_unknown_effect", unknown)
    elif recover == "fail":
        assert plan == SettleFailed("caller_asked", ())
    else:
        assert plan == Continue("owner_lost", ("c0", "c1", "c2"))


@pytest.mark.parametrize(("started", "unknown"), [({}, ()), ({"c": "execute"}, ("c",)), ({"c": "read"}, ())])
def test_a_turn_whose_log_was_cut_does_not_go_on(started: dict[str, str], unknown: tuple[str, ...]) -> None:
    progress = Progress("t", severed=True, started=started)

    plan = plan_recovery(progress, cancelled=False, recover="continue")

    assert plan == SettleFailed("damaged", unknown)


ROUNDS = st.lists(st.sampled_from("abc"), max_size=12)


@given(ROUNDS, st.integers(1, 3), st.integers(2, 4), st.data())
def test_a_loop_is_found_at_the_end_whatever_stands_before(
    before: list[str], period: int, repeats: int, data: st.DataObject
) -> None:
    once = data.draw(st.lists(st.sampled_from("xyz"), min_size=period, max_size=period))

    found = loop_in([*before, *once * repeats], repeats)

    assert 0 < found <= period


@given(ROUNDS, st.integers(2, 4))
def test_what_is_called_a_loop_is_one(rounds: list[str], repeats: int) -> None:
    period = loop_in(rounds, repeats)

    if period:
        newest = rounds[-period * repeats :]
        assert newest == newest[:period] * repeats
    assert loop_in(rounds, 0) == 0


def test_a_loop_is_told_of_once_and_then_ends_the_turn() -> None:
    bounds = replace(BOUNDS, loop_repeats=3)
    rounds = ["a"] * 3

    assert next_step(Progress("t1", rounds=rounds), bounds) == TellOfLoop(1, 3)
    again = next_step(Progress("t1", rounds=rounds, loops=1, text="Hm."), bounds)
    assert again == StopAtLimit(LimitReached("loopRepeats", 3, 6), "Hm.")
    assert next_step(Progress("t1", rounds=rounds), BOUNDS) == AskModel(1, fallback=False)
