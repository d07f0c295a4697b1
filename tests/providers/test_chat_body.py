"""The request body: always one that a strict server takes, always the same bytes for the same request."""

from __future__ import annotations

import dataclasses
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import strict
from fake.pictures import png
from hames.core.conversation import (
    AssistantMessage,
    Message,
    ModelRequest,
    Picture,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from hames.providers.chat_body import EMPTY, body

BASH = ToolSpec("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
ASK = UserMessage("hi")

TEXT = st.lists(st.sampled_from("\ud83d\ude00\udc00 \nx") | st.characters(), max_size=8).map("".join)
"""`st.text` gives no surrogates, and they are what this is about."""
ARGUMENTS = (
    st.sampled_from(["{}", "", "null", "[1]", '{"a": 1}', "{}{}", r'{"a":"\ud83d"}', '{"a":"\ud83d"}', "NaN"]) | TEXT
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    messages: list[Message] = [UserMessage(draw(TEXT.filter(bool)))]
    for step in range(draw(st.integers(0, 4))):
        calls = tuple(
            ToolCall(f"c{step}.{place}", f"p{step}.{place}", draw(TEXT), draw(ARGUMENTS))
            for place in range(draw(st.integers(0, 3)))
        )
        messages.append(AssistantMessage(draw(TEXT if calls else TEXT.filter(bool)), calls))
        messages += [
            ToolResult(call.call_id, call.provider_id, call.tool, draw(TEXT)) for call in draw(st.permutations(calls))
        ]
        if draw(st.booleans()):
            messages.append(UserMessage(draw(TEXT.filter(bool))))
    return tuple(messages)


def sent(request: ModelRequest) -> dict[str, Any]:
    parsed: dict[str, Any] = orjson.loads(body(request))
    return parsed


@given(messages=histories(), system=TEXT.filter(lambda text: not text or bool(text.strip())), tools=st.booleans())
def test_a_strict_server_takes_every_history_whose_calls_have_results(
    messages: tuple[Message, ...], system: str, tools: bool
) -> None:
    request = ModelRequest("m", system, messages, (BASH,) if tools else ())

    _, reason = strict.refusal(body(request), "application/json")

    assert reason is None


@given(messages=histories())
def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter(messages: tuple[Message, ...]) -> None:
    whole = body(ModelRequest("m", "s", messages, (BASH,)))

    for length in range(1, len(messages)):
        shorter = body(ModelRequest("m", "s", messages[:length], (BASH,)))
        assert whole.startswith(shorter.removesuffix(b"]}"))


def test_the_shape_is_that_of_chat_completions() -> None:
    call = ToolCall("c1", "p1", "bash", '{"command":  "ls"}')
    request = ModelRequest(
        "m", "be brief", (ASK, AssistantMessage("", (call,)), ToolResult("c1", "p1", "bash", "a.txt")), (BASH,)
    )

    assert sent(request) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "bash", "description": "Run a command.", "parameters": BASH.parameters},
            }
        ],
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "p1", "type": "function", "function": {"name": "bash", "arguments": '{"command":  "ls"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "p1", "content": "a.txt"},
        ],
    }


def test_tool_choice_none_changes_only_the_end_of_the_body() -> None:
    free = ModelRequest("m", "", (ASK,), (BASH,))
    bound = dataclasses.replace(free, tool_choice="none")

    assert sent(bound)["tool_choice"] == "none"
    assert body(bound).startswith(body(free).removesuffix(b"}"))
    assert "tool_choice" not in sent(dataclasses.replace(bound, tools=()))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        ("{}{}", "{}"),
        ("[1]", "{}"),
        ('{"a": NaN}', "{}"),
        (r'{"a": "\ud83d"}', r'{"a": "\ufffd"}'),
        ('{"a": "\ud83d\ude00"}', '{"a": "😀"}'),
    ],
)
def test_arguments_go_back_as_they_were_unless_they_are_no_object(raw: str, expected: str) -> None:
    messages = (ASK, AssistantMessage("", (ToolCall("c", "p", "bash", raw),)), ToolResult("c", "p", "bash", "x"))

    said = sent(ModelRequest("m", "", messages))["messages"][1]

    assert said["tool_calls"][0]["function"]["arguments"] == expected


def test_a_name_that_no_provider_takes_is_written_in_letters_it_takes() -> None:
    call = ToolCall("c", "p", "run it!" + "x" * 100, "{}")
    messages = (ASK, AssistantMessage("", (call,)), ToolResult("c", "p", call.tool, ""))

    said = sent(ModelRequest("m", "", messages))["messages"]

    assert said[1]["tool_calls"][0]["function"]["name"] == ("run_it_" + "x" * 100)[:64]
    assert said[2]["content"] == EMPTY


def test_images_of_results_come_behind_all_results_of_their_step() -> None:
    calls = tuple(ToolCall(f"c{n}", f"p{n}", "read", "{}") for n in (1, 2))
    seen = Picture("a-1", "image/png", png())
    results = (ToolResult("c1", "p1", "read", "one", images=(seen,)), ToolResult("c2", "p2", "read", "two"))
    answer = AssistantMessage("seen")

    first = ModelRequest("m", "", (ASK, AssistantMessage("", calls), *results), (BASH,))
    second = ModelRequest("m", "", (*first.messages, answer, UserMessage("and?", (seen,))), (BASH,))

    *_, result, shown = sent(first)["messages"]
    assert result == {"role": "tool", "tool_call_id": "p2", "content": "two"}
    assert [part["type"] for part in shown["content"]] == ["image_url", "text"]
    assert shown["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert body(second).startswith(body(first).removesuffix(b"]}"))
    assert sent(second)["messages"][-1]["content"][1] == {"type": "text", "text": "and?"}
    for request in (first, second):
        assert strict.refusal(body(request), "application/json")[1] is None


def test_images_of_results_and_a_message_behind_them_are_one_message() -> None:
    call = ToolCall("c1", "p1", "read", "{}")
    seen = Picture("a-1", "image/png", png())
    messages = (ASK, AssistantMessage("", (call,)), ToolResult("c1", "p1", "read", "x", images=(seen,)), ASK)

    roles = [message["role"] for message in sent(ModelRequest("m", "", messages, (BASH,)))["messages"]]

    assert roles == ["user", "assistant", "tool", "user"]
