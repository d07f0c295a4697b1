"""The body of a Chat Completions request, without I/O: `body` encodes a `ModelRequest`.

Rule 1: equal requests give equal bytes, and the messages come last, so that a longer conversation begins with
the bytes of the shorter one: providers keep a cache of such prefixes.
Rule 2: what is sent is always valid: strict UTF-8, arguments that are a JSON object, names a provider takes, no
empty content. A message that a provider refuses would be refused in every later request too.
Rule 3: nothing of a provider's answer goes back that other providers refuse: `reasoning_content` goes to the servers
that want it, see `chat_quirks`, and came from the same server and model.
Rule 4: images are `data:` URLs in users' messages, the only place where all servers take them.

Source: https://platform.openai.com/docs/api-reference/chat/create.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

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
from hames.core.signed import OwnItem, signed_items
from hames.providers.chat_quirks import STRICTEST, Quirks
from hames.providers.openai_schema import is_strict
from hames.providers.request import EMPTY, SHOWN, CallIds, ToolNames, arguments_text, encoded, not_blank, short_key

__all__ = ["BRIDGE", "EMPTY", "SHOWN", "body"]

BRIDGE = "(interrupted)"
"""Said by the assistant between a result and what the user says, for servers that want it to say something there."""


def body(request: ModelRequest, quirks: Quirks = STRICTEST) -> bytes:
    """`request` as the bytes of a streaming Chat Completions request."""
    names = ToolNames(request.tools)
    document: dict[str, Any] = {"model": request.model, "stream": True}
    if quirks.takes_stream_options:
        document["stream_options"] = {"include_usage": True}
    document |= _options(request, quirks)
    if request.tools:
        document["tools"] = [_tool(tool, names) for tool in request.tools]
    document["messages"] = _Messages(request, quirks, names).encoded()
    if request.tools and request.tool_choice == "none":
        document["tool_choice"] = "none"
    return encoded(document)


def _options(request: ModelRequest, quirks: Quirks) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if request.cache_key and quirks.takes_cache_key:
        options["prompt_cache_key"] = short_key(request.cache_key)
    if request.max_output_tokens is not None:
        options[quirks.output_limit] = request.max_output_tokens
    if request.effort is not None:
        options |= quirks.effort.get(request.effort, {})
    schema = request.output_schema
    if schema is not None and quirks.takes_schema and schema.get("type") == "object":
        named = {"name": "answer", "schema": schema, "strict": is_strict(schema)}
        options["response_format"] = {"type": "json_schema", "json_schema": named}
    return options


def _tool(tool: ToolSpec, names: ToolNames) -> dict[str, Any]:
    function = {"name": names.sent(tool.name), "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


class _Messages:
    """The messages of one request, as they grow."""

    def __init__(self, request: ModelRequest, quirks: Quirks, names: ToolNames) -> None:
        self._request = request
        self._quirks = quirks
        self._names = names
        self._ids = CallIds(quirks.call_ids, quirks.call_id_prefix, digits=quirks.call_id_digits)
        self._encoded: list[dict[str, Any]] = []

    def encoded(self) -> list[dict[str, Any]]:
        """All of them; images of results come in a user's message behind all results of their step."""
        if self._request.system:
            self._encoded.append({"role": self._quirks.system_role, "content": self._request.system})
        self._add_all(self._request.messages)
        return self._encoded

    def _add_all(self, messages: Iterable[Message]) -> None:
        waiting: list[Picture] = []
        is_plain = not self._quirks.bridges and self._quirks.echo is None
        for message in messages:
            # Most of a long conversation are words alone.
            if is_plain and not waiting and isinstance(message, UserMessage) and not message.images:
                self._encoded.append({"role": "user", "content": not_blank(message.text)})
                continue
            if is_plain and not waiting and isinstance(message, AssistantMessage) and not message.calls:
                self._encoded.append({"role": "assistant", "content": not_blank(message.text)})
                continue
            if waiting and not isinstance(message, ToolResult):
                if isinstance(message, UserMessage):
                    # Several servers refuse two user messages in a row.
                    message = UserMessage(message.text, (*waiting, *message.images))
                else:
                    self._user("", waiting)
                waiting = []
            self._add(message)
            if isinstance(message, ToolResult):
                waiting += message.images
        if waiting:
            self._user("", waiting)

    def _add(self, message: Message) -> None:
        match message:
            case UserMessage(text, images):
                self._user(text, images)
            case ToolResult(text=text):
                call_id = self._ids.of_result(message.provider_id)
                self._encoded.append({"role": "tool", "tool_call_id": call_id, "content": not_blank(text)})
            case AssistantMessage():
                self._encoded.append({**self._said(message), **self._echoed(message)})
            case _:
                assert_never(message)

    def _user(self, text: str, images: Sequence[Picture]) -> None:
        if self._quirks.bridges and self._encoded and self._encoded[-1]["role"] == "tool":
            self._encoded.append({"role": "assistant", "content": BRIDGE})
        if not images:
            self._encoded.append({"role": "user", "content": not_blank(text)})
            return
        shown = [{"type": "image_url", "image_url": {"url": data_url(each.media_type, each.data)}} for each in images]
        said = text if text.strip() else SHOWN
        self._encoded.append({"role": "user", "content": [*shown, {"type": "text", "text": said}]})

    def _said(self, message: AssistantMessage) -> dict[str, Any]:
        text, calls = message.text, message.calls
        ids = self._ids.of_calls(calls)
        if not calls:
            return {"role": "assistant", "content": not_blank(text)}
        asked = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": self._names.sent(call.tool), "arguments": arguments_text(call.arguments)},
            }
            for call, call_id in zip(calls, ids, strict=True)
        ]
        return {"role": "assistant", "content": text if text.strip() else None, "tool_calls": asked}

    def _echoed(self, message: AssistantMessage) -> dict[str, Any]:
        """What the server said beside its answer and wants to see again."""
        name = self._quirks.echo
        if name is None:
            return {}
        items = signed_items(message, self._quirks.dialect, self._request.model) or []
        own = next((item.value for item in items if isinstance(item, OwnItem)), {})
        return {name: own[name]} if name in own else {name: ""} if self._quirks.echo_always else {}
