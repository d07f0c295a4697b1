"""Anthropic's Messages API, as the fake provider speaks it: answers, and `Messages`, its `Wire`.

Rule: thinking is signed here, as `fake.anthropic_rules` checks when it comes back: which answer and model it is of,
which of how many blocks it is, and what it says.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fake.answers import Answer, Send, Stall, status
from fake.anthropic_rules import refusal, seal

MODEL = "claude-opus-4-6"
"""Whose answers these are unless told otherwise."""

USAGE: Mapping[str, Any] = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 4,
    "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 1,
    "service_tier": "standard",
}
"""What the start of an answer reports unless it is told otherwise; the end says `OUTPUT_TOKENS` were made."""

OUTPUT_TOKENS = 5

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Thought:
    """A block of thinking in these pieces, or one that is encrypted."""

    pieces: Sequence[str] = ("hm",)
    is_redacted: bool = False
    is_sealed: bool = True


@dataclass(frozen=True, slots=True)
class Said:
    """A block of text in these pieces."""

    pieces: Sequence[str]


@dataclass(frozen=True, slots=True)
class Asked:
    """A call; its arguments are an object or the raw text, cut into pieces of `fragment` characters."""

    tool: str
    arguments: Any = field(default_factory=dict)
    call_id: str = ""
    fragment: int = 0


@dataclass(frozen=True, slots=True)
class Other:
    """A block of a kind that came later than the adapter."""


Block = Thought | Said | Asked | Other


def event(kind: str, **members: Any) -> bytes:
    """One event as Anthropic frames it: its type is said twice. Lone surrogates go out as escapes."""
    data = json.dumps({"type": kind, **members}, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


def events(
    *blocks: Block,
    stop: str | None = "end_turn",
    usage: Mapping[str, Any] | None = USAGE,
    model: str = MODEL,
    details: Mapping[str, Any] | None = None,
) -> list[bytes]:
    """All events of an answer; with `stop` None it is cut before it says why it ends."""
    found = [event("message_start", message=_message(model, [], None, usage)), event("ping")]
    for index, (block, whole) in enumerate(zip(blocks, _contents(blocks, model), strict=True)):
        found += _events_of(index, block, whole)
    if stop is not None:
        delta = {"stop_reason": stop, "stop_sequence": None, **({"stop_details": details} if details else {})}
        told = {} if usage is None else {"usage": {"output_tokens": OUTPUT_TOKENS, "input_tokens": None}}
        found += [event("message_delta", delta=delta, **told), event("message_stop")]
    return found


def answer(*blocks: Block, **options: Any) -> Answer:
    """See `events`."""
    return tuple(Send(each) for each in events(*blocks, **options))


def calls(*asked: Asked, before: Sequence[Block] = (), **options: Any) -> Answer:
    """A whole answer that ends with calls."""
    return answer(*before, *asked, stop="tool_use", **options)


def text(text: str, *, chunks: Sequence[str] | None = None) -> Answer:
    """A whole answer in words."""
    return answer(Said(chunks or [text]))


def whole(*blocks: Block, stop: str | None = "end_turn", model: str = MODEL) -> Answer:
    """A message that is not streamed."""
    return status(200, message(*blocks, stop=stop, model=model))


def message(*blocks: Block, stop: str | None = "end_turn", model: str = MODEL) -> dict[str, Any]:
    """The document of a message that is not streamed."""
    return _message(model, _contents(blocks, model), stop, {**USAGE, "output_tokens": OUTPUT_TOKENS})


def partial(text: str) -> Answer:
    """The beginning of an answer, and no end."""
    return tuple(Send(each) for each in events(Said([text]), stop=None))


def error(kind: str, message: str, code: int | None = None, **headers: str) -> Answer:
    """An error in the stream, or in place of an answer with a status."""
    document = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"}
    if code is not None:
        return status(code, document, {name.replace("_", "-"): value for name, value in headers.items()})
    return (Send(event("error", error=document["error"], request_id="req_fake")),)


def stalled(*blocks: Block) -> Answer:
    """The beginning of an answer, and then nothing."""
    return (*(Send(each) for each in events(*blocks, stop=None)), Stall())


def _message(
    model: str, content: Sequence[Mapping[str, Any]], stop: str | None, usage: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        **{"id": "msg_fake", "type": "message", "role": "assistant", "model": model, "content": list(content)},
        **{"stop_reason": stop, "stop_sequence": None, **({} if usage is None else {"usage": dict(usage)})},
    }


def _contents(blocks: Sequence[Block], model: str) -> list[dict[str, Any]]:
    """The blocks as they end."""
    name, total, place = f"a{next(_numbers)}", sum(isinstance(block, Thought) for block in blocks), 0
    contents: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case Thought(pieces, is_redacted, is_sealed):
                said = "".join(pieces)
                sealed = seal(model, name, place, total, "" if is_redacted else said) if is_sealed else ""
                place += 1
                if is_redacted:
                    contents.append({"type": "redacted_thinking", "data": sealed})
                else:
                    contents.append({"type": "thinking", "thinking": said, "signature": sealed})
            case Said(pieces):
                contents.append({"type": "text", "text": "".join(pieces)})
            case Asked(tool, arguments, call_id):
                given = arguments if isinstance(arguments, dict) else {}
                call = {"id": call_id or f"toolu_{next(_numbers)}", "name": tool, "input": given}
                contents.append({"type": "tool_use", **call, "caller": {"type": "direct"}})
            case Other():
                contents.append({"type": "new_kind", "text": "not text", "input": {"a": 1}})
    return contents


def _events_of(index: int, block: Block, whole: Mapping[str, Any]) -> list[bytes]:
    deltas: list[dict[str, Any]] = []
    begun = dict(whole)
    match block:
        case Thought(pieces, is_redacted):
            if not is_redacted:
                begun |= {"thinking": "", "signature": ""}
                deltas += [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
                if whole["signature"]:
                    deltas.append({"type": "signature_delta", "signature": whole["signature"]})
        case Said(pieces):
            begun |= {"text": ""}
            deltas += [{"type": "text_delta", "text": piece} for piece in pieces]
        case Asked(_, arguments, _, fragment):
            begun |= {"input": {}}
            raw = arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""
            size = fragment or max(1, len(raw))
            pieces = ["", *(raw[at : at + size] for at in range(0, len(raw), size))]
            deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case Other():
            deltas += [{"type": "new_delta", "new": 1}, {"type": "text_delta", "text": "not text"}]
    return [
        event("content_block_start", index=index, content_block=begun),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


class Messages:
    """The dialect: see `Wire`."""

    prefix = "/v1"
    listing_path = "/models"

    def is_ask(self, path: str) -> bool:
        return path == "/messages"

    def key(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-api-key")

    def refusal(self, target: str, headers: Mapping[str, str], raw: bytes) -> tuple[Any, str | None]:
        return refusal(headers, raw)

    def listing(self, names: Sequence[str]) -> Mapping[str, Any]:
        rows = [{"type": "model", "id": name, "display_name": name.title()} for name in names]
        return {"data": rows, "has_more": False, "first_id": None, "last_id": None}

    def error(self, code: int, message: str, kind: str) -> Mapping[str, Any]:
        kinds = {"invalid_api_key": "authentication_error", "invalid_request": "invalid_request_error"}
        error = {"type": kinds.get(kind, "not_found_error"), "message": message}
        return {"type": "error", "error": error, "request_id": "req_fake"}

    def last_user_text(self, body: Mapping[str, Any]) -> str:
        said: list[Any] = next((turn["content"] for turn in reversed(body["messages"]) if turn["role"] == "user"), [])
        return "\n".join(block.get("text", "") for block in said)

    def text(self, text: str) -> Answer:
        return answer(Said([text]))
