"""Calls of Gemini whose arguments are nested: as deep as is taken, and deeper."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fake.gemini import MODEL, call_parts, chunk
from fake.gemini_strict import UNSIGNED
from fake.histories import nested
from fake.vendors import VENDORS
from hames.core.conversation import ARGUMENTS_DEPTH, AssistantMessage, ModelRequest, ToolResult, UserMessage
from hames.providers.gemini_body import body
from hames.providers.gemini_reply import ReplyBuilder

ASK = UserMessage("hi")


def answered(*parts: dict[str, Any]) -> AssistantMessage:
    builder = ReplyBuilder(ModelRequest(MODEL, "", (ASK,)))
    builder.add(json.dumps(chunk(parts, reason="STOP")).encode())
    builder.end()
    reply = builder.reply()
    return AssistantMessage(reply.text, reply.calls, reply.parts)


@pytest.mark.parametrize("depth", [ARGUMENTS_DEPTH, ARGUMENTS_DEPTH + 1, 100])
def test_a_signed_call_whose_arguments_are_too_deep_goes_back_empty_and_none_of_its_step_signed(depth: int) -> None:
    answer = answered(*call_parts([("bash", {"a": "b"}), ("bash", nested(depth))]))
    results = [ToolResult("", call.provider_id, "bash", "x") for call in answer.calls]

    request = ModelRequest(MODEL, "", (ASK, answer, *results))
    said = json.loads(body(request))["contents"][1]["parts"]

    fits = depth == ARGUMENTS_DEPTH
    assert VENDORS["gemini"].refusal(request) is None
    assert [part["functionCall"]["args"] for part in said] == [{"a": "b"}, nested(depth) if fits else {}]
    assert (said[0]["thoughtSignature"] == UNSIGNED) is not fits


def test_arguments_beyond_the_depth_that_is_taken_are_kept_to_the_level_that_tells_so() -> None:
    calls = answered(*({"functionCall": {"name": "a", "args": nested(depth)}} for depth in (100, 33))).calls

    assert [json.loads(call.arguments) for call in calls] == [nested_without_leaf(33)] * 2


def nested_without_leaf(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value
