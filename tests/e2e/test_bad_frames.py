"""Lines that are wrong or odd, sent while a turn streams: exact answers; neither the turn nor `ping` notices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server, compatible, line, said
from e2e.fixtures import Start
from fake.provider import FakeProvider, finish, partial, wait_for
from hames.protocol.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR


@dataclass(frozen=True)
class Case:
    """What is sent, and the responses expected: by id, a result or an error code."""

    name: str
    data: bytes
    answers: list[tuple[str | int | None, Any]] = field(default_factory=list)
    says: str = ""
    """What the error's message has to name."""


def message(**members: Any) -> bytes:
    return json.dumps(members).encode() + b"\n"


_PING = line("p", "ping").removesuffix(b"\n")

CASES = [
    Case("not json", b"{nonsense\n", [(None, PARSE_ERROR)]),
    Case("blank line", b"\n", []),
    Case("line of blanks", b" \t \r\n", []),
    Case("batch of one", b"[" + _PING + b"]\n", [("p", {})]),
    Case("params absent", message(jsonrpc="2.0", id="p", method="ping"), [("p", {})]),
    Case("params null", message(jsonrpc="2.0", id="p", method="ping", params=None), [("p", {})]),
    Case("params an empty array", message(jsonrpc="2.0", id="p", method="ping", params=[]), [("p", {})]),
    Case(
        "params an array", message(jsonrpc="2.0", id="p", method="ping", params=[1]), [("p", INVALID_PARAMS)], "array"
    ),
    Case(
        "params a string", message(jsonrpc="2.0", id="p", method="ping", params="x"), [("p", INVALID_PARAMS)], "string"
    ),
    Case("id null", message(jsonrpc="2.0", id=None, method="ping"), [(None, INVALID_REQUEST)], "null"),
    Case("id a fraction", message(jsonrpc="2.0", id=1.5, method="ping"), [(None, INVALID_REQUEST)], "number"),
    Case("id a string", message(jsonrpc="2.0", id="a", method="ping"), [("a", {})]),
    Case("no jsonrpc", message(id="p", method="ping"), [("p", INVALID_REQUEST)], "jsonrpc"),
    Case("jsonrpc a number", message(jsonrpc=2.0, id="p", method="ping"), [("p", INVALID_REQUEST)], "jsonrpc"),
    Case("no method", message(jsonrpc="2.0", id="p"), [("p", INVALID_REQUEST)], "method"),
    Case("method a number", message(jsonrpc="2.0", id="p", method=1), [("p", INVALID_REQUEST)], "method"),
    Case("unknown method", line("p", "turn/nothing"), [("p", METHOD_NOT_FOUND)], "turn/nothing"),
    Case("unknown notification", message(jsonrpc="2.0", method="nothing", params={"a": 1})),
    Case("a request's method as a notification", message(jsonrpc="2.0", method="turn/cancel", params={})),
    Case("cancel of nothing", message(jsonrpc="2.0", method="$/cancelRequest", params={"id": "none"})),
    Case("cancel without id", message(jsonrpc="2.0", method="$/cancelRequest")),
    Case("cancel of an array", message(jsonrpc="2.0", method="$/cancelRequest", params={"id": [1]})),
    Case("cancel of an object", message(jsonrpc="2.0", method="$/cancelRequest", params={"id": {"a": 1}})),
    Case("cancel of null", message(jsonrpc="2.0", method="$/cancelRequest", params={"id": None})),
    Case(
        "unknown param",
        line("p", "turn/get", sessionId="s", turnId="t", colour=1),
        [("p", INVALID_PARAMS)],
        "params.colour",
    ),
    Case("unknown param of ping", line("p", "ping", colour=1), [("p", INVALID_PARAMS)], "params.colour"),
    Case("a result nobody asked for", message(jsonrpc="2.0", id="p", result={})),
    Case("an error nobody asked for", message(jsonrpc="2.0", id=7, error={"code": 1, "message": "no"})),
    Case("an error of nothing", message(jsonrpc="2.0", id=None, error={"code": PARSE_ERROR, "message": "no"})),
    Case("CRLF", _PING + b"\r\n", [("p", {})]),
    Case(
        "headers after lines", b"Content-Length: %d\r\n\r\n%b" % (len(_PING), _PING), [(None, PARSE_ERROR), ("p", {})]
    ),
    Case(
        "a batch with an object as session",
        b"[" + line("p", "turn/get", sessionId={}, turnId="t").strip() + b"]\n",
        [("p", INVALID_PARAMS)],
        "params.sessionId",
    ),
    Case("a member beside params", message(jsonrpc="2.0", id="p", method="ping", params={}, more=1), [("p", {})]),
    Case("U+2028 in the method", line("p", "pi\u2028ng"), [("p", METHOD_NOT_FOUND)]),
    Case(
        "raw U+2028 in the method",
        '{"jsonrpc":"2.0","id":"p","method":"pi\u2028ng"}\n'.encode(),
        [("p", METHOD_NOT_FOUND)],
    ),
    Case(
        "bytes ff fe",
        b'{"jsonrpc":"2.0","id":"p","method":"ping","params":{"_meta":{"a":"\xff\xfe"}}}\n',
        [(None, PARSE_ERROR)],
        "UTF-8",
    ),
    Case("a number", b"42\n", [(None, INVALID_REQUEST)]),
    Case("null", b"null\n", [(None, INVALID_REQUEST)]),
    Case("NaN", b'{"jsonrpc":"2.0","id":"p","method":"ping","params":{"_meta":{"a":NaN}}}\n', [(None, PARSE_ERROR)]),
    Case("a NUL byte", b'{"jsonrpc":"2.0","id":"p","method":"ping"}\x00\n', [(None, PARSE_ERROR)]),
    Case("two messages", _PING + _PING + b"\n", [(None, PARSE_ERROR)]),
    Case(
        "a second initialize", line("p", "initialize", protocolVersions=["1"]), [("p", INVALID_REQUEST)], "initialize"
    ),
]


@dataclass
class Streaming:
    server: Server
    session_id: str
    turn_id: str


@pytest.fixture(scope="module")
def streaming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streaming]:
    """A turn whose model has said half its text and says the rest when all tests are done: then it completes."""
    home, workspace = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("workspace")
    with FakeProvider() as fake:
        fake.script(partial("half ") + wait_for("rest") + partial("and half") + finish())
        with Server(home, env={**compatible(fake.url)}) as server:
            session_id = server.create(workspace, "s1")
            turn_id = server.submit(session_id)
            server.wait_for(lambda frame: b'"method":"delta"' in frame.raw)
            yield Streaming(server, session_id, turn_id)
            fake.gate("rest").open()
            turn = server.finish(session_id, turn_id)
            assert turn["outcome"] == {"status": "completed", "text": "half and half"}
        assert fake.refusals == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_line_is_answered_exactly_while_a_turn_streams(streaming: Streaming, case: Case) -> None:
    responses = streaming.server.exchange(case.data, answers=len(case.answers))

    answers = [(value["id"], value["error"]["code"] if "error" in value else value["result"]) for value in responses]
    assert answers == case.answers
    assert all(case.says in value["error"]["message"] for value in responses if "error" in value)
    turn = streaming.server.call("turn/get", sessionId=streaming.session_id, turnId=streaming.turn_id)["turn"]
    assert turn["status"] == "running"


def test_line_of_20_mb_is_refused_with_its_size_while_a_turn_streams(streaming: Streaming) -> None:
    data = line("p", "ping", _meta={"a": "x" * 20_000_000})

    (response,) = streaming.server.exchange(data)

    assert response["id"] is None
    assert response["error"]["code"] == -32000
    assert response["error"]["data"]["kind"] == "frame_too_large"
    assert response["error"]["data"]["details"] == {"actualBytes": len(data) - 1, "maxBytes": 16 * 2**20}


def test_input_below_the_frame_limit_but_above_its_own_is_refused_by_name(streaming: Streaming) -> None:
    """Twelve megabytes are a frame, and too much for a turn."""
    error = streaming.server.refused("turn/submit", sessionId="s1", input=said("x" * 12_000_000))

    assert error["data"]["kind"] == "limit_exceeded"
    assert error["data"]["details"] == {"limit": "inputBytes", "configured": 4 * 2**20, "observed": 12_000_000}


def test_requests_before_initialize_are_refused_but_the_early_ones(start: Start, workspace: Path) -> None:
    server = start(initialize=False)

    refusals = [
        server.refused("session/create", workspace=str(workspace)),
        server.refused("session/list"),
        server.refused("turn/submit", sessionId="s", input=said("x")),
        server.refused("tools/list"),
    ]

    assert [(error["code"], error["data"]["kind"]) for error in refusals] == [(-32000, "not_initialized")] * 4
    assert server.call("ping") == {}
    assert server.call("capabilities/describe")["schemaVersion"] == "1.0"
    assert server.call("rpc.discover")["openrpc"]
    server.initialize()
    assert server.call("session/list") == {"sessions": []}


def test_initialize_refuses_what_it_cannot_speak_and_ignores_what_it_does_not_know(start: Start) -> None:
    server = start(initialize=False)

    unsupported = server.refused("initialize", protocolVersions=["9", "8"], clientInfo={"name": "c", "version": "1"})
    missing = [
        server.refused("initialize"),
        server.refused("initialize", protocolVersions="1", clientInfo={"name": "c", "version": "1"}),
        server.refused("initialize", protocolVersions=[1], clientInfo={"name": "c", "version": "1"}),
        server.refused("initialize", protocolVersions=["1"], clientInfo={"name": 1, "version": "1"}),
        server.refused("initialize", protocolVersions=["1"]),
    ]
    agreed = server.call(
        "initialize", protocolVersions=["9", "1"], clientInfo={"name": "c", "version": "1", "x": 1}, later={"y": 2}
    )

    assert unsupported["data"]["kind"] == "unsupported_protocol"
    assert unsupported["data"]["details"]["supported"] == ["1"]
    assert [error["code"] for error in missing] == [INVALID_PARAMS] * 5
    assert agreed["protocolVersion"] == "1"
