"""Frames that are nearly right: requests changed as bytes or as JSON, the same for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from e2e.driver import said

ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -0.0, 1.5, -1, 2**31, 2**53, 2**63, 2**64, 10**40, 1e308),
    *("", "\x00", "\u2028", "\ud83d", "../../..", "x" * 5_000, "s1", "t1", "0." + "0" * 12, "%s%n", "1" * 400),
    *([], {}, [[]], [None] * 50, {"": {}}, {"id": "odd"}, {"text": "x", "type": "text"}),
]
ODD_BYTES = [b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\r", b"\n", b"\n\n", b"\\ud800"]
ODD_BYTES += [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\\u",
    b"1e999",
    b"-",
    b"NaN",
    b"Content-Length: 9\r\n\r\n",
]


def corpus(workspace: Path) -> list[dict[str, Any]]:
    """A right request of every method but the one that ends the server."""
    session, turn = {"sessionId": "s1"}, {"sessionId": "s1", "turnId": "t1"}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("initialize", {"protocolVersions": ["1"], "clientInfo": {"name": "fuzz", "version": "1"}}),
        ("capabilities/describe", {}),
        ("health/check", {**session, "dependencies": ["store", "workspace"]}),
        ("ping", {"_meta": {"a": [1, "x", None]}}),
        (
            "session/create",
            {
                "workspace": str(workspace),
                "sessionId": "s1",
                "cwd": ".",
                "limits": {"steps": 3},
                "metadata": {"a": [1, {"b": None}]},
            },
        ),
        ("session/create", {"workspace": str(workspace), "idempotencyKey": "k", "subscribe": {"deltas": True}}),
        ("session/resume", {**session, "own": "observe", "subscribe": {}}),
        ("session/get", {**session, "view": True, "limit": 5}),
        ("session/list", {"limit": 5, "query": "s"}),
        ("session/update", {**session, "title": "a title"}),
        (
            "turn/submit",
            {**session, "input": said("hello"), "turnId": "t1", "idempotencyKey": "k", "delivery": "queue"},
        ),
        ("turn/update", {**turn, "input": said("other")}),
        ("turn/steer", {**session, "input": said("more"), "expectedTurnId": "t1"}),
        ("turn/cancel", {**turn, "queue": "continue", "reason": "because"}),
        ("turn/get", turn),
        ("turn/list", {**session, "status": "completed", "limit": 5}),
        ("turn/wait", {**turn, "timeoutMs": 5}),
        ("session/compact", session),
        ("queue/resume", session),
        ("events/read", {**session, "limit": 5, "types": ["turn.queued"], "waitMs": 5}),
        ("events/subscribe", {**session, "deltas": False}),
        ("events/unsubscribe", {"subscriptionId": "u1"}),
        ("usage/get", turn),
        ("models/list", {"provider": "offline"}),
        ("tools/list", {}),
    ]
    made = [{"jsonrpc": "2.0", "id": f"f{n}", "method": m, "params": p} for n, (m, p) in enumerate(requests)]
    return [*made, {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "f16"}}]


def frames(seed: int, count: int, messages: list[dict[str, Any]]) -> Iterator[bytes]:
    """`count` lines, each a message or a batch that was changed one to four times."""
    chance = random.Random(seed)
    for _ in range(count):
        message: Any = json.loads(json.dumps(chance.choice(messages)))
        if chance.random() < 0.05:
            message = [message, *(json.loads(json.dumps(chance.choice(messages))) for _ in range(chance.randrange(4)))]
        for _ in range(chance.randrange(3)):
            _change_value(chance, message)
        data = json.dumps(message, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            data = chance.choice(_BYTE_CHANGES)(chance, data)
        yield data + b"\n"


def _change_value(chance: random.Random, message: Any) -> None:
    place = message
    while True:
        inner = [key for key, value in _entries(place) if isinstance(value, dict | list) and value]
        if not inner or chance.random() < 0.4:
            break
        place = place[chance.choice(inner)]
    keys = [key for key, _ in _entries(place)]
    if isinstance(place, dict) and chance.random() < 0.2:
        place[chance.choice(["colour", "id", "method", "params", "sessionId", "_meta", ""])] = _odd(chance)
    elif keys and chance.random() < 0.2:
        del place[chance.choice(keys)]
    elif keys:
        place[chance.choice(keys)] = _odd(chance)


def _odd(chance: random.Random) -> Any:
    return json.loads(json.dumps(chance.choice(ODD_VALUES)))


def _entries(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, dict) else list(enumerate(value))


def _flip(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def _cut(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at + chance.randrange(1, 30) :]


def _end(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _repeat(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at : at + 40] * chance.randrange(2, 60) + data[at + 40 :]


def _insert(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(ODD_BYTES) * chance.choice((1, 1, 1, 200)) + data[at:]


_BYTE_CHANGES: list[Callable[[random.Random, bytes], bytes]] = [_flip, _cut, _end, _repeat, _insert]
