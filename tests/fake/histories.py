"""Conversations of any shape that the engine may send, with all that models and callers write into them.

Rule: `history_faults` finds nothing in them but lone surrogates and blank text, which a body has to stand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from fake.pictures import gif, jpeg, png, webp
from hames.core.conversation import (
    ARGUMENTS_DEPTH,
    AssistantMessage,
    Message,
    Picture,
    ToolCall,
    ToolResult,
    UserMessage,
)

TEXT = st.lists(st.sampled_from("\ud83d\ude00\udc00 \nx") | st.characters(), max_size=8).map("".join)
"""`st.text` gives no surrogates, and they are what this is about."""


def nested(depth: int) -> dict[str, Any]:
    """Objects within each other to so many levels."""
    value: dict[str, Any] = {"a": 1}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def nested_text(depth: int) -> str:
    """The same as JSON, which no writer may be able to write."""
    return '{"a":' * depth + "1" + "}" * depth


ARGUMENTS = (
    st.sampled_from(
        [
            "{}",
            "",
            "null",
            "[1]",
            '{"a": 1}',
            "{}{}",
            r'{"a":"\ud83d"}',
            '{"a":"\ud83d"}',
            "NaN",
            '{"a":' + "9" * 30 + "}",
            *(nested_text(depth) for depth in (ARGUMENTS_DEPTH, ARGUMENTS_DEPTH + 1, 130, 300, 1_000, 5_000)),
        ]
    )
    | TEXT
)

TOOLS = st.sampled_from(["bash", "read", "bash ", "ba sh", "1st", "-x", "default_api.read", "x" * 200]) | TEXT

PICTURES = st.sampled_from(
    [
        Picture("a-png", "image/png", png()),
        Picture("a-jpeg", "image/jpeg", jpeg()),
        Picture("a-gif", "image/gif", gif()),
        Picture("a-webp", "image/webp", webp()),
    ]
)

IDS = st.sampled_from(
    ["call_0", "call_1", "toolu_01AbC", "fc-1", "c-\ud83d", "id with spaces", "i" * 200]
) | TEXT.filter(bool)


@st.composite
def plain_answers(draw: st.DrawFn) -> AssistantMessage:
    """Words and calls without parts of any provider."""
    ids = draw(st.lists(IDS, max_size=3, unique=True))
    calls = tuple(ToolCall("", provider_id, draw(TOOLS), draw(ARGUMENTS)) for provider_id in ids)
    return AssistantMessage(draw(TEXT if calls else TEXT.filter(bool)), calls)


@st.composite
def histories(draw: st.DrawFn, answers: st.SearchStrategy[AssistantMessage]) -> tuple[Message, ...]:
    """A conversation whose calls all have their results, with `answers` in it."""
    messages: list[Message] = [_asked(draw)]
    for step, answer in enumerate(draw(st.lists(answers, max_size=5))):
        calls = tuple(replace(call, call_id=f"c{step}.{place}") for place, call in enumerate(answer.calls))
        messages.append(replace(answer, calls=calls))
        messages += [_result(draw, call) for call in draw(st.permutations(calls))]
        messages += [_asked(draw) for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2])))]
    return tuple(messages)


def _asked(draw: st.DrawFn) -> UserMessage:
    return UserMessage(draw(TEXT.filter(bool)), tuple(draw(st.lists(PICTURES, max_size=2))))


def _result(draw: st.DrawFn, call: ToolCall) -> ToolResult:
    text = draw(TEXT | st.just("x" * 100_000))
    images = tuple(draw(st.lists(PICTURES, max_size=2)))
    return ToolResult(call.call_id, call.provider_id, call.tool, text, draw(st.booleans()), images)
