from __future__ import annotations

import re
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hames
from hames.core.catalog import LEAST_OUTPUT_TOKENS, Catalog, ModelFacts, lookup, output_beside, read_catalog
from hames.core.cost import RateCard
from hames.protocol.jsontext import loads
from hames.providers import PROVIDERS

HOST = "api.vendor.example"
PRICES = {"input": "2.5", "output": "10"}


def card(models: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "vendor", "hosts": [HOST], "currency": "USD", "models": models, **more}


def catalog(*cards: dict[str, Any], source: Any = "catalog", version: str = "7") -> Catalog:
    return read_catalog({"version": version, "cards": list(cards)}, digest="d", source=source)


def built_in() -> Catalog:
    raw = (Path(hames.__file__).with_name("data") / "models.json").read_bytes()
    return read_catalog(loads(raw), digest="d", source="catalog")


@pytest.mark.parametrize(
    "name",
    [
        "fast-2",
        "FAST-2",
        "fast-2-latest",
        "fast-2-20261130",
        "fast-2-2026-11-30",
        "vendor/fast-2",
        "vendor/fast-2-20261130",
        "a/b/fast-2",
    ],
)
def test_a_model_is_found_by_its_name_and_without_its_day_and_its_maker(name: str) -> None:
    found = lookup([catalog(card({"Fast-2": {"contextTokens": 5}}))], HOST, name)

    assert found == ModelFacts(context_tokens=5)


@pytest.mark.parametrize(
    "name", ["fast", "fast-2-mini", "fast-2.1", "fast-2:free", "fast-2-2026", "my-fast-2", "fast-2-٢٠٢٦١١٣٠", ""]
)
def test_another_name_is_another_model(name: str) -> None:
    assert lookup([catalog(card({"fast-2": {"contextTokens": 5}}))], HOST, name) is None


def test_a_whole_name_wins_over_one_without_its_day() -> None:
    models = {"fast": {"contextTokens": 1}, "fast-2024-05-13": {"contextTokens": 2}}

    found = lookup([catalog(card(models))], HOST, "fast-2024-05-13")

    assert found is not None
    assert found.context_tokens == 2


def test_prices_hold_at_the_address_of_their_card_and_nowhere_else() -> None:
    known = catalog(card({"fast": {"contextTokens": 5, "prices": PRICES}}))

    here, there = lookup([known], HOST.upper(), "fast"), lookup([known], "127.0.0.1:8000", "fast")

    assert here is not None
    assert here.prices is not None
    assert here.prices.card == RateCard("vendor", "7", "d")
    assert (here.prices.rates.input, here.prices.currency) == (Decimal("2.5"), "USD")
    assert there == ModelFacts(context_tokens=5)


def test_a_card_without_hosts_holds_everywhere() -> None:
    known = catalog({"name": "mine", "currency": "EUR", "models": {"fast": {"prices": PRICES}}})

    found = lookup([known], "anywhere", "fast")

    assert found is not None
    assert found.prices is not None


def test_the_card_of_the_address_wins_over_others_with_the_same_model() -> None:
    first = card({"fast": {"contextTokens": 1}}, hosts=["other.example"])
    second = card({"fast": {"contextTokens": 2}}, hosts=["third.example"])
    third = card({"fast": {"contextTokens": 3}})
    known = catalog(first, second, third)

    at_home, elsewhere = lookup([known], HOST, "fast"), lookup([known], "nowhere", "fast")

    assert at_home is not None
    assert elsewhere is not None
    assert (at_home.context_tokens, elsewhere.context_tokens) == (3, 1)


def test_what_the_operator_says_wins_member_by_member() -> None:
    ours = catalog(card({"fast": {"contextTokens": 5, "outputTokens": 6, "prices": PRICES}}))
    theirs = catalog({"name": "mine", "models": {"fast": {"contextTokens": 4, "thinks": False}}}, source="config")

    found = lookup([theirs, ours], HOST, "fast")

    assert found is not None
    assert (found.context_tokens, found.output_tokens, found.thinks, found.source) == (4, 6, False, "config")
    assert found.prices is not None
    assert lookup([theirs, ours], HOST, "slow") is None


def test_what_is_known_is_shown_and_what_is_not_is_absent() -> None:
    row = {"contextTokens": 5, "outputTokens": 6, "cutoff": "2025-08", "thinks": True, "images": False}
    known = catalog(card({"fast": {**row, "prices": PRICES}, "slow": {}}))

    shown = [facts.published() for name in ("fast", "slow") if (facts := lookup([known], HOST, name))]

    rate_card = {"name": "vendor", "version": "7", "digest": "d"}
    assert shown == [{"source": "catalog", **row, "rateCard": rate_card}, {"source": "catalog"}]


def test_a_long_request_may_have_prices_of_its_own() -> None:
    above = {"inputTokens": 100, "input": "5", "output": "20", "cachedInput": "0.5"}
    found = lookup([catalog(card({"fast": {"prices": {**PRICES, "above": above}}}))], HOST, "fast")

    assert found is not None
    assert found.prices is not None
    assert found.prices.for_input(100) == found.prices.rates
    assert found.prices.for_input(101).cached_input == Decimal("0.5")


GOOD: dict[str, Any] = {"version": "1", "cards": [card({"fast": {"prices": PRICES}})]}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([], "the document must be an object"),
        ({"cards": []}, "the document has no `version`"),
        ({**GOOD, "version": ""}, "version must be a text of 1 to 200 characters"),
        ({**GOOD, "version": 3}, "version must be a text"),
        ({**GOOD, "date": "x"}, "the document has a member `date`; there are: cards, source, version"),
        ({**GOOD, "cards": {}}, "cards must be a list"),
        ({**GOOD, "cards": [3]}, "cards[0] must be an object"),
        ({**GOOD, "cards": [card({}, name=None)]}, "cards[0].name must be a text"),
        ({**GOOD, "cards": [card({}, hosts="x")]}, "cards[0].hosts must be a list of hosts"),
        ({**GOOD, "cards": [card({}, hosts=[1])]}, "cards[0].hosts must be a list of hosts"),
        ({**GOOD, "cards": [card({}, currency="usd")]}, "cards[0].currency must be three capitals"),
        ({**GOOD, "cards": [card({}, currency=1)]}, "cards[0].currency must be three capitals"),
        ({**GOOD, "cards": [{**card({}), "models": []}]}, "cards[0].models must be an object"),
        ({**GOOD, "cards": [card({"m": 1})]}, "cards[0].models.m must be an object"),
        ({**GOOD, "cards": [card({"m": {"window": 1}})]}, "cards[0].models.m has a member `window`; there are: "),
        ({**GOOD, "cards": [card({"m": {"contextTokens": 0}})]}, "cards[0].models.m.contextTokens must be an integer"),
        ({**GOOD, "cards": [card({"m": {"outputTokens": True}})]}, "cards[0].models.m.outputTokens must be an integer"),
        ({**GOOD, "cards": [card({"m": {"outputTokens": 10**10}})]}, "cards[0].models.m.outputTokens must be"),
        ({**GOOD, "cards": [card({"m": {"cutoff": "May"}})]}, "cards[0].models.m.cutoff must be a year"),
        ({**GOOD, "cards": [card({"m": {"cutoff": 2025}})]}, "cards[0].models.m.cutoff must be a year"),
        ({**GOOD, "cards": [card({"m": {"thinks": 1}})]}, "cards[0].models.m.thinks must be true or false"),
        ({**GOOD, "cards": [card({"m": {"prices": {}}})]}, "cards[0].models.m.prices has no `input`"),
        (
            {**GOOD, "cards": [card({"m": {"prices": PRICES}}, currency=None)]},
            "cards[0].models.m.prices stands in a card without a `currency`",
        ),
        (
            {**GOOD, "cards": [card({"m": {"prices": {**PRICES, "input": 2.5}}})]},
            "cards[0].models.m.prices.input must be decimal text",
        ),
        (
            {**GOOD, "cards": [card({"m": {"prices": {**PRICES, "output": "-1"}}})]},
            "cards[0].models.m.prices.output must be decimal text",
        ),
        ({**GOOD, "cards": [card({"m": {"cutoff": "٢٠٢٥"}})]}, "cards[0].models.m.cutoff must be a year"),
        ({**GOOD, "cards": [card({"Fast": {}, "fast": {}})]}, "cards[0].models.fast is there twice: case does not"),
        ({**GOOD, "cards": [card({"": {}})]}, "cards[0].models has a name that is not of 1 to 200 characters: ''"),
        ({**GOOD, "cards": [card({"m" * 201: {}})]}, "cards[0].models has a name that is not of 1 to 200"),
        (
            {**GOOD, "cards": [card({"m": {"prices": {**PRICES, "above": PRICES}}})]},
            "cards[0].models.m.prices.above has no `inputTokens`",
        ),
    ],
)
def test_a_file_without_the_form_is_refused_with_the_place(document: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(told)}"):
        read_catalog(document, digest="d", source="config")


DIGITS = st.text(st.characters(categories=["Nd"]), min_size=1, max_size=6)


@given(DIGITS, st.none() | DIGITS)
def test_a_price_is_taken_in_plain_digits_and_in_no_others(whole: str, fraction: str | None) -> None:
    text = whole if fraction is None else f"{whole}.{fraction}"
    document = {**GOOD, "cards": [card({"m": {"prices": {**PRICES, "output": text}}})]}

    if text.isascii():
        found = lookup([read_catalog(document, digest="d", source="config")], HOST, "m")
        assert found is not None
        assert found.prices is not None
        assert found.prices.rates.output == Decimal(text)
    else:
        with pytest.raises(ValueError, match=r"^cards\[0\]\.models\.m\.prices\.output must be decimal text"):
            read_catalog(document, digest="d", source="config")


@pytest.mark.parametrize(
    "price",
    [
        *("", " 1", "1 ", "1\n", "+1", "-1", "-0", "1.", ".5", "1e3", "1E400", "1_000", "1,5", "0x1"),
        *("NaN", "Infinity"),
        *("٣", "१.५", "１", "𝟏", "²", "1" * 7, "1." + "1" * 13, "1" * 5_000),
        *(None, True, False, 1, 2.5, -1, 1.7976931348623157e308, [], {}),
    ],
)
def test_a_price_that_is_no_decimal_text_is_refused_with_its_place(price: Any) -> None:
    document = {**GOOD, "cards": [card({"m": {"prices": {**PRICES, "cachedInput": price}}})]}

    with pytest.raises(ValueError, match=r"^cards\[0\]\.models\.m\.prices\.cachedInput must be decimal text"):
        read_catalog(document, digest="d", source="config")


@pytest.mark.parametrize("tokens", [0, -1, 10**9 + 1, 10**40, 1.0, 1e3, True, False, "5", "٥", [], {}])
@pytest.mark.parametrize("name", ["contextTokens", "outputTokens"])
def test_a_number_of_tokens_that_is_none_is_refused_with_its_place(name: str, tokens: Any) -> None:
    with pytest.raises(ValueError, match=rf"^cards\[0\]\.models\.m\.{name} must be an integer from 1 to 1000000000$"):
        read_catalog({**GOOD, "cards": [card({"m": {name: tokens}})]}, digest="d", source="config")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["version", "cards", "name", "models", "prices", "input"]), inner)
        ),
        max_leaves=20,
    )
)
def test_whatever_a_file_holds_it_is_taken_or_refused_and_nothing_else(document: Any) -> None:
    with suppress(ValueError):
        read_catalog(document, digest="d", source="config")


@pytest.mark.parametrize(
    ("most", "window", "percent", "expected"),
    [
        (None, 100_000, 80, None),
        (64_000, None, 80, 64_000),
        (64_000, 200_000, 80, 40_000),
        (64_000, 1_000_000, 80, 64_000),
        (64_000, 200_000, 100, LEAST_OUTPUT_TOKENS),
        (2_000, 8_000, 80, 2_000),
    ],
)
def test_an_answer_is_asked_for_no_longer_than_the_window_has_room(
    most: int | None, window: int | None, percent: int, expected: int | None
) -> None:
    assert output_beside(most, window, percent) == expected


def test_the_file_of_this_build_has_the_form_and_its_prices_are_those_of_the_vendors_own_addresses() -> None:
    known = built_in()

    hosts = {host for found in known.cards for host in found.hosts or ()}
    vendors = [row.base_url for row in PROVIDERS.values() if row.base_url]
    assert {url.split("/")[2] for url in vendors} <= hosts
    for found in known.cards:
        for name, facts in found.models.items():
            assert facts.context_tokens, name
            assert facts.output_tokens, name
            assert facts.prices is None or found.hosts, name


def test_in_the_file_of_this_build_what_comes_from_a_cache_costs_less_and_a_long_request_not_less() -> None:
    for name, facts in ((name, facts) for found in built_in().cards for name, facts in found.models.items()):
        if facts.prices is None:
            continue
        rates, above = facts.prices.rates, facts.prices.above
        assert rates.input <= rates.output, name
        assert rates.cached_input is None or rates.cached_input < rates.input, name
        assert rates.cache_write is None or rates.cache_write >= rates.input, name
        if above is not None:
            assert above.input >= rates.input, name
            assert above.output >= rates.output, name
            assert (above.cached_input is None) == (rates.cached_input is None), name


@pytest.mark.parametrize(
    ("host", "model", "window"),
    [
        ("api.anthropic.com", "claude-haiku-4-5-20251001", 200_000),
        ("api.openai.com", "gpt-5", 272_000),
        ("generativelanguage.googleapis.com", "gemini-2.5-pro", 1_048_576),
        ("127.0.0.1:8000", "Qwen/Qwen3-Coder-Next", 262_144),
        ("openrouter.ai", "openai/gpt-5", 272_000),
    ],
)
def test_models_of_this_day_are_known(host: str, model: str, window: int) -> None:
    found = lookup([built_in()], host, model)

    assert found is not None
    assert found.context_tokens == window
