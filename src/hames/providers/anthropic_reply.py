"""The answer of Anthropic's Messages API, without I/O: events in, parts and one `Reply` out.

Rule 1: an answer is whole when a stop reason was seen, which comes behind all blocks; `message_stop` ends the stream.
Rule 2: thinking is kept as it came, with its signature, or not at all: what had to be changed (a credential in it, a
character that was damaged) or is not whole would be refused, and so would what stands beside it.
Rule 3: usage is cumulative: of each counter the last report counts.
Rule 4: events and blocks of kinds that are not known here are passed over.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hames.core.conversation import ModelRequest, Part, Reply, StopReason, TextDelta, ToolCall
from hames.core.redaction import MARK
from hames.core.signed import CallItem, Item, OwnItem, TextItem, signed_parts
from hames.providers.answer import ErrorInAnswer, MalformedAnswer, Reader, Words, flatten_usage, named
from hames.providers.anthropic_messages import DIALECT
from hames.providers.chat_calls import CallFragments
from hames.providers.request import ToolNames, arguments_json
from hames.providers.surrogates import REPLACEMENT, without_surrogates

_STOPS: Mapping[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "pause_turn": "pause",
}


@dataclass(slots=True)
class _Block:
    """A block of the answer. `call` is its place among the calls; `text_chars` were given out of its text."""

    kind: str
    call: int = 0
    text_chars: int = 0
    thinking: list[str] = field(default_factory=list)
    sealed: str = ""
    """The signature of thinking, or thinking that is encrypted."""
    whole_input: str = ""
    """Arguments that came at once: they count where no fragment comes."""


class MessageBuilder:
    """One answer to `request` as it grows. `secret` is taken out of all that comes."""

    def __init__(self, request: ModelRequest, secret: str | None = None) -> None:
        self._model_asked = request.model
        self._names = ToolNames(request.tools)
        self._reader = Reader(secret)
        self._words = Words(self._reader.secret)
        self._calls = CallFragments(self._reader.secret)
        self._blocks: list[_Block] = []
        self._open: dict[int, _Block] = {}
        self._call_count = 0
        self._raw_stop: str | None = None
        self._is_closed = False
        self._model: str | None = None
        self._response_id: str | None = None
        self.usage: Mapping[str, int] | None = None
        self.usage_is_whole = False
        self.cost: None = None  # the vendor reports none

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the answer is whole."""
        return self._raw_stop is not None

    @property
    def closed(self) -> bool:
        """Whether nothing can follow."""
        return self._is_closed

    def add(self, payload: bytes) -> list[Part]:
        """The parts of one event, or of a whole message that was not streamed.

        Raises:
            ErrorInAnswer: it is an error.
            MalformedAnswer: it is not of a message.
        """
        event = self._reader.read(payload)
        if not isinstance(event, dict):
            raise MalformedAnswer("an event that is not an object")
        if event.get("type") == "error" or event.get("error"):
            raise ErrorInAnswer(event)
        parts: list[Part] = []
        handler = _HANDLERS.get(str(event.get("type")))
        if handler is not None:
            try:
                handler(self, event, parts)
            except (TypeError, AttributeError, KeyError, ValueError) as error:
                raise MalformedAnswer("an event with a member of the wrong type") from error
        return parts

    def end(self) -> list[Part]:
        """The parts that waited for more which did not come."""
        parts: list[Part] = []
        for index in list(self._open):
            self._end_block(index, parts)
        return parts + self._words.end() + self._calls.end()

    def reply(self) -> Reply:
        """The whole answer, after `end`."""
        calls = self._calls.calls()
        stop = _STOPS.get(self._raw_stop or "", "other")
        if calls and stop == "stop":
            stop = "tool_calls"
        text = self._words.text
        return Reply(
            text=text,
            reasoning=self._words.reasoning,
            calls=calls,
            stop=stop,
            raw_stop=self._raw_stop,
            usage=self.usage,
            model=self._model,
            response_id=self._response_id,
            parts=signed_parts(DIALECT, self._model_asked, self._items(text, calls)),
        )

    # --- events ---------------------------------------------------------------------------------------------

    def _on_whole(self, message: Mapping[str, Any], parts: list[Part]) -> None:
        self._on_start({"message": message}, parts)
        for index, block in enumerate(message["content"]):
            self._begin_block(index, block, parts)
            self._end_block(index, parts)
        self._take_stop(message, parts)
        self._is_closed = True

    def _on_start(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        message = event["message"]
        self._model = named(message.get("model"))
        self._response_id = named(message.get("id"))
        self._report(message.get("usage"))

    def _on_block_start(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        self._begin_block(_index(event), event["content_block"], parts)

    def _on_block_delta(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        block = self._open.get(_index(event))
        if block is None:
            raise MalformedAnswer("a piece of a block that did not begin")
        delta = event["delta"]
        match delta["type"]:
            case "text_delta":
                self._add_text(block, delta["text"], parts)
            case "input_json_delta":
                if block.kind == "tool_use" and (piece := _text(delta["partial_json"])):
                    block.whole_input = ""
                    parts += self._calls.add({"index": block.call, "function": {"arguments": piece}})
            case "thinking_delta" if block.kind == "thinking":
                block.thinking.append(_text(delta["thinking"]))
                self._words.add_reasoning(delta["thinking"], parts)
            case "signature_delta" if block.kind == "thinking":
                block.sealed = _text(delta["signature"])

    def _on_block_stop(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        self._end_block(_index(event), parts)

    def _on_message_delta(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        self._report(event.get("usage"))
        self._take_stop(event.get("delta") or {}, parts)

    def _on_stop(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        self._is_closed = True

    # --- blocks ---------------------------------------------------------------------------------------------

    def _begin_block(self, index: int, content: Mapping[str, Any], parts: list[Part]) -> None:
        self._end_block(index, parts)
        block = _Block(str(content["type"]))
        self._blocks.append(block)
        self._open[index] = block
        match block.kind:
            case "text":
                self._add_text(block, content.get("text") or "", parts)
            case "tool_use":
                name = self._names.ours(without_surrogates(_text(content["name"])))
                if not name:
                    raise MalformedAnswer("a tool call without a name")
                block.call, self._call_count = self._call_count, self._call_count + 1
                function = {"name": name}
                parts += self._calls.add({"index": block.call, "id": content.get("id"), "function": function})
                if given := content.get("input"):
                    block.whole_input = given if isinstance(given, str) else arguments_json(given)
            case "thinking":
                thought = _text(content.get("thinking") or "")
                block.thinking.append(thought)
                block.sealed = _text(content.get("signature") or "")
                self._words.add_reasoning(thought, parts)
            case "redacted_thinking":
                block.sealed = _text(content["data"])

    def _end_block(self, index: int, parts: list[Part]) -> None:
        block = self._open.pop(index, None)
        if block is None:
            return
        if block.kind == "text":
            self._count(block, self._words.end_text(), parts)
        elif block.whole_input:
            parts += self._calls.add({"index": block.call, "function": {"arguments": block.whole_input}})

    def _add_text(self, block: _Block, text: Any, parts: list[Part]) -> None:
        if block.kind == "text":
            shown: list[Part] = []
            self._words.add_text(_text(text), shown)
            self._count(block, shown, parts)

    def _count(self, block: _Block, shown: list[Part], parts: list[Part]) -> None:
        block.text_chars += sum(len(part.text) for part in shown if isinstance(part, TextDelta))
        parts += shown

    def _take_stop(self, delta: Mapping[str, Any], parts: list[Part]) -> None:
        reason = delta.get("stop_reason")
        if not reason:
            return
        self._raw_stop = without_surrogates(_text(reason))[:100]
        details = delta.get("stop_details")
        if isinstance(details, dict) and isinstance(said := details.get("explanation"), str) and not self._blocks:
            # A refusal before the first word says nothing but this.
            refusal = _Block("text")
            self._blocks.append(refusal)
            self._add_text(refusal, said, parts)
            self._count(refusal, self._words.end_text(), parts)

    def _report(self, usage: Any) -> None:
        if counters := flatten_usage(usage):
            self.usage = flatten_usage({**(self.usage or {}), **counters})

    def _items(self, text: str, calls: tuple[ToolCall, ...]) -> list[Item]:
        """The answer in its order; empty where its thinking cannot go back (rule 2)."""
        items: list[Item] = []
        place = 0
        for block in self._blocks:
            match block.kind:
                case "text":
                    items.append(TextItem(text[place : place + block.text_chars]))
                    place += block.text_chars
                case "tool_use":
                    items.append(CallItem(calls[block.call]))
                case "thinking" | "redacted_thinking":
                    own = self._own(block)
                    if own is None:
                        return []
                    items.append(own)
        return items

    def _own(self, block: _Block) -> OwnItem | None:
        """A block of thinking to be kept; None where it is not whole, or is not what came."""
        # Two halves of a pair, each in an event of its own, are one character to whoever signed it.
        thought = without_surrogates("".join(block.thinking))
        value = {"type": block.kind, "thinking": thought, "signature": block.sealed}
        if block.kind == "redacted_thinking":
            value = {"type": block.kind, "data": block.sealed}
        secret = self._reader.secret
        kept = without_surrogates(thought + block.sealed)
        if not block.sealed or REPLACEMENT in kept or (secret and (secret in kept or MARK in kept)):
            return None
        return OwnItem(value)


_Handler = Callable[[MessageBuilder, Mapping[str, Any], list[Part]], None]

_HANDLERS: Mapping[str, _Handler] = {
    "message": MessageBuilder._on_whole,
    "message_start": MessageBuilder._on_start,
    "content_block_start": MessageBuilder._on_block_start,
    "content_block_delta": MessageBuilder._on_block_delta,
    "content_block_stop": MessageBuilder._on_block_stop,
    "message_delta": MessageBuilder._on_message_delta,
    "message_stop": MessageBuilder._on_stop,
}


def _index(event: Mapping[str, Any]) -> int:
    index = event["index"]
    if not isinstance(index, int):
        raise TypeError("an index that is no number")
    return index


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text where there must be some")
    return value
