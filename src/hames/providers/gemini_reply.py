"""The answer of Gemini, without I/O: chunks in, parts and one `Reply` out.

Rule 1: an answer is whole only when a finish reason was seen, or the reason why the prompt was blocked: the vendor has
no other mark for the end of a stream.
Rule 2: usage is cumulative, so the last report holds.
Rule 3: a signature belongs to its part. Text with one is not joined with text without, and an empty text with one is
kept.
Rule 4: signed parts are kept only where nothing in them had to be changed: see `core/signed.py`.

Sources: https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse,
https://ai.google.dev/gemini-api/docs/thought-signatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hames.core.conversation import CallDelta, ModelRequest, Part, Reply, StopReason, ToolCall
from hames.core.redaction import MARK
from hames.core.signed import CallItem, Item, OwnItem, TextItem, signed_parts
from hames.providers.answer import ErrorInAnswer, MalformedAnswer, Reader, Words, flatten_usage, named
from hames.providers.gemini_body import DIALECT, SIGNATURE, tool_names
from hames.providers.request import arguments_json, keep_own
from hames.providers.surrogates import without_surrogates

_STOPS: Mapping[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "ESCALATION": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
}

_SPOILT = {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"}
"""The model wrote something that the vendor could not read: another try may be better."""

_OUR_FAULT = "MISSING_THOUGHT_SIGNATURE"
"""The request is wrong, and stays wrong."""

_UNSAID = {"", "FINISH_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED"}


class ReplyBuilder:
    """One answer as it grows. `secret` is taken out of all that comes: names, counters, text."""

    def __init__(self, request: ModelRequest, secret: str | None = None) -> None:
        self._asked = request.model
        self._names = tool_names(request)
        self._reader = Reader(secret)
        self._words = Words(self._reader.secret)
        self._items: list[Item] = []
        self._call_count = 0
        self._is_whole = True
        """Whether every part that is signed could be kept."""
        self._run: list[str] = []
        """Text without a signature that is no item yet."""
        self._raw_stop: str | None = None
        self._is_blocked = False
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
        """Never: only the end of the stream says that nothing follows."""
        return False

    def add(self, payload: bytes) -> list[Part]:
        """The parts of one chunk, or of a whole answer: one object, or all chunks in a list where `alt=sse` was lost.

        Raises:
            ErrorInAnswer: it is an error.
            MalformedAnswer: it is not of this protocol, or the model's own words could not be read.
        """
        value = self._reader.read(payload)
        parts: list[Part] = []
        for chunk in value if isinstance(value, list) else [value]:
            if not isinstance(chunk, dict):
                raise MalformedAnswer("a chunk that is not an object")
            if chunk.get("error"):
                raise ErrorInAnswer(chunk)
            try:
                self._chunk(chunk, parts)
            except (TypeError, AttributeError, KeyError, IndexError) as error:
                raise MalformedAnswer("a chunk with a member of the wrong type") from error
        return parts

    def end(self) -> list[Part]:
        """The parts that waited for more which did not come."""
        return self._words.end()

    def reply(self) -> Reply:
        """The whole answer, after `end`."""
        self._end_run()
        calls = self._calls()
        stop = "content_filter" if self._is_blocked else _STOPS.get(self._raw_stop or "", "other")
        return Reply(
            text=self._words.text,
            reasoning=self._words.reasoning,
            calls=calls,
            stop="tool_calls" if calls and stop == "stop" else stop,
            raw_stop=self._raw_stop,
            usage=self.usage,
            model=self._model,
            response_id=self._response_id,
            parts={} if self._is_changed() else signed_parts(DIALECT, self._asked, self._items),
        )

    def _chunk(self, chunk: Mapping[str, Any], parts: list[Part]) -> None:
        if self._response_id is None:
            self._model = named(chunk.get("modelVersion")) or self._model
            self._response_id = named(chunk.get("responseId"))
        if counters := flatten_usage(chunk.get("usageMetadata")):
            self.usage = counters
        if reason := _reason((chunk.get("promptFeedback") or {}).get("blockReason")):
            self._is_blocked = True
            self._raw_stop = reason
        candidates = chunk.get("candidates")
        if not candidates:
            return
        candidate = candidates[0]
        if candidate.get("index"):
            return  # another of several answers, which nobody asked for
        for part in (candidate.get("content") or {}).get("parts") or ():
            self._part(part, parts)
        if reason := _reason(candidate.get("finishReason")):
            self._finish(reason)

    def _finish(self, reason: str) -> None:
        if reason in _SPOILT:
            raise MalformedAnswer(f"an answer that ends with {reason}")
        if reason == _OUR_FAULT:
            raise ErrorInAnswer(
                {"error": {"code": 400, "status": reason, "message": "A thought signature is missing."}}
            )
        self._raw_stop = reason

    def _part(self, part: Mapping[str, Any], parts: list[Part]) -> None:
        signature = part.get(SIGNATURE)
        extra = {SIGNATURE: signature} if isinstance(signature, str) and signature else {}
        if (call := part.get("functionCall")) is not None:
            self._call(call, extra, parts)
        elif part.get("thought"):
            self._words.add_reasoning(part.get("text"), parts)
            self._own(part, extra)
        elif (text := part.get("text")) is not None:
            self._text(text, extra, parts)
        elif extra and len(part) == 1:
            self._text("", extra, parts)
        else:
            self._own(part, extra)

    def _text(self, text: str, extra: Mapping[str, Any], parts: list[Part]) -> None:
        self._words.add_text(text, parts)
        if not extra:
            self._run.append(text)
            return
        self._end_run()
        self._items.append(TextItem(without_surrogates(text), extra))

    def _call(self, call: Mapping[str, Any], extra: Mapping[str, Any], parts: list[Part]) -> None:
        name, call_id, arguments = call["name"], call.get("id"), call.get("args")
        if not isinstance(name, str) or not name or not isinstance(arguments, dict | None):
            raise MalformedAnswer("a tool call without a name, or with arguments that are no object")
        place, self._call_count = self._call_count, self._call_count + 1
        call_id = without_surrogates(call_id) if isinstance(call_id, str) else ""
        made = ToolCall("", call_id, self._names.ours(without_surrogates(name)), arguments_json(arguments or {}))
        self._end_run()
        self._items.append(CallItem(made, extra))
        parts.append(CallDelta(place, made.tool, made.arguments))

    def _own(self, part: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        """A part that is neither text nor call goes back only where it is signed: nothing else needs it."""
        if not extra:
            return
        self._end_run()
        if (own := keep_own(part)) is None:
            self._is_whole = False
        else:
            self._items.append(OwnItem(own))

    def _end_run(self) -> None:
        if self._run:
            self._items.append(TextItem(without_surrogates("".join(self._run))))
            self._run = []

    def _calls(self) -> tuple[ToolCall, ...]:
        """All calls in order, with ids that differ: older models give none."""
        taken: set[str] = set()
        calls: list[ToolCall] = []
        found = [item.call for item in self._items if isinstance(item, CallItem)]
        for place, call in enumerate(found):
            provider_id, number = call.provider_id, place
            while not provider_id or provider_id in taken:
                provider_id, number = f"call_{number}", number + len(found)
            taken.add(provider_id)
            calls.append(ToolCall("", provider_id, call.tool, call.arguments))
        return tuple(calls)

    def _is_changed(self) -> bool:
        """Whether the items are not what came: a credential was taken out, half a character was replaced, or a part
        that cannot be kept is missing."""
        text = "".join(item.text for item in self._items if isinstance(item, TextItem))
        if not self._is_whole or text != self._words.text:
            return True
        return self._reader.secret is not None and MARK in repr(self._items)


def _reason(value: Any) -> str | None:
    reason = without_surrogates(value)[:100] if isinstance(value, str) else ""
    return None if reason in _UNSAID else reason
