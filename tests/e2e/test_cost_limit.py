"""A limit of the cost holds whatever a vendor leaves out of its answers: the strict fake of each, over the wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server
from e2e.fixtures import Start
from fake import answers as chat
from fake import anthropic, gemini, openai
from fake.answers import Answer, cut, status
from fake.provider import FakeProvider
from fake.vendors import VENDORS
from hames.config import SETTINGS

KEY = "sk-of-the-tests-0123456789"
PRICES = {"input": "1", "cachedInput": "0.1", "output": "10"}
MODEL = "unlisted-model"
"""Of which nothing is known but what the test's file says."""
COMMAND = {"command": "true"}


def _gemini_calls(usage: Mapping[str, Any] | None) -> Answer:
    parts = gemini.call_parts([("bash", COMMAND)], signed_by=MODEL)
    return gemini.send(gemini.chunk(parts)) + gemini.finish(usage=usage)


CALLS: Mapping[str, Callable[[Mapping[str, Any] | None], Answer]] = {
    "compatible": lambda usage: chat.calls([("bash", COMMAND)], usage=usage),
    "openai": lambda usage: openai.answer(openai.Asked("bash", COMMAND), usage=usage),
    "anthropic": lambda usage: anthropic.calls(anthropic.Asked("bash", COMMAND), usage=usage, model=MODEL),
    "gemini": _gemini_calls,
}
"""A whole answer with a call, which reports so much."""

PARTIAL: Mapping[str, Mapping[str, Any]] = {
    "compatible": {"prompt_tokens": 10},
    "openai": {"input_tokens": 10},
    "anthropic": {"input_tokens": 10},
    "gemini": {"candidatesTokenCount": 5},
}
"""What lacks a counter that has a price."""

CUT: Mapping[str, Answer] = {
    "compatible": chat.partial("half") + cut(),
    "openai": openai.answer(openai.Said(["half"]), ends=False) + cut(),
    "anthropic": anthropic.answer(anthropic.Said(["half"]), stop=None) + cut(),
    "gemini": gemini.partial("half") + cut(),
}

REASONS = {"none": "incomplete_coverage", "partial": "missing_provider_detail", "cut": "incomplete_coverage"}


def lacking(vendor: str, what: str) -> Answer:
    if what == "cut":
        return CUT[vendor]
    return CALLS[vendor](PARTIAL[vendor] if what == "partial" else None)


@pytest.fixture(params=list(VENDORS))
def vendor(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def model(vendor: str) -> Iterator[FakeProvider]:
    with FakeProvider(wire=VENDORS[vendor].wire, api_key=KEY) as fake:
        yield fake
        assert fake.refusals == []


Serve = Callable[..., Server]


@pytest.fixture
def serve(start: Start, vendor: str, model: FakeProvider, tmp_path: Path) -> Serve:
    """Starts a server that asks `model`, whose prices are known; `facts` are what else is."""

    def begin(**facts: Any) -> Server:
        path = tmp_path / "models.json"
        row = {"prices": PRICES, "contextTokens": 200_000, **facts}
        card = {"name": "mine", "currency": "USD", "models": {MODEL: row}}
        path.write_text(json.dumps({"version": "1", "cards": [card]}))
        env = {
            SETTINGS[f"providers.{vendor}.baseUrl"].environment: model.url,
            SETTINGS[f"providers.{vendor}.apiKey"].environment: KEY,
            "HAMES_MODELS_FILE": str(path),
            "HAMES_LIMIT_RETRY_BASE_MS": "1",
        }
        return start(env=env)

    return begin


def ended(server: Server, workspace: Path, vendor: str, cost_micros: int) -> dict[str, Any]:
    """The terminal event of a turn with this limit."""
    model = f"{vendor}/{MODEL}"
    session_id = server.create(workspace, "s1", model=model, limits={"costMicros": cost_micros})
    turn_id = server.submit(session_id)
    server.finish(session_id, turn_id)
    event: dict[str, Any]
    (event,) = [entry["event"] for entry in server.log(session_id) if entry["event"]["type"] in TERMINALS]
    assert server.call("usage/get", sessionId=session_id, turnId=turn_id)["usage"] == event["data"]["usage"]
    return event


TERMINALS = ("turn.completed", "turn.failed", "turn.cancelled")


@pytest.mark.parametrize("what", REASONS)
def test_what_a_vendor_leaves_out_counts_at_its_most_and_the_limit_ends_the_turn(
    serve: Serve, model: FakeProvider, workspace: Path, vendor: str, what: str
) -> None:
    model.answer = lambda _: lacking(vendor, what)

    event = ended(serve(outputTokens=1_000), workspace, vendor, 1)

    error = event["data"]["error"]
    assert (error["kind"], error["details"]["limit"]) == ("limit_exceeded", "costMicros")
    assert error["details"]["observed"] == error["details"]["assumed"] >= 1
    assert len(model.requests) == 1
    total = event["data"]["usage"]["inclusive"]
    assert "cost" not in total, "what is counted for a limit is told as no cost"
    assert total["costReason"] == REASONS[what]


@pytest.mark.parametrize("what", ["none", "cut"])
def test_where_no_most_is_known_the_turn_ends_and_says_that_the_cost_cannot_be_known(
    serve: Serve, model: FakeProvider, workspace: Path, vendor: str, what: str
) -> None:
    model.answer = lambda _: lacking(vendor, what)

    event = ended(serve(), workspace, vendor, 10**9)

    details = event["data"]["error"]["details"]
    assert (details["limit"], details["reason"]) == ("costMicros", "cost_unknown")
    assert len(model.requests) == 1


REPORTS_EARLY: Mapping[str, Answer] = {
    "compatible": chat.chunk({**chat.delta({"content": "half"}), "usage": chat.USAGE}) + chat.partial(" of it") + cut(),
    "anthropic": CUT["anthropic"],
    "gemini": gemini.send(gemini.chunk([{"text": "half"}], usage={"promptTokenCount": 9, "candidatesTokenCount": 1}))
    + cut(),
}
"""What is cut after a report of its beginning."""


@pytest.mark.parametrize("vendor", list(REPORTS_EARLY), indirect=True)
def test_what_was_reported_before_an_answer_was_cut_is_not_all_that_it_cost(
    serve: Serve, model: FakeProvider, workspace: Path, vendor: str
) -> None:
    model.answer = lambda _: REPORTS_EARLY[vendor]

    event = ended(serve(outputTokens=1_000), workspace, vendor, 15_000)

    details = event["data"]["error"]["details"]
    assert details["limit"] == "costMicros"
    # Each is 1000 tokens at 10 dollars a million, and what was sent.
    assert details["observed"] == details["assumed"] >= len(model.requests) * 10_000
    assert len(model.requests) <= 2


@pytest.mark.parametrize("vendor", ["compatible"], indirect=True)
def test_an_answer_is_held_to_what_came_of_it_though_nothing_is_reported_of_it(
    serve: Serve, model: FakeProvider, workspace: Path
) -> None:
    zeros = {"prompt_tokens": 0, "completion_tokens": 0}
    model.answer = lambda _: chat.calls([("bash", COMMAND)], "w" * 80_000, usage=zeros)

    event = ended(serve(outputTokens=1_000), workspace, "compatible", 150_000)

    details = event["data"]["error"]["details"]
    assert details["observed"] == details["assumed"] >= 200_000
    assert len(model.requests) == 2
    assert event["data"]["usage"]["direct"]["counters"] == zeros


@pytest.mark.parametrize("vendor", ["compatible"], indirect=True)
def test_a_request_that_is_found_too_long_after_text_is_paid_for(
    serve: Serve, model: FakeProvider, workspace: Path
) -> None:
    too_long = {"error": {"code": "context_length_exceeded", "message": "maximum context length"}}
    model.answer = lambda _: chat.partial("half") + chat.send(chat.event(too_long))

    event = ended(serve(outputTokens=1_000), workspace, "compatible", 1)

    details = event["data"]["error"]["details"]
    assert (details["limit"], len(model.requests)) == ("costMicros", 1)
    assert details["observed"] == details["assumed"] >= 10_000


def test_answers_that_leave_nothing_out_and_refusals_are_held_to_what_they_cost(
    serve: Serve, model: FakeProvider, workspace: Path, vendor: str
) -> None:
    model.script(status(503), status(503), model.wire.text("done"))

    event = ended(serve(outputTokens=1_000), workspace, vendor, 1)

    assert event["type"] == "turn.completed"
    assert len(model.requests) == 3
