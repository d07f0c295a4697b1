from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.state import Turn, turn_from_json, turn_to_json
from hames.core.usage import COUNTED, COUNTERS_NAMED, NO_USAGE, RATE_CARDS_NAMED, UsageSum, input_tokens, usage_total
from hames.protocol.jsontext import loads

NAMES = st.sampled_from(["input_tokens", "output_tokens", "prompt_tokens_details.cached_tokens"])
COUNTERS = st.dictionaries(NAMES, st.integers(0, 2**40))
REPORTS = st.lists(st.none() | COUNTERS)
AMOUNTS = st.decimals(0, 10**9, places=12).map(lambda amount: format(amount, "f"))
CARD = {"name": "vendor", "version": "1", "digest": "d"}


def summed(*records: Mapping[str, Any] | None) -> UsageSum:
    """Requests, each with what was recorded of it, or with nothing."""
    usage = NO_USAGE
    for record in records:
        usage = usage.asked()
        if record is not None:
            usage = usage.add({"counters": {}, **record})
    return usage


def total(*records: Mapping[str, Any] | None) -> dict[str, Any]:
    whole = usage_total(summed(*records))
    assert whole["inclusive"] == whole["direct"]
    direct: dict[str, Any] = whole["direct"]
    return direct


def reported(amount: str, currency: str = "USD") -> dict[str, Any]:
    return {"cost": {"reported": {"amount": amount, "currency": currency}}}


def estimated(amount: str, currency: str = "USD", card: Mapping[str, str] = CARD) -> dict[str, Any]:
    return {"cost": {"estimated": {"amount": amount, "currency": currency, "rateCard": card}}}


@given(REPORTS)
def test_sums_cover_what_was_reported_and_nothing_is_zero_for_being_absent(
    reports: list[Mapping[str, int] | None],
) -> None:
    found = total(*(None if report is None else {"counters": report} for report in reports))

    given_ = [report for report in reports if report is not None]
    names = {name for report in given_ for name in report}
    assert found["counters"] == {name: sum(report.get(name, 0) for report in given_) for name in names}
    assert (found["requests"], found["reported"]) == (len(reports), len(given_))


@given(COUNTERS)
def test_adding_changes_no_earlier_sum(report: Mapping[str, int]) -> None:
    before = UsageSum({"input_tokens": 1}, requests=1, reported=1)

    before.add({"counters": report, "costReason": "invalid_counters"})

    assert before == UsageSum({"input_tokens": 1}, requests=1, reported=1)


@given(st.lists(st.dictionaries(st.integers(0, 400).map(str), st.integers(0, 2**53 - 1), max_size=60), max_size=9))
def test_a_total_fits_an_event_whatever_names_are_reported_and_no_sum_is_short(
    reports: Sequence[Mapping[str, int]],
) -> None:
    counters = summed(*({"counters": report} for report in reports)).counters

    assert len(counters) == min(COUNTERS_NAMED, len({name for report in reports for name in report}))
    for name, counted in counters.items():
        assert counted == min(COUNTED, sum(report.get(name, 0) for report in reports))


@given(st.lists(AMOUNTS, min_size=1))
def test_a_total_is_the_sum_of_its_parts_exactly(amounts: Sequence[str]) -> None:
    by_provider = total(*map(reported, amounts))["cost"]
    by_card = total(*map(estimated, amounts))["cost"]

    whole = sum(map(Decimal, amounts))
    assert Decimal(by_provider["reported"]["amount"]) == Decimal(by_card["estimated"]["amount"]) == whole
    assert by_card == {
        "estimated": {"amount": by_provider["reported"]["amount"], "currency": "USD", "rateCards": [CARD]}
    }
    assert "E" not in by_provider["reported"]["amount"]


def test_tenths_add_up_without_the_drift_of_floats() -> None:
    assert total(reported("0.1"), reported("0.2"))["cost"] == {"reported": {"amount": "0.3", "currency": "USD"}}


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([reported("1"), None], "incomplete_coverage"),
        ([reported("1"), {"costReason": "incomplete_coverage"}], "incomplete_coverage"),
        ([reported("1"), {"costReason": "unsupported_pricing"}], "unsupported_pricing"),
        ([reported("1"), {}], "unsupported_pricing"),
        ([reported("1"), {"costReason": "missing_provider_detail"}], "missing_provider_detail"),
        ([reported("1"), {"costReason": "invalid_counters"}], "invalid_counters"),
        ([reported("1"), reported("1", "EUR")], "mixed_evidence"),
        ([reported("1"), estimated("1")], "mixed_evidence"),
        ([{"costReason": "invalid_counters"}, {"costReason": "missing_provider_detail"}], "missing_provider_detail"),
        ([{"costReason": "missing_provider_detail"}, {}], "unsupported_pricing"),
        ([{"costReason": "invalid_counters"}, {"costReason": "incomplete_coverage"}, {}], "incomplete_coverage"),
    ],
)
def test_there_is_no_total_where_a_part_has_no_cost_of_its_kind_and_the_reason_is_told(
    records: list[Mapping[str, Any] | None], reason: str
) -> None:
    found = total(*records)

    assert "cost" not in found
    assert found["costReason"] == reason


def test_a_kind_of_cost_that_all_have_is_told_beside_one_that_only_some_have() -> None:
    both = {"cost": {**reported("2")["cost"], **estimated("3")["cost"]}}

    found = total(both, estimated("4"))

    assert found["cost"] == {"estimated": {"amount": "7", "currency": "USD", "rateCards": [CARD]}}
    assert "costReason" not in found


def test_where_nothing_was_asked_there_is_neither_a_cost_nor_a_reason() -> None:
    assert total() == {"counters": {}, "requests": 0, "reported": 0}


def test_a_total_names_the_rate_cards_it_was_made_by_but_no_end_of_them() -> None:
    cards = [{**CARD, "version": str(number)} for number in range(RATE_CARDS_NAMED + 5)]

    found = total(*(estimated("1", card=card) for card in [*cards, *cards]))["cost"]["estimated"]

    assert found["rateCards"] == cards[:RATE_CARDS_NAMED]
    assert found["amount"] == str(2 * len(cards))


@given(
    st.lists(
        st.none() | AMOUNTS.map(reported) | AMOUNTS.map(estimated) | st.just({"costReason": "invalid_counters"}),
        max_size=6,
    )
)
def test_a_sum_is_kept_and_read_again(records: list[Mapping[str, Any] | None]) -> None:
    turn = Turn("t", 1, "queue", {}, "", {}, "", 1, usage=summed(*records))

    assert turn_from_json(loads(turn_to_json(turn))) == turn


def test_a_sum_that_an_older_build_kept_goes_on_as_if_it_had_known_no_prices() -> None:
    old = UsageSum.of({"counters": {"in": 1}, "requests": 1, "reported": 1, "later": True})

    assert old == UsageSum({"in": 1}, requests=1, reported=1) == summed({"counters": {"in": 1}})
    assert usage_total(old.asked().add({"counters": {}, **reported("1")}))["direct"]["costReason"] == (
        "unsupported_pricing"
    )


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ({"prompt_tokens": 5, "input_tokens": 9}, 5),
        ({"promptTokenCount": 6}, 6),
        ({"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 10}, 100),
        ({"input_tokens": 100, "input_tokens_details.cached_tokens": 90}, 100),
        ({"output_tokens": 1}, None),
    ],
)
def test_the_size_of_a_request_is_told_in_the_way_of_its_provider(
    counters: Mapping[str, int], expected: int | None
) -> None:
    assert input_tokens(counters) == expected


def test_a_name_that_comes_when_the_sum_is_full_is_in_none() -> None:
    names = [f"n{n}" for n in range(COUNTERS_NAMED + 1)]

    counters = summed({"counters": dict.fromkeys(names, 1)}, {"counters": {names[0]: 2, names[-1]: 2}}).counters

    assert counters == {**dict.fromkeys(names[:-1], 1), names[0]: 3}
