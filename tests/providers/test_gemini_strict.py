"""The strict fake of Gemini refuses what the vendor refuses: else that it refuses nothing would prove nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from fake.gemini import MODEL, call_parts, signed_text
from fake.gemini_strict import UNSIGNED, refusal
from hames.providers.gemini import Gemini

CALLS = call_parts([("bash", {"a": 1}), ("read", {})])


def result(call: dict[str, Any]) -> dict[str, Any]:
    asked = call["functionCall"]
    return {"functionResponse": {"id": asked["id"], "name": asked["name"], "response": {"output": "x"}}}


GOOD: dict[str, Any] = {
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "bash",
                    "description": "x",
                    "parametersJsonSchema": {"type": "object", "properties": {"a": {"type": "integer"}}},
                }
            ]
        }
    ],
    "generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}},
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [signed_text("a"), *CALLS]},
        {"role": "user", "parts": [result(CALLS[0]), result(CALLS[1])]},
        {"role": "model", "parts": [{"text": "b"}, signed_text("")]},
        {"role": "user", "parts": [{"text": "and?"}]},
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "NONE"}},
}


def told(body: Any, *, model: str = MODEL, query: str = "?alt=sse") -> str | None:
    target = f"/v1beta/models/{model}:streamGenerateContent{query}"
    return refusal(target, json.dumps(body).encode(), "application/json")[1]


def test_a_good_request_is_taken() -> None:
    assert told(GOOD) is None
    assert Gemini.name == "gemini"


def parts_of(body: dict[str, Any], place: int) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = body["contents"][place]["parts"]
    return parts


FAULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "unknown members": lambda body: body.update(stream=True),
    "toolConfig without tools": lambda body: body.pop("tools"),
    "contents is missing": lambda body: body["contents"].clear(),
    "no user comes first": lambda body: body["contents"].pop(0),
    "the last content is the model's": lambda body: body["contents"].pop(),
    "two neighbours": lambda body: body["contents"].append(body["contents"][0]),
    "not neighbours": lambda body: body["contents"].__setitem__(2, body["contents"][0]),
    "other results": lambda body: parts_of(body, 2).reverse(),
    "results beside other parts": lambda body: parts_of(body, 2).append({"text": "x"}),
    "no parts": lambda body: parts_of(body, 0).clear(),
    "an empty text": lambda body: parts_of(body, 0)[0].update(text=" "),
    "must have one": lambda body: parts_of(body, 0).append({}),
    "missing a thought_signature": lambda body: parts_of(body, 1)[1].pop("thoughtSignature"),
    "Corrupted thought signature on {'text'": lambda body: parts_of(body, 1)[0].update(text="b"),
    "Corrupted": lambda body: parts_of(body, 1)[1]["functionCall"]["args"].update(a=2),
    "Corrupted thought": lambda body: parts_of(body, 1)[2].update(thoughtSignature=UNSIGNED),
    "Corrupted thought signature": lambda body: (
        parts_of(body, 1)[2]["functionCall"].update(name="bash")
        or parts_of(body, 2)[1]["functionResponse"].update(name="bash")
    ),
    "a call of the user": lambda body: parts_of(body, 0).append(CALLS[1]),
    "members": lambda body: parts_of(body, 4)[0].update(thought=True),
    "an empty result": lambda body: parts_of(body, 2)[0]["functionResponse"].update(response={"output": ""}),
    "response": lambda body: parts_of(body, 2)[0]["functionResponse"].update(response={"result": "x"}),
    "no parts in a result": lambda body: parts_of(body, 2)[0]["functionResponse"].update(parts=[]),
    "Unsupported MIME type": lambda body: parts_of(body, 0).append(
        {"inlineData": {"mimeType": "image/gif", "data": ""}}
    ),
    "that is not base64": lambda body: parts_of(body, 0).append({"inlineData": {"mimeType": "image/png", "data": "!"}}),
    "is no image/png": lambda body: parts_of(body, 0).append({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
    "thinking level": lambda body: body["generationConfig"]["thinkingConfig"].update(thinkingLevel="xhigh"),
    "a budget": lambda body: body["generationConfig"].update(thinkingConfig={"thinkingBudget": 1}),
    "in a schema": lambda body: body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"].update(default=1),
    "declared twice": lambda body: body["tools"][0]["functionDeclarations"].append(
        body["tools"][0]["functionDeclarations"][0]
    ),
    "function name": lambda body: body["tools"][0]["functionDeclarations"][0].update(name="1st"),
}


@pytest.mark.parametrize("phrase", FAULTS)
def test_a_fault_is_named(phrase: str) -> None:
    body = copy.deepcopy(GOOD)

    FAULTS[phrase](body)

    assert phrase in (told(body) or "")


@pytest.mark.parametrize(
    ("model", "phrase"),
    [
        ("gemini-2.5-flash", "Thinking level is not supported"),
        ("gemini-2.0-flash", "thinking_config is not supported"),
        ("gemini-3-flash", "Corrupted thought signature"),
    ],
)
def test_another_model_refuses_what_is_not_its_own(model: str, phrase: str) -> None:
    assert phrase in (told(GOOD, model=model) or "")


def test_other_paths_and_what_is_not_strict_json_are_refused() -> None:
    target = f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"

    assert "not the path" in (told(GOOD, query="") or "")
    assert "not the path" in (told(GOOD, query="?alt=sse&key=x") or "")
    assert "not strict JSON" in (refusal(target, b'"\\ud83d"', "application/json")[1] or "")
    assert "content type" in (refusal(target, b"{}", "text/plain")[1] or "")
