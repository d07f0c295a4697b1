"""One conversation with all providers in turn: none refuses what another has said, and none is given another's secrets.

Rule: a provider is a row of `VENDORS`, and every provider that is asked by HTTP has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import answers as chat
from fake import anthropic, gemini, openai
from fake.answers import Answer, Send
from fake.chat import Chat
from fake.histories import ARGUMENTS, PICTURES, TEXT
from fake.wire import Wire
from hames.core.conversation import AssistantMessage, Message, ModelRequest, Reply, ToolResult, ToolSpec, UserMessage
from hames.providers import PROVIDERS
from hames.providers.anthropic import Anthropic
from hames.providers.compatible import Compatible
from hames.providers.gemini import Gemini
from hames.providers.http_provider import Dialect
from hames.providers.openai import OpenAI
from hames.providers.sse import SseParser

TOOLS = tuple(
    ToolSpec(name, "A tool.", {"type": "object", "properties": {"a": {"type": "string"}}}) for name in ("bash", "read")
)
CALLED = st.sampled_from(["bash", "read", "nope"])
WORDS = TEXT.filter(str.isprintable)
"""What a fake can sign: valid Unicode."""

Talk = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Vendor:
    """A dialect, its strict fake, some of its models, and answers of a model."""

    dialect: Dialect
    wire: Wire
    models: Sequence[str]
    answers: Callable[[str], st.SearchStrategy[Answer]]
    signed: Callable[[str], Answer]
    """Text, a call, and whatever this vendor signs."""

    def refusal(self, request: ModelRequest) -> str | None:
        headers = {"content-type": "application/json", **self.dialect.headers("a-key")}
        target = self.wire.prefix + self.dialect.path(request)
        assert self.wire.is_ask(self.dialect.path(request).partition("?")[0])
        assert self.wire.key(headers) == "a-key"
        return self.wire.refusal(target, headers, self.dialect.body(request))[1]

    def reply(self, request: ModelRequest, answer: Answer) -> Reply:
        parser, builder = SseParser(), self.dialect.builder(request, None)
        for payload in parser.feed(b"".join(step.data for step in answer if isinstance(step, Send))):
            if not payload.startswith(b"[DONE]"):
                builder.add(payload)
        assert builder.finished
        builder.end()
        return builder.reply()


# --- answers ----------------------------------------------------------------------------------------------------


def _chat_answers(model: str) -> st.SearchStrategy[Answer]:
    items = st.lists(st.tuples(CALLED, ARGUMENTS), min_size=1, max_size=3)
    return st.builds(chat.text, TEXT) | st.builds(lambda called, words: chat.calls(called, words), items, TEXT)


def _openai_answers(model: str) -> st.SearchStrategy[Answer]:
    thoughts = st.builds(openai.Thought, st.lists(WORDS, max_size=2), st.booleans())
    said = st.builds(openai.Said, st.lists(TEXT, min_size=1, max_size=2))
    asked = st.builds(openai.Asked, CALLED, ARGUMENTS)
    return st.lists(thoughts | said | asked, max_size=5).map(lambda outputs: openai.answer(*outputs))


def _anthropic_answers(model: str) -> st.SearchStrategy[Answer]:
    thoughts = st.builds(anthropic.Thought, st.lists(WORDS, max_size=2), st.booleans(), st.booleans())
    said = st.builds(anthropic.Said, st.lists(TEXT, min_size=1, max_size=2))
    asked = st.builds(anthropic.Asked, CALLED, ARGUMENTS)
    return st.lists(thoughts | said | asked, max_size=5).map(
        lambda blocks: anthropic.answer(*blocks, stop="end_turn", model=model)
    )


@st.composite
def _gemini_parts(draw: st.DrawFn, model: str) -> Answer:
    kinds = [
        lambda words: {"text": words},
        lambda words: {"text": words, "thought": True},
        lambda words: gemini.signed_text(words, model),
        lambda words: gemini.signed_thought(words, model),
    ]
    parts = [draw(st.sampled_from(kinds))(draw(WORDS)) for _ in range(draw(st.integers(0, 3)))]
    if items := draw(st.lists(st.tuples(CALLED, st.fixed_dictionaries({"a": WORDS})), max_size=3)):
        signed_by = draw(st.sampled_from([model, None]))
        parts += gemini.call_parts(items, signed_by=signed_by, with_ids=draw(st.booleans()))
    return gemini.send(*(gemini.chunk([part]) for part in parts)) + gemini.finish()


def _gemini_signed(model: str) -> Answer:
    return gemini.send(gemini.chunk([gemini.signed_text("I look.", model)])) + gemini.calls(
        [("bash", {})], signed_by=model
    )


VENDORS = {
    "compatible": Vendor(Compatible(), Chat(), ["m"], _chat_answers, lambda _: chat.calls([("bash", {})], "I look.")),
    "openai": Vendor(
        OpenAI(),
        openai.Responses(),
        ["gpt-5.2", "gpt-4.1"],
        _openai_answers,
        lambda _: openai.answer(openai.Thought(), openai.Said(["I look."]), openai.Thought(), openai.Asked("bash")),
    ),
    "anthropic": Vendor(
        Anthropic(),
        anthropic.Messages(),
        ["claude-opus-4-6", "claude-sonnet-4-5", "claude-3-haiku-20240307"],
        _anthropic_answers,
        lambda model: anthropic.calls(
            anthropic.Asked("bash"), before=[anthropic.Thought(), anthropic.Said(["I look."])], model=model
        ),
    ),
    "gemini": Vendor(
        Gemini(),
        gemini.Gemini(),
        ["gemini-3-flash-preview", "gemini-2.5-pro", "gemma-3-27b-it"],
        _gemini_parts,
        _gemini_signed,
    ),
}

EVERYONE = [(vendor, model) for vendor in VENDORS.values() for model in vendor.models]


# --- conversations ----------------------------------------------------------------------------------------------


def request_of(model: str, talk: Talk, **options: Any) -> ModelRequest:
    return ModelRequest(model, "be brief", talk, TOOLS, **options)


def said(reply: Reply, step: int) -> AssistantMessage | None:
    """The message that the engine makes of a reply, None where it would fail the turn."""
    if not reply.text.strip() and not reply.calls:
        return None
    calls = tuple(replace(call, call_id=f"c{step}.{place}") for place, call in enumerate(reply.calls))
    return AssistantMessage(reply.text, calls, reply.parts)


def results_of(answer: AssistantMessage) -> tuple[ToolResult, ...]:
    return tuple(ToolResult(call.call_id, call.provider_id, call.tool, "done") for call in answer.calls)


@st.composite
def conversations(draw: st.DrawFn) -> Talk:
    """What comes of answers of any vendor, each to all that was said before."""
    talk: Talk = (UserMessage("hi"),)
    for step in range(draw(st.integers(1, 4))):
        vendor, model = draw(st.sampled_from(EVERYONE))
        request = request_of(model, talk)
        answer = said(vendor.reply(request, draw(vendor.answers(model))), step)
        if answer is None:
            continue
        images = tuple(draw(st.lists(PICTURES, max_size=1)))
        results = [replace(each, is_error=draw(st.booleans()), images=images) for each in results_of(answer)]
        talk += (answer, *draw(st.permutations(results)))
        if not results or draw(st.booleans()):
            talk += (UserMessage(draw(TEXT.filter(bool)), images),)
    return talk


@given(conversations(), st.sampled_from([None, "none", "low", "high"]), st.sampled_from(["auto", "none"]))
def test_no_provider_refuses_what_others_have_said(talk: Talk, effort: Any, choice: Any) -> None:
    for vendor, model in EVERYONE:
        request = request_of(model, talk, effort=effort, tool_choice=choice, cache_key="k")
        assert vendor.refusal(request) is None, (vendor.dialect.name, model)


@pytest.mark.parametrize("name", VENDORS)
def test_what_a_provider_signed_goes_back_to_it_alone_whoever_spoke_in_between(name: str) -> None:
    vendor = VENDORS[name]
    model = vendor.models[0]
    talk: Talk = (UserMessage("hi"),)
    own = said(vendor.reply(request_of(model, talk), vendor.signed(model)), 0)
    assert own is not None
    talk += (own, *results_of(own))
    for step, (other, its_model) in enumerate(EVERYONE, 1):
        answer = said(other.reply(request_of(its_model, talk), other.signed(its_model)), step)
        assert answer is not None
        talk += (answer, *results_of(answer))
    talk += (UserMessage("and?"),)
    secrets = {secret.encode() for secret in _long_texts(dict(own.parts))}

    for other, its_model in EVERYONE:
        request = request_of(its_model, talk, effort="high")
        found = {secret for secret in secrets if secret in other.dialect.body(request)}
        assert other.refusal(request) is None, (other.dialect.name, its_model)
        assert found == (secrets if (other, its_model) == (vendor, model) else set())
    assert bool(secrets) == (name != "compatible")


def _long_texts(value: Any) -> Iterator[str]:
    """The texts in a value that are long enough to be a signature."""
    if isinstance(value, str) and len(value) > 24:
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _long_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _long_texts(item)


def test_every_provider_that_is_asked_by_http_is_among_them() -> None:
    assert set(VENDORS) == {name for name, row in PROVIDERS.items() if row.is_remote}
    assert all(vendor.dialect.name == name for name, vendor in VENDORS.items())
