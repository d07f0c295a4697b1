"""What an answer or a history costs to read grows as it does: the work is counted, not timed.

Twice as much of it may take little more than twice the work, whatever a server sends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import orjson
import pytest

from fake.openai import event as openai_event
from fake.vendors import VENDORS
from hames.core.conversation import AssistantMessage, Message, ModelRequest, Part, ToolCall, ToolResult, UserMessage
from hames.providers.answer import Builder, Words
from hames.providers.anthropic_reply import MessageBuilder
from hames.providers.chat_calls import CallFragments
from hames.providers.gemini_reply import ReplyBuilder
from hames.providers.openai_reply import ResponseBuilder
from hames.providers.sse import SseParser
from hames.providers.surrogates import without_lone_escapes

ASK = ModelRequest("m", "", (UserMessage("hi"),))
SIZE = 300


def calls_made(work: Callable[[], object]) -> int:
    """How many functions are called, of Python and of C, each turn of a generator among them."""
    count = 0

    def note(frame: FrameType, kind: str, arg: Any) -> None:
        nonlocal count
        count += kind in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def grows_as_its_size(work: Callable[[int], object]) -> bool:
    work(1)  # what is made once
    return calls_made(lambda: work(2 * SIZE)) < 2.5 * calls_made(lambda: work(SIZE))


def read(builder: Builder, *events: Any) -> list[Part]:
    parts = [part for each in events for part in builder.add(orjson.dumps(each))]
    return parts + builder.end()


def test_the_count_tells_what_grows_faster() -> None:
    assert grows_as_its_size(lambda size: [len("") for _ in range(size)])
    assert not grows_as_its_size(lambda size: [sum(1 for _ in range(place)) for place in range(size)])


# --- answers ------------------------------------------------------------------------------------------------------


def gemini_calls(count: int) -> object:
    parts = [{"functionCall": {"name": "a", "id": "same"}}] * count
    builder = ReplyBuilder(ASK)
    read(builder, {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})
    return builder.reply()


def gemini_texts(count: int) -> object:
    parts = [{"text": "a", "thoughtSignature": "s"}, {"text": "b"}] * count
    builder = ReplyBuilder(ASK)
    read(builder, {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})
    return builder.reply()


def chat_calls(count: int) -> object:
    calls = CallFragments()
    for index in range(count):
        calls.add({"index": index, "id": "same", "function": {"name": f"a{index}", "arguments": "{}"}})
    calls.end()
    return calls.calls()


def anthropic_blocks(count: int) -> object:
    content = [{"type": "tool_use", "id": "same", "name": "a", "input": {"b": 1}}, {"type": "text", "text": "t"}]
    builder = MessageBuilder(ASK)
    read(builder, {"type": "message", "model": "m", "content": content * count, "stop_reason": "tool_use"})
    return builder.reply()


def anthropic_reports(count: int) -> object:
    builder = MessageBuilder(ASK)
    for place in range(count):
        read(builder, {"type": "message_delta", "usage": {f"tokens_{place}_{name}": 1 for name in range(40)}})
    assert builder.usage is not None
    assert len(builder.usage) <= 100
    return builder.usage


def openai_items(count: int) -> object:
    builder = ResponseBuilder(ASK)
    output = [
        {"type": "function_call", "id": "same", "call_id": "same", "name": f"a{place}", "arguments": "{}"}
        for place in range(count)
    ]
    read(builder, {"type": "response.completed", "response": {"status": "completed", "output": output}})
    reply = builder.reply()
    assert len(reply.calls) == count
    return reply


@pytest.mark.parametrize(
    "work", [gemini_calls, gemini_texts, chat_calls, anthropic_blocks, anthropic_reports, openai_items]
)
def test_an_answer_of_many_parts_is_read_in_one_pass(work: Callable[[int], object]) -> None:
    assert grows_as_its_size(work)


@pytest.fixture
def characters(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many characters each parse and each look at the whole text take."""
    taken: list[int] = []
    loads = orjson.loads

    def counted(raw: Any) -> Any:
        taken.append(len(raw))
        return loads(raw)

    def looked(name: str) -> property:
        get: Callable[[Words], str] = vars(Words)[name].fget

        def look(words: Words) -> str:
            found = get(words)
            taken.append(len(found))
            return found

        return property(look)

    monkeypatch.setattr(orjson, "loads", counted)
    for name in ("text", "reasoning"):
        monkeypatch.setattr(Words, name, looked(name))
    yield taken
    monkeypatch.undo()


@pytest.mark.parametrize("members", [{"name": "write", "index": 0}, {"name": "write"}], ids=["index", "nothing"])
def test_arguments_in_fragments_that_repeat_the_name_are_parsed_once(
    characters: list[int], members: dict[str, Any]
) -> None:
    arguments = json.dumps({"path": 'a "{\\} b', "content": "}" * 20_000})
    index = {"index": members["index"]} if "index" in members else {}
    calls = CallFragments()
    for at in range(0, len(arguments), 5):
        calls.add({**index, "function": {"name": "write", "arguments": arguments[at : at + 5]}})
    calls.end()

    assert [call.arguments for call in calls.calls()] == [arguments]
    assert sum(characters) <= 2 * len(arguments)


def test_two_messages_that_take_turns_are_not_read_anew_at_each_turn(characters: list[int]) -> None:
    builder = ResponseBuilder(ASK)
    text = "aaaaaaaaaaaa"
    deltas = [
        openai_event("response.output_text.delta", output_index=place % 2, content_index=0, delta=text)
        for place in range(2_000)
    ]
    thoughts = [
        openai_event("response.reasoning_text.delta", output_index=2 + place, delta="" if place else text)
        for place in range(2_000)
    ]
    for payload in SseParser().feed(b"".join([*deltas, *thoughts])):
        builder.add(payload)
    sent = sum(len(each) for each in [*deltas, *thoughts])
    builder.add(orjson.dumps({"type": "response.completed", "response": {"status": "completed", "output": []}}))
    builder.end()

    assert len(builder.reply().text) > 2_000 * len(text)
    assert sum(characters) <= 2 * sent


@pytest.mark.parametrize("text", ["\\\\", "\\n", "\\\\u0041", "\\ud83d\\ude00", "\\u0041"])
def test_escapes_are_passed_over_in_one_go(text: str) -> None:
    raw = '{"a":"\\u0041' + text * 10_000 + '"}'

    assert calls_made(lambda: without_lone_escapes(raw)) < 100
    assert without_lone_escapes(raw) == raw


def test_arguments_that_wait_for_a_name_are_given_out_once() -> None:
    calls = CallFragments()
    for _ in range(5_000):
        assert calls.add({"index": 0, "function": {"arguments": "ab"}}) == []
    (part,) = calls.add({"index": 0, "function": {"name": "bash"}})

    assert part.text == "ab" * 5_000


# --- histories ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider_id", ["call_0", "an id with spaces", "é"])
@pytest.mark.parametrize("name", VENDORS)
def test_a_history_whose_calls_share_an_id_is_written_in_one_pass(name: str, provider_id: str) -> None:
    vendor = VENDORS[name]

    def write(steps: int) -> bytes:
        messages: list[Message] = [UserMessage("go")]
        for step in range(steps):
            call = ToolCall(f"c{step}", provider_id, "read", '{"path":"a"}')
            messages += [AssistantMessage("", (call,)), ToolResult(call.call_id, provider_id, "read", "text")]
        return vendor.dialect.body(ModelRequest(vendor.models[0], "s", tuple(messages)))

    assert grows_as_its_size(write)
