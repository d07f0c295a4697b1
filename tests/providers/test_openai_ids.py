"""Ids of OpenAI's items are sent once, and reasoning goes back as it came or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fake import openai as wire
from fake.openai import Asked, Output, Said, Thought
from fake.openai_strict import refusal
from hames.core.conversation import AssistantMessage, Message, ModelRequest, Reply, ToolResult, UserMessage
from hames.providers.openai_body import body
from hames.providers.openai_reply import ResponseBuilder
from hames.providers.sse import SseParser

ASK = UserMessage("hi")
REQUEST = ModelRequest("m", "", (ASK,))


def answered(*payloads: bytes) -> Reply:
    builder = ResponseBuilder(REQUEST)
    for payload in payloads:
        builder.add(payload)
    builder.end()
    return builder.reply()


def said(*outputs: Output) -> tuple[Message, ...]:
    """An answer of these items as a message, and the results of its calls."""
    reply = answered(*SseParser().feed(b"".join(wire.events(*outputs))))
    results = (ToolResult("c", call.provider_id, call.tool, "done") for call in reply.calls)
    return (AssistantMessage(reply.text, reply.calls, reply.parts), *results)


def sent(*messages: Message) -> list[dict[str, Any]]:
    parsed, reason = refusal(body(ModelRequest("m", "", messages)))
    assert reason is None
    items: list[dict[str, Any]] = parsed["input"]
    return items


def test_an_id_that_an_earlier_answer_had_is_not_sent_again() -> None:
    first = said(Thought(["one"]), Said(["Look"], "commentary"), Asked("bash", {}, "c1"))
    third = said(Thought(["three"]), Asked("bash", {}, "c3"))

    items = sent(ASK, *first, *first, *third)

    own = ["reasoning", "message", "function_call", "function_call_output"]
    bare = own[1:]
    assert [item["type"] for item in items[1:]] == [*own, *bare, "reasoning", *bare[1:]]
    assert not any({"id", "status"} & set(item) for item in items[5:8])
    assert [item["phase"] for item in items if "phase" in item] == ["commentary", "commentary"]
    assert [item["call_id"] for item in items if item["type"] == "function_call"][0::2] == ["c1", "c3"]


def test_an_answer_whose_items_share_an_id_goes_back_without_ids() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}", "id": "x"}
    thought = {"type": "reasoning", "id": "x", "summary": [], "encrypted_content": "e"}
    response = {"status": "completed", "output": [thought, call, {**call, "call_id": "c2"}]}
    reply = answered(json.dumps({"type": "response.completed", "response": response}).encode())

    assert [call.provider_id for call in reply.calls] == ["c1", "c2"]
    assert reply.parts == {}


@pytest.mark.parametrize("odd", [2**64, -(2**63) - 1, 1e300, [[[]]] * 2 + [float(2**63)]])
def test_reasoning_with_a_number_that_lost_digits_stays_behind_with_all_ids(odd: Any) -> None:
    said = {"type": "reasoning_text", "text": "t", "odd": odd}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e", "content": [said]}
    text = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "x"}]}
    whole = {"object": "response", "status": "completed", "output": [thought, text]}

    assert answered(json.dumps(whole).encode()).parts == {}
