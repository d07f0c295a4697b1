"""What a server says of itself, of its parts and of what was used."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.checks import SCHEMAS
from e2e.driver import Server
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, status, text
from hames.core.limits import LIMITS
from hames.protocol.events import EVENTS
from hames.protocol.methods import CLIENT_NOTIFICATIONS, METHODS, NOTIFICATIONS


def test_capabilities_need_nothing_and_start_nothing(tmp_path: Path) -> None:
    home = tmp_path / "empty"
    home.mkdir()
    nothing = dict.fromkeys(("HAMES_HOME", "HAMES_CONFIG", "HAMES_MODEL", "TERM"))

    with Server(home, env={**nothing, "HOME": str(home)}, initialize=False) as server:
        described = server.call("capabilities/describe")
        document = server.call("rpc.discover")
        assert server.call("ping") == {}
        agreed = server.initialize()
        assert server.descendants() == []
        assert list(home.iterdir()) == []

    assert [method["name"] for method in described["methods"]] == list(METHODS) == agreed["capabilities"]["methods"]
    assert described["notifications"] == list(NOTIFICATIONS)
    assert [event["type"] for event in described["events"]] == list(EVENTS)
    assert set(described["limits"]) == set(LIMITS) == set(agreed["limits"])
    assert {tool["name"] for tool in described["parentTools"]} >= {"bash", "read", "write", "edit", "grep", "glob"}
    assert [method["name"] for method in document["methods"]] == [*METHODS, *CLIENT_NOTIFICATIONS]


def test_document_is_the_one_that_is_published(server: Server) -> None:
    published = json.loads((SCHEMAS.parent / "protocol" / "openrpc.json").read_text(encoding="utf-8"))

    assert server.call("rpc.discover") == published


def test_limits_say_what_is_in_force(start: Start) -> None:
    server = start(env={"HAMES_LIMIT_STEPS": "7"}, initialize=False)

    limits = server.initialize()["limits"]

    assert limits["steps"]["default"] == 7
    assert limits["frameInBytes"]["default"] == 16 * 2**20


def test_health_names_what_works_and_what_does_not(
    start: Start, server: Server, workspace: Path, fake: FakeProvider
) -> None:
    session_id = server.create(workspace)

    well = server.call("health/check", sessionId=session_id)["dependencies"]
    (workspace / "gone").mkdir()
    elsewhere = server.create(workspace / "gone")
    (workspace / "gone").rmdir()
    fake.listing = status(401, {"error": {"message": "no"}})
    ill = server.call("health/check", sessionId=elsewhere)["dependencies"]
    one = server.call("health/check", dependencies=["store"])["dependencies"]

    assert {name: found["status"] for name, found in well.items()} == {
        "store": "ok",
        "sandbox": well["sandbox"]["status"],
        "provider": "ok",
        "workspace": "ok",
    }
    assert well["sandbox"]["status"] in ("ok", "degraded")
    assert ill["workspace"]["status"] == "unavailable"
    assert ill["provider"]["status"] != "ok"
    assert all(found.get("why") for found in ill.values() if found["status"] != "ok")
    assert list(one) == ["store"]


def test_health_of_a_provider_that_is_not_there_is_an_answer(start: Start) -> None:
    server = start(env={"HAMES_COMPATIBLE_BASE_URL": "http://127.0.0.1:9/v1"})

    found = server.call("health/check", dependencies=["provider"])["dependencies"]["provider"]

    assert found["status"] == "unavailable"
    assert "127.0.0.1:9" in json.dumps(found)


def test_models_are_those_of_the_provider_and_its_failure_is_typed(server: Server, fake: FakeProvider) -> None:
    listed = server.call("models/list")
    named = server.call("models/list", provider="compatible")
    offline = server.call("models/list", provider="offline")
    fake.listing = status(401, {"error": {"message": "wrong key"}})
    error = server.refused("models/list")

    models = [{"name": name, "source": "provider"} for name in sorted(fake.models)]
    assert listed == named == {"provider": "compatible", "models": models}
    assert offline["provider"] == "offline"
    assert error["data"]["kind"] == "credential_rejected"


def test_tools_of_a_session_are_listed_and_offered_to_its_model(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(text("ok"))

    tools = server.call("tools/list")["tools"]
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id))

    offered = [tool["function"]["name"] for tool in fake.requests[0].body["tools"]]
    assert offered == [name for name in (tool["name"] for tool in tools) if name in offered]
    (created,) = server.events(session_id, "session.created")
    assert created["data"]["snapshot"]["tools"] == offered


def test_usage_is_what_was_reported_and_absent_stays_absent(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(
        calls([("bash", {"command": "true"})], usage={"prompt_tokens": 7, "completion_tokens": 2}),
        text("first", usage={"prompt_tokens": 11, "prompt_tokens_details": {"cached_tokens": 3}}),
        text("second", usage=None),
    )
    session_id = server.create(workspace)
    first = server.submit(session_id)
    server.finish(session_id, first)
    second = server.submit(session_id)
    server.finish(session_id, second)

    by_turn = [server.call("usage/get", sessionId=session_id, turnId=turn)["usage"] for turn in (first, second)]
    whole = server.call("usage/get", sessionId=session_id)["usage"]

    counters = {"prompt_tokens": 18, "completion_tokens": 2, "prompt_tokens_details.cached_tokens": 3}
    assert by_turn[0]["direct"]["counters"] == counters
    assert (by_turn[0]["direct"]["requests"], by_turn[0]["direct"]["reported"]) == (2, 2)
    assert by_turn[1]["direct"]["counters"] == {}
    assert (by_turn[1]["direct"]["requests"], by_turn[1]["direct"]["reported"]) == (1, 0)
    assert whole["direct"]["counters"] == counters
    assert (whole["direct"]["requests"], whole["direct"]["reported"]) == (3, 2)
    assert whole["inclusive"] == whole["direct"]
    assert by_turn[0]["direct"]["costReason"] == "unsupported_pricing"
    assert whole["direct"]["costReason"] == "incomplete_coverage"
    assert '"cost"' not in json.dumps(whole)


def test_a_strict_session_injects_nothing_that_it_was_not_given(start: Start, workspace: Path) -> None:
    with start() as server:
        strict = server.call("session/create", workspace=str(workspace), model="offline", mode="strict")
        asked = {"limits": {"loopRepeats": 5}, "context": {"compaction": "auto"}}
        given = server.call("session/create", workspace=str(workspace), model="offline", mode="strict", **asked)
        usual = server.call("session/create", workspace=str(workspace), model="offline")

        found = [
            (each["snapshot"]["limits"]["loopRepeats"], each["snapshot"]["context"]["compaction"])
            for each in (strict, given, usual)
        ]
        assert found == [(0, "manual"), (5, "auto"), (3, "auto")]
