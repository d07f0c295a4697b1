"""Why a strict Chat Completions server refuses a request: `refusal` names the first fault, or None.

Rule: stricter than any one vendor. What passes here is taken by all of them, so a member or a shape that some
refuse is refused here.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from fake.pictures import frames_of, why_not_decoded
from hames.core.images import measure

_MEMBERS = {
    *("model", "messages", "tools", "tool_choice", "stream", "stream_options", "temperature", "top_p", "stop", "seed"),
    *("max_tokens", "max_completion_tokens", "parallel_tool_calls", "reasoning_effort"),
}
_MESSAGE_MEMBERS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Function names of OpenAI: https://platform.openai.com/docs/api-reference/chat/create."""


_DATA_URL = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+=*)")
MOST_DEPTH = 32
"""Of arguments: what fits the 100 messages that a reader of protocol buffers takes, see `gemini_strict`."""
MOST_IMAGE_CHARS = 5 * 10**6
MOST_PIXELS = 8_000


class Invalid(Exception):
    """The request is refused, for the reason in its text."""


def refusal(raw: bytes, content_type: str) -> tuple[Any, str | None]:
    """The parsed body (None when it is not JSON) and why it is refused."""
    body: Any = None
    try:
        _require(content_type.split(";")[0].strip() == "application/json", f"content type {content_type!r}")
        try:
            body = orjson.loads(raw)  # refuses bad UTF-8 and lone surrogates, also as escapes
        except orjson.JSONDecodeError as error:
            raise Invalid(f"not strict JSON: {error}") from error
        _require(isinstance(body, dict), "the body is not an object")
        _check_top(body)
        _check_tools(body)
        _check_messages(body["messages"])
    except Invalid as error:
        return body, str(error)
    return body, None


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise Invalid(reason)


def _check_top(body: Mapping[str, Any]) -> None:
    unknown = sorted(set(body) - _MEMBERS)
    _require(not unknown, f"unknown members: {unknown}")
    _require(isinstance(body.get("model"), str) and bool(body["model"]), "model is missing")
    _require(body.get("stream") is True, "stream is not true")
    options = body.get("stream_options")
    _require(isinstance(options, dict) and options.get("include_usage") is True, "include_usage is missing")
    messages = body.get("messages")
    _require(isinstance(messages, list) and bool(messages), "messages is missing or empty")


def _check_tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools")
    if "tool_choice" in body:
        _require(body["tool_choice"] in ("auto", "none"), f"tool_choice {body['tool_choice']!r}")
        _require(tools is not None, "tool_choice without tools")
    if tools is None:
        return
    _require(isinstance(tools, list) and bool(tools), "tools is empty")
    names = set()
    for tool in tools:
        _require(isinstance(tool, dict) and set(tool) == {"type", "function"}, f"tool {tool!r}")
        function = tool["function"]
        _require(set(function) <= {"name", "description", "parameters", "strict"}, f"function {function!r}")
        name = function.get("name")
        _require(isinstance(name, str) and bool(_NAME.fullmatch(name)), f"tool name {name!r}")
        _require(name not in names, f"tool {name!r} is declared twice")
        names.add(name)
        schema = function.get("parameters")
        _require(isinstance(schema, dict) and schema.get("type") == "object", f"parameters of {name} are no object")
        fault = _schema_fault(orjson.dumps(schema))
        _require(fault is None, f"parameters of {name}: {fault}")


@cache
def _schema_fault(text: bytes) -> str | None:
    """What is wrong with a schema. Kept by its text: the same tools come with every request."""
    try:
        Draft202012Validator.check_schema(orjson.loads(text))
    except SchemaError as error:
        return str(error.message)
    return None


def _check_messages(messages: list[Any]) -> None:
    open_calls: set[str] = set()
    spoken = [message for message in messages if not isinstance(message, dict) or message.get("role") != "system"]
    _require(bool(spoken) and isinstance(spoken[0], dict) and spoken[0].get("role") == "user", "no user comes first")
    for place, message in enumerate(messages):
        at = f"messages[{place}]"
        _require(isinstance(message, dict) and message.get("role") in _MESSAGE_MEMBERS, f"{at}: no known role")
        role = message["role"]
        unknown = sorted(set(message) - _MESSAGE_MEMBERS[role])
        _require(not unknown, f"{at}: unknown members {unknown}")
        _require(role == "tool" or not open_calls, f"{at}: calls without a result: {sorted(open_calls)}")
        if role == "tool":
            call = message.get("tool_call_id")
            _require(call in open_calls, f"{at}: a result for {call!r}, which is not open")
            open_calls.discard(call)
        if role == "assistant":
            open_calls = _check_calls(at, message)
        if role != "assistant" or message.get("content") is not None:
            content = message.get("content")
            if role == "user" and isinstance(content, list):
                _check_parts(at, content)
            else:
                _require(isinstance(content, str) and bool(content.strip()), f"{at}: content is empty")
    _require(not open_calls, f"calls without a result: {sorted(open_calls)}")


def _check_parts(at: str, parts: list[Any]) -> None:
    """https://platform.openai.com/docs/guides/images-vision; bounds of https://docs.anthropic.com/en/docs/vision."""
    _require(bool(parts), f"{at}: no parts")
    for part in parts:
        _require(isinstance(part, dict), f"{at}: part {part!r}")
        if part.get("type") == "text":
            _require(set(part) == {"type", "text"}, f"{at}: part {part!r}")
            _require(isinstance(part["text"], str) and bool(part["text"].strip()), f"{at}: an empty text part")
            continue
        _require(set(part) == {"type", "image_url"} and part["type"] == "image_url", f"{at}: part {part!r:.200}")
        url = part["image_url"]
        _require(isinstance(url, dict) and set(url) == {"url"} and isinstance(url["url"], str), f"{at}: image {url!r}")
        check_image_url(at, url["url"])


def check_image_url(at: str, url: str) -> None:
    """Refuse what is no data URL of an image within the bounds of all vendors."""
    found = _DATA_URL.fullmatch(url)
    _require(found is not None, f"{at}: no data URL of an image: {url[:60]!r}")
    assert found is not None
    _require(len(found[2]) <= MOST_IMAGE_CHARS, f"{at}: an image of {len(found[2])} characters")
    try:
        data = b64decode(found[2], validate=True)
    except ValueError as error:
        raise Invalid(f"{at}: an image that is not base64") from error
    image = measure(data)
    _require(image is not None and image.media_type == found[1], f"{at}: {found[1]} is what {image} is not")
    assert image is not None
    _require(max(image.width, image.height) <= MOST_PIXELS, f"{at}: an image of {image.width} x {image.height}")
    _require((why := why_not_decoded(data)) is None, f"{at}: Could not process image: {why}")
    _require(frames_of(data) == 1, f"{at}: an animated image")


def _check_calls(at: str, message: Mapping[str, Any]) -> set[str]:
    calls = message.get("tool_calls")
    if calls is None:
        _require(message.get("content") is not None, f"{at}: neither text nor calls")
        return set()
    _require(isinstance(calls, list) and bool(calls), f"{at}: tool_calls is empty")
    seen: set[str] = set()
    for call in calls:
        _require(isinstance(call, dict) and set(call) == {"id", "type", "function"}, f"{at}: call {call!r}")
        _require(isinstance(call["id"], str) and bool(call["id"]), f"{at}: call id {call['id']!r}")
        _require(call["id"] not in seen, f"{at}: call id {call['id']!r} is used twice")
        _require(call["type"] == "function", f"{at}: call type {call['type']!r}")
        seen.add(call["id"])
        function = call["function"]
        _require(isinstance(function, dict) and set(function) == {"name", "arguments"}, f"{at}: {function!r}")
        name = function["name"]
        _require(isinstance(name, str) and bool(_NAME.fullmatch(name)), f"{at}: function name {name!r}")
        _check_arguments(at, function["arguments"])
    return seen


def _check_arguments(at: str, arguments: Any) -> None:
    _require(isinstance(arguments, str), f"{at}: arguments are no string")
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"{at}: arguments are not strict JSON: {error}") from error
    _require(isinstance(value, dict), f"{at}: arguments are not an object")
    check_depth(at, value)


def check_depth(at: str, value: Any) -> None:
    """Refuse what is nested deeper than any vendor is known to take."""
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level for inner in _inner(outer) if isinstance(inner, dict | list)]
    _require(not level, f"{at}: nested deeper than {MOST_DEPTH}")


def _inner(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value
