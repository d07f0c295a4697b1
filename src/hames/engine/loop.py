"""The turn loop: ask `next_step`, do it, until the turn has its terminal.

Rule 1: what happens next is decided in `core/plan.py`, not here. Rule 2: a turn ends in exactly one commit,
`attempt.end`; whatever went wrong, its open calls have results by then (invariants 3 and 5).
"""

from __future__ import annotations

from typing import Any, assert_never

import anyio
from anyio.abc import TaskGroup

from hames.core.commands import Draft, Ending
from hames.core.plan import AskModel, Complete, LimitReached, Progress, RunTools, StopAtLimit, TellOfLoop, next_step
from hames.engine.attempt import Attempt
from hames.engine.calls import close_open, run_calls
from hames.engine.model import ask_model
from hames.protocol.errors import HamesError, HarnessFault


async def run_turn(attempt: Attempt, tasks: TaskGroup) -> None:
    """Run the attempt's turn to its terminal, or to the step boundary where another process takes it.

    Raises:
        HamesError: `lease_lost`, or the store failed: the terminal is not written.
    """
    while not attempt.ended and not attempt.leaving:
        step = next_step(attempt.progress, attempt.bounds)
        match step:
            case RunTools():
                attempt.calling = True
                await run_calls(attempt, step, tasks)
                attempt.calling = False
            case AskModel():
                await attempt.boundary(step.step)
                answered = await ask_model(attempt, step)
                if isinstance(answered, LimitReached):
                    await attempt.flush()
                    await attempt.end(limit_ending(answered, attempt.progress.text))
                elif answered.calls or answered.paused or step.fallback:
                    attempt.record(*answered.drafts)
                    await attempt.flush()
                else:
                    await _complete(attempt, answered.text, *answered.drafts)
            case TellOfLoop():
                attempt.record(Draft("loop.detected", {"period": step.period, "repeats": step.repeats}))
                await attempt.flush()
            case Complete():
                await _complete(attempt, step.text)
            case StopAtLimit():
                await attempt.end(limit_ending(step.reached, step.text))
            case _:
                assert_never(step)


async def _complete(attempt: Attempt, text: str, *drafts: Draft) -> None:
    """The turn succeeded, unless a steer was admitted first: then it is let in, and forces one more step."""
    if not await attempt.end(Ending("completed", text), *drafts):
        await attempt.boundary(attempt.progress.steps + 1)


def limit_ending(reached: LimitReached, text: str | None) -> Ending:
    """`failed` at a limit, which is named (AH-LIFE-4)."""
    message = f"The limit {reached.limit} of {reached.configured} was reached."
    seen: dict[str, Any] = {
        "limit": reached.limit,
        "configured": reached.configured,
        "observed": reached.observed,
    }
    if reached.assumed:
        seen["assumed"] = reached.assumed
        message += f" {reached.assumed} of {reached.observed} were not told by the provider, and count at their most."
    if reached.reason is not None:
        seen["reason"] = reached.reason
        message = (
            f"The limit {reached.limit} of {reached.configured} cannot be kept: the provider did not tell what a "
            "request used, and no most of an answer is known. Leave the limit out, or give `outputTokens` of the model "
            "in the file that the setting modelsFile names."
        )
    return failure_ending(HarnessFault("limit_exceeded", message, retryable=False, **seen), text)


def failure_ending(failure: HamesError, text: str | None) -> Ending:
    """`failed` with the published shape of `failure`."""
    return Ending("failed", text or None, {"message": failure.message, **failure.data()})


async def end_failed(attempt: Attempt, failure: HamesError) -> None:
    """Give every open call a result, and the turn its terminal."""
    await attempt.flush()
    text = attempt.progress.text
    drafts = close_open(attempt, "not_run", "Not run: the turn failed.")
    await attempt.end(failure_ending(failure, text), *partial_ends(attempt.progress, in_context=False), *drafts)


async def end_at_deadline(attempt: Attempt) -> None:
    """The wall time is over: the turn failed at that limit, unless a cancel came first."""
    await attempt.flush()
    reached = LimitReached("wallTimeMs", attempt.bounds.wall_time_ms, attempt.bounds.wall_time_ms)
    drafts = close_open(attempt, "cancelled", "Cancelled: the turn's time was over.")
    ends = partial_ends(attempt.progress, in_context=False)
    await attempt.end(limit_ending(reached, attempt.progress.text), *ends, *drafts)


async def end_cancelled(attempt: Attempt) -> None:
    """A durable cancel gets its terminal."""
    await attempt.flush()
    ends = partial_ends(attempt.progress, in_context=True)
    await attempt.end(Ending("cancelled"), *ends, *close_open(attempt, "cancelled", "Cancelled."))


def partial_ends(progress: Progress, *, in_context: bool) -> list[Draft]:
    """An end for every item that has chunks and none: its writer stopped, or the store lost it."""
    ends = []
    for item_id, (kind, text) in progress.partial.items():
        counts = in_context and kind == "message" and bool(text.strip())
        data = {"itemId": item_id, "text": text, "inContext": counts, "cause": "interrupted"}
        ends.append(Draft(f"{kind}.completed", data))
    return ends


async def heartbeats(attempt: Attempt) -> None:
    """Tell who listens what the turn waits for, for as long as it runs."""
    while True:
        await anyio.sleep(attempt.limits["heartbeatMs"] / 1000)
        attempt.live.beat(attempt.turn_id)
