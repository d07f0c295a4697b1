"""Usage as evidence: sums that say what they cover, and never a zero for what was not reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hames.core.state import UsageSum


def usage_total(usage: UsageSum) -> dict[str, Any]:
    """The published form: `direct`, and `inclusive` of finished children, of which there are none.

    Cost is absent with a reason (AH-USAGE-5): no rate card is kept in this version.
    """
    total = {
        "counters": dict(usage.counters),
        "requests": usage.requests,
        "reported": usage.reported,
        "costReason": "no_rate_card",
    }
    return {"direct": total, "inclusive": total}


def input_tokens(counters: Mapping[str, int]) -> int | None:
    """What a provider reported of the size of a request, all of it: Chat Completions, Gemini and OpenAI count what was
    cached within it, Anthropic beside it (its `cache_*_input_tokens`). None where it reported nothing.

    Sources: https://platform.openai.com/docs/api-reference/responses/object, https://ai.google.dev/api/generate-content,
    https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching.
    """
    for name in ("prompt_tokens", "promptTokenCount"):
        if name in counters:
            return counters[name]
    if "input_tokens" not in counters:
        return None
    beside = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return counters["input_tokens"] + sum(counters.get(name, 0) for name in beside)
