"""The answer of a Chat Completions provider, without I/O: chunks in, parts and one `Reply` out.

Rule 1: an answer is whole only when a finish reason was seen. `[DONE]` proves nothing, and some omit it.
Rule 2: an error within the stream ends the try at once, with the provider's own words.
Rule 3: two calls are never merged and none is dropped: see `chat_calls`.
Rule 4: usage is what was reported and nothing else: integers under the provider's names, absent stays absent
(AH-USAGE-1).
Rule 5: a credential that the provider echoes ends here, whatever member it stands in and however it is cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from typing import Any

import orjson

from hames.core.conversation import Part, ReasoningDelta, Reply, StopReason, TextDelta
from hames.core.redaction import redact, worth_hiding
from hames.providers.chat_calls import CallFragments, NamelessCall
from hames.providers.surrogates import PairJoiner, without_surrogates

_STOPS: Mapping[str, StopReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}

_MAX_COUNTER = 2**53 - 1
"""Largest integer that every JSON reader keeps exact (RFC 8259 section 6); no counter of tokens comes near."""

_MAX_COUNTERS = 100
"""Counters kept of one answer."""


class MalformedAnswer(Exception):
    """The answer is not what the protocol allows: its text names what came instead."""


class ErrorInAnswer(Exception):
    """The provider reported an error in place of an answer, or within one."""

    def __init__(self, document: Any) -> None:
        self.document = document
        super().__init__("the answer holds an error")


def parse(payload: bytes) -> Any:
    """One JSON value, also where lone surrogates or bad UTF-8 stand in it.

    Raises:
        MalformedAnswer: not JSON.
    """
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(payload.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise MalformedAnswer("a chunk that is not JSON") from error


class ReplyBuilder:
    """One answer as it grows. `secret` is taken out of all that comes: names, counters, text."""

    def __init__(self, secret: str | None = None) -> None:
        self._secret = worth_hiding(secret)
        self._secret_bytes = (self._secret or "").encode()
        self._text = StringIO()
        self._reasoning = StringIO()
        self._text_pairs = PairJoiner(self._secret)
        self._reasoning_pairs = PairJoiner(self._secret)
        self._calls = CallFragments(self._secret)
        self._raw_stop: str | None = None
        self._refused = False
        self._model: str | None = None
        self._response_id: str | None = None
        self.usage: Mapping[str, int] | None = None

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the answer is whole."""
        return self._raw_stop is not None

    def add(self, payload: bytes) -> list[Part]:
        """The parts of one chunk, or of a whole answer that was not streamed.

        Raises:
            ErrorInAnswer: the chunk is an error.
            MalformedAnswer: the chunk is not one of a chat completion.
        """
        chunk = parse(payload)
        if self._secret is not None and (self._secret_bytes in payload or b"\\" in payload):
            chunk = redact(chunk, self._secret)
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
        if (usage := chunk.get("usage")) is not None:
            self._report(usage)
        if not choices:
            return []
        try:
            return self._choice(choices[0])
        except (TypeError, AttributeError, KeyError) as error:
            raise MalformedAnswer("a chunk with a member of the wrong type") from error

    def end(self) -> list[Part]:
        """The parts that waited for more which did not come."""
        parts: list[Part] = []
        if rest := self._reasoning_pairs.rest():
            self._reasoning.write(rest)
            parts.append(ReasoningDelta(rest))
        if rest := self._text_pairs.rest():
            self._text.write(rest)
            parts.append(TextDelta(rest))
        return parts + self._calls.end()

    def reply(self) -> Reply:
        """The whole answer, after `end`.

        Raises:
            MalformedAnswer: a call has no name.
        """
        try:
            calls = self._calls.calls()
        except NamelessCall as error:
            raise MalformedAnswer(str(error)) from error
        stop = _STOPS.get(self._raw_stop or "", "other")
        if calls and stop == "stop":
            stop = "tool_calls"
        if self._refused and stop == "stop":
            stop = "content_filter"
        return Reply(
            text=self._text.getvalue(),
            reasoning=self._reasoning.getvalue(),
            calls=calls,
            stop=stop,
            raw_stop=self._raw_stop,
            usage=self.usage,
            model=self._model,
            response_id=self._response_id,
        )

    def _choice(self, choice: Mapping[str, Any]) -> list[Part]:
        if choice.get("index"):
            return []  # another of several answers, which nobody asked for
        delta = choice.get("delta") or {}
        if message := choice.get("message"):
            delta = _streamed(message)
        reason = choice.get("finish_reason")
        parts: list[Part] = []
        if len(delta) == 1 and not reason and isinstance(text := delta.get("content"), str):
            self._add_text(text, parts)  # nearly every chunk: the rest need not be looked for
            return parts
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
            self._add_reasoning(reasoning, parts)
        if content := delta.get("content"):
            if isinstance(content, str):
                self._add_text(content, parts)
            else:
                self._add_blocks(content, parts)
        if refusal := delta.get("refusal"):
            self._refused = True
            self._add_text(refusal, parts)
        if fragments := delta.get("tool_calls"):
            for fragment in fragments:
                parts += self._calls.add(fragment)
        if reason:
            self._raw_stop = without_surrogates(str(reason))[:100]
            if self._raw_stop == "error":
                raise ErrorInAnswer(choice)
        return parts

    def _add_text(self, text: str, parts: list[Part]) -> None:
        if text := self._text_pairs.join(text):
            self._text.write(text)
            parts.append(TextDelta(text))

    def _add_reasoning(self, text: str, parts: list[Part]) -> None:
        if isinstance(text, str) and (text := self._reasoning_pairs.join(text)):
            self._reasoning.write(text)
            parts.append(ReasoningDelta(text))

    def _add_blocks(self, blocks: list[Mapping[str, Any]], parts: list[Part]) -> None:
        # Mistral: content as a list of text and thinking blocks.
        for block in blocks:
            if block.get("type") == "text":
                self._add_text(block["text"], parts)
            elif block.get("type") == "thinking":
                for thought in block["thinking"]:
                    self._add_reasoning(thought.get("text"), parts)

    def _identify(self, chunk: Mapping[str, Any]) -> None:
        model, response_id = chunk.get("model"), chunk.get("id")
        if isinstance(model, str) and model:
            self._model = without_surrogates(model)[:200]
        if isinstance(response_id, str) and response_id:
            self._response_id = without_surrogates(response_id)[:200]

    def _report(self, usage: Any) -> None:
        if counters := flatten_usage(usage):
            self.usage = counters


def flatten_usage(usage: Any) -> dict[str, int]:
    """The counters of a `usage` object, nested ones with dots; what is no whole number is left out."""
    counters: dict[str, int] = {}
    queue = [("", usage)]
    while queue and len(counters) < _MAX_COUNTERS:
        prefix, value = queue.pop()
        if isinstance(value, dict) and prefix.count(".") < 4:
            queue += [(f"{prefix}.{name}" if prefix else name, item) for name, item in reversed(value.items())]
        elif type(value) is int and 0 <= value <= _MAX_COUNTER and prefix.isascii() and 0 < len(prefix) <= 200:
            counters[prefix] = value
    return counters


def _streamed(message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls = message.get("tool_calls") or []
    return {**message, "tool_calls": [{**call, "index": place} for place, call in enumerate(calls)]}
