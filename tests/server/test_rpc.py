from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.protocol.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from hames.server.rpc import (
    MAX_BATCH,
    MAX_ID,
    Batch,
    Malformed,
    Notification,
    Request,
    Response,
    decode,
    encode_batch,
    encode_error,
    encode_notification,
    encode_result,
)

IDS = st.integers(-MAX_ID, MAX_ID) | st.text()


def call(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def malformed(frame: bytes) -> Malformed:
    message = decode(frame)
    assert isinstance(message, Malformed)
    return message


@given(IDS, st.text(), st.dictionaries(st.text(), st.integers(-9, 9) | st.text()))
def test_a_request_keeps_its_id_method_and_params(identifier: Any, method: str, params: dict[str, Any]) -> None:
    message = decode(call(id=identifier, method=method, params=params))

    assert message == Request(identifier, method, params)
    assert isinstance(message, Request)
    assert type(message.id) is type(identifier)


@given(IDS)
def test_an_id_goes_back_with_its_exact_type_and_value(identifier: Any) -> None:
    for frame in (encode_result(identifier, {}), encode_error(identifier, -1, "no")):
        echoed = json.loads(frame)["id"]

        assert echoed == identifier
        assert type(echoed) is type(identifier)


@pytest.mark.parametrize("text", ["0", "-1", "9007199254740993", "9223372036854775808", str(MAX_ID), str(-MAX_ID)])
def test_a_numeric_id_goes_back_digit_for_digit_alone_and_in_a_batch(text: str) -> None:
    frame = f'{{"jsonrpc":"2.0","method":"m","id":{text},"params":{{"big":1e400}}}}'.encode()

    for message in (decode(frame), *decode_batch(b"[" + frame + b"]")):
        assert isinstance(message, Request)
        assert f'"id":{text},'.encode() in encode_result(message.id, {})


def decode_batch(frame: bytes) -> tuple[Any, ...]:
    batch = decode(frame)
    assert isinstance(batch, Batch)
    return batch.entries


@pytest.mark.parametrize(
    "text",
    [
        *("null", "true", "1.0", "1.5", "1e0", "1E5", "-0.0", "[]", "{}", "1e400", "9223372036854775808.0"),
        *("1.8446744073709551615e19", str(MAX_ID + 1), str(-MAX_ID - 1), "1" + "0" * 400),
    ],
)
def test_what_is_no_id_is_refused_with_id_null(text: str) -> None:
    message = malformed(f'{{"jsonrpc":"2.0","method":"m","id":{text}}}'.encode())

    assert (message.code, message.id, message.answered) == (INVALID_REQUEST, None, True)


@pytest.mark.parametrize("members", [{}, {"params": None}, {"params": []}, {"params": {}}, {"more": 1}])
def test_params_may_be_absent_null_or_empty_and_members_beside_them_are_ignored(members: dict[str, Any]) -> None:
    assert decode(call(id=1, method="m", **members)) == Request(1, "m", {})
    assert decode(call(method="m", **members)) == Notification("m", {})


@pytest.mark.parametrize("params", [[1], "text", 1, 1.5, True, False, 0, ""])
def test_other_params_are_refused_with_the_id_and_of_a_notification_without_an_answer(params: Any) -> None:
    of_request, of_notification = (
        malformed(call(id="a", method="m", params=params)),
        malformed(call(method="m", params=params)),
    )

    assert (of_request.code, of_request.id, of_request.answered) == (INVALID_PARAMS, "a", True)
    assert (of_notification.code, of_notification.answered) == (INVALID_PARAMS, False)


@pytest.mark.parametrize("version", [None, "1.0", "2", 2, 2.0, ["2.0"]])
def test_another_jsonrpc_version_is_refused_with_the_id(version: Any) -> None:
    message = malformed(call(id=7, method="m", jsonrpc=version))

    assert (message.code, message.id) == (INVALID_REQUEST, 7)


def test_no_jsonrpc_version_is_refused_with_the_id() -> None:
    assert malformed(b'{"id":7,"method":"m"}').id == 7
    assert malformed(b'{"id":7,"method":"m"}').code == INVALID_REQUEST


@pytest.mark.parametrize("members", [{"method": 1}, {"method": None}, {"method": ["m"]}, {}, {"params": {}}])
def test_a_method_that_is_no_text_is_refused_with_the_id(members: dict[str, Any]) -> None:
    message = malformed(call(id=7, **members))

    assert (message.code, message.id) == (INVALID_REQUEST, 7)


@pytest.mark.parametrize(
    "frame",
    [
        call(id=1, result={}),
        call(id=None, error={"code": 1, "message": ""}),
        call(id=1.5, result=1),
        b'{"result":null}',
        b'{"id":{},"error":"x"}',
    ],
)
def test_a_response_is_never_answered_however_odd_it_is(frame: bytes) -> None:
    assert isinstance(decode(frame), Response)


@pytest.mark.parametrize(
    "frame", [b"{nonsense", b"", b"NaN", b'{"a":"\xff\xfe"}', b"[" * 500, b'{"jsonrpc":"2.0","id":1,"x":Infinity}']
)
def test_what_is_not_json_is_refused_with_id_null(frame: bytes) -> None:
    message = malformed(frame)

    assert (message.code, message.id, message.answered) == (PARSE_ERROR, None, True)


@pytest.mark.parametrize("frame", [b"1", b'"text"', b"null", b"true", b"{}", b"[]", b'{"jsonrpc":"2.0"}'])
def test_what_is_no_message_is_refused_with_id_null(frame: bytes) -> None:
    message = malformed(frame)

    assert (message.code, message.id) == (INVALID_REQUEST, None)


def test_lone_surrogates_are_replaced_and_flagged() -> None:
    request = decode(rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"text":"a\ud800"}}')
    whole = decode(rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"text":"\ud83d\ude00"}}')

    assert request == Request(1, "m", {"text": "a\ufffd"}, repaired=True)
    assert whole == Request(1, "m", {"text": "😀"}, repaired=False)


def test_each_entry_of_a_batch_is_decoded_on_its_own() -> None:
    entries = [
        {"jsonrpc": "2.0", "id": 1, "method": "a"},
        {"jsonrpc": "2.0", "method": "b"},
        1,
        [],
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"id": "x", "method": "c"},
    ]

    found = decode_batch(json.dumps(entries).encode())

    assert found[:2] == (Request(1, "a", {}), Notification("b", {}))
    assert [entry.code for entry in found[2:4]] == [INVALID_REQUEST, INVALID_REQUEST]
    assert found[4] == Response(1)
    assert (found[5].code, found[5].id) == (INVALID_REQUEST, "x")


def test_a_batch_has_a_limit_that_is_named() -> None:
    assert len(decode_batch(json.dumps([1] * MAX_BATCH).encode())) == MAX_BATCH
    assert str(MAX_BATCH) in malformed(json.dumps([1] * (MAX_BATCH + 1)).encode()).message


def test_every_refusal_says_what_came_and_what_is_expected() -> None:
    assert "not an array" in malformed(call(id=1, method="m", params=[1])).message
    assert "must be a string, not nothing" in malformed(call(id=1)).message
    assert "not a boolean" in malformed(call(id=True, method="m")).message
    assert "beyond" in malformed(call(id=2**64, method="m")).message
    assert "char 1" in malformed(b"{nonsense").message
    assert "byte 6" in malformed(b'{"a":"\xff"}').message


@given(st.binary())
def test_decode_takes_any_bytes(frame: bytes) -> None:
    assert decode(frame)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=20))
def test_decode_takes_any_json_in_any_member(value: Any) -> None:
    for frame in (
        json.dumps(value),
        *(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", name: value})
            for name in ("jsonrpc", "id", "method", "params", "result")
        ),
    ):
        assert decode(frame.encode())


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_what_is_encoded_is_one_line_of_strict_json(text: str) -> None:
    frames = [
        encode_result(text, {text: text}),
        encode_result(1, json.dumps({"clean": "\u2028\x85é"}, ensure_ascii=False).encode()),
        encode_error(None, -32600, text, data={"details": {text: text}}),
        encode_notification(text, {"text": text}),
    ]

    for frame in [*frames, encode_batch(frames)]:
        assert len(frame.decode().splitlines()) == 1
        json.loads(frame)


def test_the_members_of_what_is_encoded() -> None:
    assert json.loads(encode_result("1", {"a": 1})) == {"jsonrpc": "2.0", "id": "1", "result": {"a": 1}}
    assert json.loads(encode_result(1, b'{"a":1}')) == {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}
    assert json.loads(encode_error(None, -1, "m")) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -1, "message": "m"},
    }
    assert json.loads(encode_error(1, -1, "m", data={"kind": "k"}))["error"]["data"] == {"kind": "k"}
    assert json.loads(encode_notification("n", b"{}")) == {"jsonrpc": "2.0", "method": "n", "params": {}}
    assert json.loads(encode_batch([b"{}", b"{}"])) == [{}, {}]
