"""Chunks of Gemini put together: text, thoughts, calls, signatures, usage, and why it stopped."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake.answers import Answer, Send
from fake.gemini import MODEL, blocked, calls, chunk, send, signed_text, signed_thought, thinking, whole_text
from hames.core.conversation import CallDelta, ModelRequest, Part, Reply, StopReason, TextDelta, ToolSpec, UserMessage
from hames.ports import ProviderFailed
from hames.providers.answer import ErrorInAnswer, MalformedAnswer
from hames.providers.gemini_reply import ReplyBuilder
from hames.providers.sse import MAX_EVENT_BYTES, SseParser

KEY = "AIza-secret-0123456789"
ASK = ModelRequest(MODEL, "", (UserMessage("hi"),), (ToolSpec("ba sh", "x", {"type": "object"}),))
SIGNED = "thoughtSignature"


def build(*chunks: Any, secret: str | None = None) -> tuple[list[Part], Reply]:
    builder = ReplyBuilder(ASK, secret)
    parts = [part for each in chunks for part in builder.add(json.dumps(each).encode())]
    assert builder.finished
    parts += builder.end()
    return parts, builder.reply()


def played(pieces: list[bytes]) -> tuple[str, list[Part], Reply]:
    """A stream in these pieces: texts are compared whole, since pieces of them may differ."""
    parser, builder, parts = SseParser(), ReplyBuilder(ASK), list[Part]()
    for piece in pieces:
        for event in parser.feed(piece):
            parts += builder.add(event)
    for event in parser.flush():
        parts += builder.add(event)
    assert builder.finished
    parts += builder.end()
    return "".join(part.text for part in parts if isinstance(part, TextDelta)), parts, builder.reply()


def raw(answer: Answer) -> bytes:
    return b"".join(step.data for step in answer if isinstance(step, Send))


def doing(name: Any, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, **more}}


STREAMS = {
    "text": whole_text("Hello, wörld 😀 \ud83d", pieces=["Hel", "lo, wör", "ld \ud83d", "\ude00 \ud83d"]),
    "calls": thinking("hm é") + calls([("bash", {"command": "ls é"}), ("read", {"path": "ü"})], "I look"),
    "signed": send(chunk([signed_thought("t"), signed_text("a"), {"text": "b"}])) + whole_text("c", signed_by=MODEL),
    "older": calls([("bash", {}), ("bash", {})], signed_by=None, with_ids=False),
    "blocked": blocked(),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_split_anywhere_gives_the_same_answer(name: str) -> None:
    stream = raw(STREAMS[name])
    expected = played([stream])
    chance = random.Random(name)

    assert all(played([stream[:at], stream[at:]]) == expected for at in range(len(stream)))
    for line_end in (b"\r\n", b"\r"):
        assert played([stream.replace(b"\n", line_end)]) == expected
    for _ in range(20):
        cuts = sorted(chance.sample(range(len(stream)), 9))
        assert played([stream[at:end] for at, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]) == expected


def test_an_event_that_is_too_large_is_refused_and_one_that_is_not_is_taken() -> None:
    event = b"data: " + json.dumps(chunk([{"text": "x" * (MAX_EVENT_BYTES - 1_000)}], reason="STOP")).encode()

    assert len(played([event])[0]) == MAX_EVENT_BYTES - 1_000
    with pytest.raises(ProviderFailed):
        SseParser().feed(event + b"x" * 1_000 + b"\n\n")


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("CONTINUATION", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("LANGUAGE", "other"),
        ("OTHER", "other"),
        ("TOO_MANY_TOOL_CALLS", "other"),
        ("SOMETHING_NEW", "other"),
    ],
)
def test_a_finish_reason_means_what_the_table_says(reason: str, stop: StopReason) -> None:
    _, reply = build(chunk([{"text": "x"}], reason=reason))

    assert (reply.stop, reply.raw_stop) == (stop, reason)


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"])
def test_words_that_the_vendor_could_not_read_are_malformed_and_their_usage_is_known(reason: str) -> None:
    builder = ReplyBuilder(ASK)

    with pytest.raises(MalformedAnswer, match=reason):
        builder.add(json.dumps(chunk(reason=reason, usage={"promptTokenCount": 2})).encode())

    assert builder.usage == {"promptTokenCount": 2}


def test_the_last_finish_reason_holds_where_every_chunk_has_one() -> None:
    parts = [chunk([{"text": "a"}], reason="STOP"), chunk([{"text": "b"}], reason="MAX_TOKENS")]

    assert (build(*parts)[1].text, build(*parts)[1].stop) == ("ab", "length")


def test_a_signature_that_the_vendor_misses_is_an_error_of_the_request() -> None:
    with pytest.raises(ErrorInAnswer) as caught:
        build(chunk(reason="MISSING_THOUGHT_SIGNATURE"))

    assert caught.value.document["error"]["code"] == 400


def test_calls_make_a_stop_for_tools_but_not_of_an_answer_that_was_cut() -> None:
    assert build(chunk([doing("a")], reason="STOP"))[1].stop == "tool_calls"
    assert build(chunk([doing("a")], reason="MAX_TOKENS"))[1].stop == "length"


@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "SOMETHING_NEW"])
def test_a_blocked_prompt_has_been_filtered_for_whatever_reason(reason: str) -> None:
    _, reply = build({"promptFeedback": {"blockReason": reason}})

    assert (reply.stop, reply.raw_stop, reply.text, reply.parts) == ("content_filter", reason, "", {})


def test_an_answer_is_not_finished_by_feedback_or_a_reason_that_says_nothing() -> None:
    builder = ReplyBuilder(ASK)

    unsaid: list[dict[str, Any]] = [{}, {"promptFeedback": {}}, {"usageMetadata": {}}]
    for each in [*unsaid, chunk(reason="FINISH_REASON_UNSPECIFIED")]:
        builder.add(json.dumps(each).encode())

    assert not builder.finished


def test_the_last_report_of_usage_holds_and_what_is_absent_stays_absent() -> None:
    first = chunk([{"text": "x"}], usage={"promptTokenCount": 10, "thoughtsTokenCount": 1})
    last = chunk(reason="STOP", usage={"promptTokenCount": 10, "candidatesTokenCount": 5, "odd": -1, "x": {"y": 2}})

    assert build(first, last)[1].usage == {"promptTokenCount": 10, "candidatesTokenCount": 5, "x.y": 2}
    assert build(chunk([{"text": "x"}], reason="STOP"))[1].usage is None


def test_calls_have_ids_that_differ_and_arguments_as_json() -> None:
    parts = [doing("a", id="x", args={"n": 1.0, "t": "é"}), doing("a", id="x"), doing("ba_sh"), doing("a", args=None)]
    shown, reply = build(chunk(parts), finish_of("STOP"))

    assert [call.provider_id for call in reply.calls] == ["x", "call_1", "call_2", "call_3"]
    assert [call.arguments for call in reply.calls] == ['{"n":1.0,"t":"é"}', "{}", "{}", "{}"]
    assert [call.tool for call in reply.calls] == ["a", "a", "ba sh", "a"]
    assert shown[0] == CallDelta(0, "a", '{"n":1.0,"t":"é"}')
    assert shown[3] == CallDelta(3, "a", "{}")


def finish_of(reason: str) -> dict[str, Any]:
    return chunk(reason=reason)


def test_lone_halves_in_arguments_and_names_are_replaced() -> None:
    _, reply = build(chunk([doing("a\ud83d", id="\ud83d", args={"\ud83d": "\ude00"})], reason="STOP"))

    assert reply.calls[0].tool == "a\ufffd"
    assert json.loads(reply.calls[0].arguments) == {"\ufffd": "\ufffd"}


# --- signatures -------------------------------------------------------------------------------------------------


def items(*parts: dict[str, Any], secret: str | None = None) -> Any:
    return build(chunk(parts), finish_of("STOP"), secret=secret)[1].parts.get("items")


def test_an_answer_without_signatures_keeps_no_parts() -> None:
    assert items({"text": "a"}, {"text": "t", "thought": True}, doing("a"), {SIGNED: ""}, {"inlineData": {}}) is None


def test_text_is_joined_only_where_it_has_no_signature() -> None:
    sign = {SIGNED: "s"}

    assert items({"text": "a"}, {"text": "bc"}, {"text": "d", **sign}, {"text": "e"}, {"text": "", **sign}) == [
        {"text": 3},
        {"text": 1, "extra": sign},
        {"text": 1},
        {"text": 0, "extra": sign},
    ]


def test_a_signature_without_any_part_stands_on_an_empty_text() -> None:
    assert items({"text": "a"}, {SIGNED: "s"}) == [{"text": 1}, {"text": 0, "extra": {SIGNED: "s"}}]


def test_thoughts_and_parts_that_are_not_known_are_kept_where_they_are_signed() -> None:
    thought = {"text": "t", "thought": True, SIGNED: "s"}
    odd = {"executableCode": {"code": "1"}, SIGNED: "s"}

    assert items({"text": "u", "thought": True}, thought, odd, doing("a")) == [
        {"own": thought},
        {"own": odd},
        {"call": 0},
    ]


def test_parts_name_the_model_that_was_asked_for_not_the_one_that_answered() -> None:
    _, reply = build(chunk([{"text": "a", SIGNED: "s"}], reason="STOP", modelVersion="another"))

    assert (reply.model, reply.parts["dialect"], reply.parts["model"]) == ("another", "gemini", MODEL)


@pytest.mark.parametrize(
    "parts",
    [
        [{"text": f"x {KEY}", SIGNED: "s"}],
        [{"text": f"x {KEY[:9]}"}, {"text": KEY[9:], SIGNED: "s"}],
        [{"text": "a"}, {**doing("a", args={"k": KEY}), SIGNED: "s"}],
        [{"text": "\ud83d"}, {"text": "\ude00", SIGNED: "s"}],
    ],
    ids=["text", "across parts", "arguments", "a pair across parts"],
)
def test_signed_parts_that_had_to_be_changed_do_not_go_back(parts: list[dict[str, Any]]) -> None:
    assert items(*parts, secret=KEY) is None


# --- what is malformed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"x",
        b"1",
        b"[1]",
        b'{"candidates": 1}',
        b'{"candidates": [1]}',
        b'{"candidates": {"a": 1}}',
        b'{"promptFeedback": 1}',
        b'{"candidates": [{"content": 1}]}',
        b'{"candidates": [{"content": {"parts": 1}}]}',
        b'{"candidates": [{"content": {"parts": [1]}}]}',
        b'{"candidates": [{"content": {"parts": [{"text": 1}]}}]}',
        b'{"candidates": [{"content": {"parts": [{"functionCall": 1}]}}]}',
        b'{"candidates": [{"content": {"parts": [{"functionCall": {}}]}}]}',
        b'{"candidates": [{"content": {"parts": [{"functionCall": {"name": ""}}]}}]}',
        b'{"candidates": [{"content": {"parts": [{"functionCall": {"name": "a", "args": "{}"}}]}}]}',
    ],
)
def test_a_chunk_of_the_wrong_types_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        ReplyBuilder(ASK).add(payload)


MEMBERS = [
    *("candidates", "content", "parts", "text", "functionCall", "name", "args", "finishReason", "thought", "error"),
    *("promptFeedback", "blockReason", "usageMetadata", SIGNED),
]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "STOP"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(MEMBERS),
                inner,
                max_size=5,
            )
        ),
        max_leaves=20,
    )
)
def test_no_chunk_raises_anything_else(document: Any) -> None:
    builder = ReplyBuilder(ASK, KEY)
    try:
        builder.add(json.dumps({"candidates": [document]}).encode())
        builder.add(json.dumps(document).encode())
    except (MalformedAnswer, ErrorInAnswer):
        return
    builder.end()
    builder.reply()


def test_another_candidate_is_left_out() -> None:
    _, reply = build(
        {"candidates": [{"index": 1, "content": {"parts": [{"text": "no"}]}}]}, chunk([{"text": "yes"}], reason="STOP")
    )

    assert reply.text == "yes"


@pytest.mark.parametrize("odd", [2**64, {"deep": json.loads("[" * 90 + "]" * 90)}])
def test_a_signed_part_that_cannot_be_kept_verbatim_is_not_and_none_of_its_answer(odd: Any) -> None:
    own = {"executableCode": odd, SIGNED: "s"}

    assert build(chunk([own, doing("a", id="1")], reason="STOP"))[1].parts == {}
    assert (
        build(chunk([{**own, "executableCode": 1}], reason="STOP"))[1].parts["items"][0]["own"]["executableCode"] == 1
    )
