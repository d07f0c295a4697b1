"""What answers say of their cost, and whether what each adapter reports is what its rule of pricing asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from fake import answers, anthropic, gemini, openai
from fake.answers import delta
from fake.vendors import VENDORS
from hames.core.conversation import ModelRequest, Reply, UserMessage
from hames.core.cost import RULES, Money, Prices, RateCard, Rates, estimate
from hames.providers import PROVIDERS
from hames.providers.chat_quirks import SERVERS
from hames.providers.chat_reply import ReplyBuilder

ASK = UserMessage("hi")
USAGE = {"prompt_tokens": 194, "completion_tokens": 2, "total_tokens": 196}


def answered(server: str, usage: Mapping[str, Any]) -> Reply:
    builder = ReplyBuilder(None, ModelRequest("m", "", (ASK,)), SERVERS[server])
    for chunk in (delta({"content": "ok"}, reason="stop"), {"choices": [], "usage": usage}):
        builder.add(json.dumps(chunk).encode())
    builder.end()
    return builder.reply()


def test_what_openrouter_says_that_an_answer_cost_is_kept_as_it_wrote_it() -> None:
    reply = answered("openrouter", {**USAGE, "cost": 0.00014135, "cost_details": {"upstream_inference_cost": 19}})

    assert reply.cost == Money("0.00014135", "USD")
    assert reply.usage == USAGE


def test_a_cost_that_is_whole_is_no_counter() -> None:
    reply = answered("openrouter", {**USAGE, "cost": 0})

    assert reply.cost == Money("0", "USD")
    assert reply.usage == USAGE


@pytest.mark.parametrize("cost", [None, "0.1", -1, True, {"total": 1}])
def test_what_is_no_amount_is_no_cost(cost: Any) -> None:
    assert answered("openrouter", {**USAGE, "cost": cost}).cost is None


@pytest.mark.parametrize("server", sorted(SERVERS.keys() - {"openrouter"}))
def test_a_member_called_cost_is_money_only_where_the_server_says_so(server: str) -> None:
    assert answered(server, {**USAGE, "cost": 0.95}).cost is None


@pytest.mark.parametrize(
    ("vendor", "answer", "billed"),
    [
        ("compatible", answers.text("ok"), {"fresh": 6, "cached": 4, "output": 5}),
        ("openai", openai.text("ok"), {"fresh": 6, "cached": 4, "output": 5}),
        ("anthropic", anthropic.text("ok"), {"fresh": 10, "cached": 4, "written": 3, "output": 5}),
        ("gemini", gemini.whole_text("ok"), {"fresh": 6, "cached": 4, "output": 12}),
    ],
)
def test_the_counters_of_each_adapter_are_those_that_its_rule_names(
    vendor: str, answer: answers.Answer, billed: Mapping[str, int]
) -> None:
    written = Decimal(10_000) if "written" in billed else None
    rates = Rates(Decimal(1), Decimal(1_000_000), Decimal(100), written)
    known = VENDORS[vendor]
    reply = known.reply(ModelRequest(known.models[0], "", (ASK,)), answer)

    found = estimate(vendor, reply.usage or {}, Prices(RateCard("c", "1", "d"), "USD", rates))

    counts = [billed.get(name, 0) for name in ("fresh", "cached", "written", "output")]
    whole = sum(count * price for count, price in zip(counts, (1, 100, 10_000, 1_000_000), strict=True))
    assert isinstance(found, Money)
    assert Decimal(found.amount) * 1_000_000 == whole


def test_every_provider_that_reports_usage_has_a_rule() -> None:
    assert set(RULES) == {name for name, row in PROVIDERS.items() if row.is_remote}
