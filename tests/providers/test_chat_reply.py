"""The answer as it grows: parts, the reply, usage as reported, and what is no answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake.answers import delta
from hames.core.conversation import Part, ReasoningDelta, Reply, TextDelta
from hames.providers.answer import ErrorInAnswer, MalformedAnswer, flatten_usage
from hames.providers.chat_reply import ReplyBuilder

COUNTERS = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "cost": 0.25,
    "cached": None,
    "is_byok": False,
    "prompt_tokens_details": {"cached_tokens": 4, "audio": {"in": 0}},
    "note": "free",
}


def built(*chunks: Mapping[str, Any]) -> tuple[Reply, list[Part]]:
    builder = ReplyBuilder()
    parts = [part for chunk in chunks for part in builder.add(json.dumps(chunk).encode())]
    parts += builder.end()
    assert builder.finished
    return builder.reply(), parts


STOP = delta(reason="stop")


def test_text_and_reasoning_come_as_parts_and_as_a_whole() -> None:
    reply, parts = built(
        delta({"role": "assistant", "content": ""}),
        delta({"reasoning_content": "hm"}),
        delta({"reasoning": "…"}),
        delta({"content": "Hel"}),
        delta({"content": "lo", "reasoning_content": None}),
        STOP,
    )

    assert parts == [ReasoningDelta("hm"), ReasoningDelta("…"), TextDelta("Hel"), TextDelta("lo")]
    assert (reply.text, reply.reasoning, reply.stop) == ("Hello", "hm…", "stop")
    assert (reply.model, reply.response_id, reply.usage) == ("fake-model", "chatcmpl-fake", None)


def test_usage_is_flat_and_holds_whole_numbers_only() -> None:
    reply, _ = built(STOP, {"choices": [], "usage": COUNTERS})

    assert reply.usage == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details.cached_tokens": 4,
        "prompt_tokens_details.audio.in": 0,
    }


def test_the_last_usage_counts_and_an_empty_one_says_nothing() -> None:
    first, last = {"completion_tokens": 1}, {"completion_tokens": 2}

    assert built(delta(usage=first), {**STOP, "usage": last}, {"choices": [], "usage": {}})[0].usage == last
    assert built({**STOP, "usage": None})[0].usage is None
    assert built({**STOP, "usage": {}})[0].usage is None


@pytest.mark.parametrize(
    ("chunks", "is_whole"),
    [
        ([delta({"content": "a"}, usage=COUNTERS)], False),
        ([delta({"content": "a"}, usage=COUNTERS), {"choices": [], "usage": {}}], False),
        ([delta({"content": "a"}), {"choices": [], "usage": COUNTERS}], True),
        ([{"choices": [], "usage": COUNTERS}, delta({"content": "a"})], False),
        ([{**STOP, "usage": COUNTERS}], True),
        ([{**STOP, "usage": COUNTERS}, {"choices": []}], True),
        ([{**STOP, "usage": COUNTERS}, delta({"content": "a"})], False),
        ([STOP], False),
    ],
)
def test_usage_is_of_all_of_an_answer_behind_its_parts_alone(chunks: list[Mapping[str, Any]], is_whole: bool) -> None:
    builder = ReplyBuilder()
    for each in chunks:
        builder.add(json.dumps(each).encode())

    assert builder.usage_is_whole == is_whole


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_any_usage_gives_counters_that_json_can_carry(usage: Any) -> None:
    for name, value in flatten_usage(usage).items():
        assert type(value) is int
        assert 0 <= value < 2**53
        name.encode()


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("STOP", "stop"),
        ("eos", "stop"),
        ("eos_token", "stop"),
        ("stop_sequence", "stop"),
        ("end", "stop"),
        ("end_turn", "stop"),
        ("tool_use", "tool_calls"),
        ("COMPLETE", "stop"),
        ("TOOL_CALL", "tool_calls"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("model_context_window_exceeded", "length"),
        ("SAFETY", "content_filter"),
        ("sensitive", "content_filter"),
        ("insufficient_system_resource", "interrupted"),
        ("network_error", "interrupted"),
        ("abort", "other"),
        ("cancelled", "other"),
        ("timeout", "other"),
        ("time_limit", "other"),
        ("something new", "other"),
    ],
)
def test_a_finish_reason_becomes_a_stop_and_is_kept_as_it_was(reason: str, stop: str) -> None:
    reply, _ = built(delta({"content": "x"}), delta(reason=reason))

    assert (reply.stop, reply.raw_stop) == (stop, reason)


@pytest.mark.parametrize("nothing", [None, "", "null"])
def test_a_reason_of_every_chunk_that_says_nothing_is_none(nothing: str | None) -> None:
    builder = ReplyBuilder()
    builder.add(json.dumps(delta({"content": "x"}, reason=nothing)).encode())

    assert not builder.finished
    assert built(delta({"content": "x"}, reason=nothing), STOP)[0].stop == "stop"


def test_calls_that_end_with_stop_are_calls() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "bash", "arguments": "{}"}}

    reply, _ = built(delta({"tool_calls": [call]}), STOP)

    assert reply.stop == "tool_calls"
    assert reply.raw_stop == "stop"


def test_a_refusal_is_text_that_stopped_at_the_filter() -> None:
    reply, _ = built(delta({"refusal": "I can't."}), STOP)

    assert (reply.text, reply.stop) == ("I can't.", "content_filter")


def test_content_in_blocks_is_text_and_reasoning() -> None:
    blocks = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "hi"}]

    reply, _ = built(delta({"content": blocks}), STOP)

    assert (reply.text, reply.reasoning) == ("hi", "hm")


def test_a_second_choice_is_not_mixed_into_the_first() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": None}]}

    assert built(delta({"content": "yes"}), other, STOP)[0].text == "yes"


def test_an_answer_that_was_not_streamed_is_an_answer() -> None:
    message = {
        "role": "assistant",
        "content": "hi",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"a":1}'}},
            {"id": "b", "type": "function", "function": {"name": "bash", "arguments": '{"a":2}'}},
        ],
    }

    reply, _ = built({"id": "x", "model": "m", "choices": [{"message": message, "finish_reason": "tool_calls"}]})

    assert reply.text == "hi"
    assert [(call.provider_id, call.arguments) for call in reply.calls] == [("a", '{"a":1}'), ("b", '{"a":2}')]


def test_a_pair_cut_into_two_deltas_is_whole_and_lone_halves_are_replaced() -> None:
    reply, parts = built(
        delta({"content": "a\ud83d"}),
        delta({"reasoning_content": "\udc00r"}),
        delta({"content": "\ude00b"}),
        delta({"content": "\ud83d"}),
        delta({"content": "c"}),
        delta({"content": "\ud83d"}),
        STOP,
    )

    assert reply.text == "a😀b\ufffdc\ufffd"
    assert reply.reasoning == "\ufffdr"
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == reply.text


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    builder = ReplyBuilder()
    data = json.dumps(delta({"content": "a?b"})).encode().replace(b"?", b"\xff")

    assert builder.add(data) == [TextDelta("a\ufffdb")]


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"message": "busy"}},
        {"error": "busy"},
        {"object": "error", "message": "busy"},
        [{"error": {"message": "busy"}}],
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]},
    ],
)
def test_an_error_is_no_answer(document: Any) -> None:
    with pytest.raises(ErrorInAnswer):
        ReplyBuilder().add(json.dumps(document).encode())


@pytest.mark.parametrize("payload", [b"nonsense", b"[]", b'"x"', b'{"choices": [1]}', b"[" * 100_000])
def test_what_is_no_chunk_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        ReplyBuilder().add(payload)


def test_a_call_without_a_name_makes_the_answer_malformed() -> None:
    builder = ReplyBuilder()
    builder.add(json.dumps(delta({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})).encode())

    with pytest.raises(MalformedAnswer):
        builder.reply()


MEMBERS = ["choices", "delta", "message", "content", "tool_calls", "function", "name", "arguments", "usage", "index"]
CHUNKS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(CHUNKS, max_size=4))
def test_any_json_is_taken_or_refused_by_type(chunks: list[Any]) -> None:
    builder = ReplyBuilder()

    for chunk in [*chunks, {"choices": chunks}, {"choices": [{"delta": chunk} for chunk in chunks]}]:
        try:
            for part in builder.add(json.dumps(chunk).encode()):
                part.text.encode()
        except (MalformedAnswer, ErrorInAnswer):
            continue
