"""A limit of the cost where a provider does not tell what a request used: it counts at its most, or ends the turn."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from engine.kit import Call, Cluster, FakeTool, Gate, Process, Think, bench, cluster, failed
from hames.core.cost import BYTES_A_TOKEN, Money, Prices, RateCard, Rates
from hames.ports import ProviderFailed

pytestmark = pytest.mark.anyio

PRICES = Prices(RateCard("vendor", "1", "d"), "USD", Rates(Decimal(0), Decimal(1_000_000)))
"""A dollar for each token that is said, and nothing for those that are sent: the most of a request is that of its
answer."""

ANSWER_TOKENS = 5
MOST = ANSWER_TOKENS * 1_000_000


def silent(c: Cluster, p: Process, answer_tokens: int | None = ANSWER_TOKENS) -> None:
    """The provider reports nothing."""
    c.provider.name = "compatible"
    c.provider.usage = None
    p.world.prices = {"fake": PRICES}
    p.world.answer_tokens = answer_tokens


def limit_of(c: Cluster) -> dict[str, Any]:
    error = c.terminal()["data"]["error"]
    assert error["kind"] == "limit_exceeded"
    details: dict[str, Any] = error["details"]
    return details


def cut() -> ProviderFailed:
    return ProviderFailed("model_gateway", boundary="model_gateway", retryable=True, phase="stream")


async def test_an_answer_without_usage_counts_at_its_most() -> None:
    async with bench(FakeTool("look")) as (c, p):
        silent(c, p)
        c.provider.otherwise = lambda _: [Call("look")]
        await p.submit(limits={"costMicros": 2 * MOST})
        await p.finish()

        assert limit_of(c) == {
            "limit": "costMicros",
            "configured": 2 * MOST,
            "observed": 2 * MOST,
            "assumed": 2 * MOST,
        }
        assert len(c.provider.requests) == 2
        bounds = [event["data"]["costAtMost"] for event in c.of("model.requested")]
        assert bounds == [{"amount": "5", "currency": "USD"}] * 2


async def test_where_the_length_of_an_answer_has_no_bound_the_turn_ends_and_says_that_the_cost_is_not_known() -> None:
    async with bench(FakeTool("look")) as (c, p):
        silent(c, p, None)
        c.provider.otherwise = lambda _: [Call("look")]
        await p.submit(limits={"costMicros": 10**9})
        await p.finish()

        assert limit_of(c) == {"limit": "costMicros", "configured": 10**9, "observed": 0, "reason": "cost_unknown"}
        assert len(c.provider.requests) == 1


async def test_the_last_answer_is_one_whatever_it_cost() -> None:
    async with bench() as (c, p):
        silent(c, p, None)
        await p.submit(limits={"costMicros": 1})

        assert (await p.finish()).status == "completed"


async def test_a_turn_that_bounds_no_cost_is_told_of_none() -> None:
    async with bench(FakeTool("look")) as (c, p):
        silent(c, p)
        c.provider.script([Call("look")], [cut()], ["ok"])
        await p.submit()

        assert (await p.finish()).status == "completed"
        assert all("costAtMost" not in event["data"] for event in c.log())


async def test_what_was_cut_is_not_sent_again_where_the_limit_leaves_no_room() -> None:
    async with bench() as (c, p):
        silent(c, p)
        c.provider.otherwise = lambda _: ["half", cut()]
        await p.submit(limits={"costMicros": 2 * MOST})
        await p.finish()

        assert limit_of(c)["observed"] == 2 * MOST
        assert len(c.provider.requests) == 2


async def test_what_was_reported_of_a_cut_answer_is_what_it_cost_where_only_its_end_reports() -> None:
    async with bench() as (c, p):
        silent(c, p)
        c.provider.name = "openai"
        failure = cut()
        failure.usage = {"input_tokens": 1, "output_tokens": 2}
        c.provider.script(["half", failure], ["whole"])
        await p.submit(limits={"costMicros": MOST})

        assert (await p.finish()).status == "completed"


@pytest.mark.parametrize("tokens", [0, 2, 5, 6])
async def test_what_was_reported_of_a_cut_answer_while_it_came_is_no_more_than_a_least(tokens: int) -> None:
    async with bench() as (c, p):
        silent(c, p)
        failure = cut()
        failure.usage = {"prompt_tokens": 1, "completion_tokens": tokens}
        failure.cost = Money("0.5", "USD")
        c.provider.script(["half", failure], ["whole"])
        await p.submit(limits={"costMicros": MOST})
        await p.finish()

        assert limit_of(c)["observed"] == max(tokens, ANSWER_TOKENS) * 1_000_000
        (recorded,) = [event["data"] for event in c.of("usage.recorded")]
        assert recorded["partial"]
        assert recorded["cost"] == {"reported": {"amount": "0.5", "currency": "USD"}}


async def test_of_a_cut_answer_whose_most_nobody_knows_what_was_reported_bounds_nothing() -> None:
    async with bench() as (c, p):
        silent(c, p, None)
        failure = cut()
        failure.usage, failure.cost = {"prompt_tokens": 1}, Money("0.000001", "USD")
        c.provider.script(["half", failure], ["whole"])
        await p.submit(limits={"costMicros": 10**9})
        await p.finish()

        assert limit_of(c)["reason"] == "cost_unknown"


@pytest.mark.parametrize("reasons", [False, True])
async def test_an_answer_is_held_to_what_came_of_it_whatever_is_reported(reasons: bool) -> None:
    async with bench(FakeTool("look")) as (c, p):
        silent(c, p)
        c.provider.usage = {"prompt_tokens": 0, "completion_tokens": 0}
        said = "w" * (100 * BYTES_A_TOKEN)
        c.provider.otherwise = lambda _: [Think(said) if reasons else said, Call("look")]
        await p.submit(limits={"costMicros": 200_000_000})
        await p.finish()

        assert len(c.provider.requests) == 2
        assert limit_of(c)["observed"] == limit_of(c)["assumed"] >= 200_000_000
        (first, _) = [event["data"] for event in c.of("usage.recorded")]
        assert first["cost"]["estimated"]["amount"] == "0", "what is told of the cost stays as it was reported"


async def test_a_report_that_can_be_true_is_believed() -> None:
    async with bench(FakeTool("look")) as (c, p):
        silent(c, p)
        c.provider.usage = {"prompt_tokens": 1, "completion_tokens": 1}
        c.provider.script(["w" * BYTES_A_TOKEN, Call("look", "{}")], ["ok"])
        await p.submit(limits={"costMicros": 2_000_000})

        assert (await p.finish()).status == "completed"
        assert all("costAtMost" not in event["data"] for event in c.of("usage.recorded"))


@pytest.mark.parametrize("details", [{"phase": "connect"}, {"phase": "first_byte", "status": 503}])
async def test_a_request_that_was_never_taken_costs_nothing(details: dict[str, Any]) -> None:
    async with bench() as (c, p):
        silent(c, p)
        refused = ProviderFailed("model_gateway", boundary="model_gateway", retryable=True, **details)
        c.provider.script([refused], [refused], [refused], ["ok"])
        await p.submit(limits={"costMicros": 1})

        assert (await p.finish()).status == "completed"


async def test_a_request_that_was_too_long_costs_nothing_but_its_summary_does() -> None:
    async with bench() as (c, p):
        silent(c, p)
        for number in range(4):
            await p.submit(f"before-{number}", "words " * 2_000)
            await p.finish(f"before-{number}")
        c.provider.script(failed("context_overflow", retryable=False), ["The goal."])
        await p.submit(limits={"costMicros": MOST})
        await p.finish()

        (summary,) = [event["data"] for event in c.of("model.requested") if "purpose" in event["data"]]
        assert summary["trigger"] == "overflow"
        most = Decimal(summary["costAtMost"]["amount"]) * 1_000_000
        assert limit_of(c)["observed"] == most > MOST


@pytest.mark.parametrize("after", [["half"], [Think("half")], [Call("look")]])
async def test_a_request_that_is_found_too_long_while_its_answer_comes_counts(after: list[Any]) -> None:
    async with bench(FakeTool("look")) as (c, p):
        silent(c, p)
        for number in range(4):
            await p.submit(f"before-{number}", "words " * 2_000)
            await p.finish(f"before-{number}")
        c.provider.script([*after, *failed("context_overflow", retryable=False)], ["The goal."], ["ok"])
        await p.submit(limits={"costMicros": MOST})
        await p.finish()

        assert limit_of(c)["observed"] == MOST
        assert len(c.provider.requests) == 5, "not even a summary is asked for"


async def test_a_request_that_broke_off_as_too_long_and_its_summary_both_count() -> None:
    async with bench() as (c, p):
        silent(c, p)
        for number in range(4):
            await p.submit(f"before-{number}", "words " * 2_000)
            await p.finish(f"before-{number}")
        c.provider.script(["half", *failed("context_overflow", retryable=False)], ["The goal."], ["ok"])
        await p.submit(limits={"costMicros": MOST + 1})
        await p.finish()

        (summary,) = [event["data"] for event in c.of("model.requested") if "purpose" in event["data"]]
        assert summary["afterText"]
        most = Decimal(summary["costAtMost"]["amount"]) * 1_000_000
        assert limit_of(c)["observed"] == MOST + most


async def test_what_a_killed_process_had_asked_counts_for_who_goes_on() -> None:
    async with cluster() as c:
        first = await c.start()
        silent(c, first)
        gate = Gate()
        c.provider.script([gate])
        await first.create()
        await first.submit(limits={"costMicros": MOST})
        await gate.come()
        await first.die()

        second = await c.start()
        silent(c, second)
        await second.resume()
        await second.finish()

        assert limit_of(c)["observed"] == MOST
        assert len(c.provider.requests) == 1
