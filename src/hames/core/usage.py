"""Usage as evidence: sums that say what they cover, and never a zero for what was not reported.

Rule 1: counters are summed by the names they were reported under, and a cost only with costs of its kind and currency.
Rule 2: a sum of costs that does not cover every request is not told: the reason is (AH-USAGE-5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any

from hames.core.cost import CostReason, add_amounts
from hames.core.records import record

RATE_CARDS_NAMED = 10
"""Rate cards that a sum names: a session that outlives more has an estimate all the same."""

COUNTERS_NAMED = 100
"""Names of counters in a sum: a total stands in an event, which must fit a frame. Vendors have some twenty."""

COUNTED = 2**53 - 1
"""The largest sum: every JSON reader keeps it exact, and no honest provider comes near."""

_UNSAID: CostReason = "unsupported_pricing"
"""Of a record without cost and without reason: an older build wrote it, which knew no prices."""

_ORDER: tuple[CostReason, ...] = ("incomplete_coverage", _UNSAID, "missing_provider_detail", "invalid_counters")
"""Which reason is told where requests have several: the one that is also true of the counters first."""


@record
class CostSum:
    """Costs of one kind over `records` requests; `mixed` once they were of two currencies, so that there is no sum."""

    amount: str = "0"
    currency: str | None = None
    records: int = 0
    mixed: bool = False
    cards: tuple[Mapping[str, str], ...] = ()

    @staticmethod
    def of(value: Mapping[str, Any]) -> CostSum:
        """From its JSON."""
        return CostSum(**{**value, "cards": tuple(value["cards"])})

    def add(self, cost: Mapping[str, Any]) -> CostSum:
        """With one cost more, as it was published."""
        currency = self.currency or cost["currency"]
        card = cost.get("rateCard")
        cards = self.cards
        if card is not None and card not in cards and len(cards) < RATE_CARDS_NAMED:
            cards = (*cards, card)
        return CostSum(
            add_amounts(self.amount, cost["amount"]) if currency == cost["currency"] else self.amount,
            currency,
            self.records + 1,
            self.mixed or currency != cost["currency"],
            cards,
        )

    def published(self) -> dict[str, Any]:
        """As it stands in a total."""
        told = {"amount": self.amount, "currency": self.currency}
        return {**told, "rateCards": list(self.cards)} if self.cards else told


NO_COST = CostSum()


@record
class UsageSum:
    """Counters summed by name over the requests that reported them: `reported` of `requests` did.

    `costed` of those have a cost; `lacking` counts the reasons of the others, save for `unsupported_pricing`.
    """

    counters: Mapping[str, int] = field(default_factory=dict)
    requests: int = 0
    reported: int = 0
    costed: int = 0
    reported_cost: CostSum = NO_COST
    estimated_cost: CostSum = NO_COST
    lacking: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(value: Mapping[str, Any]) -> UsageSum:
        """From its JSON, also from that of an older build."""
        known: dict[str, Any] = {each.name: value[each.name] for each in fields(UsageSum) if each.name in value}
        for name in ("reported_cost", "estimated_cost"):
            if name in known:
                known[name] = CostSum.of(known[name])
        return UsageSum(**known)

    def asked(self) -> UsageSum:
        """One more request was made."""
        return replace(self, requests=self.requests + 1)

    def add(self, record: Mapping[str, Any]) -> UsageSum:
        """One request's usage, as `usage.recorded` has it."""
        counters = dict(self.counters)
        for name, value in record["counters"].items():
            # One that comes when it is full is in no sum at all, and no sum is short of a part.
            if name in counters or len(counters) < COUNTERS_NAMED:
                counters[name] = min(COUNTED, counters.get(name, 0) + value)
        cost, reason = record.get("cost", {}), record.get("costReason", _UNSAID)
        lacking = self.lacking
        if not cost and reason != _UNSAID:
            lacking = {**lacking, reason: lacking.get(reason, 0) + 1}
        return UsageSum(
            counters,
            self.requests,
            self.reported + 1,
            self.costed + bool(cost),
            self.reported_cost.add(cost["reported"]) if "reported" in cost else self.reported_cost,
            self.estimated_cost.add(cost["estimated"]) if "estimated" in cost else self.estimated_cost,
            lacking,
        )


NO_USAGE = UsageSum()


def usage_total(usage: UsageSum) -> dict[str, Any]:
    """The published form: `direct`, and `inclusive` of finished children, of which there are none."""
    total = {
        "counters": dict(usage.counters),
        "requests": usage.requests,
        "reported": usage.reported,
        **_cost(usage),
    }
    return {"direct": total, "inclusive": total}


def _cost(usage: UsageSum) -> dict[str, Any]:
    """`cost`, or `costReason`; neither where nothing was asked."""
    if usage.requests == 0:
        return {}
    kinds = {"reported": usage.reported_cost, "estimated": usage.estimated_cost}
    whole = {
        name: kind.published() for name, kind in kinds.items() if kind.records == usage.requests and not kind.mixed
    }
    return {"cost": whole} if whole else {"costReason": _reason(usage)}


def _reason(usage: UsageSum) -> CostReason:
    if usage.reported < usage.requests:
        return "incomplete_coverage"
    unsaid = usage.reported - usage.costed - sum(usage.lacking.values())
    found = {**usage.lacking, _UNSAID: unsaid}
    return next((reason for reason in _ORDER if found.get(reason, 0) > 0), "mixed_evidence")


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
