"""Costs over the wire: equal in every place that tells them, exact, and absent where they are not whole (AH-USAGE)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.fixtures import Start
from fake.answers import calls, chunk, cut, partial, stall, text
from fake.provider import FakeProvider

PRICES = {"input": "1", "output": "10"}
TENTH = {"prompt_tokens": 100_000, "completion_tokens": 0}
"""What costs 0.1 by `PRICES`."""


@pytest.fixture
def prices(tmp_path: Path) -> dict[str, str]:
    """The variables of a server that knows what `fake-model` costs, and nothing of `other-model`."""
    path = tmp_path / "models.json"
    facts = {"contextTokens": 9_000_000, "outputTokens": 5, "cutoff": "2026-01", "thinks": False, "images": True}
    card = {"name": "mine", "currency": "USD", "models": {"fake-model": {**facts, "prices": PRICES}}}
    path.write_text(json.dumps({"version": "7", "cards": [card]}))
    return {"HAMES_MODELS_FILE": str(path)}


def test_a_turn_and_its_session_cost_the_sum_of_their_tries_wherever_that_is_told(
    start: Start, workspace: Path, fake: FakeProvider, prices: dict[str, str]
) -> None:
    fake.script(calls([("bash", {"command": "true"})], usage=TENTH), text("one", usage=TENTH), text("two", usage=TENTH))
    server = start(env=prices)
    session_id = server.create(workspace)
    turns = [server.submit(session_id) for _ in range(2)]
    ended = [server.finish(session_id, turn) for turn in turns]

    by_turn = [server.call("usage/get", sessionId=session_id, turnId=turn)["usage"] for turn in turns]
    whole = server.call("usage/get", sessionId=session_id)["usage"]
    view = server.call("session/get", sessionId=session_id, view=True)["view"]["usage"]
    server.stop()
    again = start().call("usage/get", sessionId=session_id)["usage"]

    assert all(turn["status"] == "completed" for turn in ended)
    terminals = [event["data"]["usage"] for event in server.events(session_id, "turn.completed")]
    assert by_turn == terminals
    assert whole == view == again
    amounts = [usage["inclusive"]["cost"]["estimated"]["amount"] for usage in (*by_turn, whole)]
    assert amounts == ["0.2", "0.1", "0.3"]
    (card,) = whole["direct"]["cost"]["estimated"]["rateCards"]
    assert (card["name"], card["version"]) == ("mine", "7")


def test_one_model_without_prices_leaves_the_session_without_a_total(
    start: Start, workspace: Path, fake: FakeProvider, prices: dict[str, str]
) -> None:
    fake.script(text("one", usage=TENTH), text("two", usage=TENTH))
    server = start(env=prices)
    session_id = server.create(workspace)
    first = server.submit(session_id)
    server.finish(session_id, first)
    server.call("session/update", sessionId=session_id, model="compatible/other-model")
    server.finish(session_id, server.submit(session_id))

    of_first = server.call("usage/get", sessionId=session_id, turnId=first)["usage"]["direct"]
    whole = server.call("usage/get", sessionId=session_id)["usage"]["direct"]

    assert of_first["cost"]["estimated"]["amount"] == "0.1"
    assert "cost" not in whole
    assert (whole["costReason"], whole["counters"]["prompt_tokens"]) == ("unsupported_pricing", 200_000)


def test_what_a_killed_process_had_asked_is_missing_from_the_sum_and_that_is_told(
    start: Start, workspace: Path, fake: FakeProvider, prices: dict[str, str]
) -> None:
    fake.script(partial("half") + stall(), text("whole", usage=TENTH))
    server = start(env={**prices, "HAMES_LIMIT_LEASE_MS": "500"})
    session_id = server.create(workspace)
    turn = server.submit(session_id)
    fake.wait_for_requests(1)
    server.kill()
    again = start(env={**prices, "HAMES_LIMIT_LEASE_MS": "500"})
    again.call("session/resume", sessionId=session_id)
    again.call("turn/wait", sessionId=session_id, turnId=turn)

    total = again.call("usage/get", sessionId=session_id, turnId=turn)["usage"]["direct"]

    assert (total["requests"], total["reported"], total["counters"]) == (2, 1, TENTH)
    assert "cost" not in total
    assert total["costReason"] == "incomplete_coverage"


def test_a_try_that_was_cut_behind_its_usage_is_paid_for(
    start: Start, workspace: Path, fake: FakeProvider, prices: dict[str, str]
) -> None:
    usage_alone: dict[str, Any] = {"choices": [], "usage": TENTH}
    fake.script(partial("half") + chunk(usage_alone) + cut(), text("whole", usage=TENTH))
    server = start(env={**prices, "HAMES_LIMIT_RETRY_BASE_MS": "1"})
    session_id = server.create(workspace)
    turn = server.submit(session_id)
    server.finish(session_id, turn)

    total = server.call("usage/get", sessionId=session_id, turnId=turn)["usage"]["direct"]

    assert (total["requests"], total["reported"]) == (2, 2)
    assert total["cost"]["estimated"]["amount"] == "0.2"


def test_what_is_known_of_a_model_is_listed_with_who_says_it(
    start: Start, fake: FakeProvider, prices: dict[str, str]
) -> None:
    fake.models = ["fake-model", "claude-sonnet-5", "nobody-knows-it"]
    server = start(env=prices)

    listed = {model["name"]: model for model in server.call("models/list")["models"]}

    assert listed["nobody-knows-it"] == {"name": "nobody-knows-it", "source": "provider"}
    assert listed["claude-sonnet-5"]["source"] == "catalog"
    assert listed["claude-sonnet-5"]["contextTokens"] == 1_000_000
    assert "rateCard" not in listed["claude-sonnet-5"], "its prices are not those of this address"
    assert listed["fake-model"]["source"] == "config"
    assert (listed["fake-model"]["contextTokens"], listed["fake-model"]["cutoff"]) == (9_000_000, "2026-01")
    assert listed["fake-model"]["rateCard"]["name"] == "mine"
