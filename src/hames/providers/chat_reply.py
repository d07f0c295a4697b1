"""The answer of a Chat Completions provider, without I/O: chunks in, parts and one `Reply` out.

Rule 1: an answer has ended only when a finish reason was seen, and is whole only by one of a whole answer: see
`chat_stops`. `[DONE]` proves nothing, and some omit it.
Rule 2: two calls are never merged and none is dropped: see `chat_calls`.

Source: https://platform.openai.com/docs/api-reference/chat-streaming.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hames.core.conversation import ModelRequest, Part, Reply
from hames.core.cost import Money, reported_amount
from hames.providers.answer import ErrorInAnswer, MalformedAnswer, Reader, Words, flatten_usage, named
from hames.providers.chat_calls import CallFragments, NamelessCall
from hames.providers.chat_echo import Echo
from hames.providers.chat_quirks import STRICTEST, Quirks
from hames.providers.chat_stops import has_ended, stop_of
from hames.providers.request import ToolNames
from hames.providers.surrogates import without_surrogates

_COSTS = frozenset({"cost", "cost_details"})
"""Amounts among the counters: a whole one would be taken for a counter."""


class ReplyBuilder:
    """One answer as it grows. `secret` is taken out of all that comes: names, counters, text.

    `request` is what it answers, of the server that `quirks` are of; without one, names of tools stay as they come and
    nothing is kept to go back.
    """

    def __init__(
        self, secret: str | None = None, request: ModelRequest | None = None, quirks: Quirks = STRICTEST
    ) -> None:
        self._reader = Reader(secret)
        self._words = Words(self._reader.secret)
        self._calls = CallFragments(self._reader.secret, ToolNames(request.tools if request else ()).ours)
        self._echo = Echo(request.model if request else "", quirks, self._reader.secret)
        self._raw_stop: str | None = None
        self._refused = False
        self._model: str | None = None
        self._response_id: str | None = None
        self._cost_currency = quirks.cost_currency
        self.usage: Mapping[str, int] | None = None
        self.usage_is_whole = False
        self.cost: Money | None = None

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the answer is whole."""
        return self._raw_stop is not None

    @property
    def closed(self) -> bool:
        """Never: usage may follow the finish reason, and only `[DONE]` says that nothing does."""
        return False

    def add(self, payload: bytes) -> list[Part]:
        """The parts of one chunk, or of a whole answer that was not streamed.

        Raises:
            ErrorInAnswer: the chunk is an error.
            MalformedAnswer: the chunk is not one of a chat completion.
        """
        chunk = self._reader.read(payload)
        if not isinstance(chunk, dict):
            if isinstance(chunk, list) and chunk and isinstance(chunk[0], dict) and chunk[0].get("error"):
                raise ErrorInAnswer(chunk)
            raise MalformedAnswer("a chunk that is not an object")
        if chunk.get("error"):
            raise ErrorInAnswer(chunk)
        choices = chunk.get("choices")
        if choices is None and chunk.get("object") == "error":  # vLLM
            raise ErrorInAnswer(chunk)
        if self._response_id is None:
            self._identify(chunk)
        told = self._report(chunk.get("usage"))
        if not choices:
            # The chunk of the usage alone stands behind all others.
            self.usage_is_whole |= told
            return []
        try:
            parts = self._choice(choices[0])
        except (TypeError, AttributeError, KeyError) as error:
            raise MalformedAnswer("a chunk with a member of the wrong type") from error
        self.usage_is_whole = told and self.finished
        return parts

    def end(self) -> list[Part]:
        """The parts that waited for more which did not come."""
        return self._words.end() + self._calls.end()

    def reply(self) -> Reply:
        """The whole answer, after `end`.

        Raises:
            MalformedAnswer: a call has no name.
        """
        try:
            calls = self._calls.calls()
        except NamelessCall as error:
            raise MalformedAnswer(str(error)) from error
        stop = stop_of(self._raw_stop)
        if calls and stop == "stop":
            stop = "tool_calls"
        if self._refused and stop == "stop":
            stop = "content_filter"
        return Reply(
            text=self._words.text,
            reasoning=self._words.reasoning,
            calls=calls,
            stop=stop,
            raw_stop=self._raw_stop,
            usage=self.usage,
            model=self._model,
            response_id=self._response_id,
            parts=self._echo.parts(self._words.text, self._words.reasoning, calls),
            cost=self.cost,
        )

    def _choice(self, choice: Mapping[str, Any]) -> list[Part]:
        if choice.get("index"):
            return []  # another of several answers, which nobody asked for
        delta = choice.get("delta") or {}
        if message := choice.get("message"):
            delta = _streamed(message)
        reason = choice.get("finish_reason")
        if not has_ended(reason):
            reason = None
        parts: list[Part] = []
        if len(delta) == 1 and not reason and isinstance(text := delta.get("content"), str):
            self._words.add_text(text, parts)  # nearly every chunk: the rest need not be looked for
            return parts
        self._think(delta, parts)
        if content := delta.get("content"):
            if isinstance(content, str):
                self._words.add_text(content, parts)
            else:
                self._add_blocks(content, parts)
        if refusal := delta.get("refusal"):
            self._refused = True
            self._words.add_text(refusal, parts)
        if fragments := delta.get("tool_calls"):
            for fragment in fragments:
                parts += self._calls.add(fragment)
        if reason:
            self._raw_stop = without_surrogates(str(reason))[:100]
            if self._raw_stop == "error":
                raise ErrorInAnswer(choice)
        return parts

    def _think(self, delta: Mapping[str, Any], parts: list[Part]) -> None:
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
            self._words.add_reasoning(reasoning, parts)
        if details := delta.get("reasoning_details"):
            self._echo.add(details)

    def _add_blocks(self, blocks: list[Mapping[str, Any]], parts: list[Part]) -> None:
        # Mistral: content as a list of text and thinking blocks.
        for block in blocks:
            if block.get("type") == "text":
                self._words.add_text(block["text"], parts)
            elif block.get("type") == "thinking":
                for thought in block["thinking"]:
                    self._words.add_reasoning(thought.get("text"), parts)

    def _identify(self, chunk: Mapping[str, Any]) -> None:
        self._model = named(chunk.get("model")) or self._model
        self._response_id = named(chunk.get("id"))

    def _report(self, usage: Any) -> bool:
        """Take note of a `usage`; whether it tells of anything."""
        if self._cost_currency is not None and isinstance(usage, dict):
            if (amount := reported_amount(usage.get("cost"))) is not None:
                self.cost = Money(amount, self._cost_currency)
            usage = {name: value for name, value in usage.items() if name not in _COSTS}
        if counters := flatten_usage(usage):
            self.usage = counters
        return bool(counters)


def _streamed(message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls = message.get("tool_calls") or []
    return {**message, "tool_calls": [{**call, "index": place} for place, call in enumerate(calls)]}
