"""What a person sees of costs, and the file of models that an operator writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cli.command import Cli
from e2e.driver import compatible
from fake import anthropic
from fake.answers import USAGE, text
from fake.provider import FakeProvider

PRICES = {"input": "1", "cachedInput": "0.1", "output": "10"}


def models_file(directory: Path, **row: Any) -> str:
    """A file that knows `fake-model`, at any address."""
    path = directory / "models.json"
    card = {"name": "mine", "currency": "USD", "models": {"fake-model": {"prices": PRICES, **row}}}
    path.write_text(json.dumps({"version": "7", "cards": [card]}))
    return str(path)


def with_row(members: str) -> str:
    """The text of a file with one model, `m`, of which it says this."""
    return f'{{"version": "1", "cards": [{{"name": "c", "currency": "USD", "models": {{"m": {{{members}}}}}}}]}}'


def test_a_run_and_its_session_tell_the_same_estimate_and_by_which_prices(
    hames: Cli, fake: FakeProvider, tmp_path: Path
) -> None:
    fake.script(text("hi"))
    env = compatible(fake.url, HAMES_MODELS_FILE=models_file(tmp_path))

    record = hames("run", "--json", "go", env=env).record
    shown = hames("sessions", "show", record["sessionId"])

    # 6 of 10 tokens of input were not cached, and 5 were said.
    total = record["usage"]["inclusive"]
    assert total["cost"]["estimated"]["amount"] == "0.0000564"
    assert total["cost"]["estimated"]["rateCards"][0]["name"] == "mine"
    assert "about 0.0000564 USD, estimated by list prices (mine 7)" in shown.out


def test_a_cost_that_the_provider_reports_is_told_as_such(hames: Cli, fake: FakeProvider) -> None:
    fake.script(text("hi", usage={"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.25}))
    env = compatible(fake.url, HAMES_COMPATIBLE_SERVER="openrouter")

    record = hames("run", "--json", "go", env=env).record
    shown = hames("sessions", "show", record["sessionId"])

    assert record["usage"]["direct"]["cost"] == {"reported": {"amount": "0.25", "currency": "USD"}}
    assert "0.25 USD, as the provider reported it" in shown.out


@pytest.mark.parametrize(
    ("model", "usage", "reason"),
    [
        ("fake-model", None, "incomplete_coverage"),
        ("another-model", USAGE, "unsupported_pricing"),
        ("fake-model", {"prompt_tokens": 10, "completion_tokens": 5}, "missing_provider_detail"),
        ("fake-model", {**USAGE, "prompt_tokens_details": {"cached_tokens": 11}}, "invalid_counters"),
    ],
)
def test_where_there_is_no_cost_its_reason_is_told_and_no_amount(
    hames: Cli, fake: FakeProvider, tmp_path: Path, model: str, usage: dict[str, Any] | None, reason: str
) -> None:
    fake.script(text("hi", usage=usage))
    env = compatible(fake.url, HAMES_MODELS_FILE=models_file(tmp_path))

    record = hames("run", "--json", "--model", f"compatible/{model}", "go", env=env).record
    shown = hames("sessions", "show", record["sessionId"])

    total = record["usage"]["inclusive"]
    assert (total["costReason"], "cost" in total) == (reason, False)
    assert f"not known ({reason})" in shown.out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file or directory"),
        ("{", "is not JSON"),
        ("[]", "the document must be an object"),
        (
            '{"version": "1", "cards": [{"name": "c", "models": {"m": {"window": 1}}}]}',
            "cards[0].models.m has a member",
        ),
        (" " * (4 * 2**20 + 1), "is larger than 4194304 bytes"),
        (with_row('"prices": {"input": "٢", "output": "1"}'), "cards[0].models.m.prices.input must be decimal text"),
        (
            with_row('"prices": {"input": "1", "output": "1e400"}'),
            "cards[0].models.m.prices.output must be decimal text",
        ),
        (with_row('"contextTokens": 1e400'), "cards[0].models.m.contextTokens must be an integer"),
        (with_row(f'"contextTokens": {"9" * 5_000}'), "cards[0].models.m.contextTokens must be an integer"),
        (with_row('"contextTokens": -1'), "cards[0].models.m.contextTokens must be an integer"),
        (with_row('"outputTokens": true'), "cards[0].models.m.outputTokens must be an integer"),
        (with_row('"outputTokens": NaN'), "is not JSON"),
        (with_row('"outputTokens": ٥'), "is not JSON"),
        (with_row('"outputTokens": 5, "outputTokens": 6'), "cards[0].models.m.outputTokens is there twice"),
        (with_row('}, "m": {'), "cards[0].models.m is there twice"),
        (with_row('}, "M": {'), "cards[0].models.M is there twice"),
    ],
)
def test_a_file_of_models_that_is_not_good_is_refused_before_anything_runs(
    hames: Cli, fake: FakeProvider, tmp_path: Path, content: str | None, told: str
) -> None:
    path = tmp_path / "models.json"
    if content is not None:
        path.write_text(content)

    done = hames("run", "--json", "go", env=compatible(fake.url, HAMES_MODELS_FILE=str(path)))

    assert done.code == 64
    assert done.record["error"]["kind"] == "invalid_config"
    assert str(path) in done.record["error"]["message"]
    assert told in done.record["error"]["message"]
    assert fake.requests == []
    assert hames("sessions", "list").out == ""


def test_the_file_of_models_is_named_by_an_absolute_path(hames: Cli, fake: FakeProvider) -> None:
    done = hames("run", "--json", "go", env=compatible(fake.url, HAMES_MODELS_FILE="models.json"))

    assert done.code == 64
    assert "must be an absolute path, not 'models.json'" in done.record["error"]["message"]


def test_where_a_request_must_say_how_long_its_answer_may_get_the_window_is_thought_of(hames: Cli) -> None:
    with FakeProvider(wire=anthropic.Messages(), api_key="a-key") as fake:
        fake.script(anthropic.text("hi"), anthropic.text("hi"))
        env = {"HAMES_ANTHROPIC_BASE_URL": fake.url, "HAMES_ANTHROPIC_API_KEY": "a-key"}
        for model in ("claude-haiku-4-5-20251001", "claude-sonnet-4-6"):
            assert hames("run", "--model", f"anthropic/{model}", "go", env=env).code == 0

        # 15 % of 200,000; all that the model gives, of a window of a million.
        assert [request.body["max_tokens"] for request in fake.requests] == [30_000, 64_000]
        assert fake.refusals == []


def test_a_file_of_models_that_is_none_is_refused_at_once(hames: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "models.json")
    env = {"HAMES_MODELS_FILE": str(tmp_path / "models.json"), "HAMES_COMPATIBLE_BASE_URL": "http://127.0.0.1:1/v1"}

    done = hames("run", "--model", "compatible/m", "hi", env=env)

    assert done.code == 64
    assert "not a regular file" in done.err
