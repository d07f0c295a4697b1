"""What a running turn does next: `next_step`, the precedence of cancel, limits, tools and the model in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hames.core.conversation import ToolCall
from hames.core.cost import micros
from hames.core.limits import DEFAULTS, NO_COST_LIMIT
from hames.core.records import record
from hames.core.spending import NOTHING_SPENT, Spending


@record
class TurnBounds:
    """The limits of one turn: see `core/limits.py` for units."""

    steps: int
    tool_calls: int
    wall_time_ms: int
    output_bytes: int
    fallback: bool = True
    loop_repeats: int = 0
    cost_micros: int = NO_COST_LIMIT

    @staticmethod
    def of(session: Mapping[str, Any], turn: Mapping[str, Any]) -> TurnBounds:
        """The session's limits, lowered by the turn's: a turn never raises one."""

        def least(name: str) -> int:
            own = int(session.get(name, DEFAULTS[name]))
            return min(own, int(turn.get(name, own)))

        return TurnBounds(
            steps=least("steps"),
            tool_calls=least("toolCalls"),
            wall_time_ms=least("wallTimeMs"),
            output_bytes=least("outputBytes"),
            loop_repeats=least("loopRepeats"),
            cost_micros=least("costMicros"),
            fallback=bool(session.get("fallback", True)) and bool(turn.get("fallback", True)),
        )


@record
class LimitReached:
    """Which limit, what was configured, what was seen: `limit_exceeded {limit, configured, observed}`.

    Of a cost: `assumed` is what of it was not told and is counted at its most; `cost_unknown`: not even that is known.
    """

    limit: str
    configured: int
    observed: int
    assumed: int = 0
    reason: Literal["cost_unknown"] | None = None


@dataclass(slots=True)
class Progress:
    """How far a turn has come, folded from its events (`core/context.py`), of which `seq` is the first.

    `phase`: `ask` the model is to be asked; `asked` its answer is not whole; `called` it asked for tools;
    `final` it answered without. `open` are calls without a result, in order; `started` those of them whose
    effect may have begun, by call id with the tool's effect. `partial` holds items that have chunks and no
    end: their kind and text. `severed`: a repair cut the log within the turn. `rounds` are the newest steps that called
    tools, each by what it called and what that gave, since the model was last told that it repeats itself, which it was
    `loops` times. `spending` is what its requests cost.
    """

    turn_id: str
    attempt: int = 0
    phase: Literal["ask", "asked", "called", "final"] = "ask"
    steps: int = 0
    fallback: bool = False
    tool_calls: int = 0
    output_bytes: int = 0
    cut: bool = False
    severed: bool = False
    text: str = ""
    open: dict[str, ToolCall] = field(default_factory=dict)
    started: dict[str, str] = field(default_factory=dict)
    partial: dict[str, tuple[str, str]] = field(default_factory=dict)
    instructions: str | None = None
    seq: int = 0
    rounds: list[str] = field(default_factory=list)
    loops: int = 0
    spending: Spending = NOTHING_SPENT


@record
class AskModel:
    """Send request number `step`; as `fallback` without tools."""

    step: int
    fallback: bool


@record
class TellOfLoop:
    """Tell the model that its last rounds of calls, `period` of them at a time, gave the same again and again."""

    period: int
    repeats: int


@record
class RunTools:
    """Run `calls`, together; answer `cut`, which are beyond the limit, as not run."""

    calls: tuple[ToolCall, ...]
    cut: tuple[ToolCall, ...]


@record
class Complete:
    """The turn succeeded with `text`."""

    text: str


@record
class StopAtLimit:
    """The turn failed at a limit; `text` is what was said last."""

    reached: LimitReached
    text: str


Step = AskModel | TellOfLoop | RunTools | Complete | StopAtLimit

LONGEST_PERIOD = 3
"""Of a loop that is looked for: longer ones are as likely to be work."""


def next_step(progress: Progress, bounds: TurnBounds) -> Step:
    """Open calls come first (a history must stay whole), then limits, then the end, then the model."""
    if progress.open:
        calls = tuple(progress.open.values())
        room = max(0, bounds.tool_calls - (progress.tool_calls - len(calls)))
        return RunTools(calls[:room], calls[room:])
    reached = _reached(progress, bounds)
    if reached is not None:
        return StopAtLimit(reached, progress.text)
    if progress.phase == "final":
        return Complete(progress.text)
    period = loop_in(progress.rounds, bounds.loop_repeats)
    if period and progress.loops:
        return StopAtLimit(LimitReached("loopRepeats", bounds.loop_repeats, 2 * bounds.loop_repeats), progress.text)
    if period:
        return TellOfLoop(period, bounds.loop_repeats)
    if progress.steps >= bounds.steps:
        return AskModel(progress.steps + 1, fallback=True)
    return AskModel(progress.steps + 1, fallback=False)


def loop_in(rounds: Sequence[str], repeats: int) -> int:
    """The period of the loop that `rounds` end with: the same 1, 2 or 3 of them, `repeats` times in a row; 0 for none.

    Only the end of `rounds` counts, so a loop is found alike however long the turn was before; a call that gives
    something else each time is a look at what changes, and no loop.
    """
    for period in range(1, LONGEST_PERIOD + 1):
        length = period * repeats
        newest = list(rounds[len(rounds) - length :]) if 0 < length <= len(rounds) else []
        if newest and newest == newest[:period] * repeats:
            return period
    return 0


def cost_reached(progress: Progress, bounds: TurnBounds) -> LimitReached | None:
    """Whether the limit of the cost forbids one request more: it is used up, or nobody knows whether it is."""
    if bounds.cost_micros == NO_COST_LIMIT:
        return None
    spending = progress.spending.settled()
    spent, assumed = micros(spending.amount), micros(spending.assumed)
    if spent >= bounds.cost_micros:
        return LimitReached("costMicros", bounds.cost_micros, spent, assumed)
    if not spending.is_bounded:
        return LimitReached("costMicros", bounds.cost_micros, spent, assumed, "cost_unknown")
    return None


def _reached(progress: Progress, bounds: TurnBounds) -> LimitReached | None:
    if progress.output_bytes > bounds.output_bytes:
        return LimitReached("outputBytes", bounds.output_bytes, progress.output_bytes)
    if progress.cut:
        return LimitReached("toolCalls", bounds.tool_calls, progress.tool_calls)
    if progress.phase != "final" and (reached := cost_reached(progress, bounds)) is not None:
        return reached
    out_of_steps = progress.phase != "final" and progress.steps >= bounds.steps
    if progress.fallback or (out_of_steps and not bounds.fallback):
        # The fallback request was made (whatever came of it), or may not be made.
        return LimitReached("steps", bounds.steps, progress.steps)
    return None


@record
class Continue:
    """Go on as a new attempt: answer `interrupted`, run `again`, close what else is open."""

    reason: str
    open_calls: tuple[str, ...]


@record
class SettleFailed:
    """The turn cannot go on: these calls may have had effects, and nobody knows."""

    reason: str
    unknown: tuple[str, ...]


@record
class SettleCancelled:
    """A durable cancel waits for its terminal."""

    reason: str = "cancel_requested"


Recovery = Continue | SettleFailed | SettleCancelled


def plan_recovery(progress: Progress, *, cancelled: bool, recover: Literal["continue", "fail"]) -> Recovery:
    """What to do with a turn whose attempt is gone (AH-LIFE-5: only what is safe to repeat is repeated)."""
    unknown = tuple(call for call, effect in progress.started.items() if effect != "read")
    if cancelled:
        return SettleCancelled()
    if progress.severed:
        # What it did behind the cut is not known: to go on might do it again.
        return SettleFailed("damaged", unknown)
    if unknown:
        return SettleFailed("calls_with_unknown_effect", unknown)
    if recover == "fail":
        return SettleFailed("caller_asked", ())
    return Continue("owner_lost", tuple(progress.open))
