"""Anthropic's dialect over HTTP against a strict server on loopback."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from fake import anthropic as wire
from fake.answers import Answer, cut, never, reset, send, stall
from fake.anthropic import MODEL, Asked, Said, Thought
from fake.pictures import png
from fake.provider import FakeProvider
from hames.core.conversation import (
    AssistantMessage,
    ModelRequest,
    Part,
    Picture,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolResult,
)
from hames.ports import ModelLimits, ProviderFailed
from hames.providers import PROVIDERS
from hames.providers.anthropic import Anthropic
from providers.asking import LIMITS, Asking, hello, ignore

pytestmark = pytest.mark.anyio

KEY = "sk-ant-secret-0123456789"
ASK = hello(MODEL, effort="high")
ASKING = Asking(Anthropic(), ASK, KEY)
provider_of, ask, failure = ASKING.provider, ASKING.ask, ASKING.failure


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(wire=wire.Messages()) as server:
        yield server
        assert server.refusals == []


def after(request: ModelRequest, reply: Reply, *results: ToolResult) -> ModelRequest:
    """The next request, with `results` or with one for each call."""
    said = AssistantMessage(reply.text, reply.calls, reply.parts)
    given = results or tuple(ToolResult("c", call.provider_id, call.tool, "done") for call in reply.calls)
    return dataclasses.replace(request, messages=(*request.messages, said, *given))


async def test_text_and_thinking_come_as_they_are_sent_and_the_key_goes_in_its_header(fake: FakeProvider) -> None:
    parts: list[Part] = []

    reply = await ask(fake, wire.answer(Thought(["hm"]), Said(["Hel", "lo 😀"])), on_part=parts.append)

    assert parts == [ReasoningDelta("hm"), TextDelta("Hel"), TextDelta("lo 😀")]
    assert (reply.text, reply.stop) == ("Hello 😀", "stop")
    assert fake.requests[0].headers["x-api-key"] == KEY
    assert fake.requests[0].target == "/v1/messages"
    assert "authorization" not in fake.requests[0].headers


async def test_thinking_and_calls_over_several_steps_are_taken_back_in_their_order(fake: FakeProvider) -> None:
    first = (Thought(["one"]), Asked("bash", {"a": 1}, fragment=1), Asked("bash", "{", fragment=1))
    fake.script(
        wire.calls(*first[1:], before=first[:1]),
        wire.calls(Asked("bash"), before=[Thought(is_redacted=True), Thought(["two"]), Said(["so"])]),
        wire.text("done"),
    )
    async with provider_of(fake.url) as provider:
        reply = await provider.stream(ASK, ignore, LIMITS)
        picture = Picture("a-1", "image/png", png())
        shown = [
            ToolResult("c", call.provider_id, "bash", "x", is_error=call.arguments == "{", images=(picture,))
            for call in reversed(reply.calls)
        ]
        second = after(ASK, reply, *shown)
        third = after(second, await provider.stream(second, ignore, LIMITS))
        last = await provider.stream(third, ignore, LIMITS)

    assert last.text == "done"
    kinds = [[block["type"] for block in turn["content"]] for turn in fake.requests[2].body["messages"]]
    assert kinds == [
        ["text"],
        ["thinking", "tool_use", "tool_use"],
        ["tool_result", "tool_result", "image", "text"],
        ["redacted_thinking", "thinking", "text", "tool_use"],
        ["tool_result"],
    ]


async def test_a_pause_goes_on_with_what_was_said(fake: FakeProvider) -> None:
    reply = await ask(fake, wire.answer(Said(["so far"]), stop="pause_turn"))

    rest = await ask(fake, wire.text("and on"), request=after(ASK, reply))

    assert (reply.stop, rest.text) == ("pause", "and on")


async def test_an_answer_that_was_not_streamed_is_taken(fake: FakeProvider) -> None:
    assert (await ask(fake, wire.whole(Thought(["hm"]), Said(["hi"])))).text == "hi"


async def test_a_connection_that_is_cut_after_the_stop_reason_has_given_a_whole_answer(fake: FakeProvider) -> None:
    assert (await ask(fake, wire.text("x")[:-1] + reset())).text == "x"


@pytest.mark.parametrize(
    ("answer", "phase"),
    [
        (reset(), "first_byte"),
        (wire.partial("x") + cut(), "stream"),
        (wire.partial("x") + reset(), "stream"),
        (wire.partial("x"), "stream"),
        (wire.partial("x") + send(wire.event("message_stop")), "stream"),
        (wire.whole(Said(["x"]), stop=None), "stream"),
        (send(b"data: nonsense\n\n"), "stream"),
    ],
    ids=["nothing", "fin", "rst", "end", "an end without a reason", "whole without a reason", "nonsense"],
)
async def test_an_answer_without_a_stop_reason_is_a_failure_that_may_be_sent_again(
    fake: FakeProvider, answer: Answer, phase: str
) -> None:
    error = await failure(fake, answer)

    assert (error.kind, error.retryable, error.details["phase"]) == ("model_gateway", True, phase)


@pytest.mark.parametrize(
    ("answer", "kind", "retryable", "wait_ms"),
    [
        (wire.error("overloaded_error", "Overloaded"), "model_gateway", True, None),
        (wire.error("api_error", "Internal server error"), "model_gateway", True, None),
        (wire.error("invalid_request_error", "no"), "model_gateway", False, None),
        (wire.error("rate_limit_error", "too fast", 429, retry_after="7"), "model_gateway", True, 7_000),
        (wire.error("overloaded_error", "Overloaded", 529), "model_gateway", True, None),
        (wire.error("billing_error", "no credit", 403), "model_gateway", False, None),
        (wire.error("permission_error", "not yours", 403), "credential_rejected", False, None),
        (wire.error("not_found_error", "model: claude-9", 404), "model_unavailable", False, None),
        (wire.error("request_too_large", "Request exceeds the maximum size", 413), "context_overflow", False, None),
        (
            wire.error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", 400),
            "context_overflow",
            False,
            None,
        ),
    ],
)
async def test_an_error_is_told_in_the_words_of_the_vendor(
    fake: FakeProvider, answer: Answer, kind: str, retryable: bool, wait_ms: int | None
) -> None:
    error = await failure(fake, answer)

    assert (error.kind, error.retryable, error.retry_after_ms) == (kind, retryable, wait_ms)


async def test_an_error_in_mid_answer_ends_it_with_the_usage_so_far(fake: FakeProvider) -> None:
    error = await failure(fake, wire.partial("x") + wire.error("overloaded_error", "Overloaded") + stall())
    await fake.await_disconnects(1)

    assert error.retryable
    assert error.details["providerCode"] == "overloaded_error"
    assert error.usage is not None
    assert error.usage["input_tokens"] == 10


@pytest.mark.parametrize(
    ("answer", "limits", "phase"),
    [
        (never(), ModelLimits(20_000, 100, 20_000, 20_000), "first_byte"),
        (wire.stalled(Said(["x"])), ModelLimits(20_000, 20_000, 100, 20_000), "idle"),
    ],
)
async def test_a_limit_that_is_reached_is_named(
    fake: FakeProvider, answer: Answer, limits: ModelLimits, phase: str
) -> None:
    error = await failure(fake, answer, limits=limits)
    await fake.await_disconnects(1)

    assert (error.retryable, error.details["phase"]) == (True, phase)


async def test_cancelling_closes_the_connection_at_once(fake: FakeProvider) -> None:
    fake.script(wire.stalled(Said(["x"])))
    async with provider_of(fake.url) as provider:
        with anyio.CancelScope() as scope:
            await provider.stream(ASK, lambda _part: scope.cancel(), LIMITS)
        await fake.await_disconnects(1)

    assert scope.cancelled_caught


async def test_a_key_that_is_refused_is_told_without_it() -> None:
    with FakeProvider(api_key="another", wire=wire.Messages()) as fake:
        async with provider_of(fake.url) as provider:
            with pytest.raises(ProviderFailed) as caught:
                await provider.stream(ASK, ignore, LIMITS)

    assert caught.value.kind == "credential_rejected"
    assert KEY not in repr((caught.value, caught.value.details, caught.value.message))


async def test_the_models_are_listed(fake: FakeProvider) -> None:
    async with provider_of(fake.url) as provider:
        assert list(await provider.models()) == ["another-model", "fake-model"]


async def test_a_listing_of_another_shape_is_a_failure(fake: FakeProvider) -> None:
    fake.listing = wire.whole(Said(["x"]))
    async with provider_of(fake.url) as provider:
        with pytest.raises(ProviderFailed):
            await provider.models()


def test_the_row_of_the_table_says_where_the_vendor_is() -> None:
    row: Any = PROVIDERS["anthropic"]

    assert (row.base_url, row.key_variables, row.needs_key) == (
        "https://api.anthropic.com/v1",
        ("ANTHROPIC_API_KEY",),
        True,
    )
