from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hames.core.cost import (
    BYTES_A_TOKEN,
    RULES,
    Money,
    Prices,
    RateCard,
    Rates,
    Sent,
    add_amounts,
    estimate,
    is_credible,
    most,
    reported_amount,
    semantics,
    usage_facts,
)

CARD = RateCard("vendor", "1", "d")
PLAIN = Rates(input=Decimal(2), output=Decimal(10))
CACHING = Rates(Decimal(2), Decimal(10), Decimal("0.2"), Decimal("2.5"), Decimal(4))
COUNT = st.integers(0, 2**53 - 1)
PRICE = st.decimals(0, 10**6, places=12, allow_nan=False)
PROVIDERS = st.sampled_from(sorted(RULES))


def priced(rates: Rates, above_tokens: int | None = None, above: Rates | None = None) -> Prices:
    return Prices(CARD, "USD", rates, above_tokens, above)


def usd(tokens_by_price: Mapping[str, int]) -> str:
    """What so many tokens cost at these prices for a million."""
    whole = sum((Decimal(price) * count for price, count in tokens_by_price.items()), Decimal(0)) / 1_000_000
    return format(whole.normalize() if whole else Decimal(0), "f")


@pytest.mark.parametrize(
    ("provider", "counters"),
    [
        (
            "anthropic",
            {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 0, "output_tokens": 7},
        ),
        (
            "openai",
            {
                "input_tokens": 100,
                "input_tokens_details.cached_tokens": 90,
                "input_tokens_details.cache_write_tokens": 0,
                "output_tokens": 7,
                "output_tokens_details.reasoning_tokens": 5,
                "total_tokens": 107,
            },
        ),
        (
            "compatible",
            {
                "prompt_tokens": 100,
                "prompt_tokens_details.cached_tokens": 90,
                "prompt_tokens_details.cache_write_tokens": 0,
                "completion_tokens": 7,
            },
        ),
        (
            "compatible",
            {
                "prompt_tokens": 100,
                "prompt_cache_hit_tokens": 90,
                "prompt_tokens_details.cache_write_tokens": 0,
                "completion_tokens": 7,
            },
        ),
        (
            "gemini",
            {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 90,
                "candidatesTokenCount": 2,
                "thoughtsTokenCount": 5,
                "totalTokenCount": 107,
            },
        ),
    ],
)
def test_the_same_request_costs_the_same_however_its_provider_counts(
    provider: str, counters: Mapping[str, int]
) -> None:
    assert estimate(provider, counters, priced(CACHING)) == Money(usd({"2": 10, "0.2": 90, "10": 7}), "USD")


def test_what_is_written_to_a_cache_costs_more_the_longer_it_is_kept() -> None:
    counters = {
        "input_tokens": 1,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 10,
        "cache_creation.ephemeral_5m_input_tokens": 6,
        "cache_creation.ephemeral_1h_input_tokens": 4,
        "output_tokens": 1,
    }

    assert estimate("anthropic", counters, priced(CACHING)) == Money(usd({"2": 1, "2.5": 6, "4": 4, "10": 1}), "USD")


def test_input_of_tools_of_the_provider_is_input_beside_the_prompt() -> None:
    counters = {"promptTokenCount": 5, "toolUsePromptTokenCount": 3, "candidatesTokenCount": 1}

    assert estimate("gemini", counters, priced(PLAIN)) == Money(usd({"2": 8, "10": 1}), "USD")


def test_a_provider_that_leaves_zeros_out_is_taken_by_its_word() -> None:
    assert estimate("gemini", {"promptTokenCount": 5}, priced(CACHING)) == Money(usd({"2": 5}), "USD")


@given(COUNT, COUNT, COUNT, PRICE, PRICE, PRICE)
def test_a_cached_token_is_billed_once_whichever_way_it_is_counted(
    fresh: int, cached: int, output: int, input_price: Decimal, cached_price: Decimal, output_price: Decimal
) -> None:
    prices = priced(Rates(input_price, output_price, cached_price))
    additive = {"input_tokens": fresh, "cache_read_input_tokens": cached, "output_tokens": output}
    subset = {
        "input_tokens": fresh + cached,
        "input_tokens_details.cached_tokens": cached,
        "output_tokens": output,
    }

    found = estimate("anthropic", additive, prices)

    assert found == estimate("openai", subset, prices)
    assert isinstance(found, Money)
    # In integers, which never round: prices have twelve decimals and are for a million tokens.
    pairs = ((fresh, input_price), (cached, cached_price), (output, output_price))
    whole = sum(count * int(price.scaleb(12)) for count, price in pairs)
    places = len(found.amount.partition(".")[2])
    assert places <= 18
    assert int(found.amount.replace(".", "")) * 10 ** (18 - places) == whole


@given(st.integers(0, 1_000), st.integers(0, 1_000))
def test_a_long_request_has_its_own_prices_for_all_of_it(fresh: int, cached: int) -> None:
    above = Rates(Decimal(4), Decimal(20), Decimal("0.4"))
    prices = priced(Rates(Decimal(2), Decimal(10), Decimal("0.2")), 500, above)
    counters = {"input_tokens": fresh, "cache_read_input_tokens": cached, "output_tokens": 7}

    found = estimate("anthropic", counters, prices)

    assert isinstance(found, Money)
    times = 2 if fresh + cached > 500 else 1
    assert Decimal(found.amount) == Decimal(usd({"2": fresh, "0.2": cached, "10": 7})) * times


@pytest.mark.parametrize(
    ("provider", "counters", "prices", "reason"),
    [
        ("anthropic", {"input_tokens": 1, "output_tokens": 1}, None, "unsupported_pricing"),
        ("fake", {"input_tokens": 1, "output_tokens": 1}, priced(PLAIN), "unsupported_pricing"),
        (
            "openai",
            {"input_tokens": 9, "output_tokens": 1, "input_tokens_details.cached_tokens": 3},
            priced(PLAIN),
            "unsupported_pricing",
        ),
        ("openai", {"input_tokens": 1}, priced(PLAIN), "missing_provider_detail"),
        ("openai", {"output_tokens": 1}, priced(PLAIN), "missing_provider_detail"),
        ("gemini", {"candidatesTokenCount": 1}, priced(PLAIN), "missing_provider_detail"),
        ("openai", {"input_tokens": 1, "output_tokens": 1}, priced(CACHING), "missing_provider_detail"),
        (
            "anthropic",
            {"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": 1},
            priced(CACHING),
            "missing_provider_detail",
        ),
        (
            "openai",
            {"input_tokens": 2, "output_tokens": 1, "input_tokens_details.cached_tokens": 3},
            priced(PLAIN),
            "invalid_counters",
        ),
        (
            "anthropic",
            {
                "input_tokens": 2,
                "output_tokens": 1,
                "cache_creation_input_tokens": 3,
                "cache_creation.ephemeral_1h_input_tokens": 4,
            },
            priced(CACHING),
            "invalid_counters",
        ),
    ],
)
def test_without_an_estimate_there_is_the_reason(
    provider: str, counters: Mapping[str, int], prices: Prices | None, reason: str
) -> None:
    assert estimate(provider, counters, prices) == reason


@given(PROVIDERS, st.data())
def test_whatever_is_reported_is_estimated_or_has_a_reason(provider: str, data: st.DataObject) -> None:
    rule = RULES[provider]
    names = [*rule.input, *rule.output, *rule.cached, *rule.written, *rule.written_long, rule.thoughts, "other"]
    counters = data.draw(st.dictionaries(st.sampled_from([name for name in names if name]), COUNT))
    maybe = st.none() | PRICE
    prices = priced(Rates(*data.draw(st.tuples(PRICE, PRICE, maybe, maybe, maybe))))

    found = estimate(provider, counters, prices)

    if isinstance(found, Money):
        assert Decimal(found.amount) >= 0
        assert "E" not in found.amount
    else:
        assert found in ("unsupported_pricing", "missing_provider_detail", "invalid_counters")


def test_what_was_reported_and_what_was_estimated_stand_apart() -> None:
    counters = {"prompt_tokens": 1_000_000, "completion_tokens": 0}

    facts = usage_facts("compatible", counters, prices=priced(PLAIN), reported=Money("1.9", "USD"), whole=True)

    assert facts == {
        "semantics": {"cacheRead": "subset", "cacheWrite": "subset", "reasoning": "subset"},
        "cost": {
            "reported": {"amount": "1.9", "currency": "USD"},
            "estimated": {
                "amount": "2",
                "currency": "USD",
                "rateCard": {"name": "vendor", "version": "1", "digest": "d"},
            },
        },
    }


def test_a_cost_that_was_reported_needs_no_estimate_and_no_reason() -> None:
    facts = usage_facts("compatible", {}, prices=None, reported=Money("1.9", "USD"), whole=True)

    assert facts["cost"] == {"reported": {"amount": "1.9", "currency": "USD"}}
    assert "costReason" not in facts


def test_of_a_provider_without_a_rule_no_relation_is_claimed() -> None:
    assert usage_facts("fake", {"tokens": 1}, prices=priced(PLAIN), reported=None, whole=True) == {
        "costReason": "unsupported_pricing"
    }
    assert semantics("fake") is None


@given(PROVIDERS)
def test_of_a_cut_answer_only_counters_that_come_at_its_end_are_all_there_is(provider: str) -> None:
    counters = {
        "anthropic": {"input_tokens": 1, "output_tokens": 1},
        "openai": {"input_tokens": 1, "output_tokens": 1},
        "compatible": {"prompt_tokens": 1, "completion_tokens": 1},
        "gemini": {"promptTokenCount": 1, "candidatesTokenCount": 1},
    }[provider]

    facts = usage_facts(provider, counters, prices=priced(PLAIN), reported=None, whole=False)

    if provider == "openai":
        assert facts["cost"]["estimated"]["amount"] == "0.000012"
    else:
        assert facts["costReason"] == "incomplete_coverage"
    assert facts.get("partial", False) == (provider != "openai")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (0.0, "0"),
        (12, "12"),
        (100.0, "100"),
        (0.95, "0.95"),
        (0.00014135, "0.00014135"),
        (1.5e-07, "0.00000015"),
        (1e-30, "0.000000000000000000000000000001"),
    ],
)
def test_a_reported_amount_is_the_text_that_the_provider_wrote(value: float, expected: str) -> None:
    assert reported_amount(value) == expected


@pytest.mark.parametrize(
    "value", [None, True, "0.1", -1, -0.0001, -0.0, float("nan"), float("inf"), 1e12, 1e-31, {"total": 1}, [1]]
)
def test_what_is_no_amount_is_not_taken_for_one(value: Any) -> None:
    assert reported_amount(value) is None


@given(st.floats(0, 10**11), st.floats(0, 10**11))
def test_amounts_add_up_exactly_in_either_order(one: float, other: float) -> None:
    first, second = reported_amount(one), reported_amount(other)
    assume(first is not None and second is not None)
    assert first is not None
    assert second is not None

    found = add_amounts(first, second)

    assert found == add_amounts(second, first)
    scale = 10**30
    assert _whole(found, scale) == _whole(first, scale) + _whole(second, scale)


def _whole(amount: str, scale: int) -> int:
    units, _, rest = amount.partition(".")
    return int(units) * scale + int(rest.ljust(30, "0"))


@st.composite
def costed(draw: st.DrawFn) -> tuple[str, Prices, dict[str, int], Sent]:
    """A request as it was: its provider, prices, all of its counters, and how many tokens it came to."""
    provider = draw(PROVIDERS)
    rule = RULES[provider]
    few = st.integers(0, 10**6)
    fresh, cached, written, output, thoughts, tool = (draw(few) for _ in range(6))
    written = written if rule.written else 0
    long = draw(st.integers(0, written)) if rule.written_long else 0
    told = fresh if rule.cache == "additive" else fresh + cached + written
    counters = {rule.input[0]: told, rule.output[0]: output, rule.cached[0]: cached}
    counters |= {name: written for name in rule.written} | {name: long for name in rule.written_long}
    tool, thoughts = (tool if rule.tool_input else 0), (thoughts if rule.thoughts else 0)
    beside = {rule.tool_input: tool, rule.thoughts: thoughts}
    counters |= {name: count for name, count in beside.items() if name}
    # A token that was read from a cache never costs more than one that was not.
    price = draw(PRICE)
    cheaper = st.none() | st.decimals(0, price, places=12, allow_nan=False)
    tier = st.builds(Rates, st.just(price), PRICE, cheaper, st.none() | PRICE, st.none() | PRICE)
    prices = priced(draw(tier), draw(st.integers(1, 10**6)), draw(st.none() | tier))
    return provider, prices, counters, Sent(fresh + cached + written + tool, output + thoughts)


@given(costed(), st.data(), st.booleans())
def test_whatever_a_provider_leaves_out_no_request_costs_more_than_its_most(
    request: tuple[str, Prices, dict[str, int], Sent], data: st.DataObject, whole: bool
) -> None:
    provider, prices, counters, sent = request
    cost = estimate(provider, counters, prices)
    assume(isinstance(cost, Money))
    assert isinstance(cost, Money)
    if RULES[provider].omits_zeros:  # what it leaves out is zero, by its own word
        told = data.draw(st.sampled_from([counters, {}]))
    else:
        kept = data.draw(st.sets(st.sampled_from(sorted(counters))))
        told = {name: count for name, count in counters.items() if name in kept}

    found = most(provider, prices, sent, told, whole=whole)

    if found is None:
        tiers = [prices.rates, prices.above or prices.rates]
        assert any(None in (rates.cache_write, rates.cache_write_long) for rates in tiers)
        return
    assert Decimal(found.amount) >= Decimal(cost.amount)
    assert found.currency == cost.currency


@pytest.mark.parametrize(
    ("provider", "prices", "sent", "counters"),
    [
        ("fake", priced(PLAIN), Sent(1, 1), {}),
        ("openai", None, Sent(1, 1), {}),
        ("openai", priced(PLAIN), Sent(1, None), {"input_tokens": 1}),
        ("anthropic", priced(PLAIN), Sent(1, 1), {"cache_creation_input_tokens": 1}),
        ("anthropic", priced(PLAIN, 9, CACHING), Sent(1, 1), {"cache_creation.ephemeral_1h_input_tokens": 1}),
    ],
)
def test_where_a_price_or_the_length_of_an_answer_is_not_known_no_most_is_claimed(
    provider: str, prices: Prices | None, sent: Sent, counters: Mapping[str, int]
) -> None:
    assert most(provider, prices, sent, counters, whole=True) is None


def test_counters_that_contradict_one_another_count_for_the_larger() -> None:
    counters = {"input_tokens": 2, "input_tokens_details.cached_tokens": 3, "output_tokens": 1}

    assert estimate("openai", counters, priced(CACHING)) == "invalid_counters"
    assert most("openai", priced(CACHING), Sent(9, 9), counters, whole=True) == Money(usd({"4": 3, "10": 1}), "USD")


def test_of_a_provider_that_counts_its_cache_beside_the_input_all_three_make_the_input() -> None:
    counters = {"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 3}

    found = most("anthropic", priced(CACHING), Sent(9, 7), counters)

    assert found == Money(usd({"4": 6, "10": 7}), "USD")


def test_what_is_told_of_a_part_and_what_came_is_the_least_of_an_answer() -> None:
    told = {"prompt_tokens": 1, "completion_tokens": 50}

    found = [
        most("compatible", priced(PLAIN), Sent(9, sent), told, whole=False, seen_bytes=seen * BYTES_A_TOKEN)
        for sent, seen in ((70, 60), (10, 0), (10, 60), (None, 60))
    ]

    assert found == [Money(usd({"2": 1, "10": output}), "USD") for output in (70, 50, 60)] + [None]


@pytest.mark.parametrize(
    ("provider", "counters", "seen", "credible"),
    [
        ("compatible", {"prompt_tokens": 0, "completion_tokens": 0}, 0, False),
        ("compatible", {"prompt_tokens": 1, "completion_tokens": 9}, 10, False),
        ("compatible", {"prompt_tokens": 1, "completion_tokens": 10}, 10, True),
        ("compatible", {"prompt_tokens": 1}, 10, True),
        ("compatible", {}, 10, True),
        ("anthropic", {"input_tokens": 0, "output_tokens": 10}, 10, True),
        ("gemini", {"promptTokenCount": 1, "candidatesTokenCount": 4, "thoughtsTokenCount": 6}, 10, True),
        ("fake", {}, 10, True),
    ],
)
def test_a_report_without_input_or_of_less_than_what_came_is_of_another_answer(
    provider: str, counters: Mapping[str, int], seen: int, credible: bool
) -> None:
    assert is_credible(provider, counters, seen * BYTES_A_TOKEN) == credible


def test_of_a_request_that_is_told_to_have_no_input_what_was_sent_counts() -> None:
    zeros = {"prompt_tokens": 0, "completion_tokens": 0}

    found = most("compatible", priced(PLAIN), Sent(9, 70), zeros, whole=True, seen_bytes=5 * BYTES_A_TOKEN)

    assert found == Money(usd({"2": 9, "10": 5}), "USD")


def test_what_asks_nobody_costs_nothing() -> None:
    assert most("offline", None, Sent(9, None), {}) == Money("0", "USD")
