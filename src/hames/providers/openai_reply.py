"""The answer of OpenAI's Responses API, without I/O: events in, parts and one `Reply` out.

Rule 1: an answer has ended only when `response.completed` or `response.incomplete` was seen. They hold the usage too,
so nothing follows. One that is incomplete is cut, or stopped by a filter, or of a reason that nobody knows (`other`).
Rule 2: an item is told by its `output_index`; its text and arguments are the deltas', and those of its end, or of
the whole response, where no delta came.
Rule 3: no call is dropped: one without a name is an error.

Source: https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from hames.core.conversation import ModelRequest, Part, Reply, StopReason, TextDelta
from hames.core.signed import signed_parts
from hames.providers.answer import ErrorInAnswer, MalformedAnswer, Reader, Words, flatten_usage, named
from hames.providers.chat_calls import CallFragments, NamelessCall
from hames.providers.openai_items import DIALECT, OutputItem, items_to_keep
from hames.providers.request import ToolNames
from hames.providers.surrogates import without_surrogates

BETWEEN: Final = "\n\n"
"""Stands between two messages of one answer, and between two parts of a summary."""

_STOPS: Mapping[str, StopReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""By the reason why a response is incomplete."""


class ResponseBuilder:
    """One answer to `request` as it grows. `secret` is taken out of all that comes."""

    def __init__(self, request: ModelRequest, secret: str | None = None) -> None:
        self._request = request
        self._names = ToolNames(request.tools)
        self._reader = Reader(secret)
        self._words = Words(self._reader.secret)
        self._calls = CallFragments(self._reader.secret)
        self._items: dict[int, OutputItem] = {}
        self._talking: OutputItem | None = None
        self._said_chars = 0
        self._has_thought = False
        self._raw_stop: str | None = None
        self._is_complete = False
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
        """Whether nothing can follow: the last event holds everything."""
        return self.finished

    def add(self, payload: bytes) -> list[Part]:
        """The parts of one event, or of a whole response that was not streamed.

        Raises:
            ErrorInAnswer: it is an error, or the response failed.
            MalformedAnswer: it is not of a response.
        """
        event = self._reader.read(payload)
        if not isinstance(event, dict):
            raise MalformedAnswer("an event that is not an object")
        parts: list[Part] = []
        try:
            if event.get("object") == "response":
                self._end_of(event, parts)
            elif "type" not in event and event.get("error"):
                raise ErrorInAnswer(event)
            elif handler := _HANDLERS.get(str(event.get("type"))):
                handler(self, event, parts)
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            raise MalformedAnswer("an event with a member of the wrong type") from error
        return parts

    def end(self) -> list[Part]:
        """The parts that waited for more which did not come."""
        parts: list[Part] = []
        self._stop_talking(parts)
        return parts + self._words.end() + self._calls.end()

    def reply(self) -> Reply:
        """The whole answer, after `end`.

        Raises:
            MalformedAnswer: a call has no name.
        """
        try:
            calls = self._calls.calls()
        except NamelessCall as error:
            raise MalformedAnswer(str(error)) from error
        items = list(self._items.values())
        if any(item.kind == "function_call" and not item.is_called for item in items):
            raise MalformedAnswer("a tool call without a name")
        text = self._words.text
        return Reply(
            text=text,
            reasoning=self._words.reasoning,
            calls=calls,
            stop=self._stop(bool(calls)),
            raw_stop=self._raw_stop,
            usage=self.usage,
            model=self._model,
            response_id=self._response_id,
            parts=signed_parts(DIALECT, self._request.model, items_to_keep(items, text, calls)),
        )

    def _stop(self, has_calls: bool) -> StopReason:
        if not self._is_complete:
            return _STOPS.get(self._raw_stop or "", "other")
        if has_calls:
            return "tool_calls"
        return "content_filter" if any(item.is_refusal for item in self._items.values()) else "stop"

    # --- events -----------------------------------------------------------------------------------------------

    def _begun(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        self._identify(event["response"])

    def _item_begins(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        self._item(event, parts, event["item"])

    def _item_ends(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        self._whole_item(event, event["item"], parts)

    def _text(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        self._say(self._item(event, parts, {"type": "message"}), event["delta"], parts)

    def _refusal(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        item = self._item(event, parts, {"type": "message"})
        item.is_refusal = True
        self._say(item, event["delta"], parts)

    def _summary_begins(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        if self._item(event, parts, {"type": "reasoning"}).given:
            self._words.add_reasoning(BETWEEN, parts)

    def _reasoning(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        item = self._item(event, parts, {"type": "reasoning"})
        if item.given == 0 and self._has_thought:
            self._words.add_reasoning(BETWEEN, parts)
        self._has_thought = self._has_thought or bool(event["delta"])
        item.given += len(event["delta"])
        self._words.add_reasoning(event["delta"], parts)

    def _arguments(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        item = self._item(event, parts, {"type": "function_call"})
        if not item.is_called:
            return  # its end has the name, and all of them
        item.given += len(event["delta"])
        parts += self._calls.add({"index": item.place, "function": {"arguments": event["delta"]}})

    def _ended(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        self._end_of(event["response"], parts)

    def _failed(self, event: Mapping[str, Any], parts: list[Part]) -> None:
        response = event.get("response") or {}
        self._identify(response)
        raise ErrorInAnswer(_failure(response.get("error") or event.get("error") or event))

    def _end_of(self, response: Mapping[str, Any], parts: list[Part]) -> None:
        self._identify(response)
        status = response.get("status")
        if status in ("failed", "cancelled"):
            raise ErrorInAnswer(_failure(response.get("error") or {"message": f"the response is {status}"}))
        if status not in ("completed", "incomplete"):
            return
        # Counted, since some servers give several items the same id, or none.
        known = Counter(item.last.get("id") for item in self._items.values() if item.last is not None)
        for index, item in enumerate(response.get("output") or []):
            if known[item.get("id")]:
                known[item.get("id")] -= 1
            else:
                self._whole_item({"output_index": index}, item, parts)
        self._is_complete = status == "completed"
        reason = None if self._is_complete else (response.get("incomplete_details") or {}).get("reason")
        self._raw_stop = without_surrogates(str(reason or status))[:100]

    # --- items ------------------------------------------------------------------------------------------------

    def _item(self, event: Mapping[str, Any], parts: list[Part], item: Mapping[str, Any]) -> OutputItem:
        """The item of an event, which begins with it where it is not known."""
        index = int(event["output_index"])
        if (found := self._items.get(index)) is None:
            found = self._items[index] = OutputItem(str(item.get("type")), len(self._items))
        name = item.get("name")
        if found.kind == "function_call" and not found.is_called and isinstance(name, str) and name:
            found.is_called = True
            head = {"index": found.place, "id": item.get("call_id"), "function": {"name": self._names.ours(name)}}
            parts += self._calls.add(head)
        return found

    def _whole_item(self, event: Mapping[str, Any], item: Mapping[str, Any], parts: list[Part]) -> None:
        found = self._item(event, parts, item)
        if found.last is None and found.kind == item.get("type"):
            if not found.given:
                self._unseen(found, event, item, parts)
            found.last = item

    def _unseen(self, found: OutputItem, event: Mapping[str, Any], item: Mapping[str, Any], parts: list[Part]) -> None:
        """Give out a whole item of which no delta came."""
        match found.kind:
            case "message":
                for block in item.get("content") or []:
                    if block.get("type") == "output_text":
                        self._text({**event, "delta": block["text"]}, parts)
                    elif block.get("type") == "refusal":
                        self._refusal({**event, "delta": block["refusal"]}, parts)
            case "reasoning":
                for block in [*(item.get("summary") or []), *(item.get("content") or [])]:
                    self._summary_begins(event, parts)
                    self._reasoning({**event, "delta": block["text"]}, parts)
            case "function_call":
                self._arguments({**event, "delta": item.get("arguments") or ""}, parts)

    def _say(self, item: OutputItem, text: str, parts: list[Part]) -> None:
        if not text:
            return
        if item is not self._talking:
            self._stop_talking(parts)
            item.gap = len(BETWEEN) if self._said_chars else 0
            item.is_torn = item.given > 0
            if item.gap:
                self._add_text(BETWEEN, parts)
            self._talking = item
        item.given += len(text)
        self._add_text(text, parts)

    def _add_text(self, text: str, parts: list[Part]) -> None:
        shown: list[Part] = []
        self._words.add_text(text, shown)
        self._count(shown, parts)

    def _count(self, shown: list[Part], parts: list[Part]) -> None:
        # Counted as it goes out: who asked for the whole text at each turn of speech would read it all each time.
        self._said_chars += sum(len(part.text) for part in shown if isinstance(part, TextDelta))
        parts += shown

    def _stop_talking(self, parts: list[Part]) -> None:
        """The message that was spoken last is followed by another, or by nothing."""
        if self._talking is not None:
            self._count(self._words.end_text(), parts)
            self._talking.text_end = self._said_chars
            self._talking = None

    def _identify(self, response: Mapping[str, Any]) -> None:
        self._model = named(response.get("model")) or self._model
        self._response_id = named(response.get("id")) or self._response_id
        if counters := flatten_usage(response.get("usage")):
            self.usage = counters


def _failure(error: Any) -> dict[str, Any]:
    return {"error": error}


_HANDLERS: Mapping[str, Callable[[ResponseBuilder, Mapping[str, Any], list[Part]], None]] = {
    "response.created": ResponseBuilder._begun,
    "response.in_progress": ResponseBuilder._begun,
    "response.queued": ResponseBuilder._begun,
    "response.output_item.added": ResponseBuilder._item_begins,
    "response.output_item.done": ResponseBuilder._item_ends,
    "response.output_text.delta": ResponseBuilder._text,
    "response.refusal.delta": ResponseBuilder._refusal,
    "response.reasoning_summary_part.added": ResponseBuilder._summary_begins,
    "response.reasoning_summary_text.delta": ResponseBuilder._reasoning,
    "response.reasoning_text.delta": ResponseBuilder._reasoning,
    "response.function_call_arguments.delta": ResponseBuilder._arguments,
    "response.completed": ResponseBuilder._ended,
    "response.incomplete": ResponseBuilder._ended,
    "response.failed": ResponseBuilder._failed,
    "error": ResponseBuilder._failed,
}
"""What is done with an event; others are passed over."""
