"""How Claude is asked to think, by family, and how its thinking goes back."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fake.anthropic import Asked, Said, Thought
from fake.anthropic_histories import (
    ADAPTIVE,
    ALWAYS,
    ASK,
    BASH,
    BOUND,
    BUDGET,
    answered,
    conversation,
    message_of,
    sent,
    why_refused,
)
from hames.core.conversation import AssistantMessage, Effort, ModelRequest, ToolCall, ToolResult
from hames.providers.anthropic_models import family
from hames.providers.request import EMPTY


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "said"),
    [
        (ADAPTIVE, None, None, None),
        (ADAPTIVE, "none", None, None),
        (ADAPTIVE, "minimal", {"type": "adaptive", "display": "summarized"}, "low"),
        (ADAPTIVE, "high", {"type": "adaptive", "display": "summarized"}, "high"),
        (ALWAYS, None, {"type": "adaptive", "display": "summarized"}, None),
        (ALWAYS, "none", {"type": "adaptive", "display": "summarized"}, "low"),
        (
            BOUND,
            "medium",
            {
                "type": "adaptive",
                "display": "summarized",
                "block_binding": {"prefix_mismatch_behavior": "drop_block"},
            },
            "medium",
        ),
        (BUDGET, None, None, None),
        (BUDGET, "none", None, None),
        (BUDGET, "minimal", {"type": "enabled", "budget_tokens": 1_024}, None),
        (BUDGET, "high", {"type": "enabled", "budget_tokens": 16_000}, None),
        ("claude-3-5-haiku-20241022", "high", None, None),
        ("glm-5", "high", None, None),
    ],
)
def test_the_effort_is_said_in_the_way_of_the_family(
    model: str, effort: Effort | None, thinking: object, said: str | None
) -> None:
    document = sent(ModelRequest(model, "", (ASK,), effort=effort))

    assert document.get("thinking") == thinking
    assert document.get("output_config", {}).get("effort") == said


def test_a_budget_is_at_most_half_of_the_answer_and_left_out_where_it_would_be_too_small() -> None:
    request = ModelRequest(BUDGET, "", (ASK,), effort="high", max_output_tokens=2_048)

    assert sent(request)["thinking"]["budget_tokens"] == 1_024
    assert "thinking" not in sent(dataclasses.replace(request, max_output_tokens=2_047))


@pytest.mark.parametrize(
    ("model", "wanted", "expected"),
    [
        ("claude-3-haiku-20240307", None, 4_096),
        ("claude-2.1", 10_000, 4_096),
        ("claude-3-5-sonnet-20241022", None, 8_192),
        ("claude-3-5-sonnet-20241022", 100, 100),
        ("claude-3-7-sonnet-20250219", 100_000, 64_000),
        ("claude-opus-4-20250514", 100_000, 32_000),
        ("anthropic/claude-opus-4.5", 100_000, 64_000),
        ("claude-haiku-5-5", None, 32_000),
        ("claude-haiku-5-5", 200_000, 128_000),
        ("glm-5", 200_000, 200_000),
    ],
)
def test_max_tokens_is_what_was_asked_for_within_what_the_family_gives(
    model: str, wanted: int | None, expected: int
) -> None:
    assert sent(ModelRequest(model, "", (ASK,), max_output_tokens=wanted))["max_tokens"] == expected


@pytest.mark.parametrize(
    ("model", "thinking", "is_bound"),
    [
        ("claude-instant-1.2", "none", False),
        ("claude-3-7-sonnet-20250219", "budget", False),
        ("claude-sonnet-4-20250514", "budget", False),
        ("claude-haiku-4-5-20251001", "budget", False),
        ("anthropic.claude-opus-4-6-v1", "adaptive", False),
        ("claude-opus-4-8", "adaptive", False),
        ("claude-sonnet-5", "always", False),
        ("claude-fable-5-1", "always", True),
        ("claude-sonnet-5-5", "always", True),
        ("mistral-large", "none", False),
    ],
)
def test_a_family_is_told_by_the_version_in_the_name(model: str, thinking: str, is_bound: bool) -> None:
    assert (family(model).thinking, family(model).binds_thinking) == (thinking, is_bound)


def test_thinking_goes_back_as_it_came_between_the_calls_it_led_to() -> None:
    request = ModelRequest(ADAPTIVE, "", (ASK,), (BASH,), effort="high")
    blocks = (Thought(["first"]), Said(["\n\n"]), Asked("bash"), Thought(is_redacted=True), Said(["so"]), Asked("bash"))
    reply = answered(request, *blocks, stop="tool_use")
    results = [ToolResult("c", call.provider_id, "bash", "ok") for call in reply.calls]
    second = dataclasses.replace(request, messages=(ASK, message_of(reply), *reversed(results)))

    said = sent(second)["messages"][1]["content"]

    assert [block["type"] for block in said] == [
        "thinking",
        "tool_use",
        "redacted_thinking",
        "text",
        "tool_use",
    ]
    assert said[0]["thinking"] == "first"
    assert why_refused(second) is None


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, ["thinking", "text"]),
        ({"model": "claude-opus-4-7"}, ["text"]),
        ({"effort": None}, ["text"]),
    ],
    ids=["the same model", "another model", "no thinking"],
)
def test_thinking_goes_back_to_the_model_that_thought_it_and_only_when_it_thinks(
    change: dict[str, Any], kinds: list[str]
) -> None:
    request = ModelRequest(ADAPTIVE, "", (ASK,), effort="high")
    said = message_of(answered(request, Thought(["hm"]), Said(["yes"])))

    second = dataclasses.replace(request, messages=(ASK, said, ASK), **change)

    assert [block["type"] for block in sent(second)["messages"][1]["content"]] == kinds
    assert why_refused(second) is None


def test_thinking_is_off_for_a_turn_that_began_without_it_where_a_budget_would_be_refused() -> None:
    foreign = AssistantMessage("", (ToolCall("c", "call_0", "bash", "{}"),))
    result = ToolResult("c", "call_0", "bash", "ok")
    request = ModelRequest(BUDGET, "", (ASK, foreign, result), (BASH,), effort="high")

    assert "thinking" not in sent(request)
    assert "thinking" not in sent(dataclasses.replace(request, messages=(*request.messages, ASK)))
    assert "thinking" in sent(dataclasses.replace(request, messages=(*request.messages, AssistantMessage("x"), ASK)))
    assert "thinking" in sent(dataclasses.replace(request, messages=conversation(3, BUDGET)))
    assert "thinking" in sent(dataclasses.replace(request, model=ADAPTIVE))


def test_an_answer_that_ends_in_thinking_is_followed_by_a_text() -> None:
    request = ModelRequest(ADAPTIVE, "", (ASK,), effort="high")
    said = message_of(answered(request, Said(["well"]), Thought(["hm"])))

    second = dataclasses.replace(request, messages=(ASK, said, ASK))

    assert [block.get("text") for block in sent(second)["messages"][1]["content"]] == ["well", None, EMPTY]
    assert why_refused(second) is None


def test_an_answer_that_is_to_be_continued_is_followed_by_a_word_of_the_user() -> None:
    request = ModelRequest(ADAPTIVE, "", (ASK, AssistantMessage("so far ")))

    assert sent(request)["messages"][-1]["role"] == "user"
    assert why_refused(request) is None
