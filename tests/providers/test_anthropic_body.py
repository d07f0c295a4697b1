"""The body of a Messages request: always one that a strict server takes, always the same bytes for the same request."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence

import orjson
import pytest
from hypothesis import given

from fake.anthropic import Asked
from fake.anthropic_histories import (
    ADAPTIVE,
    ALWAYS,
    ASK,
    BASH,
    MODELS,
    REQUESTS,
    SEEN,
    TOOLS,
    answered,
    conversation,
    sent,
    talks,
    why_refused,
)
from fake.anthropic_rules import BETA, VERSION
from fake.pictures import png
from hames.core.conversation import (
    AssistantMessage,
    Effort,
    Message,
    ModelRequest,
    Picture,
    ToolCall,
    ToolResult,
    UserMessage,
)
from hames.providers.anthropic import Anthropic
from hames.providers.anthropic_body import body
from hames.providers.request import EMPTY, SHOWN

MARKER = b',"cache_control":{"type":"ephemeral"}'


@given(REQUESTS)
def test_a_strict_server_takes_every_history_whose_calls_have_results(request: ModelRequest) -> None:
    assert why_refused(request) is None


def whole_steps(messages: Sequence[Message]) -> Iterable[int]:
    """How many messages a request can have: up to one of the user, or to the last result of a step."""
    for length, last in enumerate(messages, 1):
        goes_on = any(isinstance(message, ToolResult) for message in messages[length : length + 1])
        if isinstance(last, UserMessage) or (isinstance(last, ToolResult) and not goes_on):
            yield length


@given(messages=talks(ALWAYS))
def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter_but_for_markers(
    messages: tuple[Message, ...],
) -> None:
    request = ModelRequest(ALWAYS, "s", messages, TOOLS, effort="high")
    whole = body(request).replace(MARKER, b"")

    assert why_refused(request) is None

    for length in whole_steps(messages):
        shorter = body(dataclasses.replace(request, messages=messages[:length])).replace(MARKER, b"")
        assert whole.startswith(shorter.removesuffix(b"]}]}"))


def test_over_ten_steps_each_request_begins_with_the_one_before_and_marks_what_that_wrote() -> None:
    bodies = [body(ModelRequest(ADAPTIVE, "s", conversation(n), (BASH,), effort="high")) for n in range(11)]
    # Numbers in ids and signatures differ from one run of the fake to the next.
    alike = [re.sub(rb"toolu_\d+|a\d+\.0\.1\.[0-9a-f]+", b"n", each) for each in bodies]

    for shorter, longer in itertools.pairwise(alike):
        assert longer.replace(MARKER, b"").startswith(shorter.replace(MARKER, b"").removesuffix(b"]}]}"))
        assert shorter.count(MARKER) <= longer.count(MARKER) <= 4
    for n, each in enumerate(bodies):
        marked = [turn for turn in orjson.loads(each)["messages"] if "cache_control" in turn["content"][-1]]
        assert marked == [turn for turn in orjson.loads(each)["messages"] if turn["role"] == "user"][-2:]
        assert len(marked) == min(2, n + 1)


def test_the_shape_is_that_of_messages() -> None:
    call = ToolCall("c1", "toolu_1", "bash", '{"command":  "ls"}')
    messages = (ASK, AssistantMessage("look", (call,)), ToolResult("c1", "toolu_1", "bash", "no", is_error=True))

    mark = {"cache_control": {"type": "ephemeral"}}
    assert sent(ModelRequest(ADAPTIVE, "be brief", messages, (BASH,), "none", cache_key="key")) == {
        "model": ADAPTIVE,
        "max_tokens": 32_000,
        "stream": True,
        "system": [{"type": "text", "text": "be brief", **mark}],
        "tools": [{"name": "bash", "description": "Run a command.", "input_schema": BASH.parameters, **mark}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi", **mark}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True, **mark}
                ],
            },
        ],
        "tool_choice": {"type": "none"},
    }


def test_tool_choice_none_keeps_the_tools_and_changes_only_the_end_of_the_body() -> None:
    free = ModelRequest(ADAPTIVE, "", (ASK,), (BASH,))
    bound = dataclasses.replace(free, tool_choice="none")

    assert sent(bound)["tool_choice"] == {"type": "none"}
    assert body(bound).startswith(body(free).removesuffix(b"}"))
    assert "tool_choice" not in sent(dataclasses.replace(bound, tools=()))


def test_calls_in_a_request_without_tools_have_a_tool_that_is_not_to_be_called() -> None:
    document = sent(ModelRequest(ADAPTIVE, "", conversation(1)))

    assert [tool["name"] for tool in document["tools"]] == ["no_tool"]
    assert document["tool_choice"] == {"type": "none"}


def test_neighbours_are_one_turn_and_results_stand_before_what_the_user_says() -> None:
    *_, result = conversation(1)
    messages = (
        ASK,
        UserMessage("and"),
        *conversation(1)[1:],
        UserMessage("more"),
        AssistantMessage("a"),
        AssistantMessage("b"),
    )

    turns = sent(ModelRequest(ADAPTIVE, "", messages, (BASH,)))["messages"]

    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "text"]
    assert [block["text"] for block in turns[3]["content"]] == ["a", "b"]
    assert isinstance(result, ToolResult)


# --- names, ids, arguments --------------------------------------------------------------------------------------


def test_tools_whose_names_clean_alike_stay_apart_and_come_back_by_their_own() -> None:
    request = ModelRequest(ADAPTIVE, "", (ASK,), TOOLS)
    names = [tool["name"] for tool in sent(request)["tools"]]

    reply = answered(request, *(Asked(name) for name in names), stop="tool_use")

    assert names[3] == "run_it_"
    assert len(set(names)) == len(TOOLS)
    assert [call.tool for call in reply.calls] == [tool.name for tool in TOOLS]


def test_ids_of_other_vendors_and_ids_that_come_twice_are_made_anew_in_pairs() -> None:
    call = ToolCall("c", "functions.bash:0", "bash", "{}")
    result = ToolResult("c", "functions.bash:0", "bash", "x")
    messages = (ASK, AssistantMessage("", (call,)), result, AssistantMessage("", (call,)), result)

    turns = sent(ModelRequest(ADAPTIVE, "", messages, (BASH,)))["messages"]

    used = [turns[1]["content"][0]["id"], turns[3]["content"][0]["id"]]
    assert used == [turns[2]["content"][0]["tool_use_id"], turns[4]["content"][0]["tool_use_id"]]
    assert used[0] != used[1]


def test_arguments_go_back_byte_for_byte_where_they_are_an_object() -> None:
    calls = tuple(
        ToolCall("c", f"p{n}", "bash", raw)
        for n, raw in enumerate(['{"n":  123456789012345678901234567890}', '{"broken', ""])
    )
    results = tuple(ToolResult("c", call.provider_id, "bash", "x") for call in calls)

    raw = body(ModelRequest(ADAPTIVE, "", (ASK, AssistantMessage("", calls), *results), (BASH,)))

    assert b'"input":{"n":  123456789012345678901234567890}' in raw
    assert raw.count(b'"input":{}') == 2


# --- images -----------------------------------------------------------------------------------------------------


def test_images_stand_in_results_and_before_what_the_user_says_of_them() -> None:
    call = ToolCall("c", "toolu_1", "read", "{}")
    result = ToolResult("c", "toolu_1", "read", "a picture", images=SEEN[:1])
    messages = (UserMessage(" ", SEEN), AssistantMessage("", (call,)), result)

    turns = sent(ModelRequest(ADAPTIVE, "", messages, (BASH,)))["messages"]

    assert [block["type"] for block in turns[0]["content"]] == ["image", "image", "text"]
    assert turns[0]["content"][2]["text"] == SHOWN
    assert [block["type"] for block in turns[2]["content"][0]["content"]] == ["text", "image"]
    assert "cache_control" in turns[2]["content"][0]


def test_images_of_a_failed_call_stand_behind_all_results_of_the_step() -> None:
    calls = tuple(ToolCall("c", f"toolu_{n}", "read", "{}") for n in (1, 2))
    results = (
        ToolResult("c", "toolu_1", "read", "failed", True, SEEN[:1]),
        ToolResult("c", "toolu_2", "read", "", images=()),
    )
    request = ModelRequest(ADAPTIVE, "", (ASK, AssistantMessage("", calls), *results, UserMessage("and?")), (BASH,))

    content = sent(request)["messages"][2]["content"]

    assert [block["type"] for block in content] == ["tool_result", "tool_result", "image", "text", "text"]
    assert content[1]["content"] == EMPTY
    assert why_refused(request) is None


def test_of_many_images_those_that_are_too_large_for_so_many_are_left_out() -> None:
    large = Picture("a-l", "image/png", png(2_001, 1))
    few = ModelRequest(ADAPTIVE, "", (UserMessage("see", (large, *SEEN * 9)),))
    many = ModelRequest(ADAPTIVE, "", (UserMessage("see", (large, *SEEN * 10)),))

    assert sent(few)["messages"][0]["content"][0]["type"] == "image"
    assert "2001 x 1 pixels was left out" in sent(many)["messages"][0]["content"][0]["text"]
    assert why_refused(few) is None
    assert why_refused(many) is None


def test_a_huge_result_is_sent_as_it_is() -> None:
    *messages, last = conversation(1)
    assert isinstance(last, ToolResult)
    huge = dataclasses.replace(last, text="é\0" * 500_000)

    request = ModelRequest(ADAPTIVE, "", (*messages, huge), (BASH,))

    assert why_refused(request) is None
    assert sent(request)["messages"][2]["content"][0]["content"] == huge.text


def test_the_headers_carry_the_key_and_the_version() -> None:
    headers = Anthropic().headers("sk-ant")

    assert headers == {"anthropic-version": VERSION, "x-api-key": "sk-ant"}
    assert "x-api-key" not in Anthropic().headers(None)


@pytest.mark.parametrize("effort", [None, "none", "high"])
def test_a_beta_is_sent_only_where_it_is_used(effort: Effort | None) -> None:
    for model in sorted({*MODELS, "claude-of-a-gateway"}):
        request = ModelRequest(model, "", (UserMessage("hi"),), effort=effort)

        uses = "block_binding" in sent(request).get("thinking", {})
        assert Anthropic().headers_for(request) == ({"anthropic-beta": BETA} if uses else {})
