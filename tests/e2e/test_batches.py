"""Batches: several messages in one frame, one frame back, and nothing in them that may wait or push."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server, said
from e2e.fixtures import of_shared
from fake.provider import FakeProvider, text
from hames.protocol.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from hames.protocol.methods import METHODS

server, fake, workspace = of_shared("server"), of_shared("fake"), of_shared("workspace")


def batch(*entries: Any) -> bytes:
    return json.dumps(entries).encode() + b"\n"


def request(identifier: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}


def codes(responses: list[dict[str, Any]]) -> dict[Any, Any]:
    return {value["id"]: value["error"]["code"] if "error" in value else value["result"] for value in responses}


def test_mixed_batch_gets_one_answer_with_a_response_for_each_request(server: Server) -> None:
    start = len(server.frames)
    entries = [
        request("a", "ping"),
        {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "none"}},
        42,
        request("b", "no/such"),
        {"jsonrpc": "2.0", "id": "c", "result": {}},
        request("d", "session/get", colour=1),
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        request("e", "session/list", query="no such session"),
    ]

    responses = server.exchange(batch(*entries), answers=6)

    expected = {"a": {}, "b": METHOD_NOT_FOUND, "d": INVALID_PARAMS, None: INVALID_REQUEST, "e": {"sessions": []}}
    assert codes(responses) == expected
    assert [len(frame.value) for frame in server.frames[start:] if isinstance(frame.value, list)] == [6]


def test_empty_batch_is_refused_and_a_batch_without_requests_is_not_answered(server: Server) -> None:
    (empty,) = server.exchange(b"[]\n")
    server.exchange(batch({"jsonrpc": "2.0", "method": "x"}, {"jsonrpc": "2.0", "id": 1, "result": 1}), answers=0)

    assert (empty["id"], empty["error"]["code"]) == (None, INVALID_REQUEST)


def test_batch_of_1000_is_answered_and_one_of_1001_is_refused_whole(server: Server) -> None:
    entries = [request(f"b{n}", "ping") for n in range(1_001)]

    allowed = server.exchange(batch(*entries[:1_000]), answers=1_000)
    (refused,) = server.exchange(batch(*entries))

    assert codes(allowed) == {f"b{n}": {} for n in range(1_000)}
    assert (refused["id"], refused["error"]["code"]) == (None, INVALID_REQUEST)
    assert "1001" in refused["error"]["message"]


@pytest.mark.parametrize("method", [method.name for method in METHODS.values() if method.waits])
def test_method_that_may_wait_is_refused_in_a_batch(server: Server, method: str) -> None:
    responses = server.exchange(batch(request("a", method, sessionId="s"), request("b", "ping")), answers=2)

    assert codes(responses) == {"a": INVALID_REQUEST, "b": {}}


def test_subscribing_is_refused_in_a_batch(server: Server, workspace: Path) -> None:
    server.create(workspace, "b1")
    wish = {"workspace": str(workspace), "subscribe": {}}

    responses = server.exchange(
        batch(
            request("a", "session/create", sessionId="b2", **wish),
            request("b", "session/resume", sessionId="b1", subscribe={}),
        ),
        answers=2,
    )

    assert codes(responses) == {"a": INVALID_REQUEST, "b": INVALID_REQUEST}
    assert server.refused("session/get", sessionId="b2")["data"]["kind"] == "session_not_found"


def test_receipt_in_a_batch_precedes_the_events_of_its_turn(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(text("one"))
    server.create(workspace, "r1")
    server.expect("receipt", "turn/submit")

    # The document takes long the first time: the batch's answer waits for it.
    server.exchange(
        batch(
            request("receipt", "turn/submit", sessionId="r1", turnId="r", input=said("x")), request("b", "rpc.discover")
        ),
        answers=2,
    )

    assert server.finish("r1", "r")["status"] == "completed"
    receipt = server.answer_frame("receipt").index
    first = server.wait_for(lambda frame: frame.event is not None and frame.event.get("turnId") == "r")
    assert receipt < first.index


def test_requests_on_one_session_in_a_batch_are_served_in_order(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.answer = lambda _: text("ok")
    create = request("c", "session/create", workspace=str(workspace), sessionId="o1")
    submits = [
        request(f"r{n}", "turn/submit", sessionId="o1", turnId=f"t{n}", input=said(str(n))) for n in range(1, 20)
    ]

    responses = server.exchange(batch(create, *submits), answers=20)

    assert all("result" in response for response in responses)
    server.finish("o1", "t19")
    queued = [entry["event"]["turnId"] for entry in server.log("o1", types=["turn.queued"])]
    assert queued == [f"t{n}" for n in range(1, 20)]
