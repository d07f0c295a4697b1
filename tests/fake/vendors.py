"""Every provider that is asked by HTTP, with its strict fake and answers of its models.

Rule: a provider is a row of `VENDORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from fake import answers as chat
from fake import anthropic, gemini, openai
from fake.answers import Answer, Send
from fake.chat import Chat
from fake.histories import ARGUMENTS, TEXT, nested
from fake.wire import Wire
from hames.core.conversation import ARGUMENTS_DEPTH, ModelRequest, Reply
from hames.providers.anthropic import Anthropic
from hames.providers.compatible import Compatible
from hames.providers.gemini import Gemini
from hames.providers.http_provider import Dialect
from hames.providers.openai import OpenAI
from hames.providers.sse import SseParser

CALLED = st.sampled_from(["bash", "read", "nope"])
WORDS = TEXT.filter(str.isprintable)
"""What a fake can sign: valid Unicode."""
GIVEN = st.fixed_dictionaries({"a": WORDS}) | st.sampled_from([ARGUMENTS_DEPTH, ARGUMENTS_DEPTH + 1, 100]).map(nested)
"""Arguments as an object."""


@dataclass(frozen=True, slots=True)
class Vendor:
    """A dialect, its strict fake, some of its models, and answers of a model."""

    dialect: Dialect
    wire: Wire
    models: Sequence[str]
    answers: Callable[[str], st.SearchStrategy[Answer]]
    signed: Callable[[str], Answer]
    """Text, a call, and whatever this vendor signs."""
    calls: Callable[[str, str, Mapping[str, Any], str], Answer]
    """A model says something and calls a tool with arguments: model, tool, arguments, text."""

    def refusal(self, request: ModelRequest) -> str | None:
        headers = {
            "content-type": "application/json",
            **self.dialect.headers("a-key"),
            **self.dialect.headers_for(request),
        }
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
    if items := draw(st.lists(st.tuples(CALLED, GIVEN), max_size=3)):
        signed_by = draw(st.sampled_from([model, None]))
        parts += gemini.call_parts(items, signed_by=signed_by, with_ids=draw(st.booleans()))
    return gemini.send(*(gemini.chunk([part]) for part in parts)) + gemini.finish()


def _gemini_signed(model: str) -> Answer:
    return gemini.send(gemini.chunk([gemini.signed_text("I look.", model)])) + gemini.calls(
        [("bash", {})], signed_by=model
    )


VENDORS = {
    "compatible": Vendor(
        Compatible(),
        Chat(),
        ["m"],
        _chat_answers,
        lambda _: chat.calls([("bash", {})], "I look."),
        lambda _, tool, arguments, text: chat.calls([(tool, arguments)], text),
    ),
    "openai": Vendor(
        OpenAI(),
        openai.Responses(),
        ["gpt-5.2", "gpt-4.1"],
        _openai_answers,
        lambda _: openai.answer(openai.Thought(), openai.Said(["I look."]), openai.Thought(), openai.Asked("bash")),
        lambda _, tool, arguments, text: openai.answer(
            openai.Thought(), openai.Said([text]), openai.Asked(tool, arguments)
        ),
    ),
    "anthropic": Vendor(
        Anthropic(),
        anthropic.Messages(),
        ["claude-opus-4-6", "claude-sonnet-4-5", "claude-3-haiku-20240307"],
        _anthropic_answers,
        lambda model: anthropic.calls(
            anthropic.Asked("bash"), before=[anthropic.Thought(), anthropic.Said(["I look."])], model=model
        ),
        lambda model, tool, arguments, text: anthropic.calls(
            anthropic.Asked(tool, arguments), before=[anthropic.Thought(), anthropic.Said([text])], model=model
        ),
    ),
    "gemini": Vendor(
        Gemini(),
        gemini.Gemini(),
        ["gemini-3-flash-preview", "gemini-2.5-pro", "gemma-3-27b-it"],
        _gemini_parts,
        _gemini_signed,
        lambda model, tool, arguments, text: gemini.calls([(tool, arguments)], text, signed_by=model),
    ),
}
