"""Why an answer that has ended cannot be used, and what to do then: it was refused, cut, or is empty.

Rule: a call of a cut answer is not run, since it may be cut too. Cut is also what nothing says to be whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hames.core.conversation import Reply, ToolCall
from hames.ports import ProviderFailed
from hames.protocol.errors import ErrorKind

_ENDS_WELL: Final = {"stop", "eos", "end_turn", "tool_calls", "function_call", "completed"}
"""Stop reasons that are none of a refusal: some models put it into the answer and end as always."""

_WINDOW_IS_FULL: Final = {"model_context_window_exceeded"}
"""Anthropic's: https://docs.anthropic.com/en/api/handling-stop-reasons."""


def unusable(reply: Reply, calls: Sequence[ToolCall], asked_tokens: int | None) -> ProviderFailed | None:
    """The failure that `reply` is, None for an answer. `asked_tokens`: the most that its request allowed it."""
    if reply.stop == "content_filter":
        return _failed("refused", reply, _refused(reply.raw_stop))
    if reply.stop == "length":
        return _failed("output_truncated", reply, _cut(reply.raw_stop, asked_tokens))
    if not calls and not reply.text.strip():
        return _failed("empty_response", reply, None)
    return None


def cut_off(reply: Reply) -> ProviderFailed | None:
    """The failure that `reply` is where it ended as none of a whole answer, None elsewhere: as if its stream had been
    cut. What it used is known."""
    match reply.stop:
        case "interrupted":
            told = f"The provider broke the answer off ({reply.raw_stop}); the same request may be answered later."
        case "other":
            told = (
                f"The provider ended the answer with {reply.raw_stop or 'no reason'}, which does not say that it is "
                "whole, so it is not used. Ask again or change the request; if that does not help, ask another model."
            )
        case _:
            return None
    again = reply.stop == "interrupted"
    failure = ProviderFailed(
        "model_gateway", told, boundary="model_gateway", retryable=again, phase="stream", stopReason=reply.raw_stop
    )
    failure.usage, failure.cost = reply.usage, reply.cost
    return failure


def _failed(kind: ErrorKind, reply: Reply, message: str | None) -> ProviderFailed:
    return ProviderFailed(kind, message, boundary="model_gateway", stopReason=reply.raw_stop)


def _refused(reason: str | None) -> str | None:
    if not reason or reason in _ENDS_WELL:
        return None
    return (
        f"The model or its vendor refused to answer, and gives {reason} as the reason. Change the request, or ask "
        "another model."
    )


def _cut(reason: str | None, asked_tokens: int | None) -> str:
    said = f" ({reason})" if reason else ""
    if reason in _WINDOW_IS_FULL:
        return (
            f"The model's window was full before the answer was whole{said}. Make the conversation shorter with "
            "`session/compact` or begin a new session; a lower `limits.compactPercent` leaves more room for answers."
        )
    if asked_tokens is not None:
        return (
            f"The model's answer was cut at the {asked_tokens} tokens that Hames allowed it{said}. Ask for less at "
            "once, such as a long file in parts, or, if the model can give more, set its `outputTokens` in the file "
            "that `modelsFile` names."
        )
    return (
        f"The model's answer was cut at an output limit{said}. Ask for less at once, such as a long file in parts. The "
        "limit, or the window that is full, is the model's or its server's: Hames sets one for anthropic only, as "
        "`outputTokens` of the model in the file that `modelsFile` names."
    )
