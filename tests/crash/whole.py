"""Events with what their references stand for in its place again, each proved by its digest."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from e2e.driver import Server


def references(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every reference in a value."""
    if isinstance(value, dict) and {"artifact", "sizeBytes", "sha256"} <= value.keys():
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from references(member)


def whole_events(server: Server, session_id: str, log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The log of a session; every artifact that it names must be there, and be what it names."""
    contents: dict[str, str] = {}

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            if {"artifact", "sizeBytes", "sha256"} <= value.keys():
                if value["artifact"] not in contents:
                    contents[value["artifact"]] = _content(server, session_id, value)
                return contents[value["artifact"]]
            return {name: whole(member) for name, member in value.items()}
        return [whole(member) for member in value] if isinstance(value, list) else value

    return [{**event, "data": whole(event["data"])} for event in log]


def _content(server: Server, session_id: str, reference: Mapping[str, Any]) -> str:
    content = b""
    while len(content) < reference["sizeBytes"]:
        wish = {"artifact": reference["artifact"], "encoding": "base64", "offset": len(content)}
        piece = server.call("artifact/read", sessionId=session_id, **wish)
        content += b64decode(piece["data"])
        assert piece["nextOffset"] == len(content), piece
    assert sha256(content).hexdigest() == reference["sha256"], f"{reference} is not what it names"
    # Only texts are folded by whoever looks at it; what is none needs to be said somehow.
    return content.decode("utf-8", "replace")
