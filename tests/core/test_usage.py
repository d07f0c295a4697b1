from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.state import UsageSum
from hames.core.usage import input_tokens, usage_total

NAMES = st.sampled_from(["input_tokens", "output_tokens", "prompt_tokens_details.cached_tokens"])
REPORTS = st.lists(st.none() | st.dictionaries(NAMES, st.integers(0, 2**40)))


@given(REPORTS)
def test_sums_cover_what_was_reported_and_nothing_is_zero_for_being_absent(
    reports: list[Mapping[str, int] | None],
) -> None:
    usage = UsageSum()
    for report in reports:
        usage = usage.asked()
        if report is not None:
            usage = usage.add(report)

    total = usage_total(usage)["direct"]

    given_ = [report for report in reports if report is not None]
    names = {name for report in given_ for name in report}
    assert total["counters"] == {name: sum(report.get(name, 0) for report in given_) for name in names}
    assert (total["requests"], total["reported"]) == (len(reports), len(given_))


@given(st.dictionaries(NAMES, st.integers(0, 2**40)))
def test_adding_changes_no_earlier_sum(report: Mapping[str, int]) -> None:
    before = UsageSum({"input_tokens": 1}, requests=1, reported=1)

    before.add(report)

    assert before == UsageSum({"input_tokens": 1}, requests=1, reported=1)


def test_inclusive_is_direct_without_children_and_cost_is_absent_with_its_reason() -> None:
    total = usage_total(UsageSum({"input_tokens": 3}, requests=2, reported=1))

    assert total["inclusive"] == total["direct"]
    assert total["direct"] == {
        "counters": {"input_tokens": 3},
        "requests": 2,
        "reported": 1,
        "costReason": "no_rate_card",
    }


@pytest.mark.parametrize(
    ("counters", "whole"),
    [
        ({"prompt_tokens": 9, "prompt_tokens_details.cached_tokens": 4}, 9),
        ({"promptTokenCount": 9, "cachedContentTokenCount": 4}, 9),
        ({"input_tokens": 9, "input_tokens_details.cached_tokens": 4}, 9),
        ({"input_tokens": 9, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2}, 15),
        ({"output_tokens": 3}, None),
        ({}, None),
    ],
)
def test_the_size_of_a_request_is_what_was_sent_cached_or_not(counters: dict[str, int], whole: int | None) -> None:
    assert input_tokens(counters) == whole
