"""Keeping the conversation within the model's window, before a request or after one that was too long.

Rule 1: the log keeps everything, and says what is not sent any more, why, and what stands in its place.
Rule 2: a failure leaves the context whole, is told, and is tried again with a later request; only a provider that
refuses the request as too long, or even that for a summary, leaves no choice: then what is oldest is left out alone.
Rule 3: once for a request, whatever comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from hames.core.commands import Draft
from hames.core.compaction import (
    Cut,
    Trigger,
    files_named,
    plan_cut,
    request_for_summary,
    request_tokens,
    shown_summary,
    text_tokens,
)
from hames.core.conversation import ModelRequest, Part, Reply
from hames.core.request import request_digest
from hames.engine.attempt import Attempt
from hames.engine.composing import composed_anew
from hames.engine.ids import new_id
from hames.engine.usage import Asked, asked_of, usage_drafts
from hames.ports import ModelLimits, ProviderFailed

WARNING_PERCENT = 80
"""Of the window: from there on an operator is told."""

GUESSED_WINDOW = 128_000
"""Where nothing is known of it."""


async def keep_within(attempt: Attempt, request: ModelRequest, step: int) -> bool:
    """Before `request` is sent: make the context shorter if it is asked for or due; whether it was."""
    window = attempt.equipment.window_tokens
    tokens = estimated_tokens(attempt, request)
    if attempt.state.compact is not None:
        # Who asks wants less than there is, however much the window would take.
        return await _replace(attempt, request, step, "request", min(window or tokens, tokens))
    if window is None:
        return False
    percent = tokens * 100 // window
    if percent >= WARNING_PERCENT and not attempt.warned:
        attempt.warned = True
        data = {"estimatedTokens": tokens, "windowTokens": window, "percent": percent}
        attempt.record(Draft("context.warning", data))
    if attempt.compacts and not attempt.kept_context and percent >= attempt.limits["compactPercent"]:
        return await _replace(attempt, request, step, "threshold", window)
    return False


async def make_room(attempt: Attempt, request: ModelRequest, step: int, *, after_text: bool) -> bool:
    """After the provider refused `request` as too long, be it `after_text` of an answer: make the context shorter;
    whether it was, and the request may be sent again."""
    if not attempt.compacts:
        return False
    tokens = estimated_tokens(attempt, request)
    # It did not fit, whatever is known of the window.
    window = min(attempt.equipment.window_tokens or GUESSED_WINDOW, tokens)
    return await _replace(attempt, request, step, "overflow", window, after_text=after_text)


def estimated_tokens(attempt: Attempt, request: ModelRequest) -> int:
    """About how many tokens `request` has, corrected by what the provider counted in the one before."""
    return int(plain_tokens(attempt, request) * attempt.conversation.tokens_per_estimate)


def plain_tokens(attempt: Attempt, request: ModelRequest) -> int:
    """The same, before that."""
    prefix = attempt.conversation.prefix
    return request_tokens(request, (prefix.count, prefix.tokens))


async def _replace(
    attempt: Attempt, request: ModelRequest, step: int, trigger: Trigger, window: int, *, after_text: bool = False
) -> bool:
    await attempt.flush()
    groups = attempt.conversation.groups()
    # What is compared with estimates is one.
    window = int(window / attempt.conversation.tokens_per_estimate)
    cut = plan_cut(
        groups,
        window_tokens=window,
        running=attempt.turn_id,
        read_from=attempt.conversation.needed_from(),
        kept_from=attempt.conversation.kept_from,
    )
    if cut is None:
        return await _keep(attempt, trigger, "There is nothing that could be left out.")
    # How much is to go says nothing of how much the model can be shown of it.
    shown = window if trigger == "overflow" else attempt.equipment.window_tokens or GUESSED_WINDOW
    about: dict[str, object] = {"step": step, "purpose": "summary", "trigger": trigger}
    if after_text:
        about["afterText"] = True
    summary, why, refused = await _summary(attempt, request, cut, about, shown)
    if summary is None and trigger != "overflow" and not refused:
        return await _keep(attempt, trigger, why)
    gone = sum(len(group.messages) for group in cut.gone)
    data: dict[str, object] = {
        "trigger": trigger,
        "keptFrom": cut.kept_from,
        "kept": list(cut.kept),
        "readFrom": cut.read_from,
        "files": files_named(cut.gone),
        "messagesGone": gone,
        "messagesLeft": sum(len(group.messages) for group in groups) - gone,
        "tokensBefore": estimated_tokens(attempt, request),
    }
    optional = {
        "by": attempt.state.compact,
        "windowTokens": attempt.equipment.window_tokens,
        "summary": summary,
        "summaryMissing": why if summary is None else None,
    }
    data |= {name: value for name, value in optional.items() if value is not None}
    less = sum(group.tokens for group in cut.gone) - text_tokens(shown_summary(data))
    left = plain_tokens(attempt, request) - less
    data["tokensAfter"] = max(0, int(left * attempt.conversation.tokens_per_estimate))
    # In one commit: whoever goes on finds both or none.
    attempt.record(Draft("context.replaced", data), *await composed_anew(attempt))
    await attempt.flush()
    attempt.warned = False
    return True


async def _keep(attempt: Attempt, trigger: Trigger, why: str) -> bool:
    """Say that the context stays as it is."""
    attempt.kept_context = True
    attempt.record(Draft("context.kept", {"trigger": trigger, "reason": why}))
    await attempt.flush()
    return False


async def _summary(
    attempt: Attempt, request: ModelRequest, cut: Cut, about: Mapping[str, object], window: int
) -> tuple[str | None, str, bool]:
    """What the model makes of what goes; None when it makes nothing, and why, and whether even that was too long.
    `about` it stands in the log."""
    asked = request_for_summary(request.system, request.model, cut.gone, most_tokens=window)
    tried = asked_of(attempt, asked, new_id("m"), 1)
    requested = {
        **about,
        **tried.data(attempt),
        "provider": attempt.equipment.provider.name,
        "model": asked.model,
        "requestDigest": request_digest(asked),
        "messages": len(asked.messages),
    }
    attempt.record(Draft("model.requested", requested))
    await attempt.flush()
    attempt.live.enter("compacting")
    limits = attempt.limits
    bounds = ModelLimits(limits["connectMs"], limits["firstByteMs"], limits["idleMs"], limits["requestMs"])
    try:
        reply = await attempt.equipment.provider.stream(asked, _unseen, bounds)
    except ProviderFailed as failure:
        _record_usage(attempt, failure, tried)
        why = f"The request for a summary failed: {failure.message}"
        return None, why, failure.kind == "context_overflow"
    _record_usage(attempt, reply, tried)
    if not reply.text.strip() or reply.stop not in ("stop", "length"):
        return None, f"The model gave no summary: its answer ended with {reply.stop!r}.", False
    summary = reply.text.strip()
    if text_tokens(summary) >= sum(group.tokens for group in cut.gone):
        return None, "The summary was as long as what it was to stand for.", False
    return summary, "", False


def _record_usage(attempt: Attempt, answered: Reply | ProviderFailed, tried: Asked) -> None:
    if drafts := usage_drafts(attempt, answered, tried):
        attempt.record(*drafts)


def _unseen(part: Part) -> None:
    """Nobody is shown a summary in the making."""
