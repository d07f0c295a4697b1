"""What a running turn does next: `next_step`, the precedence of cancel, limits, tools and the model in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hames.core.conversation import ToolCall
from hames.core.limits import DEFAULTS


@dataclass(frozen=True, slots=True)
class TurnBounds:
    """The limits of one turn: see `core/limits.py` for units."""

    steps: int
    tool_calls: int
    wall_time_ms: int
    output_bytes: int
    fallback: bool = True

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
            fallback=bool(session.get("fallback", True)) and bool(turn.get("fallback", True)),
        )


@dataclass(frozen=True, slots=True)
class LimitReached:
    """Which limit, what was configured, what was seen: `limit_exceeded {limit, configured, observed}`."""

    limit: str
    configured: int
    observed: int


@dataclass(slots=True)
class Progress:
    """How far a turn has come, folded from its events (`core/context.py`), of which `seq` is the first.

    `phase`: `ask` the model is to be asked; `asked` its answer is not whole; `called` it asked for tools;
    `final` it answered without. `open` are calls without a result, in order; `started` those of them whose
    effect may have begun, by call id with the tool's effect. `partial` holds items that have chunks and no
    end: their kind and text. `severed`: a repair cut the log within the turn.
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


@dataclass(frozen=True, slots=True)
class AskModel:
    """Send request number `step`; as `fallback` without tools."""

    step: int
    fallback: bool


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run `calls`, together; answer `cut`, which are beyond the limit, as not run."""

    calls: tuple[ToolCall, ...]
    cut: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Complete:
    """The turn succeeded with `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class StopAtLimit:
    """The turn failed at a limit; `text` is what was said last."""

    reached: LimitReached
    text: str


Step = AskModel | RunTools | Complete | StopAtLimit


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
    if progress.steps >= bounds.steps:
        return AskModel(progress.steps + 1, fallback=True)
    return AskModel(progress.steps + 1, fallback=False)


def _reached(progress: Progress, bounds: TurnBounds) -> LimitReached | None:
    if progress.output_bytes > bounds.output_bytes:
        return LimitReached("outputBytes", bounds.output_bytes, progress.output_bytes)
    if progress.cut:
        return LimitReached("toolCalls", bounds.tool_calls, progress.tool_calls)
    out_of_steps = progress.phase != "final" and progress.steps >= bounds.steps
    if progress.fallback or (out_of_steps and not bounds.fallback):
        # The fallback request was made (whatever came of it), or may not be made.
        return LimitReached("steps", bounds.steps, progress.steps)
    return None


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on as a new attempt: answer `interrupted`, run `again`, close what else is open."""

    reason: str
    open_calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettleFailed:
    """The turn cannot go on: these calls may have had effects, and nobody knows."""

    reason: str
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
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
