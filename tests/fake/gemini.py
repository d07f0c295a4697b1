"""Gemini's `streamGenerateContent`, as the fake provider speaks it: the wire and its answers.

Rule: a signature is a MAC of the model and of what it stands on: its own text, or its call and those behind it. See
`gemini_strict`, which refuses one that was altered, moved, or is missing.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fake import gemini_strict
from fake.answers import Answer, Send, event, status
from fake.gemini_strict import sign

MODEL = "gemini-3-flash-preview"

USAGE: Mapping[str, Any] = {
    "promptTokenCount": 10,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 7,
    "cachedContentTokenCount": 4,
    "totalTokenCount": 22,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
}
"""What an answer reports unless it is told otherwise."""

_STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND"}
_call_ids = itertools.count(1)


class Gemini:
    """The dialect: see `Wire`."""

    prefix = "/v1beta"
    listing_path = "/models"

    def is_ask(self, path: str) -> bool:
        return re.fullmatch(r"/models/[^/:]+:streamGenerateContent", path) is not None

    def key(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-goog-api-key")

    def refusal(self, target: str, headers: Mapping[str, str], raw: bytes) -> tuple[Any, str | None]:
        return gemini_strict.refusal(target, raw, headers.get("content-type", ""))

    def listing(self, names: Sequence[str]) -> Mapping[str, Any]:
        able = [{"name": f"models/{name}", "supportedGenerationMethods": ["generateContent"]} for name in names]
        return {"models": [*able, {"name": "models/embedder", "supportedGenerationMethods": ["embedContent"]}]}

    def error(self, code: int, message: str, kind: str) -> Mapping[str, Any]:
        details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": kind.upper()}]
        return {"error": {"code": code, "message": message, "status": _STATUSES.get(code), "details": details}}

    def last_user_text(self, body: Mapping[str, Any]) -> str:
        said = [content["parts"] for content in body["contents"] if content["role"] == "user"]
        texts = [[part["text"] for part in parts if "text" in part] for parts in said]
        return "\n".join(next((found for found in reversed(texts) if found), []))

    def text(self, text: str) -> Answer:
        return whole_text(text)


def chunk(
    parts: Sequence[Mapping[str, Any]] = (),
    *,
    reason: str | None = None,
    usage: Mapping[str, Any] | None = None,
    **members: Any,
) -> dict[str, Any]:
    """A chunk around `parts`."""
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    if reason:
        candidate["finishReason"] = reason
    document = {"candidates": [candidate], "modelVersion": MODEL, "responseId": "response-1", **members}
    return document if usage is None else {**document, "usageMetadata": dict(usage)}


def send(*chunks: Mapping[str, Any]) -> Answer:
    return tuple(Send(event(each)) for each in chunks)


def partial(text: str) -> Answer:
    """Some text and no finish."""
    return send(chunk([{"text": text}]))


def finish(reason: str = "STOP", *, usage: Mapping[str, Any] | None = USAGE) -> Answer:
    return send(chunk(reason=reason, usage=usage))


def whole_text(text: str, *, pieces: Sequence[str] = (), reason: str = "STOP", signed_by: str | None = None) -> Answer:
    """A whole answer in words; a signature comes last, on an empty text."""
    chunks = [chunk([{"text": piece}]) for piece in pieces or [text]]
    if signed_by is not None:
        chunks.append(chunk([signed_text("", signed_by)]))
    return send(*chunks) + finish(reason)


def thinking(text: str) -> Answer:
    """A summary of thoughts."""
    return send(chunk([{"text": text, "thought": True}]))


def signed_text(text: str, model: str = MODEL) -> dict[str, Any]:
    return {"text": text, "thoughtSignature": sign(model, text)}


def signed_thought(text: str, model: str = MODEL) -> dict[str, Any]:
    return {"text": text, "thought": True, "thoughtSignature": sign(model, f"thought {text}")}


def call_parts(
    items: Sequence[tuple[str, Mapping[str, Any]]], *, signed_by: str | None = MODEL, with_ids: bool = True
) -> list[dict[str, Any]]:
    """Parallel calls: only the first carries the signature."""
    calls = [{"name": name, "args": dict(arguments)} for name, arguments in items]
    signature = {} if signed_by is None else {"thoughtSignature": sign(signed_by, calls)}
    ids = [{"id": f"fc-{next(_call_ids)}"} if with_ids else {} for _ in calls]
    parts: list[dict[str, Any]] = [
        {"functionCall": {**call_id, **call}} for call_id, call in zip(ids, calls, strict=True)
    ]
    return [{**parts[0], **signature}, *parts[1:]]


def calls(
    items: Sequence[tuple[str, Mapping[str, Any]]],
    text: str = "",
    *,
    signed_by: str | None = MODEL,
    with_ids: bool = True,
) -> Answer:
    """A whole answer with parallel calls, a chunk each."""
    words = partial(text) if text else ()
    parts = call_parts(items, signed_by=signed_by, with_ids=with_ids)
    return words + send(*(chunk([part]) for part in parts)) + finish()


def blocked(reason: str = "PROHIBITED_CONTENT") -> Answer:
    """A prompt that was refused: no candidate at all."""
    return send({"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 3}})


def failure(code: int, name: str, message: str, *details: Mapping[str, Any]) -> dict[str, Any]:
    """The document of an error."""
    return {"error": {"code": code, "message": message, "status": name, "details": list(details)}}


def whole(*chunks: Mapping[str, Any]) -> Answer:
    """All chunks as a list in JSON, as without `alt=sse`."""
    return status(200, json.dumps(list(chunks)), {"content-type": "application/json"})
