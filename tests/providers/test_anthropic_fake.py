"""The strict fake of Anthropic's API refuses what it says it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from fake.anthropic import Asked, Said, Thought
from fake.anthropic_histories import ADAPTIVE, ASK, BASH, BUDGET, HEADERS, answered, message_of, sent
from fake.anthropic_rules import BETA, refusal
from hames.core.conversation import ModelRequest, ToolResult


def document(model: str = ADAPTIVE) -> dict[str, Any]:
    """A request that is taken: two blocks of thinking, a call and its result."""
    request = ModelRequest(model, "s", (ASK,), (BASH,), effort="high")
    blocks = (Thought(["one"]), Said(["well"]), Thought(["two"]), Asked("bash", call_id="toolu_1"))
    reply = answered(request, *blocks, stop="tool_use")
    result = ToolResult("c", "toolu_1", "bash", "done")
    return sent(ModelRequest(model, "s", (ASK, message_of(reply), result), (BASH,), effort="high"))


def why(body: dict[str, Any]) -> str | None:
    beta = {"anthropic-beta": BETA} if "block_binding" in body.get("thinking", {}) else {}
    return refusal({**HEADERS, **beta}, orjson.dumps(body))[1]


def said(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of the model's answer."""
    content: list[dict[str, Any]] = body["messages"][1]["content"]
    return content


HARMS: dict[str, Callable[[dict[str, Any]], object]] = {
    "Invalid `signature`": lambda body: said(body)[0].update(thinking="One"),
    "was moved": lambda body: said(body).insert(0, said(body).pop(2)),
    "was moved, or left out": lambda body: said(body).pop(0),
    "is missing": lambda body: said(body).pop(2),
    "Invalid `signature` in": lambda body: body.update(model="claude-opus-4-7"),
    "does not think": lambda body: body.pop("thinking"),
    "ids must be unique": lambda body: body["messages"].extend(copy.deepcopy(body["messages"][1:])),
    "`tool_result` blocks": lambda body: body["messages"][2]["content"][0].update(tool_use_id="toolu_2"),
    "tool_result blocks must come first": lambda body: body["messages"][2]["content"].insert(
        0, {"type": "text", "text": "x"}
    ),
    "non-whitespace": lambda body: said(body)[1].update(text=" \n"),
    "final block": lambda body: said(body).append(said(body).pop(2)),
    "prefill": lambda body: body["messages"].append({"role": "assistant", "content": [{"type": "text", "text": "x"}]}),
    "alternate": lambda body: body["messages"].insert(0, body["messages"][0]),
    "at least one": lambda body: body["messages"].clear(),
    "must define tools": lambda body: body.pop("tools"),
    "maximum of 4": lambda body: body["system"].extend(body["system"] * 4),
    "Extra inputs": lambda body: body.update(temperature=1),
    "max_tokens": lambda body: body.update(max_tokens=0),
    "adaptive thinking is not supported": lambda body: body.update(model=BUDGET),
}


@pytest.mark.parametrize("reason", HARMS)
def test_a_request_with_one_fault_is_refused_for_it(reason: str) -> None:
    body = document()
    assert why(body) is None

    HARMS[reason](body)

    assert reason in (why(body) or "")


def test_a_turn_that_began_without_thinking_is_refused_with_a_budget() -> None:
    body = document(BUDGET)
    assert why(body) is None

    body["messages"][1]["content"] = [block for block in said(body) if block["type"] in ("text", "tool_use")]

    assert "Expected thinking" in (why(body) or "")
