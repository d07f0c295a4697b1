"""The body of a request to OpenAI's Responses API, without I/O: `body` encodes a `ModelRequest`.

Rule 1: equal requests give equal bytes, and `input` comes last but for `tool_choice`, so that a longer conversation
begins with the bytes of the shorter one.
Rule 2: what is sent is always valid: see `request`. A result stands behind its call, of the same `call_id`, and no
`call_id` is used twice in a conversation: the input is flat, and ids alone pair what belongs together.
Rule 3: no answer is stored, so reasoning goes back as the items it came in, encrypted, each with the item that
it led to and under their ids, or neither reasoning nor ids do: an item whose id asks for reasoning that is not there
is refused, and so is reasoning without an item behind it.
Rule 4: an id is sent once ("Duplicate item found with id"): some servers number the items of each answer anew, and an
answer with an id that an earlier one had goes back as in rule 3, without ids.

Sources: https://platform.openai.com/docs/api-reference/responses/create,
https://platform.openai.com/docs/guides/reasoning (keeping reasoning items in context),
https://platform.openai.com/docs/guides/prompt-caching.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

from hames.core.artifacts import data_url
from hames.core.conversation import (
    AssistantMessage,
    Message,
    ModelRequest,
    Picture,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from hames.core.signed import CallItem, Item, OwnItem, TextItem, signed_items
from hames.providers.openai_items import DIALECT, GAP
from hames.providers.openai_schema import is_strict, parameters
from hames.providers.request import SHOWN, CallIds, ToolNames, arguments_text, encoded, not_blank, short_key

INCLUDE: Final = ["reasoning.encrypted_content"]
"""Asked for whether or not an effort is set: reasoning models reason by default, and without it the reasoning of a
request that is not stored cannot go back."""

_CANNOT_REASON = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt-|gpt-5-chat)")
"""Models of this beginning refuse `include` ("Encrypted content is not supported with this model") and `reasoning`.
Every other model is taken for one that reasons."""

LEAST_OUTPUT_TOKENS = 16
"""A smaller `max_output_tokens` is refused."""

_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CALL_ID_DIGITS = 24


def body(request: ModelRequest) -> bytes:
    """`request` as the bytes of a streaming Responses request."""
    names = ToolNames(request.tools)
    reasons = _CANNOT_REASON.match(request.model) is None
    document: dict[str, Any] = {"model": request.model, "stream": True, "store": False}
    if reasons:
        document["include"] = INCLUDE
    if request.cache_key:
        document["prompt_cache_key"] = short_key(request.cache_key)
    if request.system.strip():
        document["instructions"] = request.system
    if request.tools:
        document["tools"] = [_tool(tool, names) for tool in request.tools]
    if request.effort is not None and reasons:
        # A summary is asked for with an effort only: not every organization may have one.
        shown = {} if request.effort == "none" else {"summary": "auto"}
        document["reasoning"] = {"effort": request.effort, **shown}
    if request.max_output_tokens is not None:
        document["max_output_tokens"] = max(request.max_output_tokens, LEAST_OUTPUT_TOKENS)
    if request.output_schema is not None and request.output_schema.get("type") == "object":
        document["text"] = {"format": _format(request.output_schema)}
    document["input"] = _Input(request.model, names).of(request.messages)
    if request.tools and request.tool_choice == "none":
        document["tool_choice"] = "none"
    return encoded(document)


def _format(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "name": "answer", "schema": schema, "strict": is_strict(schema)}


def _tool(tool: ToolSpec, names: ToolNames) -> dict[str, Any]:
    # Without `strict: false` the schema would have to be of the strict kind, where every member is required.
    return {
        "type": "function",
        "name": names.sent(tool.name),
        "description": tool.description,
        "parameters": parameters(tool.parameters),
        "strict": False,
    }


class _Input:
    """The input items of one request."""

    def __init__(self, model: str, names: ToolNames) -> None:
        self._model = model
        self._names = names
        self._ids = CallIds(_CALL_ID, "call_", digits=_CALL_ID_DIGITS)
        self._item_ids: set[str] = set()

    def of(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        for message in messages:
            match message:
                case UserMessage(text, images):
                    said = text if text.strip() or not images else SHOWN
                    items.append({"type": "message", "role": "user", "content": _content(said, images)})
                case AssistantMessage():
                    items += self._answer(message)
                case ToolResult():
                    items.append(self._result(message))
                case _:
                    assert_never(message)
        return items

    def _answer(self, message: AssistantMessage) -> list[dict[str, Any]]:
        call_ids = self._ids.of_calls(message.calls)
        signed = signed_items(message, DIALECT, self._model)
        if signed is None:
            signed = [TextItem(message.text)] if message.text.strip() or not message.calls else []
            signed += [CallItem(call) for call in message.calls]
        return self._items(signed if self._are_new(signed) else _without_ids(signed), call_ids)

    def _are_new(self, signed: Sequence[Item]) -> bool:
        """Whether no id of these items was sent before; they count as sent then."""
        ids = [item_id for item in signed if (item_id := _item_id(item)) is not None]
        if len(set(ids)) < len(ids) or not self._item_ids.isdisjoint(ids):
            return False
        self._item_ids.update(ids)
        return True

    def _items(self, signed: Sequence[Item], call_ids: Sequence[str]) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        ids = iter(call_ids)
        for item in signed:
            match item:
                case TextItem(text, extra):
                    if GAP not in extra:
                        items.append(_said(text, extra))
                case CallItem(call, extra):
                    items.append(self._call(call, next(ids), extra))
                case OwnItem(value):
                    items.append(dict(value))
                case _:
                    assert_never(item)
        return items

    def _call(self, call: ToolCall, call_id: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "type": "function_call",
            **extra,
            "call_id": call_id,
            "name": self._names.sent(call.tool),
            "arguments": arguments_text(call.arguments),
        }

    def _result(self, result: ToolResult) -> dict[str, Any]:
        output: Any = not_blank(result.text)
        if result.images:
            output = _content(output, result.images)
        return {"type": "function_call_output", "call_id": self._ids.of_result(result.provider_id), "output": output}


def _item_id(item: Item) -> str | None:
    item_id = (item.value if isinstance(item, OwnItem) else item.extra).get("id")
    return item_id if isinstance(item_id, str) else None


def _without_ids(signed: Sequence[Item]) -> list[Item]:
    items: list[Item] = []
    for item in signed:
        match item:
            case TextItem(text, extra):
                items.append(TextItem(text, {name: extra[name] for name in (GAP, "phase") if name in extra}))
            case CallItem(call):
                items.append(CallItem(call))
            case OwnItem():
                pass
            case _:
                assert_never(item)
    return items


def _said(text: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    if "id" not in extra:
        return {"type": "message", **extra, "role": "assistant", "content": not_blank(text)}
    said = {"type": "output_text", "text": not_blank(text), "annotations": []}
    return {"type": "message", **extra, "role": "assistant", "content": [said]}


def _content(text: str, images: Sequence[Picture]) -> list[dict[str, Any]]:
    shown = [
        {"type": "input_image", "image_url": data_url(each.media_type, each.data), "detail": "auto"} for each in images
    ]
    return [*shown, {"type": "input_text", "text": not_blank(text)}]
