"""Bytes of a client in every form that is allowed, and in some that are not."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from e2e.driver import headed, line, said
from e2e.fixtures import Shared, Start
from fake.provider import FakeProvider, text
from hames.protocol.errors import INVALID_REQUEST, PARSE_ERROR

IDS: list[str | int] = ["1", 1, "001", "", 0, -1, 2**53, 2**63, 2**64 - 1, -(2**64) + 1, "x" * 300, "\u2028 \x00 é"]
NO_IDS = ["null", "1.0", "1.5", "1e3", "true", "false", "{}", "[]", "[1]", str(2**64), str(-(2**64)), "9" * 60]


def test_ids_are_echoed_with_their_type_and_value(shared: Shared) -> None:
    for identifier in IDS:
        shared.server.expect(identifier, "ping")
        (response,) = shared.server.exchange(line(identifier, "ping"))
        assert response == {"jsonrpc": "2.0", "id": identifier, "result": {}}
        assert type(response["id"]) is type(identifier)


def test_what_is_no_id_is_refused_with_id_null(shared: Shared) -> None:
    for identifier in NO_IDS:
        (response,) = shared.server.exchange(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}\n' % identifier.encode())
        assert (response["id"], response["error"]["code"]) == (None, INVALID_REQUEST), identifier


def test_byte_order_mark_at_the_start_is_dropped(start: Start) -> None:
    server = start(initialize=False)

    server.write(b"\xef\xbb\xbf" + server.request("ping"))

    assert server.answer(1)["result"] == {}
    server.initialize()


def test_utf_16_costs_errors_and_not_the_connection(start: Start) -> None:
    server = start(initialize=False)

    server.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n'.encode("utf-16"))
    server.wait_until(lambda: bool(server.frames))
    # A line of UTF-16 ends one byte behind its LF, so the next line is bad too.
    server.write(b"\n")
    server.initialize()

    errors = [frame.value["error"]["code"] for frame in server.frames[:-1]]
    assert errors
    assert set(errors) == {PARSE_ERROR}


def test_character_cut_by_the_end_of_a_line_is_one_error_and_the_next_line_is_read(shared: Shared) -> None:
    cut = '{"jsonrpc":"2.0","id":"p","method":"ping","params":{"_meta":{"a":"😀'.encode()[:-1]

    responses = shared.server.exchange(cut + b"\n" + line("q", "ping") + cut + b"\n", answers=3)

    assert [response["id"] for response in responses if "error" in response] == [None, None]
    assert [response["error"]["code"] for response in responses if "error" in response] == [PARSE_ERROR] * 2
    assert [response["id"] for response in responses if "result" in response] == ["q"]


def test_request_in_five_writes_at_odd_bytes_and_many_in_one_write(shared: Shared) -> None:
    data = '{"jsonrpc":"2.0","id":"p","method":"ping","params":{"_meta":{"a":"é😀\u2028"}}}\r\n'.encode()
    cuts = [0, 1, data.index(b"\xc3") + 1, data.index(b"\xf0") + 3, len(data) - 1, len(data)]

    for begin, end in itertools.pairwise(cuts):
        shared.server.write(data[begin:end])
    assert shared.server.answer("p")["result"] == {}
    together = shared.server.exchange(b"".join(line(f"m{n}", "ping") for n in range(50)), answers=50)

    assert {response["id"] for response in together} == {f"m{n}" for n in range(50)}


@pytest.mark.slow
def test_limit_is_of_a_frame_and_not_of_a_connection(start: Start) -> None:
    server = start(env={"HAMES_LIMIT_FRAME_IN_BYTES": str(2**20)})
    pad = {"pad": "x" * 4_900}

    ids = [server.send("ping", _meta=pad) for _ in range(10_000)]
    for identifier in ids:
        assert server.answer(identifier)["result"] == {}
    exact = _ping_of(2**20, "exact")
    (at_limit,) = server.exchange(exact + b"\n")
    (above,) = server.exchange(_ping_of(2**20 + 1, "above") + b"\n")

    assert at_limit["result"] == {}
    assert above["error"]["data"]["details"] == {"actualBytes": 2**20 + 1, "maxBytes": 2**20}


def _ping_of(size: int, identifier: str) -> bytes:
    bare = len(line(identifier, "ping", _meta={"a": ""})) - 1
    return line(identifier, "ping", _meta={"a": "x" * (size - bare)}).removesuffix(b"\n")


def test_nesting_is_allowed_to_128_and_refused_beyond_without_harm(shared: Shared) -> None:
    def nested(depth: int) -> bytes:
        # The message, params and _meta are three levels.
        inner = b"[" * (depth - 3) + b"]" * (depth - 3)
        return b'{"jsonrpc":"2.0","id":"p","method":"ping","params":{"_meta":{"a":%b}}}\n' % inner

    answers = [shared.server.exchange(nested(depth))[0] for depth in (128, 129, 5_000, 1_000_000)]

    assert answers[0]["result"] == {}
    assert [(answer["id"], answer["error"]["code"]) for answer in answers[1:]] == [(None, PARSE_ERROR)] * 3


def test_huge_numbers_are_read_and_do_no_harm(shared: Shared) -> None:
    data = b'{"jsonrpc":"2.0","id":"p","method":"ping","params":{"_meta":{"a":1e999999,"b":-%b}}}\n' % (b"9" * 100_000)

    (response,) = shared.server.exchange(data)

    assert response["result"] == {}


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_header_framing_takes_several_frames_in_one_write_and_answers_in_kind(
    start: Start, workspace: Path, fake: FakeProvider, newline: bytes
) -> None:
    fake.script(text("ä\u2028ö"))
    server = start(initialize=False, framing="header")
    requests = [
        ("initialize", {"protocolVersions": ["1"], "clientInfo": {"name": "c", "version": "1"}}),
        ("session/create", {"workspace": str(workspace), "sessionId": "s1", "subscribe": {}}),
        ("turn/submit", {"sessionId": "s1", "turnId": "t1", "input": said("ü\u2028")}),
        ("ping", {}),
    ]
    data = b""
    for number, (method, params) in enumerate(requests):
        server.expect(number, method)
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        more = b"content-type: application/json" if number % 2 else b""
        data += headed(json.dumps(body, ensure_ascii=False).encode(), newline, more)

    server.write(data)

    assert server.answer(3)["result"] == {}
    assert server.wait_event("turn.completed")["data"]["text"] == "ä\u2028ö"
    assert server.wait_event("turn.queued")["data"]["input"] == said("ü\u2028")


def test_faults_of_header_framing_cost_one_error_each(start: Start) -> None:
    server = start(framing="header")
    body = line("p", "ping")[:-1]

    server.write(b"Content-Length: minus\r\n\r\n" + headed(line("q", "ping")[:-1]))
    server.write(headed(b"{nonsense") + b"Content-Length: 0\r\n\r\n" + headed(body))

    assert server.answer("q")["result"] == server.answer("p")["result"] == {}
    errors = [frame.value["error"]["code"] for frame in server.frames if "error" in frame.value]
    assert errors == [INVALID_REQUEST, PARSE_ERROR, INVALID_REQUEST]
