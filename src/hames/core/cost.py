"""What model requests cost: what a provider said, and what we estimate by a rate card; exact decimals, never floats.

Rule 1: what was reported and what was estimated stand apart and are never added up together (AH-USAGE-4).
Rule 2: a token is billed once. What of the counters lies within another is told by `RULES`, one row a provider; a
provider without a row is not estimated (AH-USAGE-3).
Rule 3: what was not reported is not taken for zero: where a counter with a price of its own is missing there is no
estimate, but a reason (AH-USAGE-5).
Rule 4: where a limit must hold all the same, what was not told counts as the most it can have been; `most` is never
less than `estimate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Final, Literal

from hames.core.records import record

CostReason = Literal[
    "incomplete_coverage", "unsupported_pricing", "missing_provider_detail", "invalid_counters", "mixed_evidence"
]
"""Why there is no cost (AH-USAGE-5). `incomplete_coverage`: a request has no usage at all. `unsupported_pricing`: no
rate card has a price for it. `missing_provider_detail`: a counter is missing that has a price. `invalid_counters`: the
counters contradict one another. `mixed_evidence`: each has a cost, but of two currencies, or one reported and another
estimated."""

Relation = Literal["subset", "additive"]
"""Whether a counter lies within the one it belongs to, or beside it."""

_EXACT = Context(prec=100)
"""Digits enough for every sum here to be exact: of counters of 16, prices of 18 and amounts of 42 digits."""

_MILLION = Decimal(1_000_000)

MOST_DECIMALS = 30
"""Of an amount that a provider reports: more than any says, so that sums stay exact."""

MOST_AMOUNT = Decimal(10) ** 12

NO_COUNTERS: Mapping[str, int] = {}

FREE = frozenset({"offline"})
"""Providers that ask nobody, so that nothing is paid."""


@record
class Money:
    """An amount, as decimal text without an exponent, and its currency (ISO 4217)."""

    amount: str
    currency: str

    def published(self) -> dict[str, str]:
        """As it stands on the wire."""
        return {"amount": self.amount, "currency": self.currency}


@record
class RateCard:
    """Which rate card: `digest` is that of the file it stands in, so that another content is another card."""

    name: str
    version: str
    digest: str

    def published(self) -> dict[str, str]:
        """As it stands on the wire."""
        return {"name": self.name, "version": self.version, "digest": self.digest}


@record
class Rates:
    """Prices for a million tokens. `None`: there is none of its own."""

    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_long: Decimal | None = None

    def of_input(self) -> tuple[Decimal, ...]:
        """Those of a token of input, whatever became of it."""
        given = (self.input, self.cached_input, self.cache_write, self.cache_write_long)
        return tuple(price for price in given if price is not None)


@record
class Prices:
    """The prices of a model; a request with more than `above_tokens` of input has the `above` ones, all of it."""

    card: RateCard
    currency: str
    rates: Rates
    above_tokens: int | None = None
    above: Rates | None = None

    def for_input(self, tokens: int) -> Rates:
        """The prices of a request with so much input, what was cached included."""
        if self.above is None or self.above_tokens is None or tokens <= self.above_tokens:
            return self.rates
        return self.above


@record
class Rule:
    """How a provider counts: names of counters, of which the first that was reported is taken.

    `cache` and `reasoning` say whether those counters lie within input and output. `thoughts` and `tool_input` are
    counters beside them that are billed like them. `omits_zeros`: what is absent beside the input is zero, by the
    provider's own word. `grows`: it reports while it answers, so that a report may be of a part.
    """

    input: tuple[str, ...]
    output: tuple[str, ...]
    cache: Relation
    cached: tuple[str, ...]
    written: tuple[str, ...] = ()
    written_long: tuple[str, ...] = ()
    reasoning: Relation = "subset"
    thoughts: str = ""
    tool_input: str = ""
    omits_zeros: bool = False
    grows: bool = False


RULES: Mapping[str, Rule] = {
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching (tracking cache performance)
    "anthropic": Rule(
        ("input_tokens",),
        ("output_tokens",),
        "additive",
        cached=("cache_read_input_tokens",),
        written=("cache_creation_input_tokens",),
        written_long=("cache_creation.ephemeral_1h_input_tokens",),
        grows=True,
    ),
    # https://platform.openai.com/docs/api-reference/responses/object
    "openai": Rule(
        ("input_tokens",),
        ("output_tokens",),
        "subset",
        cached=("input_tokens_details.cached_tokens",),
        written=("input_tokens_details.cache_write_tokens",),
        written_long=("input_tokens_details.cache_write_tokens_details.ttl_12h_tokens",),
    ),
    # https://platform.openai.com/docs/api-reference/chat/object; Moonshot and DeepSeek have names of their own; vLLM
    # reports in every chunk where it is told to (`continuous_usage_stats`), others always
    "compatible": Rule(
        ("prompt_tokens",),
        ("completion_tokens",),
        "subset",
        cached=("prompt_tokens_details.cached_tokens", "cached_tokens", "prompt_cache_hit_tokens"),
        written=("prompt_tokens_details.cache_write_tokens",),
        grows=True,
    ),
    # https://ai.google.dev/api/generate-content#UsageMetadata; JSON of protobuf leaves zeros out
    "gemini": Rule(
        ("promptTokenCount",),
        ("candidatesTokenCount",),
        "subset",
        cached=("cachedContentTokenCount",),
        reasoning="additive",
        thoughts="thoughtsTokenCount",
        tool_input="toolUsePromptTokenCount",
        omits_zeros=True,
        grows=True,
    ),
}


def semantics(provider: str) -> dict[str, str] | None:
    """How a provider's counters relate, as published beside them; None where no document of it says so."""
    rule = RULES.get(provider)
    if rule is None:
        return None
    return {"cacheRead": rule.cache, "cacheWrite": rule.cache, "reasoning": rule.reasoning}


def reported_amount(value: Any) -> str | None:
    """A JSON number that a provider reported as a cost, as decimal text; None where it is no amount."""
    if type(value) not in (int, float):
        return None
    amount = Decimal(repr(value))  # the shortest text that gives this float: what the provider wrote
    if not amount.is_finite() or amount.is_signed() or amount >= MOST_AMOUNT:
        return None
    text = _text(amount)
    return text if len(text.partition(".")[2]) <= MOST_DECIMALS else None


def add_amounts(one: str, other: str) -> str:
    """The sum, exactly."""
    return _text(_EXACT.add(Decimal(one), Decimal(other)))


def micros(amount: str) -> int:
    """Millionths of an amount, rounded up."""
    return int(_EXACT.multiply(Decimal(amount), _MILLION).to_integral_value(ROUND_CEILING))


def usd(cost: Mapping[str, Any]) -> str | None:
    """What a `cost` of `usage.recorded` says in US dollars: what was estimated, else what was reported; None if not."""
    found = [cost[kind]["amount"] for kind in ("estimated", "reported") if cost.get(kind, {}).get("currency") == "USD"]
    return str(found[0]) if found else None


def usage_facts(
    provider: str,
    counters: Mapping[str, int],
    *,
    prices: Prices | None,
    reported: Money | None,
    whole: bool,
) -> dict[str, Any]:
    """What stands in `usage.recorded` beside the counters: `semantics`, `partial`, and `cost` or `costReason`.

    `whole`: the answer came to its end, or the report is of all of it. Of another that was cut, counters that grow with
    it are not all there is.
    """
    facts: dict[str, Any] = {}
    is_partial = not whole and _grows(provider)
    if is_partial:
        facts["partial"] = True
    if (meaning := semantics(provider)) is not None:
        facts["semantics"] = meaning
    cost: dict[str, Any] = {}
    if reported is not None:
        cost["reported"] = reported.published()
    estimated = "incomplete_coverage" if is_partial else estimate(provider, counters, prices)
    if isinstance(estimated, Money):
        assert prices is not None
        cost["estimated"] = {**estimated.published(), "rateCard": prices.card.published()}
    elif reported is None:
        facts["costReason"] = estimated
    if cost:
        facts["cost"] = cost
    return facts


def estimate(provider: str, counters: Mapping[str, int], prices: Prices | None) -> Money | CostReason:
    """What a request with these counters costs by `prices`, or why that cannot be said."""
    rule = RULES.get(provider)
    if rule is None or prices is None:
        return "unsupported_pricing"
    tokens, output = _first(rule.input, counters), _first(rule.output, counters)
    cached, written = _first(rule.cached, counters), _first(rule.written, counters)
    if rule.omits_zeros:
        output, cached, written = output or 0, cached or 0, written or 0
    if tokens is None or output is None:
        return "missing_provider_detail"
    tokens += counters.get(rule.tool_input, 0)
    output += counters.get(rule.thoughts, 0)
    beside = (cached or 0) + (written or 0)
    fresh = tokens if rule.cache == "additive" else tokens - beside
    long = _first(rule.written_long, counters) or 0
    if fresh < 0 or long > (written or 0):
        return "invalid_counters"
    rates = prices.for_input(fresh + beside)
    if (cached is None and rates.cached_input is not None) or (written is None and rates.cache_write is not None):
        return "missing_provider_detail"
    billed = (
        (fresh, rates.input),
        (cached or 0, rates.cached_input),
        ((written or 0) - long, rates.cache_write),
        (long, rates.cache_write_long),
        (output, rates.output),
    )
    if any(count and price is None for count, price in billed):
        return "unsupported_pricing"
    total = Decimal(0)
    for count, price in billed:
        total = _EXACT.add(total, _EXACT.multiply(Decimal(count), price or Decimal(0)))
    return Money(_text(_EXACT.divide(total, _MILLION)), prices.currency)


@record
class Sent:
    """The most tokens that a request can have had, and those its answer may have had; None: nobody knows."""

    input: int
    output: int | None


BYTES_A_TOKEN: Final = 8
"""More than a token of an answer has in the mean: of prose and code it has about four. A report of fewer tokens than
what was seen makes by this is not of that answer."""


def is_credible(provider: str, counters: Mapping[str, int], seen_bytes: int) -> bool:
    """Whether a report can be of an answer of which `seen_bytes` came: no request is without input, and what came was
    paid for. One that says nothing of either can."""
    rule = RULES.get(provider)
    if rule is None:
        return True
    output = _output_told(rule, counters)
    return _input_told(rule, counters) != 0 and (output is None or output >= seen_bytes // BYTES_A_TOKEN)


def most(
    provider: str,
    prices: Prices | None,
    sent: Sent,
    counters: Mapping[str, int] = NO_COUNTERS,
    *,
    whole: bool = False,
    seen_bytes: int = 0,
) -> Money | None:
    """The most that a request can have cost, of which `counters` were reported; None where no most is known.

    What was reported is taken for what it is, all of the input at the dearest price of any, what was not reported as
    `sent` says. What was reported of a part, and what came of the answer, is the least of its output. `whole`: as in
    `usage_facts`; `seen_bytes`: of the answer, as in `is_credible`.
    """
    if provider in FREE:
        return Money("0", "USD")
    rule = RULES.get(provider)
    if rule is None or prices is None:
        return None
    tokens, output = _input_told(rule, counters) or sent.input, _output_told(rule, counters)
    least = max(output or 0, seen_bytes // BYTES_A_TOKEN)
    if output is None or (rule.grows and not whole):
        output = sent.output
    output = None if output is None else max(output, least)
    tiers = (prices.rates,) if prices.above is None else (prices.rates, prices.above)
    written, long = _first(rule.written, counters), _first(rule.written_long, counters)
    unpriced = (written and any(rates.cache_write is None for rates in tiers)) or (
        long and any(rates.cache_write_long is None for rates in tiers)
    )
    if output is None or unpriced:
        return None
    dearest = max(price for rates in tiers for price in rates.of_input())
    total = _EXACT.multiply(Decimal(tokens), dearest)
    total = _EXACT.add(total, _EXACT.multiply(Decimal(output), max(rates.output for rates in tiers)))
    return Money(_text(_EXACT.divide(total, _MILLION)), prices.currency)


def _input_told(rule: Rule, counters: Mapping[str, int]) -> int | None:
    """All of the input, what was cached included; None where a part of it was not reported."""
    tokens, cached, written = (_first(names, counters) for names in (rule.input, rule.cached, rule.written))
    if tokens is None:
        return None
    beside = (cached or 0) + max(written or 0, _first(rule.written_long, counters) or 0)
    if rule.cache == "subset":
        return max(tokens, beside) + counters.get(rule.tool_input, 0)
    return None if cached is None or written is None else tokens + beside


def _output_told(rule: Rule, counters: Mapping[str, int]) -> int | None:
    output = _first(rule.output, counters)
    if output is None and not (rule.omits_zeros and _first(rule.input, counters) is not None):
        return None
    return (output or 0) + counters.get(rule.thoughts, 0)


def _grows(provider: str) -> bool:
    return provider in RULES and RULES[provider].grows


def _first(names: tuple[str, ...], counters: Mapping[str, int]) -> int | None:
    return next((counters[name] for name in names if name in counters), None)


def _text(amount: Decimal) -> str:
    """Without an exponent and without zeros at the end; equal amounts have equal text."""
    return format(_EXACT.normalize(amount) if amount else Decimal(0), "f")
