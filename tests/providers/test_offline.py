"""The offline interpreter: a script in the prompt, played step by step."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.conversation import (
    AssistantMessage,
    CallDelta,
    Message,
    ModelRequest,
    Part,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolResult,
    UserMessage,
    history_faults,
)
from hames.ports import ModelLimits, ProviderFailed
from hames.providers.offline import DIRECTIVES, MAX_REPEAT, OfflineProvider, script

pytestmark = pytest.mark.anyio

LIMITS = ModelLimits(connect_ms=1_000, first_byte_ms=1_000, idle_ms=20_000, request_ms=30_000)


def ignore(part: Part) -> None:
    """Takes a part and does nothing."""


async def play(script: str, *, results: str = "fine", before: tuple[Message, ...] = ()) -> list[Reply]:
    """All replies to `script`, with `results` as the result of each call."""
    messages: tuple[Message, ...] = (*before, UserMessage(script))
    replies: list[Reply] = []
    with anyio.fail_after(30):
        while not replies or replies[-1].calls:
            reply = await OfflineProvider().stream(ModelRequest("offline", "", messages), ignore, LIMITS)
            replies.append(reply)
            messages += (AssistantMessage(reply.text, reply.calls),)
            messages += tuple(ToolResult("c", call.provider_id, call.tool, results) for call in reply.calls)
    assert history_faults(messages) == []
    return replies


async def test_say_streams_words() -> None:
    parts: list[Part] = []
    request = ModelRequest("offline", "", (UserMessage("say Hello there,  world"),))

    reply = await OfflineProvider().stream(request, parts.append, LIMITS)

    assert parts == [TextDelta("Hello "), TextDelta("there,  "), TextDelta("world")]
    assert (reply.text, reply.stop, reply.usage) == ("Hello there,  world", "stop", None)


async def test_each_request_goes_on_after_the_calls_before() -> None:
    first, second, third = await play('say a\ncall bash {"command": "ls"}\ncall read {"path": "x"}\nsay b')

    assert (first.text, [(call.tool, call.arguments) for call in first.calls]) == (
        "a",
        [("bash", '{"command": "ls"}')],
    )
    assert [call.tool for call in second.calls] == ["read"]
    assert (third.text, third.calls) == ("b", ())


async def test_calls_joined_by_also_are_asked_for_together() -> None:
    first, last = await play("call bash {}\nalso call read {}\nalso call read {}")

    assert [call.tool for call in first.calls] == ["bash", "read", "read"]
    assert len({call.provider_id for call in first.calls}) == 3
    assert last.text == "Done."


async def test_arguments_are_passed_on_as_they_stand() -> None:
    replies = await play("call bash {not json\ncall bash")

    assert [reply.calls[0].arguments for reply in replies[:2]] == ["{not json", "{}"]


async def test_thinking_and_repeats_are_parts() -> None:
    parts: list[Part] = []
    request = ModelRequest("offline", "", (UserMessage("think so so\nrepeat 3 ab\ncall x {}"),))

    reply = await OfflineProvider().stream(request, parts.append, LIMITS)

    assert parts == [
        ReasoningDelta("so "),
        ReasoningDelta("so"),
        *[TextDelta("ab")] * 3,
        CallDelta(0, "x", "{}"),
    ]
    assert (reply.text, reply.reasoning) == ("ababab", "so so")


async def test_an_expectation_that_holds_lets_the_script_go_on() -> None:
    assert (await play("call bash {}\nexpect ine\nsay good"))[-1].text == "good"


async def test_an_expectation_that_fails_fails_the_turn() -> None:
    with pytest.raises(ProviderFailed, match="Expected 'other'") as caught:
        await play("call bash {}\nexpect other\ncall bash {}")

    assert (caught.value.kind, caught.value.retryable) == ("model_gateway", False)


async def test_a_failure_is_that_of_the_kind_named_and_happens_again() -> None:
    request = ModelRequest("offline", "", (UserMessage("fail context_overflow"),))

    for _ in range(2):
        with pytest.raises(ProviderFailed) as caught:
            await OfflineProvider().stream(request, ignore, LIMITS)
        assert (caught.value.kind, caught.value.retryable) == ("context_overflow", False)


@pytest.mark.parametrize("line", ["fail nonsense", "wait long", "repeat x", f"repeat {MAX_REPEAT + 1} a", "repeat 2"])
async def test_a_directive_that_cannot_be_followed_fails_and_says_why(line: str) -> None:
    with pytest.raises(ProviderFailed, match="needs") as caught:
        await play(line)

    assert not caught.value.retryable


async def test_a_prompt_without_a_script_fails_and_says_what_a_script_is() -> None:
    with pytest.raises(ProviderFailed, match="No model is configured") as caught:
        await play("please " + "write a compiler " * 1_000)

    assert (caught.value.kind, caught.value.retryable) == ("model_unavailable", False)
    assert all(directive in caught.value.message for directive in DIRECTIVES)


@pytest.mark.parametrize("directive", DIRECTIVES)
def test_every_directive_that_is_told_is_understood(directive: str) -> None:
    assert script(directive)


async def test_only_the_last_user_message_is_a_script() -> None:
    before = (UserMessage("say old"), AssistantMessage("old"))

    assert [reply.text for reply in await play("say new", before=before)] == ["new"]


async def test_without_tools_the_script_ends_in_words() -> None:
    request = ModelRequest("offline", "", (UserMessage("call bash {}"),), tool_choice="none")

    reply = await OfflineProvider().stream(request, ignore, LIMITS)

    assert reply.text
    assert not reply.calls


async def test_a_pause_can_be_cancelled() -> None:
    request = ModelRequest("offline", "", (UserMessage("say x\nwait 10000000"),))
    said = anyio.Event()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(
                OfflineProvider().stream, request, lambda _part: said.set(), ModelLimits(1, 1, 10**9, 10**9)
            )
            await said.wait()
            group.cancel_scope.cancel()


@pytest.mark.parametrize(("idle_ms", "request_ms", "phase"), [(10, 30_000, "idle"), (30_000, 10, "total")])
async def test_a_pause_ends_at_the_limits(idle_ms: int, request_ms: int, phase: str) -> None:
    request = ModelRequest("offline", "", (UserMessage("wait 20000"),))

    with pytest.raises(ProviderFailed) as caught:
        await OfflineProvider().stream(request, ignore, ModelLimits(1, 1, idle_ms, request_ms))

    assert caught.value.details["phase"] == phase


async def test_it_names_itself() -> None:
    provider = OfflineProvider()

    assert provider.route == {"provider": "offline"}
    assert await provider.models() == ["offline"]
    await provider.aclose()


WORDS = st.sampled_from(
    ["say", "call", "also call", "think", "repeat", "wait", "expect", "x", "{}", "2", "", "\n", "é"]
)


@given(st.lists(WORDS, max_size=12).map(" ".join))
def test_any_script_is_answered_with_something_that_may_be_stored_or_fails_for_good(prompt: str) -> None:
    replies: list[Reply] = []
    failure: ProviderFailed | None = None
    try:
        replies = anyio.run(play, prompt)
    except ProviderFailed as error:
        failure = error
    assert all(reply.text or reply.calls for reply in replies)
    assert failure is None or (
        not failure.retryable
        and (not script(prompt) or any(verb in prompt for verb in ("expect", "repeat", "wait", "fail")))
    )
