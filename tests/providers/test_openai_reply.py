"""The answer of OpenAI as it grows: parts, the reply, what goes back, and what is no answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake import openai as wire
from fake.openai import USAGE, Asked, Output, Said, Thought
from hames.core.conversation import (
    CallDelta,
    ModelRequest,
    Part,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolSpec,
    UserMessage,
)
from hames.ports import ProviderFailed
from hames.providers.answer import ErrorInAnswer, MalformedAnswer
from hames.providers.openai_reply import ResponseBuilder
from hames.providers.sse import MAX_EVENT_BYTES, SseParser

ASK = ModelRequest("m", "", (UserMessage("hi"),), (ToolSpec("bash", "Run.", {}), ToolSpec("run it!", "Run.", {})))
SECRET = "sk-secret-0123456789"
FLAT_USAGE = {
    "input_tokens": 10,
    "input_tokens_details.cached_tokens": 4,
    "output_tokens": 5,
    "output_tokens_details.reasoning_tokens": 3,
    "total_tokens": 15,
}

STREAMS: Mapping[str, list[bytes]] = {
    "text": wire.events(Said(["Hello, ", "wörld ", "\ud83d", "\ude00"])),
    "calls": wire.events(Said(["Look"]), Asked("bash", {"a": "é"}, "c1", 2), Asked("bash", '{"b', "c2", 1)),
    "reasoning": wire.events(Thought(["a", "b"]), Said(["x"]), Thought(), Asked("run_it_", {}, "c1")),
    "cut": wire.events(Thought([]), Said(["x"]), reason="max_output_tokens", usage=None),
}


def run(payloads: Sequence[bytes], secret: str | None = None) -> tuple[Reply, list[Part]]:
    builder = ResponseBuilder(ASK, secret)
    parts = [part for payload in payloads for part in builder.add(payload)]
    parts += builder.end()
    assert builder.finished
    assert builder.closed
    return builder.reply(), parts


def payloads(stream: Sequence[bytes]) -> list[bytes]:
    return SseParser().feed(b"".join(stream))


def built(*outputs: Output, **options: Any) -> tuple[Reply, list[Part]]:
    return run(payloads(wire.events(*outputs, **options)))


def data(kind: str, **members: Any) -> bytes:
    return json.dumps({"type": kind, **members}).encode()


def text_of(parts: Sequence[Part], kind: type[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, kind))


END = data("response.completed", response={"status": "completed", "output": []})


# --- answers ----------------------------------------------------------------------------------------------------


def test_text_and_reasoning_come_as_parts_and_as_a_whole() -> None:
    reply, parts = built(Thought(["first", "second"]), Said(["Hel", "lo"]))

    assert parts == [
        ReasoningDelta("first"),
        ReasoningDelta("\n\n"),
        ReasoningDelta("second"),
        TextDelta("Hel"),
        TextDelta("lo"),
    ]
    assert (reply.text, reply.reasoning, reply.stop, reply.raw_stop) == (
        "Hello",
        "first\n\nsecond",
        "stop",
        "completed",
    )
    assert (reply.model, reply.response_id, reply.usage) == ("fake-model", "resp_fake", FLAT_USAGE)


def test_parallel_calls_in_fragments_stay_apart_under_the_names_of_the_tools() -> None:
    reply, parts = built(
        Asked("bash", '{"a": "é😀"}', "c1", 1), Asked("run_it_", '{"b', "c2", 1), Asked("bash", "", "c3")
    )

    assert [(call.provider_id, call.tool, call.arguments) for call in reply.calls] == [
        ("c1", "bash", '{"a": "é😀"}'),
        ("c2", "run it!", '{"b'),
        ("c3", "bash", "{}"),
    ]
    assert reply.stop == "tool_calls"
    assert {(part.index, part.tool) for part in parts if isinstance(part, CallDelta)} == {(0, "bash"), (1, "run it!")}
    assert reply.parts == {}


@pytest.mark.parametrize("name", STREAMS)
def test_where_a_stream_is_split_makes_no_difference(name: str) -> None:
    stream = b"".join(STREAMS[name])
    whole = run(SseParser().feed(stream))

    for place in range(1, len(stream)):
        parser = SseParser()
        assert run(parser.feed(stream[:place]) + parser.feed(stream[place:])) == whole


@given(name=st.sampled_from(sorted(STREAMS)), places=st.lists(st.integers(0, 3_000), max_size=20))
def test_where_a_stream_is_split_at_random_makes_no_difference(name: str, places: list[int]) -> None:
    stream = b"".join(STREAMS[name])
    parser = SseParser()
    edges = [0, *sorted(places), len(stream)]

    found = [payload for start, end in pairwise(edges) for payload in parser.feed(stream[start:end])]

    assert run(found) == run(SseParser().feed(stream))


def test_a_cut_pair_is_whole_and_a_half_alone_is_replaced() -> None:
    reply, parts = built(Said(["\ud83d", "\ude00", "\ud83d"]), Said(["\ude00"]))

    assert reply.text == "😀\ufffd\n\n\ufffd" == text_of(parts, TextDelta)


@pytest.mark.parametrize(
    "outputs", [(Said(["Hi"]),), (Thought(["a", "b"]), Said(["x"]), Asked("bash", {"a": 1}, "c1"))]
)
def test_an_answer_that_is_not_streamed_is_the_same(outputs: Sequence[Output]) -> None:
    items = json.loads(payloads(wire.events(*outputs))[-1])["response"]

    reply, _ = run([json.dumps(items).encode()])
    streamed, _ = run([*payloads(wire.events(*outputs))[:-1], data("response.completed", response=items)])

    assert (reply.text, reply.reasoning, reply.stop, reply.usage) == (
        streamed.text,
        streamed.reasoning,
        streamed.stop,
        streamed.usage,
    )
    assert [call.arguments for call in reply.calls] == [call.arguments for call in streamed.calls]


def test_items_of_which_no_delta_or_no_end_came_are_taken_from_what_did_come() -> None:
    outputs = (Thought(["a"]), Said(["x"]), Asked("bash", {"a": 1}, "c1"))
    every = payloads(wire.events(*outputs))
    whole = run(every)[0]

    without_deltas = run([each for each in every if b".delta" not in each])[0]
    without_ends = run([each for each in every if b"output_item.done" not in each])[0]
    without_output = run([*every[:-1], data("response.completed", response={"status": "completed", "usage": USAGE})])[0]

    assert without_deltas == without_ends == whole
    assert (without_output.parts, without_output.usage) == (whole.parts, whole.usage)


def test_arguments_before_the_name_of_their_call_do_not_go_to_another() -> None:
    early = data("response.function_call_arguments.delta", output_index=1, delta='{"b": 1}')
    item = {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "bash", "arguments": '{"b": 1}'}
    first, *_ = payloads(wire.events(Asked("bash", {"a": 1}, "c1"), ends=False))

    events = [first, *payloads(wire.events(Asked("bash", {"a": 1}, "c1"), ends=False))[1:], early]
    reply, _ = run([*events, data("response.output_item.done", output_index=1, item=item), END])

    assert [call.arguments for call in reply.calls] == ['{"a": 1}', '{"b": 1}']


def test_unknown_events_and_items_are_passed_over() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}

    reply, _ = run(
        [
            data("response.rate_limits.updated", limits=[]),
            data("keepalive"),
            data("response.output_item.added", output_index=0, item=search),
            data("response.output_item.done", output_index=0, item=search),
            data("response.output_text.delta", output_index=1, delta="x"),
            END,
        ]
    )

    assert (reply.text, reply.parts) == ("x", {})


def test_messages_that_tear_each_other_keep_their_text_and_nothing_else() -> None:
    pieces = [
        data("response.output_text.delta", output_index=index, delta=text)
        for index, text in ((0, "a"), (1, "b"), (0, "c"))
    ]

    reply, _ = run([*pieces, END])

    assert (reply.text, reply.parts) == ("a\n\nb\n\nc", {})


# --- how it ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outputs", "reason", "stop", "raw"),
    [
        ([Said(["x"])], None, "stop", "completed"),
        ([Asked("bash", {}, "c")], None, "tool_calls", "completed"),
        ([Asked("bash", '{"a', "c", 0, True)], "max_output_tokens", "length", "max_output_tokens"),
        ([Thought()], "max_output_tokens", "length", "max_output_tokens"),
        ([Said(["x"])], "content_filter", "content_filter", "content_filter"),
        ([Said(["x"])], "steered", "other", "steered"),
        ([Asked("bash", {}, "c")], "server_overloaded", "other", "server_overloaded"),
        ([Said(["I cannot."], None, True)], None, "content_filter", "completed"),
        ([Said(["I cannot."], None, True), Asked("bash", {}, "c")], None, "tool_calls", "completed"),
        ([], None, "stop", "completed"),
    ],
)
def test_why_an_answer_ended_is_said(outputs: list[Output], reason: str | None, stop: str, raw: str) -> None:
    reply, _ = built(*outputs, reason=reason)

    assert (reply.stop, reply.raw_stop) == (stop, raw)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_cut_is_no_answer(name: str) -> None:
    builder = ResponseBuilder(ASK)
    for payload in payloads(STREAMS[name])[:-1]:
        builder.add(payload)
        assert not builder.finished


@pytest.mark.parametrize("state", ["in_progress", "queued", None])
def test_a_response_that_goes_on_is_no_answer(state: str | None) -> None:
    builder = ResponseBuilder(ASK)
    builder.add(json.dumps({"object": "response", "status": state, "output": []}).encode())

    assert not builder.finished


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"type": "error", "code": "server_error", "message": "why", "param": None}, "why"),
        ({"type": "error", "error": {"code": "server_error", "message": "why"}}, "why"),
        ({"error": {"code": "server_error", "message": "why"}}, "why"),
        ({"type": "response.failed", "response": {"status": "failed", "error": {"message": "why"}}}, "why"),
        ({"object": "response", "status": "failed", "error": {"message": "why"}}, "why"),
        ({"object": "response", "status": "cancelled", "error": None}, "the response is cancelled"),
    ],
)
def test_an_error_ends_the_answer_with_the_words_of_the_provider(event: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ErrorInAnswer) as caught:
        ResponseBuilder(ASK).add(json.dumps(event).encode())

    assert caught.value.document["error"]["message"] == message


def test_what_was_used_before_a_failure_is_known() -> None:
    builder = ResponseBuilder(ASK)
    response = {"status": "failed", "error": {"code": "server_error", "message": "why"}, "usage": USAGE}

    with pytest.raises(ErrorInAnswer):
        builder.add(data("response.failed", response=response))

    assert builder.usage == FLAT_USAGE


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": 1}, {"input_tokens": "1", "output_tokens": -1}])
def test_usage_is_what_was_reported_and_nothing_else(usage: Mapping[str, Any] | None) -> None:
    reply, _ = built(Said(["x"]), usage=usage)

    assert reply.usage == ({"input_tokens": 1} if usage == {"input_tokens": 1} else None)


# --- what is no answer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        data("response.output_text.delta", delta="x"),
        data("response.output_text.delta", output_index=0, delta=1),
        data("response.output_text.delta", output_index="x", delta="x"),
        data("response.reasoning_summary_text.delta", output_index=0, delta=1),
        data("response.output_item.added", output_index=0, item=None),
        data("response.output_item.done", output_index=0, item={"type": "message", "content": [1]}),
        data("response.output_item.done", output_index=0, item={"type": "message", "content": [{"type": "refusal"}]}),
        data("response.completed"),
        data("response.completed", response={"status": "completed", "output": [None]}),
        data("response.failed", response="x"),
    ],
)
def test_what_no_protocol_allows_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        ResponseBuilder(ASK).add(payload)


@pytest.mark.parametrize("name", [None, "", 1])
def test_a_call_without_a_name_is_malformed(name: Any) -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": name, "arguments": "{}"}
    builder = ResponseBuilder(ASK)
    builder.add(data("response.output_item.done", output_index=0, item=item))
    builder.add(END)
    builder.end()

    with pytest.raises(MalformedAnswer):
        builder.reply()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
EVENTS = [json.loads(payload) for stream in STREAMS.values() for payload in payloads(stream)]


@settings(max_examples=60)
@given(
    events=st.lists(st.sampled_from(EVENTS), max_size=12),
    wrong=st.dictionaries(st.integers(0, 11), JSON),
    picks=st.data(),
)
def test_no_stream_however_wrong_breaks_the_builder(
    events: list[dict[str, Any]], wrong: dict[int, Any], picks: st.DataObject
) -> None:
    builder = ResponseBuilder(ASK, SECRET)
    try:
        for place, event in enumerate(events):
            spoilt = json.loads(json.dumps(event))
            if place in wrong:
                inner = spoilt.get("item") or spoilt.get("response") or spoilt
                inner[picks.draw(st.sampled_from(sorted(inner)))] = wrong[place]
            builder.add(json.dumps(spoilt).encode())
        builder.end()
        reply = builder.reply()
    except (MalformedAnswer, ErrorInAnswer):
        return
    assert orjson.dumps([reply.text, reply.parts, reply.usage, reply.model, reply.raw_stop])
    assert len({call.provider_id for call in reply.calls}) == len(reply.calls)


def test_an_event_of_ten_megabytes_is_taken_and_a_larger_one_is_not() -> None:
    large = wire.event("response.output_text.delta", output_index=0, delta="x" * (MAX_EVENT_BYTES - 200))
    builder = ResponseBuilder(ASK)

    for payload in SseParser().feed(large):
        builder.add(payload)
    with pytest.raises(ProviderFailed):
        SseParser().feed(wire.event("response.output_text.delta", output_index=0, delta="x" * MAX_EVENT_BYTES))

    builder.end()
    assert len(builder.reply().text) == MAX_EVENT_BYTES - 200


# --- the secret -------------------------------------------------------------------------------------------------


def test_a_key_that_is_echoed_anywhere_does_not_enter() -> None:
    pieces = [SECRET[:7], SECRET[7:] + " and sk"]
    raw = '{"a": "' + SECRET + '"}'
    outputs = (Thought([f"thought {SECRET}"]), Said(["said ", *pieces]), Asked("bash", raw, SECRET, 9))

    reply, parts = run(payloads(wire.events(*outputs)), SECRET)
    whole, _ = run([payloads(wire.events(*outputs))[-1]], SECRET)

    assert SECRET not in repr((reply, parts, whole))
    assert reply.text == "said [redacted] and sk" == text_of(parts, TextDelta)
    assert reply.calls[0].arguments == '{"a": "[redacted]"}' == whole.calls[0].arguments
    assert [kept.get("text") for kept in reply.parts["items"]] == [None, len(reply.text), None]
