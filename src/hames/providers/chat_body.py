"""The body of a Chat Completions request, without I/O: `body` encodes a `ModelRequest`.

Rule 1: equal requests give equal bytes, and the messages come last, so that a longer conversation begins with
the bytes of the shorter one: providers keep a cache of such prefixes.
Rule 2: what is sent is always valid: strict UTF-8, arguments that are a JSON object, names a provider takes, no
empty content. A message that a provider refuses would be refused in every later request too.
Rule 3: nothing of a provider's answer goes back that other providers refuse: no `reasoning_content`.
Rule 4: images are `data:` URLs in users' messages, the only place where all servers take them.

Source: https://platform.openai.com/docs/api-reference/chat/create.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, assert_never

import orjson

from hames.core.artifacts import data_url
from hames.core.conversation import (
    AssistantMessage,
    Message,
    ModelRequest,
    Picture,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from hames.providers.surrogates import without_lone_escapes, without_surrogates

SHOWN = "The images of the results above."
"""Said beside images of tool results: a tool's message takes no image, only text."""

EMPTY = "(empty)"
"""Stands for text that is blank: some providers refuse empty content, some also white space alone."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def body(request: ModelRequest) -> bytes:
    """`request` as the bytes of a streaming Chat Completions request."""
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    messages += _messages(request.messages)
    document: dict[str, Any] = {
        "model": request.model,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        document["tools"] = [_tool(tool) for tool in request.tools]
    document["messages"] = messages
    if request.tools and request.tool_choice == "none":
        document["tool_choice"] = "none"
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        return orjson.dumps(_clean(document))


def _messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Each message; images of results come in a user's message behind all results of their step."""
    encoded: list[dict[str, Any]] = []
    waiting: list[Picture] = []
    for message in messages:
        if waiting and not isinstance(message, ToolResult):
            if isinstance(message, UserMessage):
                # Several servers refuse two user messages in a row.
                message = UserMessage(message.text, (*waiting, *message.images))
            else:
                encoded.append(_user("", waiting))
            waiting = []
        encoded.append(_message(message))
        if isinstance(message, ToolResult):
            waiting += message.images
    if waiting:
        encoded.append(_user("", waiting))
    return encoded


def _user(text: str, images: Sequence[Picture]) -> dict[str, Any]:
    if not images:
        return {"role": "user", "content": _content(text)}
    shown = [{"type": "image_url", "image_url": {"url": data_url(each.media_type, each.data)}} for each in images]
    said = text if text.strip() else SHOWN
    return {"role": "user", "content": [*shown, {"type": "text", "text": said}]}


def _message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(text, images):
            return _user(text, images)
        case ToolResult():
            return {"role": "tool", "tool_call_id": message.provider_id, "content": _content(message.text)}
        case AssistantMessage(text, calls) if not calls:
            return {"role": "assistant", "content": _content(text)}
        case AssistantMessage(text, calls):
            asked = [
                {
                    "id": call.provider_id,
                    "type": "function",
                    "function": {"name": _name(call.tool), "arguments": _arguments(call.arguments)},
                }
                for call in calls
            ]
            return {"role": "assistant", "content": text if text.strip() else None, "tool_calls": asked}
    assert_never(message)


def _content(text: str) -> str:
    return text if text.strip() else EMPTY


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _name(tool: str) -> str:
    # A model may call a tool that does not exist, by a name that no provider takes back.
    return _NOT_IN_NAMES.sub("_", tool)[:64] or "unknown"


def _arguments(raw: str) -> str:
    """`raw` when it is a JSON object, else `{}`: the result of the call says what was wrong with it."""
    for text in (raw, without_lone_escapes(without_surrogates(raw))):
        try:
            if isinstance(orjson.loads(text), dict):
                return text
        except orjson.JSONDecodeError:
            continue
    return "{}"


def _clean(value: Any) -> Any:
    match value:
        case str():
            return without_surrogates(value)
        case dict():
            return {_clean(key): _clean(item) for key, item in value.items()}
        case list() | tuple():
            return [_clean(item) for item in value]
        case _:
            return value
