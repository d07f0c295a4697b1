"""One step's model request: its tries, what is shown while it comes, and what is kept of it.

Rule 1: a request is in the log before it is sent, and every repeat is (AH-LIFE-5). Rule 2: a deterministic
refusal is never repeated. Rule 3: no try changes route, model or credential (AH-INV-5).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import anyio

from hames.core.commands import Draft
from hames.core.conversation import ModelRequest, Reply, ToolCall, history_faults
from hames.core.plan import AskModel, LimitReached
from hames.core.records import record
from hames.core.repairs import counts, is_more, repairs_data
from hames.core.request import compose, request_digest, system_prompt
from hames.core.retry import retry_delay_ms
from hames.engine.answer import Answer
from hames.engine.attempt import Attempt
from hames.engine.beside import beside
from hames.engine.compaction import keep_within, make_room, plain_tokens
from hames.engine.composing import prepare_context
from hames.engine.ids import new_id
from hames.engine.unusable import cut_off, unusable
from hames.engine.usage import Asked, asked_of, out_of_money, usage_drafts
from hames.ports import ModelLimits, ProviderFailed
from hames.protocol.errors import HamesError, HarnessFault

ID_CHARS = 4096
"""Of a provider's id for a call; some put a state of theirs into it."""

NAME_CHARS = 200
"""Of a tool's name as the model wrote it."""


@record
class Answered:
    """A whole answer: the facts to record of it, the calls it asks for, its text, and whether it is to go on."""

    drafts: tuple[Draft, ...]
    calls: tuple[ToolCall, ...]
    text: str
    paused: bool


@dataclass(slots=True)
class _Tries:
    """How often a request was sent, how long was waited in between, and whether it was made shorter."""

    request_id: str
    number: int = 0
    waited_ms: int = 0
    shortened: bool = False


async def ask_model(attempt: Attempt, step: AskModel) -> Answered | LimitReached:
    """Ask until there is a whole answer, or a limit of the turn cuts it off or forbids to ask again.

    Raises:
        ProviderFailed: no try succeeded, or the answer is not usable.
        HarnessFault: the history would not be sendable.
    """
    await prepare_context(attempt, step.step)
    request = _request(attempt, step)
    if await keep_within(attempt, request, step.step):
        request = _request(attempt, step)
    tries = _Tries(new_id("m"))
    while True:
        tries.number += 1
        asked = asked_of(attempt, request, tries.request_id, tries.number)
        if (out := await out_of_money(attempt)) is not None:
            return out
        await _announce(attempt, step, request, asked)
        scope = anyio.CancelScope()
        answer = Answer(attempt, step.step, attempt.state.seq, scope.cancel)
        try:
            reply = await _one_try(attempt, request, answer, scope)
        except ProviderFailed as failure:
            _record_failure(attempt, answer, failure, asked)
            again = await _again(attempt, step, request, failure, asked, tries, begun=answer.shown)
            if isinstance(again, LimitReached):
                return again
            request = again
            continue
        except anyio.get_cancelled_exc_class():
            # What was said so far is kept: the next turn can go on from it. Who takes the turn over asks again.
            cause = "handed_over" if attempt.leaving else "cancelled"
            for draft in answer.cut(cause, in_context=not attempt.leaving):
                attempt.record(draft)
            raise
        except HamesError:
            answer.withdraw()
            raise
        if reply is None:
            attempt.record(*answer.cut("limit_exceeded", in_context=False))
            return answer.reached
        return _answered(attempt, step, reply, answer, asked)


async def _again(
    attempt: Attempt,
    step: AskModel,
    request: ModelRequest,
    failure: ProviderFailed,
    asked: Asked,
    tries: _Tries,
    *,
    begun: bool,
) -> ModelRequest | LimitReached:
    """What to send after `failure`, once it may be sent. `begun`: an answer had.

    Raises:
        ProviderFailed: `failure`, where nothing is to be sent again.
    """
    if failure.kind == "context_overflow" and not tries.shortened:
        # One that began to answer is paid for, and so is the summary.
        if begun and (out := await out_of_money(attempt)) is not None:
            return out
        tries.shortened = await make_room(attempt, request, step.step, after_text=begun)
        if tries.shortened:
            return _request(attempt, step)
    return await _wait_to_retry(attempt, failure, asked, tries) or request


def _request(attempt: Attempt, step: AskModel) -> ModelRequest:
    composition = attempt.conversation.composition
    if composition is None:
        raise HarnessFault("internal", "nothing was composed before the request", boundary="integration")
    system = system_prompt(composition.parts, attempt.progress.instructions)
    request = compose(
        attempt.conversation,
        model=attempt.equipment.model,
        system=system,
        tools=tuple(tool.spec for tool in attempt.equipment.tools),
        fallback=step.fallback,
        max_output_tokens=attempt.equipment.output_tokens,
    )
    checked, attempt.log.checked = attempt.log.checked, 0
    faults = history_faults(request.messages, checked=checked)
    if faults:
        raise HarnessFault("internal", "the history is not sendable", boundary="integration", faults=faults[:10])
    attempt.log.checked = attempt.conversation.settle()
    _tell_repairs(attempt, request)
    return request


def _tell_repairs(attempt: Attempt, request: ModelRequest) -> None:
    log, conversation = attempt.log, attempt.conversation
    route = (attempt.equipment.provider.signs_as, request.model)
    signed_parts = log.unsigned.count(request.messages, route, log.checked)
    pictures = conversation.pictures
    data = repairs_data(
        signed_parts=signed_parts, images=pictures.left_out, not_taken=pictures.not_taken, lost=log.lost
    )
    if is_more(data, conversation.repairs_told):
        attempt.record(Draft("context.repaired", data))
        conversation.repairs_told = counts(data)


async def _announce(attempt: Attempt, step: AskModel, request: ModelRequest, asked: Asked) -> None:
    """Durable before the request: what is asked, of whom, and which try this is."""
    requested = Draft(
        "model.requested",
        {
            "step": step.step,
            **asked.data(attempt),
            "provider": attempt.equipment.provider.name,
            "model": request.model,
            "requestDigest": request_digest(request, attempt.conversation.prefix),
            "messages": len(request.messages),
            "estimatedTokens": plain_tokens(attempt, request),
        },
    )
    if asked.number == 1:
        data: dict[str, object] = {"step": step.step}
        if step.fallback:
            data["fallback"] = True
        attempt.record(Draft("step.started", data), requested)
    else:
        attempt.record(requested)
    await attempt.flush()
    attempt.live.enter("model_waiting")


async def _one_try(attempt: Attempt, request: ModelRequest, answer: Answer, scope: anyio.CancelScope) -> Reply | None:
    limits = attempt.limits
    bounds = ModelLimits(limits["connectMs"], limits["firstByteMs"], limits["idleMs"], limits["requestMs"])
    reply: Reply | None = None
    async with beside(answer.tick):
        with scope:
            reply = await attempt.equipment.provider.stream(request, answer.on_part, bounds)
    if answer.over or reply is None:
        return None
    if (failure := cut_off(reply)) is not None:
        raise failure
    return reply


async def _wait_to_retry(attempt: Attempt, failure: ProviderFailed, asked: Asked, tries: _Tries) -> LimitReached | None:
    """Wait as long as it takes until the same is sent again; not for a limit that would forbid it then.

    Raises:
        ProviderFailed: `failure`, where it is not to be sent again.
    """
    delay_ms = _delay_ms(attempt, failure, tries)
    if delay_ms is None:
        raise failure
    tried = {"modelRequestId": asked.request_id, "tryNumber": asked.number}
    error = {"message": failure.message, **failure.data()}
    attempt.record(Draft("model.retried", {**tried, "delayMs": delay_ms, "error": error}))
    if (reached := await out_of_money(attempt)) is not None:
        return reached
    tries.waited_ms += delay_ms
    attempt.live.enter("retry_wait")
    await anyio.sleep(delay_ms / 1000)
    return None


def _delay_ms(attempt: Attempt, failure: ProviderFailed, tries: _Tries) -> int | None:
    if not failure.retryable or tries.number > attempt.limits["retries"]:
        return None
    return retry_delay_ms(
        tries.number,
        base_ms=attempt.limits["retryBaseMs"],
        retry_after_ms=failure.retry_after_ms,
        jitter=random.random(),
        waited_ms=tries.waited_ms,
        budget_ms=attempt.limits["retryWaitMs"],
    )


def _record_failure(attempt: Attempt, answer: Answer, failure: ProviderFailed, asked: Asked) -> None:
    shown = answer.item_ids()
    drafts = answer.cut("model_failed", in_context=False)
    if shown:
        tried = {"modelRequestId": asked.request_id, "tryNumber": asked.number}
        drafts.append(Draft("model.discarded", {**tried, "itemIds": shown, "cause": failure.kind}))
    drafts += usage_drafts(attempt, failure, asked, seen_bytes=answer.seen_bytes)
    if drafts:
        attempt.record(*drafts)


def _answered(attempt: Attempt, step: AskModel, reply: Reply, answer: Answer, asked: Asked) -> Answered:
    calls = () if step.fallback else _own_ids(reply.calls)
    bad = None if step.fallback else unusable(reply, calls, attempt.equipment.output_tokens)
    drafts = answer.whole(reply) if bad is None else answer.cut(bad.kind, in_context=True)
    drafts += usage_drafts(attempt, reply, asked)
    if bad is not None:
        attempt.record(*drafts)
        raise bad
    drafts += [
        Draft(
            "tool.requested",
            {
                "callId": call.call_id,
                "providerCallId": call.provider_id,
                "tool": call.tool,
                "arguments": call.arguments,
                "step": step.step,
            },
        )
        for call in calls
    ]
    data: dict[str, object] = {"step": step.step, "modelRequestId": asked.request_id, "stopReason": reply.stop}
    told = {"rawStopReason": reply.raw_stop, "responseModel": reply.model, "responseId": reply.response_id}
    data |= {name: value for name, value in told.items() if value is not None}
    if reply.parts and not step.fallback:
        data["parts"] = reply.parts
    drafts.append(Draft("step.completed", data))
    return Answered(tuple(drafts), calls, reply.text, reply.stop == "pause")


def _own_ids(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Calls under our ids; a provider id that is empty, repeated in the answer or very long is replaced, so pairs hold
    and an event fits its frame. So does a tool's name: none that exists is so long."""
    seen: set[str] = set()
    own: list[ToolCall] = []
    for call in calls:
        call_id = new_id("c")
        usable = 0 < len(call.provider_id) <= ID_CHARS and call.provider_id not in seen
        provider_id = call.provider_id if usable else call_id
        seen.add(provider_id)
        own.append(replace(call, call_id=call_id, provider_id=provider_id, tool=call.tool[:NAME_CHARS]))
    return tuple(own)
