from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hames.core.conversation import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolResult,
    UserMessage,
    history_faults,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


def _call(name: str) -> ToolCall:
    return ToolCall(f"own-{name}", name, "read", "{}")


def _result(name: str) -> ToolResult:
    return ToolResult(f"own-{name}", name, "read", "text")


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    """Sendable ones: a user's message first, each call answered at once, in any order."""
    messages: list[Message] = [UserMessage(draw(TEXT))]
    for _ in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            messages.append(UserMessage(draw(TEXT)))
            continue
        names = draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=3))
        text = draw(TEXT) if not names else draw(st.just("") | TEXT)
        messages.append(AssistantMessage(text, tuple(_call(name) for name in names)))
        messages += [_result(name) for name in draw(st.permutations(names))]
    return tuple(messages)


@given(histories())
def test_a_sendable_history_has_no_faults(messages: tuple[Message, ...]) -> None:
    assert history_faults(messages) == []


@given(histories(), st.data())
def test_a_history_that_lost_a_result_is_faulty(messages: tuple[Message, ...], data: st.DataObject) -> None:
    places = [place for place, message in enumerate(messages) if isinstance(message, ToolResult)]
    assume(places)
    place = data.draw(st.sampled_from(places))

    faults = history_faults(messages[:place] + messages[place + 1 :])

    assert any("has no result" in fault for fault in faults)


@given(histories(), st.data())
def test_a_result_that_stands_twice_is_faulty(messages: tuple[Message, ...], data: st.DataObject) -> None:
    results = [message for message in messages if isinstance(message, ToolResult)]
    assume(results)

    faults = history_faults((*messages, data.draw(st.sampled_from(results))))

    assert any("which is not open" in fault for fault in faults)


@given(histories(), st.data())
def test_an_emptied_message_is_faulty(messages: tuple[Message, ...], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(messages) - 1))
    message = messages[place]
    assume(not isinstance(message, ToolResult))
    assume(not (isinstance(message, AssistantMessage) and message.calls))

    faults = history_faults((*messages[:place], replace(message, text=""), *messages[place + 1 :]))

    assert any(f"message {place}: empty" in fault for fault in faults)


@given(histories(), st.data())
def test_a_lone_surrogate_anywhere_is_faulty(messages: tuple[Message, ...], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(messages) - 1))
    broken = replace(messages[place], text="\ud800")

    faults = history_faults((*messages[:place], broken, *messages[place + 1 :]))

    assert f"message {place}: a lone surrogate" in faults


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ((), "the first message is not a user's"),
        ((AssistantMessage("Hello."),), "the first message is not a user's"),
        ((UserMessage("a"), AssistantMessage("", (_call("x"), _call("x"))), _result("x")), "'x' is empty or repeated"),
        ((UserMessage("a"), AssistantMessage("", (_call(""),)), _result("")), "'' is empty or repeated"),
        ((UserMessage("a"), AssistantMessage("", (_call("x"),))), "call x has no result"),
        (
            (UserMessage("a"), AssistantMessage("", (_call("x"),)), UserMessage("b"), _result("x")),
            "call x has no result before the next message",
        ),
        (
            (UserMessage("a"), AssistantMessage("", (_call("x"),)), AssistantMessage("b"), _result("x")),
            "call x has no result before the next message",
        ),
        (
            (UserMessage("a"), AssistantMessage("", (replace(_call("x"), arguments="\udfff"),)), _result("x")),
            "a lone surrogate",
        ),
    ],
)
def test_what_a_provider_would_refuse_is_named(messages: tuple[Message, ...], fault: str) -> None:
    assert any(fault in found for found in history_faults(messages))


def test_calls_of_different_messages_may_share_an_id() -> None:
    answer = AssistantMessage("", (_call("x"),))

    assert history_faults((UserMessage("a"), answer, _result("x"), answer, _result("x"))) == []
