"""The dialect `gemini` over HTTP, against a strict server on loopback."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from fake.answers import Answer, cut, event, never, reset, send, stall, status, trickle
from fake.gemini import (
    MODEL,
    blocked,
    calls,
    chunk,
    failure,
    finish,
    partial,
    signed_text,
    thinking,
    whole,
    whole_text,
)
from fake.gemini import (
    Gemini as Wire,
)
from fake.gemini import send as send_chunks
from fake.pictures import png
from fake.provider import FakeProvider
from hames.core.conversation import (
    AssistantMessage,
    CallDelta,
    Message,
    Part,
    Picture,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from hames.ports import ModelLimits, ProviderFailed
from hames.providers.gemini import Gemini
from providers.asking import LIMITS, Asking, hello, ignore

pytestmark = pytest.mark.anyio

KEY = "AIza-secret-0123456789"
TOOLS = (
    ToolSpec("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}}),
    ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
)
ASK = hello(MODEL, *TOOLS)
ASKING = Asking(Gemini(), ASK, KEY)
provider_of, ask, failed = ASKING.provider, ASKING.ask, ASKING.failure


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(wire=Wire()) as server:
        yield server
        assert server.refusals == []


def said(reply: Reply) -> AssistantMessage:
    own = tuple(dataclasses.replace(call, call_id=f"c{place}") for place, call in enumerate(reply.calls))
    return AssistantMessage(reply.text, own, reply.parts)


def answered(reply: Reply, **changes: Any) -> list[ToolResult]:
    """A result for each call, in the wrong order."""
    results = [ToolResult("c", call.provider_id, call.tool, f"of {call.tool}", **changes) for call in reply.calls]
    return results[::-1]


async def test_text_and_thoughts_come_as_they_are_sent_and_as_a_whole(fake: FakeProvider) -> None:
    parts: list[Part] = []
    fake.script(thinking("hm") + whole_text("", pieces=["Hel", "lo, ", "wörld 😀"], signed_by=MODEL))

    async with provider_of(fake.url) as provider:
        reply = await provider.stream(ASK, parts.append, LIMITS)

    assert parts == [ReasoningDelta("hm"), TextDelta("Hel"), TextDelta("lo, "), TextDelta("wörld 😀")]
    assert (reply.text, reply.reasoning, reply.stop, reply.raw_stop) == ("Hello, wörld 😀", "hm", "stop", "STOP")
    assert (reply.model, reply.response_id) == (MODEL, "response-1")
    assert reply.usage == {
        "promptTokenCount": 10,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 7,
        "cachedContentTokenCount": 4,
        "totalTokenCount": 22,
    }
    assert fake.requests[0].target == f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
    assert fake.requests[0].headers["x-goog-api-key"] == KEY


async def test_a_whole_turn_of_thoughts_and_parallel_calls_is_taken_step_by_step(fake: FakeProvider) -> None:
    history: list[Message] = list(ASK.messages)
    fake.script(
        thinking("first") + calls([("bash", {"command": "ls é"}), ("read", {"path": "a"})], "look"),
        send_chunks(chunk([signed_text("Now ")])) + calls([("bash", {})], "this: "),
        whole_text("done", signed_by=MODEL),
        whole_text("more"),
    )

    async with provider_of(fake.url) as provider:
        first = await provider.stream(ASK, ignore, LIMITS)
        history += [said(first), *answered(first)]
        second = await provider.stream(dataclasses.replace(ASK, messages=tuple(history)), ignore, LIMITS)
        history += [said(second), *answered(second, is_error=True)]
        third = await provider.stream(dataclasses.replace(ASK, messages=tuple(history)), ignore, LIMITS)
        history += [said(third), UserMessage("and?")]
        await provider.stream(dataclasses.replace(ASK, messages=tuple(history)), ignore, LIMITS)

    assert [call.tool for call in first.calls] == ["bash", "read"]
    assert (first.stop, json.loads(first.calls[0].arguments)) == ("tool_calls", {"command": "ls é"})
    contents = fake.requests[3].body["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user", "model", "user", "model", "user"]
    assert [list(part) for part in contents[1]["parts"]] == [
        ["text"],
        ["functionCall", "thoughtSignature"],
        ["functionCall"],
    ]
    assert [part["functionResponse"]["response"] for part in contents[2]["parts"]] == [
        {"output": "of bash"},
        {"output": "of read"},
    ]
    assert contents[3]["parts"][0] == signed_text("Now ")
    assert contents[4]["parts"][0]["functionResponse"]["response"] == {"error": "of bash"}
    assert contents[5]["parts"] == [{"text": "done"}, signed_text("")]


async def test_a_call_comes_as_a_part_of_its_own(fake: FakeProvider) -> None:
    parts: list[Part] = []
    fake.script(calls([("bash", {"a": 1}), ("bash", {"a": 1})], with_ids=False))

    async with provider_of(fake.url) as provider:
        reply = await provider.stream(ASK, parts.append, LIMITS)

    assert parts == [CallDelta(0, "bash", '{"a":1}'), CallDelta(1, "bash", '{"a":1}')]
    assert len({call.provider_id for call in reply.calls}) == 2


@pytest.mark.parametrize("model", [MODEL, "gemini-2.5-flash"])
async def test_an_image_in_a_result_is_shown_where_the_model_takes_it(fake: FakeProvider, model: str) -> None:
    request = dataclasses.replace(ASK, model=model)
    fake.script(calls([("read", {"path": "a.png"})], signed_by=model), whole_text("a cat"))

    async with provider_of(fake.url) as provider:
        first = await provider.stream(request, ignore, LIMITS)
        shown = answered(first, images=(Picture("a-1", "image/png", png()),))
        await provider.stream(
            dataclasses.replace(request, messages=(*ASK.messages, said(first), *shown)), ignore, LIMITS
        )

    assert fake.requests[1].raw.count(b'"inlineData"') == 1


@pytest.mark.parametrize(
    "ending",
    [
        cut(),
        reset(),
        send(b"data: [DONE]\n\n"),
        send(b""),
        send(b'data: {"candidates": ['),
        calls([("a", {})])[:1] + cut(),
    ],
    ids=["fin", "rst", "done", "end", "end in a line", "cut after a call"],
)
async def test_a_stream_without_a_finish_reason_is_a_failure_that_may_be_sent_again(
    fake: FakeProvider, ending: Answer
) -> None:
    error = await failed(fake, partial("x") + ending)

    assert (error.kind, error.retryable, error.details["phase"]) == ("model_gateway", True, "stream")


async def test_a_cut_before_any_answer_may_be_sent_again(fake: FakeProvider) -> None:
    error = await failed(fake, reset())

    assert (error.retryable, error.details["phase"]) == (True, "first_byte")


async def test_an_error_in_the_stream_is_the_error_and_keeps_the_usage(fake: FakeProvider) -> None:
    busy = failure(503, "UNAVAILABLE", f"The model is overloaded. {KEY}")
    error = await failed(fake, send_chunks(chunk([{"text": "x"}], usage={"promptTokenCount": 3}), busy) + stall())
    await fake.await_disconnects(1)

    assert (error.kind, error.retryable, error.usage) == ("model_gateway", True, {"promptTokenCount": 3})
    assert "overloaded" in error.message
    assert KEY not in repr((error.message, error.details))


@pytest.mark.parametrize("wrapped", [True, False], ids=["in a list", "as an object"])
async def test_a_success_with_an_error_in_it_is_the_error(fake: FakeProvider, wrapped: bool) -> None:
    document = failure(404, "NOT_FOUND", "models/x is not found")
    error = await failed(fake, whole(document) if wrapped else status(200, document))

    assert (error.kind, error.retryable) == ("model_unavailable", False)


async def test_a_call_that_the_model_spoilt_may_be_asked_for_again(fake: FakeProvider) -> None:
    error = await failed(fake, partial("I call") + finish("MALFORMED_FUNCTION_CALL"))

    assert (error.kind, error.retryable) == ("model_gateway", True)
    assert "MALFORMED_FUNCTION_CALL" in error.message
    assert error.usage is not None


async def test_a_blocked_prompt_is_an_answer_that_was_filtered(fake: FakeProvider) -> None:
    reply = await ask(fake, blocked())

    assert (reply.stop, reply.raw_stop, reply.text) == ("content_filter", "PROHIBITED_CONTENT", "")
    assert reply.usage == {"promptTokenCount": 3}


async def test_a_whole_answer_in_json_is_taken(fake: FakeProvider) -> None:
    pieces = [chunk([{"text": "h"}]), chunk([{"text": "i"}], reason="STOP")]

    assert (await ask(fake, whole(*pieces))).text == "hi"
    assert (await ask(fake, status(200, chunk([{"text": "hi"}], reason="STOP")))).text == "hi"


@pytest.mark.parametrize(
    ("answer", "limits", "phase"),
    [
        (never(), ModelLimits(20_000, 100, 20_000, 20_000), "first_byte"),
        (partial("x") + stall(), ModelLimits(20_000, 20_000, 100, 20_000), "idle"),
        (trickle(b": ping\n\n" * 10_000, each_ms=5), ModelLimits(20_000, 20_000, 20_000, 200), "total"),
    ],
    ids=["no head", "a stall", "pings for ever"],
)
async def test_a_limit_that_is_reached_is_named_and_closes_the_connection(
    fake: FakeProvider, answer: Answer, limits: ModelLimits, phase: str
) -> None:
    error = await failed(fake, answer, limits=limits)
    await fake.await_disconnects(1)

    assert (error.retryable, error.details["phase"]) == (True, phase)


async def test_cancelling_closes_the_connection(fake: FakeProvider) -> None:
    fake.script(partial("x") + stall())
    async with provider_of(fake.url) as provider:
        async with anyio.create_task_group() as group:
            group.start_soon(provider.stream, ASK, ignore, LIMITS)
            await fake.await_requests(1)
            group.cancel_scope.cancel()
        await fake.await_disconnects(1)


async def test_a_key_that_is_refused_is_named_and_not_shown() -> None:
    with FakeProvider(wire=Wire(), api_key="another") as fake:
        error = await failed(fake, whole_text("x"))

    assert (error.kind, error.retryable) == ("credential_rejected", False)
    assert KEY not in repr((error, error.details, error.message))
    assert "[redacted]" in error.message


async def test_a_key_that_the_answer_echoes_anywhere_does_not_enter(fake: FakeProvider) -> None:
    call = {"functionCall": {"id": KEY, "name": KEY, "args": {KEY: [KEY]}}, "thoughtSignature": "c2ln"}
    chunks = [
        chunk([{"text": f"said {KEY[:7]}"}, {"text": f"thought {KEY}", "thought": True}], modelVersion=KEY),
        chunk([{"text": KEY[7:]}, call], reason=KEY, responseId=KEY),
    ]
    events = b"".join(event(each) for each in chunks)
    escaped = events.replace(KEY.encode(), "".join(f"\\u{ord(letter):04x}" for letter in KEY).encode())

    replies = [await ask(fake, send(events)), await ask(fake, send(escaped))]

    assert replies[0] == replies[1]
    assert KEY not in repr(replies)
    assert (replies[0].text, replies[0].parts) == ("said [redacted]", {})


async def test_the_models_that_answer_are_listed_without_their_collection(fake: FakeProvider) -> None:
    fake.models = ["gemini-b", "gemini-a"]

    async with provider_of(fake.url) as provider:
        assert await provider.models() == ["gemini-a", "gemini-b"]


@pytest.mark.parametrize("body", ['{"models": 1}', '{"models": {"a": 1}}', "[]", "{}"])
async def test_a_listing_that_is_none_is_a_failure(fake: FakeProvider, body: str) -> None:
    fake.listing = status(200, body)

    async with provider_of(fake.url) as provider:
        with pytest.raises(ProviderFailed) as caught:
            await provider.models()

    assert (caught.value.kind, caught.value.retryable) == ("model_gateway", False)


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3-flash", "gemini-3-flash"),
        ("models/gemini-3-flash", "gemini-3-flash"),
        ("../../v1/files", "..%2F..%2Fv1%2Ffiles"),
        ("a?key=b#c:d", "a%3Fkey%3Db%23c%3Ad"),
        ("é\ud800\r\n", "%C3%A9%3F%0D%0A"),
    ],
)
def test_the_name_of_a_model_is_one_segment_of_the_path(model: str, path: str) -> None:
    request = dataclasses.replace(ASK, model=model)

    assert Gemini().path(request) == f"/models/{path}:streamGenerateContent?alt=sse"


@pytest.mark.parametrize("model", ["a b/../c", "x:y?alt=json", "%2e%2e"])
async def test_an_odd_model_reaches_the_vendor_under_its_own_name(fake: FakeProvider, model: str) -> None:
    assert (await ask(fake, whole_text("ok"), request=dataclasses.replace(ASK, model=model))).text == "ok"
