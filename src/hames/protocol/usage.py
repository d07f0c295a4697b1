"""What was used and what it cost, as it stands in events and answers. Cost is evidence, never a bill (AH-USAGE-4)."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from hames.protocol.base import Count


class Money(TypedDict):
    """An amount, as decimal text without an exponent."""

    amount: str
    currency: str
    """ISO 4217."""


class RateCard(TypedDict):
    """Which prices an estimate was made by. Another content is another `digest`."""

    name: str
    version: str
    digest: str


class Estimate(TypedDict):
    """What was estimated from counters and list prices. It is no bill, and none was asked for."""

    amount: str
    currency: str
    rateCard: RateCard


class Cost(TypedDict, total=False):
    """What one model request cost: what the provider said, and what was estimated; never one for the other."""

    reported: Money
    estimated: Estimate


class EstimateTotal(TypedDict):
    """A sum of estimates, with the rate cards they were made by, ten at most."""

    amount: str
    currency: str
    rateCards: list[RateCard]


class CostTotal(TypedDict, total=False):
    """Sums of costs, each over every request that was made; a kind that not all of them have is absent."""

    reported: Money
    estimated: EstimateTotal


class Semantics(TypedDict):
    """How counters relate: whether what was read from and written to a cache lies within the input (`subset`) or beside
    it (`additive`), and likewise reasoning and output. Absent where the provider does not say."""

    cacheRead: Literal["subset", "additive"]
    cacheWrite: Literal["subset", "additive"]
    reasoning: Literal["subset", "additive"]


CostReason = Literal[
    "incomplete_coverage", "unsupported_pricing", "missing_provider_detail", "invalid_counters", "mixed_evidence"
]


class UsageTotal(TypedDict):
    """Sums over model requests. `costReason` says why there is no `cost` (AH-USAGE-5); without a request neither is."""

    counters: dict[str, int]
    """By the provider's names, each summed over the requests that reported it."""
    requests: Count
    """Requests made."""
    reported: Count
    """Requests of which the provider reported usage. Fewer than `requests`: the sums are lower bounds."""
    cost: NotRequired[CostTotal]
    costReason: NotRequired[CostReason | Literal["no_rate_card"]]
    """`incomplete_coverage`: a request has no usage, or only that of a part of its answer. `unsupported_pricing`: no
    rate card has a price for what was used, where it was used. `missing_provider_detail`: a counter is missing that
    has a price. `invalid_counters`: counters contradict one another. `mixed_evidence`: every request has a cost, but
    not in one currency, or not of one kind. Of older events `no_rate_card`: nothing was known of prices."""


class Usage(TypedDict):
    """`direct` is this session's or turn's own; `inclusive` adds finished children (none in this version)."""

    direct: UsageTotal
    inclusive: UsageTotal
