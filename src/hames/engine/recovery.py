"""What to say of an attempt that is gone, and whether its turn goes on: facts for the log, no effects.

Rule 1: every item that has a chunk gets its end, every call its result, before anything new begins.
Rule 2: a call that may have had an effect is `unknown`, and its turn fails: nothing is repeated that was not
declared safe to repeat (AH-LIFE-5).
"""

from __future__ import annotations

from typing import Any, Literal

from hames.core.commands import Draft, Ending, EndTurn
from hames.core.context import Conversation
from hames.core.plan import Continue, LimitReached, Progress, Recovery, SettleFailed, plan_recovery
from hames.core.records import record
from hames.core.state import Turn
from hames.engine.loop import failure_ending, limit_ending, partial_ends
from hames.protocol.errors import HarnessFault

UNKNOWN = "The process that ran this call stopped. Whether it had its effect is unknown: look before repeating it."
NOT_RUN = "Not run: the process stopped before it began."


@record
class Left:
    """A turn whose attempt is gone, how far it was, and what is to become of it."""

    turn: Turn
    progress: Progress
    plan: Recovery
    overdue: bool

    @property
    def settles(self) -> bool:
        """It gets its terminal now, without a model."""
        return self.overdue or not isinstance(self.plan, Continue)


def plan_left(conversation: Conversation, turn: Turn, recover: Literal["continue", "fail"], *, overdue: bool) -> Left:
    """What to do about `turn`, which the log shows running.

    Raises:
        HarnessFault: `internal`, when the conversation does not show it running.
    """
    progress = conversation.progress
    if progress is None or progress.turn_id != turn.turn_id:
        raise HarnessFault("internal", f"The log does not show turn {turn.turn_id} running.")
    plan = plan_recovery(progress, cancelled=turn.cancel is not None, recover=recover)
    return Left(turn, progress, plan, overdue)


def start_drafts(left: Left) -> tuple[Draft, ...]:
    """What stands before the next attempt's start. Open calls stay open: they are safe to run (again)."""
    return (*partial_ends(left.progress, in_context=False), _recovered(left, "continued"))


def settle_command(left: Left, fence: int) -> EndTurn:
    """The turn's terminal, with everything that was open before it."""
    cancelled = left.turn.cancel is not None
    drafts = [*partial_ends(left.progress, in_context=cancelled), *_results(left), _recovered(left, "settled")]
    if cancelled:
        ending = Ending("cancelled")
    elif isinstance(left.plan, SettleFailed):
        severed = left.plan.reason == "damaged"
        fault = HarnessFault(
            "lease_lost",
            "A repair cut the log within this turn: what it did after that is unknown, so it does not go on."
            if severed
            else "The process that ran this turn stopped; calls whose effect is unknown are named.",
            boundary="tool" if left.plan.unknown else None,
            unknownCalls=list(left.plan.unknown),
        )
        ending = failure_ending(fault, left.progress.text)
    else:
        configured = int(left.turn.limits.get("wallTimeMs", 0))
        ending = limit_ending(LimitReached("wallTimeMs", configured, configured), left.progress.text)
    return EndTurn(fence, left.turn.turn_id, ending, tuple(drafts), {}, recovering=True)


def _results(left: Left) -> list[Draft]:
    results = []
    for call in left.progress.open.values():
        began = left.progress.started.get(call.call_id)
        unknown = began is not None and began != "read"
        data: dict[str, Any] = {
            "callId": call.call_id,
            "tool": call.tool,
            "outcome": "unknown" if unknown else "not_run",
            "text": UNKNOWN if unknown else NOT_RUN,
            "details": {},
        }
        results.append(Draft("tool.completed", data))
    return results


def _recovered(left: Left, action: str) -> Draft:
    data = {
        "turnId": left.turn.turn_id,
        "action": action,
        "previousAttempt": left.turn.attempt,
        "reason": "deadline" if left.overdue else left.plan.reason,
        "openCalls": list(left.progress.open),
    }
    return Draft("log.recovered", data)
