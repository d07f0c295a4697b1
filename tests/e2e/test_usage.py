"""Usage as evidence (AH-USAGE): exact sums with what they cover, and for each lack of a cost its own reason, alike in
every place that tells them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e.archives import fetch, member, verified_elsewhere
from e2e.checks import TERMINALS
from e2e.driver import Server
from e2e.fixtures import Start
from fake.answers import Answer, calls, chunk, cut, partial, stall, status, text
from fake.provider import FakeProvider

PRICES = {"input": "1", "cachedInput": "0.1", "output": "10"}
WHOLE = {"prompt_tokens": 100_000, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}}
"""What costs 0.1 by `PRICES`."""

WITHOUT_CACHE = {"prompt_tokens": 10, "completion_tokens": 5}


def reported(usage: Mapping[str, Any]) -> Answer:
    """The event that reports usage, alone."""
    return chunk({"choices": [], "usage": usage})


@dataclass(frozen=True)
class Lack:
    """A run whose cost cannot be told, for this one reason."""

    answers: tuple[Answer, ...]
    model: str = "compatible/fake-model"
    env: Mapping[str, str] = field(default_factory=dict)


LACKS = {
    "incomplete_coverage": Lack((text("ok", usage=None),)),
    "unsupported_pricing": Lack((text("ok", usage=WHOLE),), model="compatible/other-model"),
    "missing_provider_detail": Lack((text("ok", usage=WITHOUT_CACHE),)),
    "invalid_counters": Lack((text("ok", usage={**WHOLE, "prompt_tokens_details": {"cached_tokens": 100_001}}),)),
    "mixed_evidence": Lack(
        (calls([("bash", {"command": "true"})], usage={**WITHOUT_CACHE, "cost": 0.25}), text("ok", usage=WHOLE)),
        env={"HAMES_COMPATIBLE_SERVER": "openrouter"},
    ),
}


@pytest.fixture
def prices(tmp_path: Path) -> dict[str, str]:
    """The variables of a server that knows what `fake-model` costs, and nothing of `other-model`."""
    path = tmp_path / "models.json"
    card = {"name": "mine", "currency": "USD", "models": {"fake-model": {"prices": PRICES}}}
    path.write_text(json.dumps({"version": "7", "cards": [card]}))
    return {"HAMES_MODELS_FILE": str(path), "HAMES_LIMIT_RETRY_BASE_MS": "1"}


def terminals(server: Server, session_id: str) -> list[dict[str, Any]]:
    found = [entry["event"] for entry in server.log(session_id)]
    return [event for event in found if event["type"] in TERMINALS]


@pytest.mark.parametrize("reason", LACKS)
def test_each_reason_is_told_alike_in_every_place_that_tells_of_usage(
    start: Start, workspace: Path, fake: FakeProvider, prices: dict[str, str], tmp_path: Path, reason: str
) -> None:
    lack = LACKS[reason]
    fake.script(*lack.answers)
    server = start(env={**prices, **lack.env})
    session_id = server.create(workspace, model=lack.model)
    turn_id = server.submit(session_id)
    assert server.finish(session_id, turn_id)["status"] == "completed"

    usage = server.call("usage/get", sessionId=session_id, turnId=turn_id)["usage"]
    whole = server.call("usage/get", sessionId=session_id)["usage"]
    view = server.call("session/get", sessionId=session_id, view=True)["view"]["usage"]
    (event,) = terminals(server, session_id)
    exported = fetch(server, session_id, server.call("session/export", sessionId=session_id))
    server.stop()
    again = start().call("usage/get", sessionId=session_id, turnId=turn_id)["usage"]

    assert usage["direct"]["costReason"] == reason
    assert "cost" not in usage["direct"]
    assert usage["direct"] == usage["inclusive"]
    assert usage == whole == view == event["data"]["usage"] == again
    assert verified_elsewhere(tmp_path / "elsewhere", exported)[0] == 0
    lines = member(tmp_path / "elsewhere", "events.jsonl").decode().splitlines()
    assert event in [json.loads(line)["event"] for line in lines]


def test_sums_are_those_of_what_the_provider_sent_and_say_what_they_lack(
    start: Start, workspace: Path, fake: FakeProvider, prices: dict[str, str]
) -> None:
    """Turns that complete, fail and are cancelled; answers that are whole, cut behind their usage and before it."""
    used: Counter[str] = Counter()

    def uses(n: int) -> dict[str, Any]:
        usage = {"prompt_tokens": 1_000 + n, "completion_tokens": n, "prompt_tokens_details": {"cached_tokens": n}}
        used.update({name: value for name, value in usage.items() if isinstance(value, int)})
        used["prompt_tokens_details.cached_tokens"] += n
        return usage

    server = start(env=prices)
    session_id = server.create(workspace)
    scripts: list[tuple[int, tuple[Answer, ...]]] = [
        (2, (calls([("bash", {"command": "true"})], usage=uses(1)), text("one", usage=uses(2)))),
        (2, (partial("half") + reported(uses(3)) + cut(), text("two", usage=uses(4)))),
        (1, (partial("half") + cut(), text("three", usage=uses(5)))),
        (1, (calls([("bash", {"command": "true"})], usage=uses(6)), status(400, "no"))),
        (1, (calls([("bash", {"command": "true"})], usage=uses(7)), partial("half") + stall())),
    ]
    turns: list[dict[str, Any]] = []
    for _, answers in scripts:
        fake.script(*answers)
        turn_id = server.submit(session_id)
        if answers is scripts[-1][1]:
            fake.wait_for_requests(2 * len(scripts))
            server.call("turn/cancel", sessionId=session_id, turnId=turn_id)
        turns.append(server.finish(session_id, turn_id))

    told = [server.call("usage/get", sessionId=session_id, turnId=turn["turnId"])["usage"] for turn in turns]
    whole = server.call("usage/get", sessionId=session_id)["usage"]

    assert [turn["status"] for turn in turns] == ["completed"] * 3 + ["failed", "cancelled"]
    assert [event["data"]["usage"] for event in terminals(server, session_id)] == told
    for of in ("direct", "inclusive"):
        assert whole[of]["counters"] == used
        assert (whole[of]["requests"], whole[of]["reported"]) == (len(fake.requests), 7)
        assert [(usage[of]["requests"], usage[of]["reported"]) for usage in told] == [(2, n) for n, _ in scripts]
        assert sum((Counter(usage[of]["counters"]) for usage in told), Counter()) == used
        reasons = [usage[of].get("costReason") for usage in told]
        assert reasons == [None, None, "incomplete_coverage", "incomplete_coverage", "incomplete_coverage"]
        assert whole[of]["costReason"] == "incomplete_coverage"
    # 1,000 fresh tokens of each request at 1, the cached ones at 0.1 and the said ones at 10, for a million.
    assert told[0]["inclusive"]["cost"]["estimated"]["amount"] == "0.0020303"
    assert told[1]["inclusive"]["cost"]["estimated"]["amount"] == "0.0020707"
