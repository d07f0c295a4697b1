"""The answer of Messages as it grows: parts, the reply, what is kept of thinking, and what is no answer."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import anthropic as fake
from fake.anthropic import OUTPUT_TOKENS, Asked, Block, Other, Said, Thought, event, events, message
from hames.core.conversation import (
    AssistantMessage,
    CallDelta,
    ModelRequest,
    Part,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolSpec,
    UserMessage,
)
from hames.core.signed import CallItem, OwnItem, TextItem, signed_items
from hames.ports import ProviderFailed
from hames.providers.answer import ErrorInAnswer, MalformedAnswer
from hames.providers.anthropic_reply import MessageBuilder
from hames.providers.sse import MAX_EVENT_BYTES, SseParser

KEY = "sk-ant-secret-0123456789"
REQUEST = ModelRequest(fake.MODEL, "", (UserMessage("hi"),), (ToolSpec("bash", "", {}), ToolSpec("run it", "", {})))
FLAT_USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 4,
    "cache_creation.ephemeral_5m_input_tokens": 3,
    "cache_creation.ephemeral_1h_input_tokens": 0,
    "output_tokens": OUTPUT_TOKENS,
}


def read(pieces: Iterable[bytes], secret: str | None = None) -> tuple[Reply, list[Part]]:
    """The reply and the parts of a stream that comes in these pieces."""
    builder, parser, parts = MessageBuilder(REQUEST, secret), SseParser(), list[Part]()
    for piece in pieces:
        parts += [part for payload in parser.feed(piece) for part in builder.add(payload)]
    parts += [part for payload in parser.flush() for part in builder.add(payload)]
    parts += builder.end()
    assert builder.finished
    return builder.reply(), parts


def built(*blocks: Block, secret: str | None = None, **options: Any) -> tuple[Reply, list[Part]]:
    return read(events(*blocks, **options), secret)


def text_of(parts: Iterable[Part], kind: type[Part], index: int = 0) -> str:
    return "".join(
        part.text
        for part in parts
        if isinstance(part, kind) and (not isinstance(part, CallDelta) or part.index == index)
    )


def kept(reply: Reply) -> list[str]:
    """The kinds of what goes back, in order; empty where only text and calls do."""
    items = signed_items(AssistantMessage(reply.text, reply.calls, reply.parts), "anthropic", fake.MODEL)
    return [type(item).__name__ for item in items or []]


def test_text_comes_as_it_is_sent_and_as_a_whole() -> None:
    reply, parts = built(Said(["Hel", "lo 😀"]))

    assert parts == [TextDelta("Hel"), TextDelta("lo 😀")]
    assert (reply.text, reply.reasoning, reply.calls, reply.parts) == ("Hello 😀", "", (), {})
    assert (reply.stop, reply.raw_stop) == ("stop", "end_turn")
    assert (reply.model, reply.response_id, reply.usage) == (fake.MODEL, "msg_fake", FLAT_USAGE)


def test_parallel_calls_in_fragments_come_apart_under_our_names() -> None:
    asked = (Asked("bash", {"a": "é😀"}, "toolu_1", 1), Asked("run_it", '{"broken', "toolu_2", 2), Asked("other"))

    reply, parts = built(Said(["look"]), *asked, stop="tool_use")

    assert reply.stop == "tool_calls"
    assert [(call.tool, call.provider_id) for call in reply.calls[:2]] == [("bash", "toolu_1"), ("run it", "toolu_2")]
    assert json.loads(reply.calls[0].arguments) == {"a": "é😀"}
    assert [call.arguments for call in reply.calls[1:]] == ['{"broken', "{}"]
    assert text_of(parts, CallDelta, 1) == '{"broken'
    assert {part.tool for part in parts if isinstance(part, CallDelta)} == {"bash", "run it"}


def test_thinking_is_kept_with_its_signature_in_its_place() -> None:
    blocks = (Thought(["one ", "two"]), Said(["a"]), Thought(is_redacted=True), Asked("bash"), Thought([]), Said(["b"]))

    reply, parts = built(*blocks)
    items = signed_items(AssistantMessage(reply.text, reply.calls, reply.parts), "anthropic", fake.MODEL)

    assert reply.reasoning == text_of(parts, ReasoningDelta) == "one two"
    assert items is not None
    first, said, hidden, call, empty, last = items
    assert isinstance(first, OwnItem)
    assert isinstance(hidden, OwnItem)
    assert isinstance(empty, OwnItem)
    assert set(first.value) == {"type", "thinking", "signature"}
    assert set(hidden.value) == {"type", "data"}
    assert (first.value["thinking"], empty.value["thinking"]) == ("one two", "")
    assert (said, call, last) == (TextItem("a"), CallItem(reply.calls[0]), TextItem("b"))


@pytest.mark.parametrize(
    ("blocks", "secret"),
    [
        ([Thought(["hm"], is_sealed=False)], None),
        ([Thought(["a"]), Thought(["cut"], is_sealed=False)], None),
        ([Thought(["a \ud83d b"])], None),
        ([Thought([f"the key is {KEY[:9]}", f"{KEY[9:]}!"])], KEY),
        ([Thought([f"the key is {KEY}"])], KEY),
    ],
    ids=["no signature", "one of two", "damaged", "a key in two pieces", "a key"],
)
def test_thinking_that_is_not_whole_or_not_as_it_came_is_not_kept(blocks: list[Block], secret: str | None) -> None:
    reply, _ = built(*blocks, Said(["x"]), secret=secret)

    assert reply.parts == {}
    assert reply.text == "x"
    assert KEY not in repr(reply)


def test_a_pair_cut_into_two_deltas_of_thinking_is_kept_whole() -> None:
    reply, _ = built(Thought(["a\ud83d", "\ude00b"]))

    assert reply.reasoning == "a😀b"
    assert kept(reply) == ["OwnItem"]


def test_a_half_at_the_end_of_a_block_of_text_is_replaced_there() -> None:
    reply, parts = built(Thought(["t"]), Said(["a\ud83d"]), Said(["\ude00b"]))

    assert reply.text == text_of(parts, TextDelta) == "a\ufffd\ufffdb"
    assert kept(reply) == ["OwnItem", "TextItem", "TextItem"]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause"),
        ("something_new", "other"),
    ],
)
def test_a_stop_reason_becomes_a_stop_and_is_kept_as_it_was(reason: str, stop: str) -> None:
    reply, _ = built(Said(["x"]), stop=reason)

    assert (reply.stop, reply.raw_stop) == (stop, reason)


def test_calls_that_end_with_end_turn_are_calls() -> None:
    assert built(Asked("bash"))[0].stop == "tool_calls"


def test_arguments_that_the_length_cut_are_given_as_they_came() -> None:
    reply, _ = built(Asked("bash", '{"command": "ls'), stop="max_tokens")

    assert (reply.stop, reply.calls[0].arguments) == ("length", '{"command": "ls')


def test_a_refusal_without_a_word_is_told_by_its_explanation() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "This may harm."}

    assert built(stop="refusal", details=details)[0].text == "This may harm."
    assert built(Said(["no"]), stop="refusal", details=details)[0].text == "no"
    assert built(stop="refusal")[0].text == ""


def test_of_each_counter_the_last_report_counts_and_what_is_not_reported_stays_away() -> None:
    assert built(Said(["x"]), usage=None)[0].usage is None
    assert built(Said(["x"]), usage={"output_tokens": 1})[0].usage == {"output_tokens": OUTPUT_TOKENS}


def test_an_answer_that_was_not_streamed_is_the_same_answer() -> None:
    blocks = (Thought(["hm"]), Said(["hi"]), Other(), Asked("bash", {"a": [1.5, "é"]}, "toolu_1"), Asked("bash"))
    builder = MessageBuilder(REQUEST)
    whole = message(*blocks, stop="tool_use")

    parts = builder.add(json.dumps(whole).encode()) + builder.end()
    reply = builder.reply()

    assert builder.closed
    assert (reply.text, reply.reasoning, reply.stop, reply.usage) == ("hi", "hm", "tool_calls", FLAT_USAGE)
    assert json.loads(reply.calls[0].arguments) == {"a": [1.5, "é"]}
    assert reply.calls[1].arguments == "{}"
    assert kept(reply) == ["OwnItem", "TextItem", "CallItem", "CallItem"]
    assert text_of(parts, CallDelta) == reply.calls[0].arguments


def test_events_and_blocks_of_a_later_day_are_passed_over() -> None:
    stream = [event("content_block_novelty", index=7), b": a comment\n\n", *events(Other(), Said(["x"]))]

    assert read(stream)[0].text == "x"


def test_an_index_that_is_used_again_is_of_another_block() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": "{}"}
    twice = [
        event("content_block_start", index=0, content_block=call),
        event("content_block_delta", index=0, delta=delta),
        event("content_block_stop", index=0),
    ] * 2

    reply, _ = read([*twice, event("message_delta", delta={"stop_reason": "tool_use"})])

    assert [call.arguments for call in reply.calls] == ["{}", "{}"]
    assert len({call.provider_id for call in reply.calls}) == 2


def test_arguments_that_come_with_the_start_of_a_call_count_where_no_fragment_comes() -> None:
    start = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"a": 1}}
    end = event("message_delta", delta={"stop_reason": "tool_use"})

    assert read([event("content_block_start", index=0, content_block=start), end])[0].calls[0].arguments == '{"a":1}'


@pytest.mark.parametrize("count", range(1, 9))
def test_a_stream_that_ends_before_its_stop_reason_is_not_finished(count: int) -> None:
    builder, parser = MessageBuilder(REQUEST), SseParser()
    cut = events(Said(["a", "b"]), Asked("bash"), stop=None)[:count]

    for payload in [payload for each in cut for payload in parser.feed(each)]:
        builder.add(payload)

    assert not builder.finished


def test_the_answer_is_finished_by_its_stop_reason_and_closed_by_the_end_of_the_message() -> None:
    builder, parser = MessageBuilder(REQUEST), SseParser()
    seen = []

    for payload in [payload for each in events(Said(["x"])) for payload in parser.feed(each)]:
        builder.add(payload)
        seen.append((builder.finished, builder.closed))

    assert seen[-3:] == [(False, False), (True, False), (True, True)]


@pytest.mark.parametrize(
    "document",
    [
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        {"error": {"message": "busy"}},
        {"type": "error"},
    ],
)
def test_an_error_is_no_answer(document: Any) -> None:
    with pytest.raises(ErrorInAnswer):
        MessageBuilder(REQUEST).add(json.dumps(document).encode())


@pytest.mark.parametrize(
    "payload",
    [
        b"nonsense",
        b"[]",
        b'{"type":"message_start"}',
        b'{"type":"message"}',
        b'{"type":"content_block_start","index":"0","content_block":{"type":"text"}}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":1}}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"x","name":""}}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"x"}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}',
        b'{"type":"message_delta","delta":{"stop_reason":1}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_event_of_a_message_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        MessageBuilder(REQUEST).add(payload)


def test_a_key_that_is_echoed_anywhere_does_not_enter() -> None:
    half = len(KEY) // 2
    blocks = (
        Thought([KEY[:half], KEY[half:]]),
        Said([f"said {KEY[:7]}", f"{KEY[7:]} and sk"]),
        Asked(f"f{KEY}", '{"a":"' + KEY + '"}', KEY, 5),
    )
    usage = {KEY: {KEY: 1}}

    reply, parts = built(*blocks, stop=KEY, usage=usage, model=KEY, secret=KEY)

    assert KEY not in repr(reply)
    assert reply.text == "said [redacted] and sk"
    assert reply.calls[0].arguments == '{"a":"[redacted]"}'
    for kind in (TextDelta, ReasoningDelta, CallDelta):
        assert KEY not in text_of(parts, kind)
        assert "[redacted]" in text_of(parts, kind)


# --- bytes ------------------------------------------------------------------------------------------------------

RECORDED: Sequence[bytes] = (
    b"".join(events(Thought(["hé", "m😀"]), Said(["x\ud83d", "\ude00"]), Asked("bash", {"a": "é"}, "t1", 1))),
    b"".join(events(Said(["a"]), Thought(is_redacted=True), Other(), Asked("run_it", "{", "t2"), stop="max_tokens")),
    b"".join(events(Said(["crlf"]), Said(["\n\n"]))).replace(b"\n", b"\r\n").rstrip(),
)


@pytest.mark.parametrize("stream", RECORDED, ids=["thinking", "redacted", "crlf"])
def test_a_stream_split_at_any_byte_gives_the_same_parts_and_the_same_reply(stream: bytes) -> None:
    expected = read([stream])

    for at in range(len(stream)):
        assert read([stream[:at], stream[at:]]) == expected
    assert read(stream[at : at + 1] for at in range(len(stream))) == expected


@given(st.sampled_from(RECORDED), st.integers(0, 2**32))
def test_a_stream_split_at_random_gives_the_same_parts_and_the_same_reply(stream: bytes, seed: int) -> None:
    chance = random.Random(seed)
    cuts = sorted(chance.sample(range(len(stream)), chance.randint(0, 40)))

    assert read(stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)) == read([stream])


def test_an_event_is_bounded() -> None:
    large = event("content_block_start", index=0, content_block={"type": "text", "text": "x" * (MAX_EVENT_BYTES - 200)})
    end = event("message_delta", delta={"stop_reason": "end_turn"})

    assert len(read([large, end])[0].text) == MAX_EVENT_BYTES - 200
    with pytest.raises(ProviderFailed):
        read([large.replace(b'"x', b'"' + b"x" * 300)])


MEMBERS = ["type", "index", "content_block", "delta", "message", "content", "usage", "text", "id", "name", "input"]
KINDS = st.sampled_from(
    [
        *("message", "message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "text", "thinking", "tool_use", "redacted_thinking", "text_delta", "input_json_delta"),
        *("thinking_delta", "signature_delta"),
    ]
)
EVENTS = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.text(max_size=3) | KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(st.sampled_from(MEMBERS), EVENTS, max_size=4) | EVENTS, max_size=4), KINDS)
def test_any_json_is_taken_or_refused_by_type(found: list[Any], kind: str) -> None:
    builder = MessageBuilder(REQUEST, KEY)

    for each in [*found, {"type": "content_block_start", "index": 0, "content_block": {"type": kind}}, *found]:
        given_kind = {**each, "type": kind} if isinstance(each, dict) else each
        try:
            for part in builder.add(json.dumps(given_kind).encode()):
                part.text.encode()
        except (MalformedAnswer, ErrorInAnswer):
            continue
    builder.end()
    builder.reply()
