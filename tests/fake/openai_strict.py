"""Why a strict Responses API refuses a request: `refusal` names the first fault, or None.

Rule 1: stricter than the vendor. Members it does not document are refused, and so is what it takes only sometimes.
Rule 2: reasoning is signed by `fake.openai`: `encrypted_content` says of which item it is, which item it led to and
what its summary was, under a MAC. It comes back unaltered and right before that item. An id that ends with `_r` is of
an item that reasoning led to, and comes back behind it or not at all.

Sources: https://platform.openai.com/docs/api-reference/responses/create,
https://platform.openai.com/docs/guides/structured-outputs, and what the API says when it refuses.
"""

from __future__ import annotations

import hmac
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from fake.strict import Invalid, check_depth, check_image_url

_KEY = b"the fake's own"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MEMBERS = {
    *("model", "input", "instructions", "tools", "tool_choice", "stream", "store", "include", "prompt_cache_key"),
    *("reasoning", "max_output_tokens", "text"),
}
_NEEDED = {
    "message": {"role", "content"},
    "function_call": {"call_id", "name", "arguments"},
    "function_call_output": {"call_id", "output"},
    "reasoning": {"id", "summary", "encrypted_content"},
}
_ALLOWED = {
    "message": {"id", "status", "phase"},
    "function_call": {"id", "status"},
    "function_call_output": set[str](),
    "reasoning": {"status", "content"},
}
_PREFIXES = {"message": "msg_", "function_call": "fc_", "reasoning": "rs_"}


def mac(sealed: str, summary: Any) -> str:
    """What proves that a reasoning item is as it was sent."""
    return hmac.new(_KEY, (sealed + json.dumps(summary)).encode(), "sha256").hexdigest()


def refusal(raw: bytes) -> tuple[Any, str | None]:
    """The parsed body (None when it is not JSON) and why it is refused."""
    body: Any = None
    try:
        try:
            body = orjson.loads(raw)  # refuses bad UTF-8 and lone surrogates, also as escapes
        except orjson.JSONDecodeError as error:
            raise Invalid(f"not strict JSON: {error}") from error
        _require(isinstance(body, dict), "the body is not an object")
        _check_top(body)
        _check_tools(body)
        _check_format(body.get("text"))
        _check_input(body["input"])
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
    _require(body.get("stream") is True and body.get("store") is False, "stream and store are not as they must be")
    if body["model"].startswith(("gpt-4", "ft:gpt-4", "gpt-5-chat")):
        _require(not {"include", "reasoning"} & set(body), "Encrypted content is not supported with this model.")
    else:
        _require(body.get("include") == ["reasoning.encrypted_content"], f"include is {body.get('include')!r}")
    if "instructions" in body:
        _require(isinstance(body["instructions"], str) and bool(body["instructions"].strip()), "blank instructions")
    if "reasoning" in body:
        thinking = body["reasoning"]
        _require(set(thinking) <= {"effort", "summary"}, f"reasoning {thinking!r}")
        _require(thinking.get("effort") in ("none", "minimal", "low", "medium", "high"), f"effort {thinking!r}")
        _require(thinking.get("summary", "auto") == "auto", f"summary {thinking!r}")
    if "max_output_tokens" in body:
        _require(type(body["max_output_tokens"]) is int and body["max_output_tokens"] >= 16, "max_output_tokens")
    if "prompt_cache_key" in body:
        key = body["prompt_cache_key"]
        _require(isinstance(key, str) and 0 < len(key) <= 64, f"prompt_cache_key {key!r}")
    _require(isinstance(body.get("input"), list) and bool(body["input"]), "input is missing or empty")


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
        _require(set(tool) == {"type", "name", "description", "parameters", "strict"}, f"tool {tool!r}")
        _require(tool["type"] == "function" and tool["strict"] is False, f"tool {tool!r}")
        name = tool["name"]
        _require(isinstance(name, str) and bool(_NAME.fullmatch(name)), f"tool name {name!r}")
        _require(name not in names, f"tool {name!r} is declared twice")
        names.add(name)
        schema = tool["parameters"]
        _require(schema.get("type") == "object" and isinstance(schema.get("properties"), dict), f"{name}: no object")
        _require(not {"oneOf", "anyOf", "allOf", "enum", "not"} & set(schema), f"{name}: more than an object")
        _check_schema(name, schema)
        for inner in _schemas(schema):
            _require(isinstance(inner, dict), f"{name}: a schema that is {inner!r}")
            _require("array" not in _kinds(inner) or "items" in inner, f"{name}: array schema missing items")


def _check_format(said: Any) -> None:
    if said is None:
        return
    _require(set(said) == {"format"} and set(said["format"]) == {"type", "name", "schema", "strict"}, f"text {said!r}")
    form = said["format"]
    _require(form["type"] == "json_schema" and bool(_NAME.fullmatch(form["name"])), f"format {form!r}")
    _require(form["schema"].get("type") == "object", "the schema of the answer is of no object")
    _check_schema("answer", form["schema"])
    for inner in _schemas(form["schema"]) if form["strict"] else ():
        _require(not {"oneOf", "allOf", "not", "if", "pattern", "default"} & set(inner), f"not strict: {inner!r}")
        if "object" in _kinds(inner):
            closed = inner.get("additionalProperties") is False
            _require(closed and set(inner.get("required", [])) == set(inner.get("properties", {})), f"open: {inner!r}")


def _check_schema(name: str, schema: Any) -> None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise Invalid(f"schema of {name}: {error.message}") from error


def _schemas(schema: Any) -> list[Any]:
    """`schema` and those within it."""
    found = [schema]
    if isinstance(schema, dict):
        inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
        inner += [schema["items"]] if "items" in schema else []
        inner += [each for name in ("anyOf", "oneOf", "allOf") for each in schema.get(name, [])]
        found += [each for one in inner for each in _schemas(one)]
    return found


def _kinds(schema: Mapping[str, Any]) -> list[Any]:
    kinds = schema.get("type")
    return kinds if isinstance(kinds, list) else [kinds]


def _check_input(items: list[Any]) -> None:
    first = items[0]
    _require(isinstance(first, dict) and first.get("role") == "user", "no user comes first")
    ids: set[str] = set()
    asked: set[str] = set()
    waiting: set[str] = set()
    for place, item in enumerate(items):
        at = f"input[{place}]"
        _require(isinstance(item, dict) and item.get("type") in _NEEDED, f"{at}: no known type")
        kind = item["type"]
        has = set(item) - {"type"}
        _require(_NEEDED[kind] <= has <= _NEEDED[kind] | _ALLOWED[kind], f"{at}: members {sorted(has)}")
        if "id" in item:
            _check_id(at, item, ids)
        before = items[place - 1] if place else {}
        _check_led(at, item, before, items[place + 1 : place + 2])
        match kind:
            case "message":
                # An answer may go on behind its calls.
                _require(item["role"] != "user" or not waiting, f"{at}: calls without a result: {sorted(waiting)}")
                _check_message(at, item)
            case "function_call":
                _check_call(at, item, asked)
                _require(before.get("type") != "function_call_output" or not waiting, f"{at}: a result is missing")
                waiting.add(item["call_id"])
            case "function_call_output":
                _require(item["call_id"] in waiting, f"{at}: a result for {item['call_id']!r}, which is not open")
                waiting.discard(item["call_id"])
                _check_output(at, item["output"])
    _require(not waiting, f"calls without a result: {sorted(waiting)}")


def _check_id(at: str, item: Mapping[str, Any], ids: set[str]) -> None:
    item_id = item["id"]
    _require(isinstance(item_id, str) and item_id.startswith(_PREFIXES[item["type"]]), f"{at}: id {item_id!r}")
    _require(len(item_id) <= 64 and item_id not in ids, f"{at}: duplicate item or long id {item_id!r}")
    ids.add(item_id)
    _require(item.get("status", "completed") in ("completed", "incomplete"), f"{at}: status {item.get('status')!r}")


def _check_led(at: str, item: Mapping[str, Any], before: Mapping[str, Any], after: Sequence[Any]) -> None:
    """Reasoning is unaltered and before what it led to; what it led to is behind it."""
    if item["type"] == "reasoning":
        sealed, _, proof = str(item["encrypted_content"]).partition(".")
        _require(hmac.compare_digest(proof, mac(sealed, item["summary"])), f"{at}: reasoning that was altered")
        item_id, led_to = json.loads(urlsafe_b64decode(sealed))
        _require(item_id == item["id"], f"{at}: reasoning of another id")
        followed = after and isinstance(after[0], dict) and after[0].get("id") == led_to
        _require(bool(followed), f"{at}: reasoning was provided without its required following item")
    if str(item.get("id", "")).endswith("_r"):
        _require(before.get("type") == "reasoning", f"{at}: an item without its required reasoning item")


def _check_message(at: str, item: Mapping[str, Any]) -> None:
    content = item["content"]
    _require(item.get("phase", "commentary") in ("commentary", "final_answer"), f"{at}: phase {item.get('phase')!r}")
    if item["role"] == "user":
        _require(not {"id", "status", "phase"} & set(item), f"{at}: a user's message with more than content")
        _check_content(at, content)
        return
    _require(item["role"] == "assistant", f"{at}: role {item['role']!r}")
    if "id" not in item:
        _require("status" not in item, f"{at}: a status without an id")
        _require(isinstance(content, str) and bool(content.strip()), f"{at}: content is empty")
        return
    _require("status" in item and isinstance(content, list) and len(content) == 1, f"{at}: content {content!r:.100}")
    _require(set(content[0]) == {"type", "text", "annotations"} and content[0]["annotations"] == [], f"{at}: a block")
    _require(content[0]["type"] == "output_text" and bool(content[0]["text"].strip()), f"{at}: an empty block")


def _check_content(at: str, content: Any) -> None:
    _require(isinstance(content, list) and bool(content), f"{at}: no content")
    for block in content:
        if block.get("type") == "input_text":
            _require(set(block) == {"type", "text"} and bool(block["text"].strip()), f"{at}: an empty text")
            continue
        _require(
            set(block) == {"type", "image_url", "detail"} and block["type"] == "input_image", f"{at}: {block!r:.99}"
        )
        check_image_url(at, block["image_url"])


def _check_call(at: str, item: Mapping[str, Any], asked: set[str]) -> None:
    call_id = item["call_id"]
    _require(isinstance(call_id, str) and bool(_NAME.fullmatch(call_id)), f"{at}: call_id {call_id!r}")
    _require(call_id not in asked, f"{at}: call_id {call_id!r} is used twice")
    asked.add(call_id)
    _require(isinstance(item["name"], str) and bool(_NAME.fullmatch(item["name"])), f"{at}: name {item['name']!r}")
    try:
        arguments = orjson.loads(item["arguments"])
    except orjson.JSONDecodeError as error:
        raise Invalid(f"{at}: arguments are not strict JSON: {error}") from error
    _require(isinstance(arguments, dict), f"{at}: arguments are not an object")
    check_depth(at, arguments)


def _check_output(at: str, output: Any) -> None:
    if isinstance(output, str):
        _require(bool(output.strip()), f"{at}: an empty result")
    else:
        _check_content(at, output)
