"""What tries used and cost, as facts and in every place that tells sums of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import anyio
import pytest

from engine.kit import SID, Call, Cluster, FakeTool, Gate, Process, bench, cluster
from hames.core.cost import Money, Prices, RateCard, Rates
from hames.core.usage import usage_total
from hames.ports import ProviderFailed
from hames.protocol.errors import Refused

pytestmark = pytest.mark.anyio

CARD = RateCard("vendor", "1", "d")
PRICES = Prices(CARD, "USD", Rates(Decimal(1), Decimal(10), Decimal("0.1")))
OTHER = "other"
"""A model that a session may change to, which makes its equipment anew."""

TENTH = {"prompt_tokens": 100_000, "completion_tokens": 0, "prompt_tokens_details.cached_tokens": 0}
"""What costs 0.1 by `PRICES`."""


def speaks_chat(c: Cluster, p: Process) -> None:
    """The model counts as a Chat Completions provider does, and has prices."""
    c.provider.name = "compatible"
    c.provider.usage = TENTH
    p.world.prices = {"fake": PRICES, OTHER: PRICES}


def cut_after(usage: dict[str, int], *, is_whole: bool = False) -> ProviderFailed:
    failure = ProviderFailed("model_gateway", boundary="model_gateway", retryable=True)
    failure.usage, failure.usage_is_whole = usage, is_whole
    return failure


async def cost_of(p: Process, turn_id: str = "t-1") -> dict[str, Any]:
    """The turn's total, which is the same in its terminal and in its row."""
    turn, _ = await p.store.turn(SID, turn_id)
    total: dict[str, Any] = usage_total(turn.usage)["direct"]
    return total


async def test_three_tenths_are_three_tenths_in_every_place_that_tells_them() -> None:
    async with bench(FakeTool("look")) as (c, p):
        speaks_chat(c, p)
        c.provider.script([Call("look")], [cut_after(TENTH, is_whole=True)], ["ok"])
        await p.submit()
        await p.finish()

        facts = [event["data"] for event in c.of("usage.recorded")]
        total = await cost_of(p)
        session = (await p.service.load(SID)).state.usage

        each = {"amount": "0.1", "currency": "USD", "rateCard": CARD.published()}
        assert [fact["cost"] for fact in facts] == [{"estimated": each}] * 3
        assert total["cost"] == {"estimated": {"amount": "0.3", "currency": "USD", "rateCards": [CARD.published()]}}
        assert c.terminal()["data"]["usage"]["direct"] == total == usage_total(session)["direct"]


async def test_what_a_cut_answer_reported_while_it_came_is_summed_and_its_cost_not_told() -> None:
    async with bench() as (c, p):
        speaks_chat(c, p)
        c.provider.script([cut_after(TENTH)], ["ok"])
        await p.submit()
        await p.finish()

        total = await cost_of(p)

        assert (total["requests"], total["reported"]) == (2, 2)
        assert total["counters"] == {name: 2 * count for name, count in TENTH.items()}
        assert "cost" not in total
        assert total["costReason"] == "incomplete_coverage"


async def test_a_try_without_usage_leaves_tokens_summed_and_the_cost_untold() -> None:
    async with bench() as (c, p):
        speaks_chat(c, p)
        c.provider.script([ProviderFailed("model_gateway", boundary="model_gateway", retryable=True)], ["ok"])
        await p.submit()
        await p.finish()

        total = await cost_of(p)

        assert (total["requests"], total["reported"], total["counters"]) == (2, 1, TENTH)
        assert "cost" not in total
        assert total["costReason"] == "incomplete_coverage"


async def test_a_cancelled_turn_tells_no_cost_for_what_was_not_reported() -> None:
    async with bench() as (c, p):
        speaks_chat(c, p)
        gate = Gate()
        c.provider.script(["half an answer", gate])
        await p.submit()
        await gate.come()
        await p.cancel("t-1")
        await p.finish()

        total = await cost_of(p)

        assert (total["requests"], total["reported"]) == (1, 0)
        assert total["costReason"] == "incomplete_coverage"
        assert c.terminal()["data"]["usage"]["direct"] == total


@pytest.mark.parametrize(
    ("usage", "priced", "reason"),
    [
        (TENTH, False, "unsupported_pricing"),
        ({"prompt_tokens": 1, "completion_tokens": 1}, True, "missing_provider_detail"),
        ({**TENTH, "prompt_tokens_details.cached_tokens": 100_001}, True, "invalid_counters"),
    ],
)
async def test_each_reason_comes_of_its_own_lack(usage: dict[str, int], priced: bool, reason: str) -> None:
    async with bench() as (c, p):
        speaks_chat(c, p)
        await p.submit()
        await p.finish()
        c.provider.usage = usage
        p.world.prices = {OTHER: PRICES} if priced else {}
        await p.service.update(SID, None, OTHER, {"principal": "user"})

        await p.submit("t-2")
        await p.finish("t-2")

        session = usage_total((await p.service.load(SID)).state.usage)["direct"]
        assert c.of("usage.recorded")[-1]["data"]["costReason"] == reason
        assert (await cost_of(p))["cost"]["estimated"]["amount"] == "0.1"
        assert (await cost_of(p, "t-2"))["costReason"] == session["costReason"] == reason
        assert "cost" not in session


async def test_what_a_provider_says_is_kept_as_said_also_of_a_try_that_failed() -> None:
    async with bench() as (c, p):
        c.provider.cost = Money("0.2", "USD")
        failure = ProviderFailed("model_gateway", boundary="model_gateway", retryable=True)
        failure.cost = Money("0.1", "USD")
        c.provider.script([failure], ["ok"])
        await p.submit()
        await p.finish()

        total = await cost_of(p)

        assert total["cost"] == {"reported": {"amount": "0.3", "currency": "USD"}}
        assert "semantics" not in c.of("usage.recorded")[0]["data"]


async def test_a_summary_is_paid_for_by_the_turn_that_needed_it() -> None:
    async with bench() as (c, p):
        speaks_chat(c, p)
        for number in range(3):
            await p.submit(f"t-{number}", "words " * 20_000)
            await p.finish(f"t-{number}")
        p.world.window_tokens = 60_000
        await p.service.update(SID, None, OTHER, {"principal": "user"})

        await p.submit("t-last")
        with anyio.fail_after(10):
            await p.finish("t-last")

        asked = [event["data"] for event in c.of("model.requested") if event["turnId"] == "t-last"]
        assert "summary" in [data.get("purpose") for data in asked]
        total = await cost_of(p, "t-last")
        assert Decimal(total["cost"]["estimated"]["amount"]) == Decimal("0.1") * len(asked)


async def test_a_turn_ends_before_the_request_that_its_cost_leaves_no_room_for() -> None:
    async with bench(FakeTool("look")) as (c, p):
        speaks_chat(c, p)
        c.provider.otherwise = lambda _: [Call("look")]
        await p.submit("t-1", limits={"costMicros": 250_000})
        await p.finish()

        error = c.terminal()["data"]["error"]
        assert (error["kind"], error["details"]["limit"]) == ("limit_exceeded", "costMicros")
        assert (error["details"]["configured"], error["details"]["observed"]) == (250_000, 300_000)
        assert len(c.provider.requests) == 3


async def test_an_answer_that_uses_up_the_limit_is_an_answer() -> None:
    async with bench() as (c, p):
        speaks_chat(c, p)
        await p.submit("t-1", limits={"costMicros": 1})

        assert (await p.finish()).status == "completed"


async def test_where_no_prices_are_known_nobody_is_held_to_a_cost() -> None:
    async with cluster() as c:
        p = await c.start()
        with pytest.raises(Refused, match="No prices of fake/fake in US dollars are known") as refused:
            await p.create(limits={"costMicros": 1})
        assert (refused.value.kind, refused.value.details) == ("capability_unavailable", {"limit": "costMicros"})

        await p.create()
        with pytest.raises(Refused, match="No prices"):
            await p.submit("t-1", limits={"costMicros": 1})
        assert c.of("turn.queued") == []


async def test_a_model_whose_prices_are_in_another_currency_cannot_be_bounded_in_dollars() -> None:
    async with cluster() as c:
        p = await c.start()
        p.world.prices = {"fake": Prices(CARD, "EUR", PRICES.rates)}

        with pytest.raises(Refused, match="in US dollars"):
            await p.create(limits={"costMicros": 1})


async def test_a_session_that_bounds_its_cost_keeps_to_models_with_prices() -> None:
    async with cluster() as c:
        p = await c.start()
        p.world.prices = {"fake": PRICES}
        await p.create(limits={"costMicros": 1_000_000})

        with pytest.raises(Refused, match=f"No prices of fake/{OTHER}"):
            await p.service.update(SID, None, OTHER, {"principal": "user"})

        p.world.prices[OTHER] = PRICES
        committed = await p.service.update(SID, None, OTHER, {"principal": "user"})
        assert committed.state.model == {"provider": "fake", "model": OTHER}
