"""The body of a request to OpenAI: always one that a strict server takes, and the same for the same request."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import histories
from fake import openai as wire
from fake.openai import Asked, Output, Said, Thought
from fake.openai_strict import refusal
from fake.pictures import png
from hames.core.conversation import (
    AssistantMessage,
    Message,
    ModelRequest,
    Picture,
    Reply,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from hames.providers.openai_body import body
from hames.providers.openai_reply import ResponseBuilder
from hames.providers.request import EMPTY
from hames.providers.sse import SseParser

BASH = ToolSpec("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
ASK = UserMessage("hi")
SEEN = Picture("a-1", "image/png", png())

IDS = st.sampled_from(["call_0", "call_1", "call_2", "toolu_01", "é", "x" * 100, "a b"])
OUTPUTS = st.lists(
    st.builds(Thought, st.lists(st.sampled_from(["hm", "…", "😀"]), max_size=2), st.sampled_from([True, True, False]))
    | st.builds(Said, st.lists(histories.TEXT, max_size=3), st.sampled_from([None, "commentary", "final_answer"]))
    | st.builds(Asked, histories.TOOLS.filter(bool), histories.ARGUMENTS, IDS, st.integers(0, 3), st.booleans()),
    max_size=5,
)


def answered(outputs: list[Output], model: str = "m", *, reason: str | None = None) -> Reply:
    """What the builder makes of an answer."""
    builder = ResponseBuilder(ModelRequest(model, "", (ASK,), TOOLS))
    parser = SseParser()
    for payload in parser.feed(b"".join(wire.events(*outputs, reason=reason))):
        builder.add(payload)
    builder.end()
    return builder.reply()


TOOLS = (BASH, ToolSpec("run it!", "", {}), ToolSpec("run_it_", "x", {"anyOf": [True]}), ToolSpec("x" * 80, "x", {}))


@st.composite
def answers(draw: st.DrawFn) -> AssistantMessage:
    """What OpenAI said, by this model or another, and what became of it since."""
    reply = answered(draw(OUTPUTS), draw(st.sampled_from(["m", "m", "other"])))
    text = reply.text if reply.text.strip() or not reply.calls else ""
    calls, parts = reply.calls, reply.parts
    match draw(st.sampled_from(["as it was", "as it was", "another's", "longer", "a call more", "a call less"])):
        case "another's":
            parts = {**parts, "dialect": "anthropic"} if parts else {}
        case "longer":
            text += "."
        case "a call more":
            calls = (*calls, ToolCall("", "another", draw(histories.TOOLS), draw(histories.ARGUMENTS)))
        case "a call less":
            calls = calls[:-1]
    return AssistantMessage(text if text or calls else "x", calls, parts)


HISTORIES = histories.histories(answers() | histories.plain_answers())


def sent(request: ModelRequest) -> dict[str, Any]:
    parsed, reason = refusal(body(request))
    assert reason is None
    found: dict[str, Any] = parsed
    return found


def said(*outputs: Output, results: bool = True) -> tuple[Message, ...]:
    """An answer of these items as a message, and the results of its calls."""
    reply = answered(list(outputs))
    message = AssistantMessage(reply.text if reply.text.strip() else "", reply.calls, reply.parts)
    return (message, *(ToolResult("c", call.provider_id, call.tool, "done") for call in reply.calls if results))


@given(messages=HISTORIES, system=histories.TEXT, tools=st.booleans(), effort=st.sampled_from([None, "none", "high"]))
def test_a_strict_server_takes_every_history_whose_calls_have_results(
    messages: tuple[Message, ...], system: str, tools: bool, effort: Any
) -> None:
    request = ModelRequest("m", system, messages, TOOLS if tools else (), effort=effort, cache_key="k" * 70)

    _, reason = refusal(body(request))

    assert reason is None


@given(messages=HISTORIES)
def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter(messages: tuple[Message, ...]) -> None:
    whole = body(ModelRequest("m", "s", messages, TOOLS))

    for length in range(1, len(messages)):
        shorter = body(ModelRequest("m", "s", messages[:length], TOOLS))
        assert whole.startswith(shorter.removesuffix(b"]}"))


def test_the_shape_is_that_of_the_responses_api() -> None:
    call = ToolCall("c1", "p1", "bash", '{"command":  "ls"}')
    request = ModelRequest(
        "m",
        "be brief",
        (ASK, AssistantMessage("look", (call,)), ToolResult("c1", "p1", "bash", "a.txt")),
        (BASH,),
        effort="low",
        max_output_tokens=100,
        output_schema={"type": "object", "properties": {"a": {"type": "string"}}},
        cache_key="s-1",
    )

    assert sent(request) == {
        "model": "m",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "s-1",
        "instructions": "be brief",
        "tools": [
            {
                "type": "function",
                "name": "bash",
                "description": "Run a command.",
                "parameters": BASH.parameters,
                "strict": False,
            }
        ],
        "reasoning": {"effort": "low", "summary": "auto"},
        "max_output_tokens": 100,
        "text": {
            "format": {
                "type": "json_schema",
                "name": "answer",
                "schema": {"type": "object", "properties": {"a": {"type": "string"}}},
                "strict": False,
            }
        },
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "message", "role": "assistant", "content": "look"},
            {"type": "function_call", "call_id": "p1", "name": "bash", "arguments": '{"command":  "ls"}'},
            {"type": "function_call_output", "call_id": "p1", "output": "a.txt"},
        ],
    }


def test_tool_choice_none_keeps_the_tools_and_changes_only_the_end_of_the_body() -> None:
    free = ModelRequest("m", "", (ASK,), (BASH,))
    bound = dataclasses.replace(free, tool_choice="none")

    assert sent(bound)["tool_choice"] == "none"
    assert sent(bound)["tools"] == sent(free)["tools"]
    assert body(bound).startswith(body(free).removesuffix(b"}"))
    assert "tool_choice" not in sent(dataclasses.replace(bound, tools=()))


# --- reasoning --------------------------------------------------------------------------------------------------


def test_reasoning_goes_back_as_it_came_before_what_it_led_to() -> None:
    outputs: list[Output] = [
        Thought(["a", "b"]),
        Asked("bash", {"command": "ls"}, "c1"),
        Thought(),
        Said(["Look"], "commentary"),
    ]

    items = sent(ModelRequest("m", "", (ASK, *said(*outputs))))["input"]

    assert [item["type"] for item in items[1:]] == [
        "reasoning",
        "function_call",
        "reasoning",
        "message",
        "function_call_output",
    ]
    assert items[1]["summary"] == [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    assert items[4]["phase"] == "commentary"
    assert items[4]["id"].startswith("msg_")


def test_reasoning_of_two_steps_keeps_its_order_in_the_request_behind_them() -> None:
    first = said(Thought(["one"]), Asked("bash", {}, "c1"))
    second = said(Thought(["two"]), Asked("bash", {}, "c2"))

    items = sent(ModelRequest("m", "", (ASK, *first, *second)))["input"]

    assert [item["summary"][0]["text"] for item in items if item["type"] == "reasoning"] == ["one", "two"]


@pytest.mark.parametrize(
    "outputs",
    [
        [Thought(is_encrypted=False), Said(["x"]), Asked("bash", {}, "c1")],
        [Thought(), Said(["x"]), Thought(is_encrypted=False), Asked("bash", {}, "c1")],
    ],
)
def test_reasoning_that_is_not_encrypted_stays_behind_with_all_ids(outputs: list[Output]) -> None:
    items = sent(ModelRequest("m", "", (ASK, *said(*outputs))))["input"]

    assert [item["type"] for item in items[1:]] == ["message", "function_call", "function_call_output"]
    assert not any("id" in item for item in items)


def test_reasoning_without_an_item_behind_it_stays_behind() -> None:
    items = sent(ModelRequest("m", "", (ASK, *said(Thought(["lost"]), Thought(["kept"]), Said(["x"]), Thought()))))

    assert [item["summary"][0]["text"] for item in items["input"] if item["type"] == "reasoning"] == ["kept"]


def test_a_message_that_is_blank_does_not_stand_between_reasoning_and_a_call() -> None:
    items = sent(ModelRequest("m", "", (ASK, *said(Said([" \n"]), Thought(), Asked("bash", {}, "c1")))))["input"]

    assert [item["type"] for item in items[1:]] == ["reasoning", "function_call", "function_call_output"]


def test_another_model_gets_text_and_calls_alone() -> None:
    history = (ASK, *said(Thought(), Said(["Look"], "commentary"), Asked("bash", {}, "c1")))

    items = sent(ModelRequest("another", "", history))["input"]

    assert items[1] == {"type": "message", "role": "assistant", "content": "Look"}
    assert not any("id" in item for item in items)


def test_two_messages_of_one_answer_go_back_as_two() -> None:
    message, *_ = said(Thought(), Said(["Look"], "commentary"), Said(["Done"], "final_answer"))

    items = sent(ModelRequest("m", "", (ASK, message)))["input"]

    assert isinstance(message, AssistantMessage)
    assert message.text == "Look\n\nDone"
    assert [item["content"][0]["text"] for item in items[2:]] == ["Look", "Done"]


# --- names, ids, results ----------------------------------------------------------------------------------------


def test_tools_whose_names_become_alike_keep_apart_and_their_calls_come_home() -> None:
    outputs: list[Output] = []
    names = [tool["name"] for tool in sent(ModelRequest("m", "", (ASK,), TOOLS))["tools"]]
    outputs += [Asked(name, {}, f"c{place}") for place, name in enumerate(names)]

    assert len(set(names)) == len(TOOLS)
    assert names[2] == "run_it_"
    assert [call.tool for call in answered(outputs).calls] == [tool.name for tool in TOOLS]


def test_a_tool_that_is_not_on_offer_is_named_in_letters_that_are_taken() -> None:
    call = ToolCall("c", "p", "run it!" + "x" * 100, "{}")
    history = (ASK, AssistantMessage("", (call,)), ToolResult("c", "p", call.tool, " "))

    items = sent(ModelRequest("m", "", history))["input"]

    assert items[1]["name"] == ("run_it_" + "x" * 100)[:64]
    assert items[2]["output"] == EMPTY


def test_a_call_id_is_used_once_and_fits() -> None:
    history: list[Message] = [ASK]
    for provider_id in ("call_0", "call_0", "x" * 100, "toolu/é"):
        call = ToolCall("c", provider_id, "bash", "{}")
        history += [AssistantMessage("", (call,)), ToolResult("c", provider_id, "bash", "ok")]

    items = sent(ModelRequest("m", "", tuple(history)))["input"]

    ids = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert ids[0] == "call_0"
    assert len(set(ids)) == 4
    assert ids == [item["call_id"] for item in items if item["type"] == "function_call_output"]


def test_images_stand_in_the_result_that_shows_them_and_in_what_the_user_says() -> None:
    call = ToolCall("c1", "p1", "read", "{}")
    shown = ToolResult("c1", "p1", "read", "a.png", images=(SEEN,))
    history = (ASK, AssistantMessage("", (call,)), shown, UserMessage(" ", (SEEN,)))

    items = sent(ModelRequest("m", "", history))["input"]

    assert [block["type"] for block in items[2]["output"]] == ["input_image", "input_text"]
    assert [block["type"] for block in items[3]["content"]] == ["input_image", "input_text"]


def test_a_large_result_goes_whole() -> None:
    call = ToolCall("c1", "p1", "read", "{}")
    history = (ASK, AssistantMessage("", (call,)), ToolResult("c1", "p1", "read", "x" * 2**20))

    assert len(sent(ModelRequest("m", "", history))["input"][2]["output"]) == 2**20


# --- options ----------------------------------------------------------------------------------------------------


def test_no_effort_says_nothing_of_reasoning_and_none_asks_for_no_summary() -> None:
    assert "reasoning" not in sent(ModelRequest("m", "", (ASK,)))
    assert sent(ModelRequest("m", "", (ASK,), effort="none"))["reasoning"] == {"effort": "none"}


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "ft:gpt-4o-mini:x", "gpt-5-chat-latest"])
def test_a_model_that_cannot_reason_is_asked_nothing_of_reasoning(model: str) -> None:
    document = sent(ModelRequest(model, "", (ASK, *said(Thought(), Said(["x"]))), effort="high"))

    assert not {"include", "reasoning"} & set(document)


@pytest.mark.parametrize("model", ["gpt-5", "o3", "gpt-6-astra", "gpt-5.1-chat-latest", "codex-mini-latest"])
def test_every_other_model_is_asked_for_its_reasoning(model: str) -> None:
    assert sent(ModelRequest(model, "", (ASK,), effort="high"))["reasoning"] == {"effort": "high", "summary": "auto"}


def test_a_bound_below_the_least_is_the_least_and_a_long_cache_key_is_made_short() -> None:
    request = ModelRequest("m", "", (ASK,), max_output_tokens=1, cache_key="k" * 100)

    assert sent(request)["max_output_tokens"] == 16
    assert len(sent(request)["prompt_cache_key"]) == 64


CLOSED = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({**CLOSED, "additionalProperties": False}, True),
        (CLOSED, False),
        ({**CLOSED, "additionalProperties": False, "required": []}, False),
        ({**CLOSED, "additionalProperties": False, "properties": {"a": {"type": "string", "pattern": "x"}}}, False),
        ({**CLOSED, "additionalProperties": False, "properties": {"a": {"anyOf": [CLOSED]}}}, False),
        ({**CLOSED, "additionalProperties": False, "$defs": {"b": CLOSED}}, False),
        ({**CLOSED, "additionalProperties": False, "properties": {"a": {"type": "array", "items": CLOSED}}}, False),
    ],
)
def test_a_schema_is_strict_only_where_it_is_closed(schema: dict[str, Any], strict: bool) -> None:
    request = ModelRequest("m", "", (ASK,), output_schema=schema)

    assert sent(request)["text"]["format"]["strict"] == strict


def test_a_schema_of_no_object_is_left_out() -> None:
    assert "text" not in sent(ModelRequest("m", "", (ASK,), output_schema={"type": "array"}))


def test_parameters_that_are_refused_are_made_plain() -> None:
    parameters = {
        "oneOf": [{"required": ["a"]}],
        "properties": {
            "a": {"type": "array"},
            "b": True,
            "c": {"anyOf": [{"type": ["array", "null"]}, False]},
            "d": {"type": "object", "properties": {"e": {"type": "array", "items": {"type": "array"}}}},
        },
        "additionalProperties": {"type": "array"},
    }

    tool = sent(ModelRequest("m", "", (ASK,), (ToolSpec("t", "", parameters),)))["tools"][0]

    assert tool["parameters"] == {
        "properties": {
            "a": {"type": "array", "items": {}},
            "b": {},
            "c": {"anyOf": [{"type": ["array", "null"], "items": {}}, {"not": {}}]},
            "d": {
                "type": "object",
                "properties": {"e": {"type": "array", "items": {"type": "array", "items": {}}}},
            },
        },
        "additionalProperties": {"type": "array", "items": {}},
        "type": "object",
    }
