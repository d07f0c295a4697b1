"""OpenAI's Responses API, as the fake provider speaks it: answers, and the dialect `Responses`.

Rule: reasoning is signed here, and what it led to has an id that says so: see `fake.openai_strict`.
"""

from __future__ import annotations

import itertools
import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fake.answers import Answer, Send, Step, status
from fake.openai_strict import mac, refusal

USAGE: Mapping[str, Any] = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 15,
}
"""What an answer reports unless it is told otherwise."""

_numbers = itertools.count(1)


# --- answers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Thought:
    """A reasoning item with these parts of a summary."""

    summary: Sequence[str] = ("hm",)
    is_encrypted: bool = True


@dataclass(frozen=True, slots=True)
class Said:
    """A message in these pieces."""

    pieces: Sequence[str]
    phase: str | None = None
    is_refusal: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A call; its arguments are an object or the raw text, cut into pieces of `fragment` characters."""

    tool: str
    arguments: Any = field(default_factory=dict)
    call_id: str = ""
    fragment: int = 0
    is_cut: bool = False


Output = Thought | Said | Asked


def event(kind: str, number: int = 0, **members: Any) -> bytes:
    """One event as OpenAI frames it: its type is said twice."""
    data = {"type": kind, "sequence_number": number, **members}
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def events(
    *outputs: Output,
    usage: Mapping[str, Any] | None = USAGE,
    reason: str | None = None,
    ends: bool = True,
) -> list[bytes]:
    """All events of an answer. `reason` is why it is incomplete; without `ends` it is cut before its last event."""
    response = _response(usage=None)
    found: list[tuple[str, dict[str, Any]]] = [("response.created", {"response": response})]
    items = _items(outputs)
    for index, (output, item) in enumerate(zip(outputs, items, strict=True)):
        found += _events_of(index, output, item)
    if ends:
        kind = "response.completed" if reason is None else "response.incomplete"
        found.append((kind, {"response": _response(items, usage=usage, reason=reason)}))
    return [event(kind, number, **members) for number, (kind, members) in enumerate(found)]


def answer(*outputs: Output, **options: Any) -> Answer:
    """See `events`."""
    return tuple(Send(each) for each in events(*outputs, **options))


def text(text: str, *, chunks: Sequence[str] | None = None) -> Answer:
    """A whole answer in words."""
    return answer(Said(chunks or [text]))


def whole(*outputs: Output, reason: str | None = None) -> Answer:
    """A response that is not streamed."""
    return status(200, _response(_items(outputs), usage=USAGE, reason=reason))


def failed(code: str, message: str, *, usage: Mapping[str, Any] | None = None) -> Answer:
    """The response fails in mid-stream."""
    response = {**_response(usage=usage), "status": "failed", "error": {"code": code, "message": message}}
    steps: tuple[Step, ...] = (Send(event("response.failed", response=response)),)
    return steps


def error(code: str, message: str) -> Answer:
    """An error in mid-stream."""
    return (Send(event("error", code=code, message=message, param=None)),)


def _response(
    items: Sequence[Mapping[str, Any]] = (), *, usage: Mapping[str, Any] | None, reason: str | None = None
) -> dict[str, Any]:
    state = "incomplete" if reason else "completed" if items or usage else "in_progress"
    details = {"reason": reason} if reason else None
    return {
        **{"id": "resp_fake", "object": "response", "model": "fake-model", "status": state, "output": list(items)},
        **{"error": None, "incomplete_details": details, "usage": usage},
    }


def _items(outputs: Sequence[Output]) -> list[dict[str, Any]]:
    """The items as they end; an id that ends with `_r` is of an item that reasoning led to."""
    items: list[dict[str, Any]] = []
    for output in reversed(outputs):
        number = next(_numbers)
        place = len(outputs) - len(items) - 1
        led = "_r" if place and isinstance(outputs[place - 1], Thought) else ""
        match output:
            case Thought(summary, is_encrypted):
                item = _thought(f"rs_{number}", summary, items[-1]["id"] if items else "")
                if not is_encrypted:
                    del item["encrypted_content"]
            case Said(pieces, phase, is_refusal):
                block = {"type": "output_text", "text": "".join(pieces), "annotations": []}
                if is_refusal:
                    block = {"type": "refusal", "refusal": "".join(pieces)}
                item = {"type": "message", "id": f"msg_{number}{led}", "role": "assistant", "content": [block]}
                item |= {"status": "completed", **({"phase": phase} if phase else {})}
            case Asked():
                item = {"type": "function_call", "id": f"fc_{number}{led}", "name": output.tool}
                item |= {"call_id": output.call_id or f"call_{number}", "arguments": _raw(output)}
                item["status"] = "incomplete" if output.is_cut else "completed"
        items.append(item)
    return items[::-1]


def _raw(output: Asked) -> str:
    return output.arguments if isinstance(output.arguments, str) else json.dumps(output.arguments)


def _events_of(index: int, output: Output, item: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    at = {"output_index": index, "item_id": item["id"]}
    begun = {**item, "status": "in_progress"}
    found: list[tuple[str, dict[str, Any]]] = []
    match output:
        case Thought(summary):
            begun = {**begun, "summary": [], "encrypted_content": "half of it"}
            for place, said in enumerate(summary):
                part = {**at, "summary_index": place}
                found.append(("response.reasoning_summary_part.added", {**part, "part": {"type": "summary_text"}}))
                found.append(("response.reasoning_summary_text.delta", {**part, "delta": said}))
                found.append(("response.reasoning_summary_text.done", {**part, "text": said}))
        case Said(pieces, _, is_refusal):
            begun = {**begun, "content": []}
            kind = "refusal" if is_refusal else "output_text"
            at = {**at, "content_index": 0}
            found += [(f"response.{kind}.delta", {**at, "delta": piece}) for piece in pieces]
            found.append((f"response.{kind}.done", {**at, "text": "".join(pieces)}))
        case Asked(fragment=fragment):
            begun = {**begun, "arguments": ""}
            raw = _raw(output)
            size = fragment or max(1, len(raw))
            kind = "response.function_call_arguments"
            found += [(f"{kind}.delta", {**at, "delta": raw[i : i + size]}) for i in range(0, len(raw), size)]
            found.append((f"{kind}.done", {**at, "arguments": raw}))
    first = ("response.output_item.added", {"output_index": index, "item": begun})
    return [first, *found, ("response.output_item.done", {"output_index": index, "item": item})]


def _thought(item_id: str, summary: Sequence[str], led_to: str) -> dict[str, Any]:
    said = [{"type": "summary_text", "text": each} for each in summary]
    sealed = urlsafe_b64encode(json.dumps([item_id, led_to]).encode()).decode()
    return {
        **{"type": "reasoning", "id": item_id, "summary": said},
        "encrypted_content": f"{sealed}.{mac(sealed, said)}",
    }


class Responses:
    """The dialect: see `Wire`."""

    prefix = "/v1"
    listing_path = "/models"

    def is_ask(self, path: str) -> bool:
        return path == "/responses"

    def key(self, headers: Mapping[str, str]) -> str | None:
        found = headers.get("authorization")
        return None if found is None else found.removeprefix("Bearer ")

    def refusal(self, target: str, headers: Mapping[str, str], raw: bytes) -> tuple[Any, str | None]:
        if headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return None, f"content type {headers.get('content-type')!r}"
        return refusal(raw)

    def listing(self, names: Sequence[str]) -> Mapping[str, Any]:
        return {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}

    def error(self, code: int, message: str, kind: str) -> Mapping[str, Any]:
        return {"error": {"message": message, "type": kind, "param": None, "code": kind}}

    def last_user_text(self, body: Mapping[str, Any]) -> str:
        said: list[Any] = next((item["content"] for item in reversed(body["input"]) if item.get("role") == "user"), [])
        return "\n".join(block.get("text", "") for block in said)

    def text(self, text: str) -> Answer:
        return answer(Said([text]))
