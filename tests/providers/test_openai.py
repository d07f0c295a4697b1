"""OpenAI's Responses API over HTTP, against a strict server on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import anyio
import pytest

from fake import openai as wire
from fake.answers import Answer, cut, never, reset, stall, status
from fake.openai import USAGE, Asked, Responses, Said, Thought
from fake.openai_strict import refusal
from fake.provider import FakeProvider
from hames.core.conversation import (
    AssistantMessage,
    Message,
    ModelRequest,
    Part,
    TextDelta,
    ToolResult,
)
from hames.ports import ModelLimits, ProviderFailed
from hames.providers.openai import OpenAI
from providers.asking import BASH, LIMITS, Asking, hello, ignore

pytestmark = pytest.mark.anyio

KEY = "sk-secret-0123456789"
ASK = hello("fake-model")
ASKING = Asking(OpenAI(), ASK, KEY)
provider_of, ask, failure = ASKING.provider, ASKING.ask, ASKING.failure


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(wire=Responses()) as server:
        yield server
        assert server.refusals == []


async def test_text_comes_as_it_is_sent_with_the_key_in_a_header(fake: FakeProvider) -> None:
    parts: list[Part] = []
    fake.script(wire.text("Hello, wörld 😀", chunks=["Hel", "lo, ", "wörld 😀"]))

    async with provider_of(fake.url) as provider:
        reply = await provider.stream(ASK, parts.append, LIMITS)

    assert parts == [TextDelta("Hel"), TextDelta("lo, "), TextDelta("wörld 😀")]
    assert (reply.text, reply.stop) == ("Hello, wörld 😀", "stop")
    assert fake.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert fake.requests[0].target == "/v1/responses"


async def test_ten_steps_of_reasoning_and_calls_go_back_as_they_came_and_keep_the_prefix(fake: FakeProvider) -> None:
    messages: tuple[Message, ...] = ASK.messages
    async with provider_of(fake.url) as provider:
        for step in range(10):
            fake.script(
                wire.answer(
                    Thought([f"thought {step}"]),
                    Said(["Look"], "commentary"),
                    Thought(),
                    Asked("bash", {"step": step}, f"a{step}", 1),
                    Asked("bash", '{"broken', f"b{step}"),
                )
            )
            request = ModelRequest("fake-model", "be brief", messages, (BASH,), effort="high", cache_key="s-1")
            reply = await provider.stream(request, ignore, LIMITS)
            results = [ToolResult("c", call.provider_id, call.tool, "done", step % 2 == 0) for call in reply.calls]
            messages = (*messages, AssistantMessage(reply.text, reply.calls, reply.parts), *reversed(results))
        last = ModelRequest("fake-model", "be brief", messages, (BASH,), "none", effort="high", cache_key="s-1")
        await provider.stream(last, ignore, LIMITS)

    bodies = [request.raw for request in fake.requests]
    assert all(later.startswith(earlier.removesuffix(b"]}")) for earlier, later in pairwise(bodies))
    kept = [item for item in fake.requests[-1].body["input"] if item["type"] == "reasoning"]
    assert len(kept) == 20


async def test_a_model_switch_leaves_the_reasoning_behind(fake: FakeProvider) -> None:
    fake.script(wire.answer(Thought(), Asked("bash", {}, "a")), wire.text("ok"))

    async with provider_of(fake.url) as provider:
        reply = await provider.stream(ASK, ignore, LIMITS)
        history = (AssistantMessage("", reply.calls, reply.parts), ToolResult("c", "a", "bash", "done"))
        await provider.stream(ModelRequest("another-model", "", (*ASK.messages, *history), (BASH,)), ignore, LIMITS)

    assert [item["type"] for item in fake.requests[1].body["input"]] == [
        "message",
        "function_call",
        "function_call_output",
    ]


async def test_a_json_answer_to_a_stream_request_is_taken(fake: FakeProvider) -> None:
    reply = await ask(fake, wire.whole(Thought(["hm"]), Said(["hi"])))

    assert (reply.text, reply.reasoning) == ("hi", "hm")


async def test_a_server_that_stays_after_the_last_event_is_not_waited_for(fake: FakeProvider) -> None:
    endless = ModelLimits(20_000, 20_000, 3_600_000, 3_600_000)

    assert (await ask(fake, wire.text("done") + stall(), limits=endless)).text == "done"


@pytest.mark.parametrize("ending", [cut(), reset(), ()], ids=["fin", "rst", "end"])
async def test_a_stream_without_its_last_event_is_a_failure_that_may_be_sent_again(
    fake: FakeProvider, ending: Answer
) -> None:
    error = await failure(fake, wire.answer(Said(["x"]), Asked("bash", {}), ends=False) + ending)

    assert (error.kind, error.retryable, error.details["phase"]) == ("model_gateway", True, "stream")


@pytest.mark.parametrize(
    ("answer", "kind", "retryable"),
    [
        (wire.failed("server_error", "why"), "model_gateway", True),
        (wire.error("server_error", "why"), "model_gateway", True),
        (wire.failed("rate_limit_exceeded", "why: try again in 1.5s"), "model_gateway", True),
        (wire.failed("invalid_prompt", "why"), "model_gateway", False),
        (wire.error("insufficient_quota", "why"), "model_gateway", False),
        (wire.error("context_length_exceeded", "why"), "context_overflow", False),
        (status(200, {"error": {"code": "server_error", "message": "why"}}), "model_gateway", True),
        (status(400, {"error": {"code": "context_length_exceeded", "message": "why"}}), "context_overflow", False),
        (status(429, {"error": {"code": "insufficient_quota", "message": "why"}}), "model_gateway", False),
        (status(503, {"error": {"code": "slow_down", "message": "why"}}), "model_gateway", True),
    ],
)
async def test_an_error_is_classified_with_the_words_of_the_provider(
    fake: FakeProvider, answer: Answer, kind: str, retryable: bool
) -> None:
    error = await failure(fake, answer)

    assert (error.kind, error.retryable) == (kind, retryable)
    assert "why" in error.message
    assert len(fake.requests) == 1


async def test_a_failure_in_mid_stream_says_what_was_used_and_when_to_come_back(fake: FakeProvider) -> None:
    begun = wire.answer(Said(["x"]), ends=False)

    error = await failure(fake, begun + wire.failed("rate_limit_exceeded", "try again in 1.5s", usage=USAGE) + stall())
    await fake.await_disconnects(1)

    assert error.retry_after_ms == 1_500
    assert error.usage is not None
    assert error.usage["input_tokens"] == 10


async def test_a_key_that_the_provider_echoes_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with FakeProvider(api_key="another", wire=Responses()) as fake:
        async with provider_of(fake.url) as provider:
            with pytest.raises(ProviderFailed) as caught:
                await provider.stream(ASK, ignore, LIMITS)

    assert caught.value.kind == "credential_rejected"
    assert KEY not in repr((caught.value, caught.value.details, caught.value.message))


@pytest.mark.parametrize("answer", [never(), wire.answer(Said(["x"]), ends=False) + stall()], ids=["no head", "text"])
async def test_a_stall_ends_at_its_limit_and_cancelling_closes_the_connection(
    fake: FakeProvider, answer: Answer
) -> None:
    error = await failure(fake, answer, limits=ModelLimits(20_000, 100, 100, 20_000))
    await fake.await_disconnects(1)
    fake.script(answer)
    async with provider_of(fake.url) as provider:
        async with anyio.create_task_group() as group:
            group.start_soon(provider.stream, ASK, ignore, LIMITS)
            await fake.await_requests(2)
            group.cancel_scope.cancel()
        await fake.await_disconnects(2)

        assert (await provider.stream(ASK, ignore, LIMITS)).text == "ok"
    assert error.retryable


async def test_the_models_are_listed_in_order(fake: FakeProvider) -> None:
    fake.models = ["b", "a"]

    async with provider_of(fake.url) as provider:
        assert await provider.models() == ["a", "b"]


def test_the_fake_refuses_reasoning_that_was_altered_moved_or_left_out() -> None:
    items = json.loads(
        wire.events(Thought(["a"]), Said(["x"]), Thought(), Asked("bash", {}, "c"))[-1].split(b"data: ")[1]
    )
    first, said, second, asked = items["response"]["output"]
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    result = {"type": "function_call_output", "call_id": "c", "output": "done"}
    base = {"model": "m", "stream": True, "store": False, "include": ["reasoning.encrypted_content"]}

    def reason(*output: object) -> str | None:
        body = {**base, "input": [user, *output, result]}
        return refusal(json.dumps(body).encode())[1]

    assert reason(first, said, second, asked) is None
    assert "altered" in str(reason({**first, "summary": []}, said, second, asked))
    assert "following item" in str(reason(second, said, first, asked))
    assert "following item" in str(reason(first, second, said, asked))
    assert "required reasoning" in str(reason(said, second, asked))
    assert "another id" in str(reason({**first, "id": "rs_x"}, said, second, asked))
