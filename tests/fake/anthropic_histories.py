"""Conversations with Anthropic's models, of any shape, as an adapter may have to send them."""

from __future__ import annotations

import dataclasses
from typing import Any

import orjson
from hypothesis import strategies as st

from fake import anthropic as fake
from fake.anthropic import Asked, Said, Thought
from fake.anthropic_rules import VERSION, refusal
from fake.histories import ARGUMENTS, IDS, TEXT, histories, plain_answers
from fake.histories import TOOLS as CALLED
from fake.pictures import jpeg, png
from hames.core.conversation import (
    AssistantMessage,
    Effort,
    Message,
    ModelRequest,
    Picture,
    Reply,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from hames.providers.anthropic import Anthropic
from hames.providers.anthropic_body import body
from hames.providers.anthropic_reply import MessageBuilder
from hames.providers.sse import SseParser

ADAPTIVE, ALWAYS, BOUND, BUDGET = "claude-opus-4-6", "claude-opus-5", "claude-opus-5-5", "claude-sonnet-4-5"
THINKERS = (ADAPTIVE, ALWAYS, BOUND, BUDGET)
MODELS = (*THINKERS * 3, "claude-3-haiku-20240307", "claude-3-7-sonnet-20250219", "another-model")
HEADERS = {"content-type": "application/json", "anthropic-version": VERSION}
BASH = ToolSpec("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
ODD = ToolSpec(
    "run it!",
    " ",
    {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a"}, "b[]": {}, "c" * 65: {}},
        "required": ["a", "b[]"],
        "$defs": {"a": {"type": "array", "prefixItems": [{"type": "string"}]}},
        "anyOf": [{"required": ["a"]}],
    },
)
TOOLS = (BASH, ODD, ToolSpec("run it?", "", {}), ToolSpec("run_it_", "Its name is plain.", {"type": "object"}))
ASK = UserMessage("hi")
SEEN = (Picture("a-png", "image/png", png()), Picture("a-jpeg", "image/jpeg", jpeg()))


def answered(request: ModelRequest, *blocks: fake.Block, stop: str = "end_turn") -> Reply:
    """What the adapter makes of an answer of these blocks to `request`."""
    builder = MessageBuilder(request)
    parser = SseParser()
    for event in fake.events(*blocks, stop=stop, model=request.model):
        for payload in parser.feed(event):
            builder.add(payload)
    builder.end()
    return builder.reply()


def message_of(reply: Reply) -> AssistantMessage:
    return AssistantMessage(reply.text, reply.calls, reply.parts)


def sent(request: ModelRequest) -> dict[str, Any]:
    parsed: dict[str, Any] = orjson.loads(body(request))
    return parsed


def why_refused(request: ModelRequest) -> str | None:
    return refusal({**HEADERS, **Anthropic().headers_for(request)}, body(request))[1]


THOUGHTS = st.lists(st.sampled_from(["hm ", "é😀", "", "x\n", "so", "well", "cut \ud83d"]), max_size=3)
"""Mostly of what can go back: a half of a pair without the other cannot."""


@st.composite
def signed_answers(draw: st.DrawFn, model: str) -> AssistantMessage:
    """An answer of this model or of another, with its thinking; perhaps altered since, or as if of another vendor."""
    model = draw(st.sampled_from([model, model, model, "claude-opus-4-7"]))
    blocks = draw(
        st.lists(
            st.builds(Thought, THOUGHTS, st.booleans(), st.sampled_from([True] * 9 + [False]))
            | st.builds(Said, st.lists(TEXT, max_size=2))
            | st.builds(Asked, CALLED.filter(bool), ARGUMENTS),
            min_size=1,
            max_size=5,
        )
    )
    reply = answered(ModelRequest(model, "", (ASK,)), *blocks)
    calls = tuple(dataclasses.replace(call, provider_id=f"{draw(IDS)}{n}") for n, call in enumerate(reply.calls))
    parts = dict(reply.parts)
    how = draw(st.sampled_from(["kept", "kept", "kept", "kept", "longer", "foreign"]))
    if how == "foreign":
        parts |= {"dialect": "openai", "items": [{"own": {"type": "reasoning"}}]}
    said = AssistantMessage(reply.text + ("more" if how == "longer" else ""), calls, parts)
    return said if said.text or calls else dataclasses.replace(said, text="x")


def talks(model: str) -> st.SearchStrategy[tuple[Message, ...]]:
    """Conversations that a request to `model` may hold."""
    return histories(st.one_of(plain_answers(), signed_answers(model), signed_answers(model)))


EFFORTS: tuple[Effort | None, ...] = (None, "none", "minimal", "low", "medium", "high", "high", "high")
REQUESTS = st.sampled_from(MODELS).flatmap(
    lambda model: st.builds(
        ModelRequest,
        st.just(model),
        TEXT,
        talks(model),
        st.sampled_from([(), TOOLS, TOOLS[:1]]),
        st.sampled_from(["auto", "none"]),
        st.sampled_from(EFFORTS),
        st.sampled_from([None, 1, 2_000, 30_000, 500_000]),
        st.sampled_from([None, {"type": "object", "properties": {"a": {"type": ["string", "null"], "minLength": 1}}}]),
        st.sampled_from([None, "key"]),
    )
)


def conversation(steps: int, model: str = ADAPTIVE) -> tuple[Message, ...]:
    """The user's question, and as many calls of the model with their results."""
    messages: list[Message] = [ASK]
    for step in range(steps):
        request = ModelRequest(model, "s", tuple(messages), (BASH,))
        blocks = (Thought([f"step {step}"]), Asked("bash", {"command": str(step)}))
        reply = answered(request, *blocks, stop="tool_use")
        messages.append(message_of(reply))
        messages.append(ToolResult(f"c{step}", reply.calls[0].provider_id, "bash", f"did {step}"))
    return tuple(messages)
