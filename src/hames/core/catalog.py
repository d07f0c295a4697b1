"""What is known of models: windows, cut-offs and prices, by name; checked whole, looked up without guessing.

Rule 1: a model is found by its whole name, else by the name without what `_SUFFIX` and `_MAKER` match, and in no other
way. Case does not count.
Rule 2: prices hold where the rate card says, by the host of the address. The same model somewhere else has the same
window and no known price.
Rule 3: nothing here is needed: a model that is not found can be used all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any, Literal, NoReturn

from hames.core.cost import Prices, RateCard, Rates
from hames.core.records import record

Source = Literal["catalog", "config"]
"""Who says it: this build's own file, or the operator's."""

LEAST_OUTPUT_TOKENS = 4_096
"""Asked of an answer where the window leaves less: a shorter one would hold no file."""

MOST_TOKENS = 10**9
NAME_CHARS = 200

_SUFFIX = re.compile(r"-(?:latest|[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2})$")
"""The newest of a model, or one of a day: `claude-haiku-4-5-20251001`, `gpt-5-2025-08-07`, `mistral-small-latest`."""

_MAKER = re.compile(r"^.*/")
"""Whose it is, as gateways write it: `anthropic/claude-sonnet-5`."""

_DECIMAL = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,12})?")
_CUTOFF = re.compile(r"[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?")
_CURRENCY = re.compile(r"[A-Z]{3}")

_RATES: Mapping[str, str] = {
    "input": "input",
    "output": "output",
    "cachedInput": "cached_input",
    "cacheWrite": "cache_write",
    "cacheWriteLong": "cache_write_long",
}


@record
class ModelFacts:
    """What is known of a model; None is not known.

    `context_tokens` is what a request may have, together with its answer where the vendor counts that in;
    `output_tokens` the most of an answer; `cutoff` the year, month or day up to which it was trained.
    """

    context_tokens: int | None = None
    output_tokens: int | None = None
    cutoff: str | None = None
    thinks: bool | None = None
    images: bool | None = None
    prices: Prices | None = None
    source: Source = "catalog"

    def published(self) -> dict[str, Any]:
        """As `models/list` shows it; what is not known is absent."""
        told = {
            "source": self.source,
            "contextTokens": self.context_tokens,
            "outputTokens": self.output_tokens,
            "cutoff": self.cutoff,
            "thinks": self.thinks,
            "images": self.images,
            "rateCard": None if self.prices is None else self.prices.card.published(),
        }
        return {name: value for name, value in told.items() if value is not None}


@record
class _Card:
    hosts: frozenset[str] | None
    models: Mapping[str, ModelFacts]


@record
class Catalog:
    """A file of what is known of models."""

    cards: tuple[_Card, ...]


def lookup(catalogs: Sequence[Catalog], host: str, model: str) -> ModelFacts | None:
    """What is known of `model` at `host`, as it stands in a base URL with a port that is named. None: nothing.

    What an earlier catalog says wins over what a later one says, member by member.
    """
    found: ModelFacts | None = None
    for catalog in catalogs:
        facts = next((facts for name in _names(model) if (facts := _facts(catalog, host.lower(), name))), None)
        if facts is not None:
            found = facts if found is None else _merged(found, facts)
    return found


def _names(model: str) -> Iterator[str]:
    name = model.lower()
    yield name
    yield _SUFFIX.sub("", name)
    bare = _MAKER.sub("", name)
    yield bare
    yield _SUFFIX.sub("", bare)


def _facts(catalog: Catalog, host: str, name: str) -> ModelFacts | None:
    elsewhere: ModelFacts | None = None
    for card in catalog.cards:
        if (facts := card.models.get(name)) is None:
            continue
        if card.hosts is None or host in card.hosts:
            return facts
        elsewhere = elsewhere or replace(facts, prices=None)
    return elsewhere


def _merged(first: ModelFacts, second: ModelFacts) -> ModelFacts:
    missing = {each.name: getattr(second, each.name) for each in fields(first) if getattr(first, each.name) is None}
    return replace(first, **missing)


def output_beside(most: int | None, window: int | None, percent: int) -> int | None:
    """How long an answer may be asked for, in tokens: as long as the model's can be, but no longer than what stays of
    the window behind a context of `percent`, so that no request is refused for the answer it might get."""
    if most is None or window is None:
        return most
    return min(most, max(window * (100 - percent) // 100, LEAST_OUTPUT_TOKENS))


def read_catalog(document: Any, *, digest: str, source: Source) -> Catalog:
    """A catalog from the JSON of its file; `digest` is that of the file, and goes into its rate cards.

    Raises:
        ValueError: it has not the form; the text begins with the place (`cards[0].models.gpt-5.prices.input`).
    """
    top = _object(document, "", {"version", "cards"}, optional={"source"})
    version = _text(top["version"], "version")
    if not isinstance(top["cards"], list):
        _wrong("cards", "must be a list")
    cards = [_card(card, f"cards[{place}]", version, digest, source=source) for place, card in enumerate(top["cards"])]
    return Catalog(tuple(cards))


def _card(value: Any, place: str, version: str, digest: str, *, source: Source) -> _Card:
    card = _object(value, place, {"name", "models"}, optional={"hosts", "currency", "source"})
    identity = RateCard(_text(card["name"], f"{place}.name"), version, digest)
    hosts = card.get("hosts")
    if hosts is not None and not (isinstance(hosts, list) and all(isinstance(host, str) for host in hosts)):
        _wrong(f"{place}.hosts", "must be a list of hosts, like api.example.com or 10.0.0.7:8000")
    currency = card.get("currency")
    if currency is not None and not (isinstance(currency, str) and _CURRENCY.fullmatch(currency)):
        _wrong(f"{place}.currency", "must be three capitals, like USD")
    if not isinstance(card["models"], dict):
        _wrong(f"{place}.models", "must be an object")
    models: dict[str, ModelFacts] = {}
    for name, row in card["models"].items():
        if not 0 < len(name) <= NAME_CHARS:
            _wrong(f"{place}.models", f"has a name that is not of 1 to {NAME_CHARS} characters: {name[:20]!r}")
        if name.lower() in models:
            _wrong(f"{place}.models.{name}", "is there twice: case does not count in the name of a model")
        models[name.lower()] = _model(row, f"{place}.models.{name}", identity, currency, source=source)
    return _Card(None if hosts is None else frozenset(host.lower() for host in hosts), models)


def _model(value: Any, place: str, card: RateCard, currency: str | None, *, source: Source) -> ModelFacts:
    row = _object(
        value, place, set(), optional={"contextTokens", "outputTokens", "cutoff", "thinks", "images", "prices"}
    )
    cutoff = row.get("cutoff")
    if cutoff is not None and not (isinstance(cutoff, str) and _CUTOFF.fullmatch(cutoff)):
        _wrong(f"{place}.cutoff", "must be a year, a month or a day, like 2025-08")
    for name in ("thinks", "images"):
        if not isinstance(row.get(name, False), bool):
            _wrong(f"{place}.{name}", "must be true or false")
    if "prices" in row and currency is None:
        _wrong(f"{place}.prices", "stands in a card without a `currency`")
    return ModelFacts(
        context_tokens=_tokens(row, "contextTokens", place),
        output_tokens=_tokens(row, "outputTokens", place),
        cutoff=cutoff,
        thinks=row.get("thinks"),
        images=row.get("images"),
        prices=_prices(row["prices"], f"{place}.prices", card, currency) if currency and "prices" in row else None,
        source=source,
    )


def _prices(value: Any, place: str, card: RateCard, currency: str) -> Prices:
    row = _object(value, place, {"input", "output"}, optional={*_RATES, "above"})
    rates = _rates(row, place)
    if "above" not in row:
        return Prices(card, currency, rates)
    above = _object(row["above"], f"{place}.above", {"inputTokens", "input", "output"}, optional=set(_RATES))
    return Prices(
        card, currency, rates, _tokens(above, "inputTokens", f"{place}.above"), _rates(above, f"{place}.above")
    )


def _rates(row: Mapping[str, Any], place: str) -> Rates:
    rates: dict[str, Decimal] = {}
    for name, field in _RATES.items():
        if name in row:
            text = row[name]
            if not (isinstance(text, str) and _DECIMAL.fullmatch(text)):
                _wrong(f"{place}.{name}", 'must be decimal text, for a million tokens, like "2.5"')
            rates[field] = Decimal(text)
    return Rates(**rates)


def _tokens(row: Mapping[str, Any], name: str, place: str) -> int | None:
    value = row.get(name)
    if value is not None and not (type(value) is int and 1 <= value <= MOST_TOKENS):
        _wrong(f"{place}.{name}", f"must be an integer from 1 to {MOST_TOKENS}")
    return value


def _object(value: Any, place: str, required: set[str], *, optional: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        _wrong(place, "must be an object")
    if missing := sorted(required - value.keys()):
        _wrong(place, f"has no `{missing[0]}`")
    if unknown := sorted(value.keys() - required - optional):
        known = ", ".join(sorted(required | optional))
        _wrong(place, f"has a member `{unknown[0][:NAME_CHARS]}`; there are: {known}")
    return value


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARS:
        _wrong(place, f"must be a text of 1 to {NAME_CHARS} characters")
    return value


def _wrong(place: str, why: str) -> NoReturn:
    raise ValueError(f"{place or 'the document'} {why}")
