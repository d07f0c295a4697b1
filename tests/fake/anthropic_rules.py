"""Why a strict Messages API refuses a request: `refusal` names the first fault, or None.

Rule 1: stricter than the vendor. Members it does not document are refused, and so is what it takes only sometimes,
passes over (thinking where none is asked for) or mends itself (two turns in a row).
Rule 2: thinking that was signed by `seal` comes back unaltered, in order and complete, to the model that thought it.

The words of the vendor stand in the reasons where they are known.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from fake.strict import Invalid, check_depth, check_image_url
from hames.core.images import measure

VERSION = "2023-06-01"
BETA = "thinking-binding-controls-2026-08-01"

_KEY = b"the fake's own"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MEMBERS = {
    *("model", "max_tokens", "stream", "thinking", "output_config", "system", "tools", "messages", "tool_choice")
}
_MOST_TOKENS = {
    **{"claude-3-5": 8_192, "claude-3-7": 64_000, "claude-3": 4_096, "claude-2": 4_096},
    **{"claude-opus-4-0": 32_000, "claude-opus-4-1": 32_000, "claude-opus-4-2": 32_000, "claude-sonnet-4-2": 64_000},
    "claude-": 128_000,
}
"""By the beginning of a name, the first that fits: https://platform.claude.com/docs/en/about-claude/models/overview."""

_BUDGET = re.compile(r"claude-3-7|claude-(opus|sonnet)-4-(20|0|1|5)|claude-haiku-4-5")
_ADAPTIVE = re.compile(r"claude-(opus|sonnet)-4-[678]|claude-[a-z]+-5(?!\d)")
_ALWAYS = re.compile(r"claude-[a-z]+-5(?!\d)")
_BOUND = re.compile(r"claude-[a-z]+-5-[125](?!\d)")
_STRUCTURED = re.compile(r"claude-[a-z]+-4-[5678](?!\d)|claude-[a-z]+-5(?!\d)")
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
_SAID = {
    *("type", "title", "description", "enum", "const", "anyOf", "properties", "required", "additionalProperties"),
    *("items", "minItems", "format"),
}
_MANY_IMAGES, _MANY_IMAGES_PIXELS = 20, 2_000


def seal(model: str, answer: str, place: int, total: int, thought: str) -> str:
    """The signature of the thinking at `place` of `total` in an answer."""
    clean = thought.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    mac = hmac.new(_KEY, f"{model} {answer} {place} {total} {clean}".encode(), "sha256").hexdigest()
    return f"{answer}.{place}.{total}.{mac}"


def refusal(headers: Mapping[str, str], raw: bytes) -> tuple[Any, str | None]:
    """The parsed body (None when it is not JSON) and why it is refused. `headers` have lower-case names."""
    body: Any = None
    try:
        _require(headers.get("content-type", "").split(";")[0].strip() == "application/json", "content type")
        _require(headers.get("anthropic-version") == VERSION, "anthropic-version: header is required")
        _require("authorization" not in headers, "two ways to be known")
        try:
            body = orjson.loads(raw)  # refuses bad UTF-8 and lone surrogates, also as escapes
        except orjson.JSONDecodeError as error:
            raise Invalid(f"not strict JSON: {error}") from error
        _require(isinstance(body, dict), "the body is not an object")
        _check_top(body)
        _check_thinking(body, headers)
        _check_output(body)
        _check_tools(body)
        _check_messages(body)
        _check_markers(body)
    except Invalid as error:
        return body, str(error)
    return body, None


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise Invalid(reason)


def _check_top(body: Mapping[str, Any]) -> None:
    unknown = sorted(set(body) - _MEMBERS)
    _require(not unknown, f"{unknown}: Extra inputs are not permitted")
    model = body.get("model")
    _require(isinstance(model, str) and bool(model), "model: Field required")
    _require(body.get("stream") is True, "stream is not true")
    most = next((most for name, most in _MOST_TOKENS.items() if str(model).startswith(name)), 10**9)
    tokens = body.get("max_tokens")
    _require(type(tokens) is int and 1 <= tokens <= most, f"max_tokens: {tokens!r} > {most}")
    if "system" in body:
        _require(isinstance(body["system"], list) and bool(body["system"]), "system is empty")
        for block in body["system"]:
            _check_text("system", block)
    if "tool_choice" in body:
        _require(body["tool_choice"] in ({"type": "auto"}, {"type": "none"}), f"tool_choice {body['tool_choice']!r}")
        _require("tools" in body, "tool_choice may only be specified while providing tools")


def _check_thinking(body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    thinking, model = body.get("thinking"), body["model"]
    uses_beta = "block_binding" in (thinking or {})
    _require("anthropic-beta" not in headers or uses_beta, "anthropic-beta: unexpected value, as of a gateway")
    if thinking is None:
        return
    kind = thinking.get("type")
    if kind == "adaptive":
        _require(bool(_ADAPTIVE.match(model)), "adaptive thinking is not supported on this model")
        _require(set(thinking) <= {"type", "display", "block_binding"}, f"thinking {thinking!r}")
        _require(thinking.get("display") in ("summarized", "omitted"), f"display {thinking!r}")
        if (binding := thinking.get("block_binding")) is not None:
            _require(headers.get("anthropic-beta") == BETA and bool(_BOUND.match(model)), "block_binding: Extra inputs")
            _require(binding == {"prefix_mismatch_behavior": "drop_block"}, f"block_binding {binding!r}")
    elif kind == "enabled":
        _require(bool(_BUDGET.match(model)), '"thinking.type.enabled" is not supported for this model')
        _require(set(thinking) == {"type", "budget_tokens"}, f"thinking {thinking!r}")
        budget = thinking["budget_tokens"]
        _require(type(budget) is int and 1_024 <= budget < body["max_tokens"], f"budget_tokens: {budget!r}")
    else:
        raise Invalid(f"thinking {thinking!r}")


def _check_output(body: Mapping[str, Any]) -> None:
    output = body.get("output_config")
    if output is None:
        return
    _require(bool(output) and set(output) <= {"effort", "format"}, f"output_config {output!r}")
    if "effort" in output:
        _require(bool(_ADAPTIVE.match(body["model"])), "This model does not support the effort parameter.")
        _require(output["effort"] in ("low", "medium", "high"), f"effort {output!r}")
    if "format" in output:
        form = output["format"]
        _require(bool(_STRUCTURED.match(body["model"])), "output format is not supported")
        _require(set(form) == {"type", "schema"} and form["type"] == "json_schema", f"format {form!r}")
        _check_schema("the answer", form["schema"])
        _check_said(form["schema"])


def _check_said(schema: Any) -> None:
    _require(isinstance(schema, dict) and set(schema) <= _SAID, f"output_config.format.schema: {schema!r}")
    kinds = {"type", "enum", "const", "anyOf"} & set(schema)
    _require(len(kinds) == 1, f"a schema of no kind, or of two: {schema!r}")
    if schema.get("type") == "object":
        _require(schema.get("additionalProperties") is False, "'additionalProperties' must be explicitly set to false")
        _require(set(schema.get("required", [])) <= set(schema["properties"]), "required without a property")
    _require(schema.get("format", "date") in _FORMATS and schema.get("minItems", 0) in (0, 1), f"bounds: {schema!r}")
    _require(all(not isinstance(each, dict | list) for each in schema.get("enum", [])), "enum")
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    for each in [*inner, *([schema["items"]] if "items" in schema else [])]:
        _check_said(each)


def _check_schema(name: str, schema: Any) -> None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise Invalid(f"JSON schema of {name} is invalid. It must match JSON Schema draft 2020-12: {error}") from error


def _check_tools(body: Mapping[str, Any]) -> None:
    if "tools" not in body:
        return
    _require(isinstance(body["tools"], list) and bool(body["tools"]), "tools is empty")
    names = set()
    for tool in body["tools"]:
        _require(set(tool) <= {"name", "description", "input_schema", "cache_control"}, f"tool {tool!r}")
        name = tool.get("name")
        _require(isinstance(name, str) and bool(_NAME.fullmatch(name)), f"tools: name {name!r}")
        _require(name not in names, "tools: Tool names must be unique.")
        names.add(name)
        _require(bool(tool.get("description", "x").strip()), f"{name}: a blank description")
        schema = tool.get("input_schema")
        _require(isinstance(schema, dict) and schema.get("type") == "object", f"{name}: input_schema.type")
        _require(not {"oneOf", "anyOf", "allOf"} & set(schema), f"{name}: oneOf, allOf, or anyOf at the top level")
        _check_schema(name, schema)
        for key in schema.get("properties", {}):
            _require(bool(_PROPERTY.fullmatch(key)), f"{name}: Property keys should match pattern: {key!r}")


def _check_messages(body: Mapping[str, Any]) -> None:
    turns = body.get("messages")
    _require(isinstance(turns, list) and bool(turns), "messages: at least one message is required")
    assert isinstance(turns, list)
    ids: set[str] = set()
    waiting: list[str] = []
    for place, turn in enumerate(turns):
        at = f"messages.{place}"
        _require(isinstance(turn, dict) and set(turn) == {"role", "content"}, f"{at}: members")
        _require(turn["role"] == ("assistant" if place % 2 else "user"), f"{at}: roles must alternate, user first")
        content = turn["content"]
        _require(isinstance(content, list) and bool(content), f"{at}: content is empty")
        if turn["role"] == "user":
            _check_user(at, content, waiting)
            waiting = []
        else:
            waiting = _check_answer(at, content, ids, body)
    _require(turns[-1]["role"] == "user", "This model does not support assistant message prefill.")
    _require(not ids or "tools" in body, "Requests which include `tool_use` blocks must define tools")
    if body.get("thinking", {}).get("type") == "enabled":
        _check_turn_thought(turns)
    _check_images(turns)


def _check_user(at: str, content: list[Any], waiting: list[str]) -> None:
    given = [block.get("tool_use_id") for block in content if block.get("type") == "tool_result"]
    _require(sorted(given) == sorted(waiting), f"{at}: `tool_use` ids {waiting} and `tool_result` blocks {given}")
    for place, block in enumerate(content):
        match block.get("type"):
            case "text":
                _check_text(at, block)
            case "image":
                _check_image(at, block)
            case "tool_result":
                _require(place < len(given), f"{at}: tool_result blocks must come first")
                _check_result(at, block)
            case kind:
                raise Invalid(f"{at}: a block of type {kind!r}")


def _check_result(at: str, block: Mapping[str, Any]) -> None:
    _require(
        set(block) <= {"type", "tool_use_id", "content", "is_error", "cache_control"}, f"{at}: result {set(block)}"
    )
    _require(block.get("is_error", True) is True, f"{at}: is_error")
    content = block.get("content")
    if isinstance(content, str):
        _require(bool(content.strip()), f"{at}: an empty result")
        return
    _require(isinstance(content, list) and bool(content), f"{at}: an empty result")
    assert isinstance(content, list)
    for inner in content:
        if inner.get("type") == "image":
            _require(not block.get("is_error"), f'{at}: all content must be type "text" if "is_error" is true')
            _check_image(at, inner)
        else:
            _check_text(at, inner)
        _require("cache_control" not in inner, f"{at}: a marker within a result")


def _check_answer(at: str, content: list[Any], ids: set[str], body: Mapping[str, Any]) -> list[str]:
    asked: list[str] = []
    due: list[str] = []  # what of the thinking of one answer must still come
    for block in content:
        match block.get("type"):
            case "text":
                _check_text(at, block)
            case "tool_use":
                _require(set(block) == {"type", "id", "name", "input"}, f"{at}: tool_use {set(block)}")
                _require(bool(_NAME.fullmatch(block["id"])), f"{at}: tool_use.id: String should match pattern")
                _require(block["id"] not in ids, f"{at}: `tool_use` ids must be unique")
                _require(bool(_NAME.fullmatch(block["name"])), f"{at}: tool_use.name: String should match pattern")
                _require(isinstance(block["input"], dict), f"{at}: tool_use.input: Input should be a valid dictionary")
                check_depth(at, block["input"])
                ids.add(block["id"])
                asked.append(block["id"])
            case "thinking" | "redacted_thinking":
                _require("thinking" in body, f"{at}: thinking in a request that does not think")
                due = _check_sealed(at, block, body["model"], due)
            case kind:
                raise Invalid(f"{at}: a block of type {kind!r}")
    _require(not due, f"{at}: thinking is missing: {due}")
    _require(content[-1]["type"] in ("text", "tool_use"), f"{at}: The final block cannot be `thinking`")
    return asked


def _check_sealed(at: str, block: Mapping[str, Any], model: str, due: list[str]) -> list[str]:
    is_thinking = block["type"] == "thinking"
    members = {"type", "thinking", "signature"} if is_thinking else {"type", "data"}
    _require(set(block) == members, f"{at}: thinking {set(block)}")
    sealed = block["signature"] if is_thinking else block["data"]
    answer, place, total, _ = (*sealed.split("."), "", "", "", "")[:4]
    valid = place.isdigit() and total.isdigit()
    valid = valid and sealed == seal(model, answer, int(place), int(total), block.get("thinking", ""))
    _require(valid, f"{at}: Invalid `signature` in `thinking` block")
    if not due:
        due = [f"{answer}.{number}" for number in range(int(total))]
    _require(due[0] == f"{answer}.{place}", f"{at}: thinking was moved, or left out: {due} and then {answer}.{place}")
    return due[1:]


def _check_turn_thought(turns: list[Any]) -> None:
    """The turn of the model that goes on, since the last turn of the user without results, begins with thinking."""
    start = max(
        place
        for place, turn in enumerate(turns)
        if turn["role"] == "user" and not any(block["type"] == "tool_result" for block in turn["content"])
    )
    if start + 1 < len(turns):
        kind = turns[start + 1]["content"][0]["type"]
        _require(
            kind in ("thinking", "redacted_thinking"), f"messages.{start + 1}: Expected thinking, but found {kind}"
        )


def _check_text(at: str, block: Mapping[str, Any]) -> None:
    _require(set(block) - {"cache_control"} == {"type", "text"} and block["type"] == "text", f"{at}: text {block!r}")
    _require(bool(block["text"].strip()), f"{at}: text content blocks must contain non-whitespace text")


def _check_image(at: str, block: Mapping[str, Any]) -> None:
    _require(set(block) - {"cache_control"} == {"type", "source"}, f"{at}: image {set(block)}")
    source = block["source"]
    _require(set(source) == {"type", "media_type", "data"} and source["type"] == "base64", f"{at}: source")
    check_image_url(at, f"data:{source['media_type']};base64,{source['data']}")


def _check_images(turns: list[Any]) -> None:
    blocks = [block for turn in turns for block in turn["content"]]
    blocks += [inner for block in blocks if isinstance(block.get("content"), list) for inner in block["content"]]
    images = [b64decode(block["source"]["data"]) for block in blocks if block["type"] == "image"]
    for data in images if len(images) > _MANY_IMAGES else ():
        size = measure(data)
        assert size is not None
        _require(max(size.width, size.height) <= _MANY_IMAGES_PIXELS, "image dimensions exceed max for many images")


def _check_markers(body: Mapping[str, Any]) -> None:
    blocks = [*body.get("system", []), *body.get("tools", [])]
    blocks += [block for turn in body["messages"] for block in turn["content"]]
    markers = [block["cache_control"] for block in blocks if "cache_control" in block]
    _require(len(markers) <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {len(markers)}.")
    _require(all(marker == {"type": "ephemeral"} for marker in markers), f"cache_control {markers!r}")
