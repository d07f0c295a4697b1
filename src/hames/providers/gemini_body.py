"""The body of a Gemini `generateContent` request, without I/O: `body` encodes a `ModelRequest`.

Rule 1: equal requests give equal bytes, and the contents come last, so that a longer conversation begins with the
bytes of the shorter one, but for the brackets that close it. Only `toolConfig` stands behind them.
Rule 2: what is sent is always valid. Neighbours of one role are one content, the results of a step are a content of
their own in the order of its calls, and the last content is the user's.
Rule 3: what the model signed goes back as it came, part by part, or not at all: see `core/signed.py`. A model that
wants signatures is told where one is missing, with the mark that the vendor has for it.
Rule 4: results are objects: `output`, or `error` of a call that failed.

Sources: https://ai.google.dev/api/generate-content, https://ai.google.dev/gemini-api/docs/function-calling,
https://ai.google.dev/gemini-api/docs/thought-signatures.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

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
from hames.core.signed import CallItem, OwnItem, TextItem, signed_items
from hames.providers.gemini_models import Traits, thinking_config, traits_of
from hames.providers.gemini_schema import gemini_schema
from hames.providers.request import (
    EMPTY,
    NAME_CHARS,
    SHOWN,
    CallIds,
    ToolNames,
    arguments_object,
    arguments_text,
    encoded,
    not_blank,
)

DIALECT = "gemini"

SIGNATURE = "thoughtSignature"

UNSIGNED = "skip_thought_signature_validator"
"""In place of the signature of a call that this model did not make: https://ai.google.dev/gemini-api/docs/thought-signatures."""

GO_ON = "Go on."
"""Said where the conversation would end with the model's own words: newer models refuse that."""

NOT_SHOWN = "(an image of type {} that cannot be shown)"

_IMAGE_TYPES = {"image/png", "image/jpeg", "image/webp"}
"""Of those that a conversation may hold: https://ai.google.dev/gemini-api/docs/image-understanding. GIF is not one."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:-]")
"""Models call `default_api.name` and `default_api:name` of themselves, which are names; they go back as they came."""

_ID = re.compile(r"[!-~]{1,256}")
"""Any that the vendor gives passes. It has no rule for them; this one keeps other providers' ids to plain letters."""


def body(request: ModelRequest) -> bytes:
    """`request` as the bytes of a `streamGenerateContent` request."""
    traits = traits_of(request.model)
    names = tool_names(request)
    document: dict[str, Any] = {}
    if request.system.strip():
        document["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        document["tools"] = [{"functionDeclarations": [_tool(tool, names) for tool in request.tools]}]
    if config := _config(request, traits):
        document["generationConfig"] = config
    document["contents"] = _Contents(request.model, traits, names).of(request.messages)
    if request.tools and request.tool_choice == "none":
        document["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
    return encoded(document)


def tool_names(request: ModelRequest) -> ToolNames:
    """The tools of `request` by the names that the vendor takes."""
    return ToolNames(request.tools, _name)


def _name(name: str) -> str:
    sent = _NOT_IN_NAMES.sub("_", name)
    return (sent if sent[:1].isalpha() or sent[:1] == "_" else f"_{sent}")[:NAME_CHARS]


def _config(request: ModelRequest, traits: Traits) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.max_output_tokens is not None:
        config["maxOutputTokens"] = request.max_output_tokens
    if thinking := thinking_config(traits, request.effort):
        config["thinkingConfig"] = thinking
    if request.output_schema is not None and (traits.takes_schema_with_tools or not request.tools):
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = gemini_schema(request.output_schema)
    return config


def _tool(tool: ToolSpec, names: ToolNames) -> dict[str, Any]:
    declared = {"name": names.sent(tool.name), "description": not_blank(tool.description)}
    schema = {**gemini_schema(tool.parameters), "type": "object"}
    # Where there are no parameters the vendor lets it be left out.
    return {**declared, "parametersJsonSchema": schema} if len(schema) > 1 and "properties" in schema else declared


class _Contents:
    """The contents of one request, as they grow."""

    def __init__(self, model: str, traits: Traits, names: ToolNames) -> None:
        self._model = model
        self._traits = traits
        self._names = names
        self._ids = CallIds(_ID, "call_", digits=16)
        self._contents: list[dict[str, Any]] = []
        self._is_open = False
        """Whether more of the same role may go into the last content."""
        self._calls: Mapping[str, ToolCall] = {}
        self._results: dict[str, ToolResult] = {}

    def of(self, messages: Iterable[Message]) -> list[dict[str, Any]]:
        """`messages` as contents."""
        for message in messages:
            match message:
                case ToolResult():
                    self._results[message.provider_id] = message
                    continue
                case UserMessage(text, images):
                    self._flush()
                    self._put("user", [*_images(images), {"text": not_blank(text)}])
                case AssistantMessage():
                    self._flush()
                    self._put("model", self._said(message))
                case _:
                    assert_never(message)
        self._flush()
        if self._contents and self._contents[-1]["role"] == "model":
            self._put("user", [{"text": GO_ON}])
        return self._contents

    def _put(self, role: str, parts: list[dict[str, Any]]) -> None:
        if self._is_open and self._contents[-1]["role"] == role:
            self._contents[-1]["parts"] += parts
        else:
            self._contents.append({"role": role, "parts": parts})
        self._is_open = True

    def _flush(self) -> None:
        """The results that are there, as one content, behind the calls that asked for them."""
        if not self._results:
            return
        results = [self._results[provider_id] for provider_id in self._calls if provider_id in self._results]
        self._contents.append({"role": "user", "parts": [self._result(result) for result in results]})
        self._is_open = False
        self._results = {}
        if not self._traits.shows_results and (shown := _images([image for each in results for image in each.images])):
            self._put("user", [*shown, {"text": SHOWN}])

    def _result(self, result: ToolResult) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "id": self._ids.of_result(result.provider_id),
            "name": self._names.sent(self._calls[result.provider_id].tool),
            "response": {"error" if result.is_error else "output": not_blank(result.text)},
        }
        if self._traits.shows_results and result.images:
            shown = _images(result.images)
            if media := [part for part in shown if "inlineData" in part]:
                answer["parts"] = media
            if told := [part["text"] for part in shown if "text" in part]:
                answer["response"]["images"] = told
        return {"functionResponse": answer}

    def _said(self, message: AssistantMessage) -> list[dict[str, Any]]:
        self._calls = {call.provider_id: call for call in message.calls}
        ids = dict(zip(self._calls, self._ids.of_calls(message.calls), strict=True))
        items = signed_items(message, DIALECT, self._model)
        # A signature is of all calls that stand behind it, as the model made them.
        if items is None or not all(self._is_same(call) for call in message.calls):
            items = [TextItem(message.text), *(CallItem(call) for call in message.calls)]
        parts: list[dict[str, Any]] = []
        for item in items:
            match item:
                case TextItem(text, extra):
                    if text.strip() or extra:
                        parts.append({"text": text, **extra})
                case CallItem(call, extra):
                    parts.append({"functionCall": self._call(call, ids), **extra})
                case OwnItem(value):
                    parts.append(dict(value))
                case _:
                    assert_never(item)
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None and self._traits.wants_signatures:
            first.setdefault(SIGNATURE, UNSIGNED)
        return parts or [{"text": EMPTY}]

    def _is_same(self, call: ToolCall) -> bool:
        """Whether a call goes back as the model made it: by a name that is taken, with arguments that are."""
        is_named = self._names.ours(self._names.sent(call.tool)) == call.tool
        return is_named and arguments_text(call.arguments) == call.arguments

    def _call(self, call: ToolCall, ids: Mapping[str, str]) -> dict[str, Any]:
        return {
            "id": ids[call.provider_id],
            "name": self._names.sent(call.tool),
            "args": arguments_object(call.arguments),
        }


def _images(images: Sequence[Picture]) -> list[dict[str, Any]]:
    """Each as a part; a text stands for one of a type that is not taken."""
    return [
        {"inlineData": {"mimeType": image.media_type, "data": b64encode(image.data).decode()}}
        if image.media_type in _IMAGE_TYPES
        else {"text": NOT_SHOWN.format(image.media_type)}
        for image in images
    ]
