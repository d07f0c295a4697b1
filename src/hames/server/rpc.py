"""JSON-RPC 2.0 as a codec without I/O: bytes of one frame to a message, and messages to bytes.

Rule 1: an id goes back with the type and value it came with. Strings and integers within ±(2^64-1) are ids; null,
booleans, fractions (also `1.0` and `1e0`) and structures are not.
Rule 2: `decode` never raises. What it cannot accept is a `Malformed` that says what was seen and what is expected.
Rule 3: nothing that has no `method` but a `result` or an `error` is ever answered: two peers that answer each
other's answers never stop.
Rule 4: this module is on the way to the answer of `initialize`, so it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from hames.core.records import record
from hames.protocol.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from hames.protocol.jsontext import JsonInvalid, dumps, escape_separators, parse

Id = str | int

MAX_ID: Final = 2**64 - 1
"""Numeric ids go from `-MAX_ID` to `MAX_ID`: what common clients count in, signed or not."""

MAX_BATCH: Final = 1_000
"""Entries of a batch. Each costs an answer, so that a frame of 16 MiB could ask for a gigabyte of errors."""


@record
class Request:
    """A call that is to be answered once. `repaired`: a lone surrogate in it was replaced by U+FFFD."""

    id: Id
    method: str
    params: dict[str, Any] = field(default_factory=dict)
    repaired: bool = False


@record
class Notification:
    """A call that is never answered."""

    method: str
    params: dict[str, Any] = field(default_factory=dict)
    repaired: bool = False


@record
class Response:
    """An answer of the peer, to be ignored: this server asks nothing."""

    id: Any


@record
class Malformed:
    """Not a message. Answer it with `encode_error(id, code, message)` where `answered` is true.

    `answered` is false for a notification whose params are wrong: JSON-RPC 2.0, 4.1.
    """

    code: int
    message: str
    id: Id | None = None
    answered: bool = True


@record
class Batch:
    """Several messages in one frame, 1 to `MAX_BATCH`; their answers go back in one frame."""

    entries: tuple[Request | Notification | Response | Malformed, ...]


Entry = Request | Notification | Response | Malformed


def decode(frame: bytes) -> Entry | Batch:
    """The message in one frame, or what is wrong with it."""
    try:
        value, repaired = parse(frame)
        if _has_large_id(value):
            value, repaired = parse(frame, exact_integers=True)
    except JsonInvalid as error:
        return Malformed(PARSE_ERROR, f"The frame is not JSON: {error}. Send one JSON-RPC 2.0 message in UTF-8.")
    if not isinstance(value, list):
        return _message(value, repaired)
    if not value:
        return Malformed(INVALID_REQUEST, "The batch is empty; a batch has at least one message.")
    if len(value) > MAX_BATCH:
        return Malformed(INVALID_REQUEST, f"The batch has {len(value)} messages; at most {MAX_BATCH} are allowed.")
    return Batch(tuple(_message(entry, repaired) for entry in value))


def _has_large_id(value: Any) -> bool:
    """Whether an id may be an integer that the fast parser turned into a float."""
    entries = value if isinstance(value, list) else (value,)
    return any(
        isinstance(entry, dict) and isinstance(entry.get("id"), float) and 2**63 <= abs(entry["id"]) <= 2**64
        for entry in entries
    )


def _message(value: Any, repaired: bool) -> Entry:
    if not isinstance(value, dict):
        return Malformed(INVALID_REQUEST, f"A message is an object, not {_json_type(value)}.")
    if "method" not in value and ("result" in value or "error" in value):
        return Response(value.get("id"))
    identifier = value.get("id")
    if "id" in value and not _is_id(identifier):
        return Malformed(INVALID_REQUEST, _bad_id(identifier))
    if value.get("jsonrpc") != "2.0":
        seen = _json_type(value["jsonrpc"]) if "jsonrpc" in value else "nothing"
        return Malformed(
            INVALID_REQUEST, f'`jsonrpc` must be the string "2.0"; another value came: {seen}.', identifier
        )
    method = value.get("method")
    if not isinstance(method, str):
        seen = _json_type(method) if "method" in value else "nothing"
        return Malformed(INVALID_REQUEST, f"`method` must be a string, not {seen}.", identifier)
    params = value.get("params")
    if params is None or params == []:
        params = {}
    if not isinstance(params, dict):
        message = f"`params` must be an object with members by name, not {_json_type(params)}."
        return Malformed(INVALID_PARAMS, message, identifier, answered="id" in value)
    if "id" in value:
        return Request(value["id"], method, params, repaired)
    return Notification(method, params, repaired)


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and -MAX_ID <= value <= MAX_ID


def _bad_id(value: Any) -> str:
    seen = "an integer beyond that" if isinstance(value, int) and not isinstance(value, bool) else _json_type(value)
    return (
        f"`id` must be a string or an integer within ±(2^64-1), not {seen}; leave it out of a notification, "
        "and write an integer without `.` or exponent."
    )


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "a boolean"), (str, "a string"), (int | float, "a number"), (list, "an array")):
        if isinstance(value, kind):
            return name
    return "an object"


def encode_result(identifier: Id, result: object) -> bytes:
    """The response of a call. `result` is a JSON value, or as bytes its JSON text, which goes out as it is."""
    return _frame(b'"id":', _id_text(identifier), b',"result":', _text(result))


def encode_error(identifier: Id | None, code: int, message: str, *, data: Mapping[str, Any] | None = None) -> bytes:
    """The error response of a call; `identifier` is None where the id could not be known."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return _frame(b'"id":', _id_text(identifier), b',"error":', dumps(error))


def encode_notification(method: str, params: object) -> bytes:
    """A notification. `params` is a JSON object, or as bytes its JSON text, which goes out as it is."""
    return _frame(b'"method":', dumps(method), b',"params":', _text(params))


def encode_batch(responses: Sequence[bytes]) -> bytes:
    """The answer to a batch: at least one response, each as encoded above. Nothing is sent where there is none."""
    return b"[" + b",".join(responses) + b"]"


def _frame(*parts: bytes) -> bytes:
    return escape_separators(b'{"jsonrpc":"2.0",' + b"".join(parts) + b"}")


def _id_text(identifier: Id | None) -> bytes:
    return str(identifier).encode() if isinstance(identifier, int) else dumps(identifier)


def _text(value: object) -> bytes:
    return value if isinstance(value, bytes) else dumps(value)
