"""What the fake provider answers: an `Answer` is a tuple of steps, and answers are joined with `+`.

Rule 1: steps are data; only `fake.provider` acts on them.
Rule 2: the SSE head goes out before the first step that is a part of a body, also before `stall`; the body is
ended properly after the last step, unless that step closes the connection.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

USAGE: Mapping[str, Any] = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 4},
}
"""What an answer reports unless it is told otherwise."""

_call_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes of the body."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Trickle:
    """Bytes of the body, one write a byte, `each_ms` apart."""

    data: bytes
    each_ms: int


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing, until `FakeProvider.release` or until the client goes."""


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Nothing, until the gate of this name is opened or until the client goes."""

    gate: str


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection in mid-body: with FIN, or with RST when `reset`."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class Never:
    """Not even a head: nothing, until the client goes."""


@dataclass(frozen=True, slots=True)
class Status:
    """A whole answer that is no stream. Given as the first step; a `content-length` among the headers is kept."""

    code: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Step = Send | Trickle | Stall | WaitFor | Cut | Never | Status
Answer = tuple[Step, ...]


def send(data: bytes) -> Answer:
    return (Send(data),)


def chunk(data: Mapping[str, Any]) -> Answer:
    """One event with `data` as its payload. Lone surrogates go out as escapes."""
    return (Send(event(data)),)


def event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def ping() -> Answer:
    return (Send(b": ping\n\n"),)


def stall() -> Answer:
    return (Stall(),)


def wait_for(gate: str) -> Answer:
    return (WaitFor(gate),)


def trickle(data: bytes, *, each_ms: int) -> Answer:
    return (Trickle(data, each_ms),)


def cut() -> Answer:
    return (Cut(),)


def reset() -> Answer:
    return (Cut(reset=True),)


def never() -> Answer:
    return (Never(),)


def status(code: int, body: bytes | str | Mapping[str, Any] = b"", headers: Mapping[str, str] | None = None) -> Answer:
    """A whole answer: a mapping is sent as JSON."""
    if isinstance(body, Mapping):
        return (Status(code, json.dumps(body).encode(), {"content-type": "application/json", **(headers or {})}),)
    data = body.encode() if isinstance(body, str) else body
    return (Status(code, data, dict(headers or {})),)


def delta(content: Mapping[str, Any] | None = None, *, reason: str | None = None, **members: Any) -> dict[str, Any]:
    """A whole chunk around a `delta`."""
    return {
        "id": "chatcmpl-fake",
        "object": "chat.completion.chunk",
        "model": "fake-model",
        "choices": [{"index": 0, "delta": dict(content or {}), "finish_reason": reason}],
        **members,
    }


def partial(text: str, *, chunks: int | Sequence[str] = 1) -> Answer:
    """Deltas of `text` and no finish: in `chunks` pieces, or in these pieces."""
    pieces = _split(text, chunks) if isinstance(chunks, int) else list(chunks)
    return tuple(Send(event(delta({"content": piece}))) for piece in pieces)


def thinking(text: str) -> Answer:
    return chunk(delta({"reasoning_content": text}))


def finish(reason: str = "stop", *, usage: Mapping[str, Any] | None = USAGE, done: bool = True) -> Answer:
    """The end of a stream: the reason, the usage unless None, and `[DONE]`."""
    data = event(delta(reason=reason))
    if usage is not None:
        data += event({"id": "chatcmpl-fake", "model": "fake-model", "choices": [], "usage": usage})
    return (Send(data + (b"data: [DONE]\n\n" if done else b"")),)


def text(
    text: str,
    *,
    chunks: int | Sequence[str] = 1,
    reason: str = "stop",
    usage: Mapping[str, Any] | None = USAGE,
) -> Answer:
    """A whole answer in words."""
    return partial(text, chunks=chunks) + finish(reason, usage=usage)


def call_fragments(items: Sequence[tuple[Any, ...]], *, fragment: int = 0) -> Answer:
    """Deltas of tool calls and no finish: see `calls`."""
    steps: list[Step] = []
    for index, (tool, arguments, *given) in enumerate(items):
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call_id = given[0] if given else f"call_{next(_call_ids)}"
        head = {"index": index, "id": call_id, "type": "function", "function": {"name": tool, "arguments": ""}}
        steps.append(Send(event(delta({"tool_calls": [head]}))))
        for piece in [raw[at : at + fragment] for at in range(0, len(raw), fragment)] if fragment else [raw]:
            more = {"index": index, "function": {"arguments": piece}}
            steps.append(Send(event(delta({"tool_calls": [more]}))))
    return tuple(steps)


def calls(
    items: Sequence[tuple[Any, ...]],
    text: str = "",
    *,
    fragment: int = 0,
    reason: str = "tool_calls",
    usage: Mapping[str, Any] | None = USAGE,
) -> Answer:
    """A whole answer with tool calls: `(tool, arguments)` or `(tool, arguments, id)`.

    Arguments are an object, or the raw text. `fragment` cuts them into pieces of so many characters.
    """
    words = partial(text) if text else ()
    return words + call_fragments(items, fragment=fragment) + finish(reason, usage=usage)


def delta_text(n: int, size: int) -> str:
    """All the text of `deltas(n, size)`."""
    return "".join(_numbered(place, size) for place in range(n))


@lru_cache(maxsize=8)
def deltas(n: int, size: int = 20) -> Answer:
    """A whole answer of `n` deltas of `size` characters, numbered so that a loss shows. Built once."""
    first, last = event(delta({"content": "\x00"})).split(b"\\u0000")
    body = b"".join(first + _numbered(place, size).encode() + last for place in range(n))
    return (Send(body), *finish())


def _numbered(place: int, size: int) -> str:
    return f"{place:07d} ".ljust(size, "x")[-size:]


def _split(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[at : at + size] for at in range(0, len(text), size)] or [text]
