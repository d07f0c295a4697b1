"""Why a strict Gemini server refuses a request: `refusal` names the first fault, or None.

Rule: stricter than the vendor. A member that is not known is refused, and so is all that the vendor's pages only advise
against. Sources: https://ai.google.dev/api/generate-content, .../docs/function-calling, .../docs/thought-signatures.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson

from fake.pictures import why_not_decoded
from hames.core.images import measure

UNSIGNED = "skip_thought_signature_validator"
_KEY = b"the key of the fake"
_TARGET = re.compile(r"/v1beta/models/([^/:?]+):streamGenerateContent\?alt=sse")
_MEMBERS = {"systemInstruction", "tools", "generationConfig", "contents", "toolConfig"}
_CONFIG = {"maxOutputTokens", "thinkingConfig", "responseMimeType", "responseJsonSchema", "temperature"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_IMAGES = {"image/png", "image/jpeg", "image/webp"}
MOST_MESSAGES = 100
"""Within each other: https://protobuf.dev/programming-guides/proto-limits."""
_MESSAGES_ABOVE = 3
"""Of the arguments of a call: its content, its part and itself."""
_DATA = ("text", "inlineData", "functionCall", "functionResponse")
_SCHEMA = {
    *("type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems", "minimum"),
    *("maximum", "anyOf", "properties", "additionalProperties", "required"),
}


class Invalid(Exception):
    """The request is refused, for the reason in its text."""


def sign(model: str, covered: Any) -> str:
    """A signature of `model` on a JSON value."""
    message = orjson.dumps([model, covered], option=orjson.OPT_SORT_KEYS)
    return b64encode(hmac.digest(_KEY, message, "sha256")).decode()


def refusal(target: str, raw: bytes, content_type: str) -> tuple[Any, str | None]:
    """The parsed body (None when it is not JSON) and why it is refused."""
    body: Any = None
    try:
        _require(content_type.split(";")[0].strip() == "application/json", f"content type {content_type!r}")
        try:
            body = orjson.loads(raw)  # refuses bad UTF-8 and lone surrogates, also as escapes
        except orjson.JSONDecodeError as error:
            raise Invalid(f"not strict JSON: {error}") from error
        found = _TARGET.fullmatch(target)
        if found is None:
            raise Invalid(f"not the path of a stream: {target!r}")
        _Check(unquote(found[1])).check(body)
    except Invalid as error:
        return body, str(error)
    return body, None


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise Invalid(reason)


@dataclass
class _Check:
    """One request to `model`."""

    model: str

    @property
    def generation(self) -> tuple[int, int]:
        if re.fullmatch(r"gemini-[a-z-]+-latest", self.model):
            return 3, 8
        found = re.match(r"gemini-(\d+)(?:\.(\d+))?", self.model)
        return (int(found[1]), int(found[2] or 0)) if found else (0, 0)

    def check(self, body: Any) -> None:
        _require(isinstance(body, dict), "the body is not an object")
        _require(set(body) <= _MEMBERS, f"unknown members: {sorted(set(body) - _MEMBERS)}")
        if "systemInstruction" in body:
            instruction = body["systemInstruction"]
            _require(set(instruction) == {"parts"} and len(instruction["parts"]) == 1, "systemInstruction")
            _text(instruction["parts"][0], "systemInstruction")
        self._tools(body)
        self._config(body)
        contents = body.get("contents")
        _require(isinstance(contents, list) and bool(contents), "contents is missing or empty")
        self._contents(contents)

    def _tools(self, body: Mapping[str, Any]) -> None:
        tools = body.get("tools")
        if "toolConfig" in body:
            _require(tools is not None, "toolConfig without tools")
            _require(body["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}, f"{body['toolConfig']!r}")
        if tools is None:
            return
        _require(len(tools) == 1 and set(tools[0]) == {"functionDeclarations"}, f"tools {tools!r:.200}")
        declared = tools[0]["functionDeclarations"]
        _require(bool(declared), "no function is declared")
        names = [function.get("name") for function in declared]
        _require(len(set(names)) == len(names), f"a function is declared twice: {names}")
        for function in declared:
            _require(set(function) <= {"name", "description", "parametersJsonSchema"}, f"function {function!r:.200}")
            name = function["name"]
            _require(isinstance(name, str) and bool(_NAME.fullmatch(name)), f"function name {name!r}")
            _require(isinstance(function.get("description"), str), f"{name} has no description")
            _require(bool(function["description"].strip()), f"{name} has an empty description")
            if (schema := function.get("parametersJsonSchema")) is not None:
                _require(schema.get("type") == "object", f"parameters of {name} are no object")
                _require(bool(schema.get("properties")), f"parameters of {name} have no properties")
                check_schema(schema, name)

    def _config(self, body: Mapping[str, Any]) -> None:
        config = body.get("generationConfig", {})
        _require(set(config) <= _CONFIG, f"generationConfig {sorted(set(config) - _CONFIG)}")
        _require(config.get("maxOutputTokens", 1) > 0, "maxOutputTokens")
        if "responseJsonSchema" in config:
            _require(config.get("responseMimeType") == "application/json", "a schema without its media type")
            check_schema(config["responseJsonSchema"], "responseJsonSchema")
        if "responseMimeType" in config and "tools" in body:
            _require(self.generation >= (3, 0), "Function calling with a response mime type is unsupported")
        if (thinking := config.get("thinkingConfig")) is not None:
            self._thinking(thinking)

    def _thinking(self, thinking: Mapping[str, Any]) -> None:
        _require(bool(thinking), "an empty thinkingConfig")
        _require(self.generation >= (2, 5), "thinking_config is not supported")
        _require(set(thinking) <= {"includeThoughts", "thinkingLevel", "thinkingBudget"}, f"thinking {thinking!r}")
        if (level := thinking.get("thinkingLevel")) is not None:
            _require("2.5" not in self.model, "Thinking level is not supported for this model")
            levels = {"low", "high"} | (set() if "gemini-3-pro" in self.model else {"medium"})
            levels |= {"minimal"} if "gemini-3-flash" in self.model else set()
            _require(level in levels, f"thinking level {level!r} is not supported")
        if (budget := thinking.get("thinkingBudget")) is not None:
            _require("2.5" in self.model, "a budget for a model that has levels")
            _require((128 if "pro" in self.model else 0) <= budget <= 24_576, f"thinking budget {budget}")
            _require(bool(budget) or not thinking.get("includeThoughts"), "thoughts without thinking")

    def _contents(self, contents: list[Any]) -> None:
        open_calls: list[Mapping[str, Any]] = []
        ids: set[str] = set()
        before = ""
        for place, content in enumerate(contents):
            at = f"contents[{place}]"
            _require(isinstance(content, dict) and set(content) == {"role", "parts"}, f"{at}: {content!r:.200}")
            role, parts = content["role"], content["parts"]
            _require(role in ("user", "model"), f"{at}: role {role!r}")
            _require(isinstance(parts, list) and bool(parts), f"{at}: no parts")
            for part in parts:
                self._part(at, part, role)
            results = [part["functionResponse"] for part in parts if "functionResponse" in part]
            _require(len(results) in (0, len(parts)), f"{at}: results beside other parts")
            kind = "results" if results else role
            _require(kind != before, f"{at}: two neighbours of {kind}")
            _require(bool(results) == bool(open_calls), f"{at}: calls and results are not neighbours")
            pairs = [(call["id"], call["name"]) for call in open_calls]
            _require([(result["id"], result["name"]) for result in results] == pairs, f"{at}: other results: {pairs}")
            open_calls = [part["functionCall"] for part in parts if "functionCall" in part]
            _require(len({*ids, *(call["id"] for call in open_calls)}) == len(ids) + len(open_calls), f"{at}: ids")
            ids |= {call["id"] for call in open_calls}
            if role == "model":
                self._signatures(at, parts)
            before = kind
        _require(contents[0]["role"] == "user", "no user comes first")
        _require(contents[-1]["role"] == "user", "the last content is the model's")

    def _part(self, at: str, part: Any, role: str) -> None:
        _require(isinstance(part, dict), f"{at}: part {part!r:.200}")
        data = [name for name in _DATA if name in part]
        _require(len(data) == 1, f"{at}: required oneof field 'data' must have one initialized field: {part!r:.200}")
        more = set(part) - set(data)
        _require(more <= ({"thought", "thoughtSignature"} if role == "model" else set()), f"{at}: members {more}")
        match data[0]:
            case "text":
                _text(part, at)
            case "inlineData":
                _require(role == "user", f"{at}: an image of the model")
                _image(part["inlineData"], at)
            case "functionCall":
                _require(role == "model", f"{at}: a call of the user")
                _require(set(part["functionCall"]) == {"id", "name", "args"}, f"{at}: {part!r:.200}")
                self._named(at, part["functionCall"])
                _require(isinstance(part["functionCall"]["args"], dict), f"{at}: args are no object")
                messages = _MESSAGES_ABOVE + _messages(part["functionCall"]["args"])
                _require(messages <= MOST_MESSAGES, f"{at}: args of {messages} messages within each other")
            case _:
                _require(role == "user", f"{at}: a result of the model")
                self._result(at, part["functionResponse"])

    def _result(self, at: str, result: Mapping[str, Any]) -> None:
        _require({"id", "name", "response"} <= set(result) <= {"id", "name", "response", "parts"}, f"{at}: {result!r}")
        self._named(at, result)
        response = result["response"]
        _require(isinstance(response, dict), f"{at}: the response is no object")
        told = set(response) & {"output", "error"}
        _require(len(told) == 1 and set(response) <= {*told, "images"}, f"{at}: response {sorted(response)}")
        _require(bool(response[told.pop()].strip()), f"{at}: an empty result")
        if "parts" in result:
            _require(self.generation >= (3, 0), f"{at}: function_response.parts is not supported for this model")
            _require(bool(result["parts"]), f"{at}: no parts in a result")
            for part in result["parts"]:
                _require(set(part) == {"inlineData"}, f"{at}: in a result {sorted(part)}")
                _image(part["inlineData"], at)

    def _named(self, at: str, value: Mapping[str, Any]) -> None:
        _require(isinstance(value["name"], str) and bool(_NAME.fullmatch(value["name"])), f"{at}: {value['name']!r}")
        _require(isinstance(value["id"], str) and 0 < len(value["id"]) <= 256, f"{at}: id {value['id']!r}")

    def _signatures(self, at: str, parts: list[Mapping[str, Any]]) -> None:
        wants = self.generation >= (3, 0)
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None and wants:
            _require("thoughtSignature" in first, f"{at}: Function call is missing a thought_signature")
        for place, part in enumerate(parts):
            signature = part.get("thoughtSignature")
            if signature is None or (signature == UNSIGNED and part is first and wants):
                continue
            covered: Any = f"thought {part['text']}" if part.get("thought") else part.get("text")
            if "functionCall" in part:
                covered = _run(parts[place:])
            _require(signature == sign(self.model, covered), f"{at}: Corrupted thought signature on {part!r:.200}")


def _run(parts: list[Mapping[str, Any]]) -> list[Any]:
    """The calls that a signature on the first of `parts` stands for, without their ids: older models give none."""
    calls: list[Any] = []
    for part in parts:
        if calls and "thoughtSignature" in part:
            break
        if "functionCall" in part:
            calls.append({name: part["functionCall"][name] for name in ("name", "args")})
    return calls


def _messages(value: Any) -> int:
    """How deep a `google.protobuf.Struct` or `Value` is in messages: a member is an entry of a map with a `Value`."""
    if isinstance(value, dict):
        return 1 + max((2 + _messages(each) for each in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((1 + _messages(each) for each in value), default=0)
    return 0


def _text(part: Mapping[str, Any], at: str) -> None:
    text = part.get("text")
    _require(isinstance(text, str), f"{at}: text {text!r:.100}")
    assert isinstance(text, str)
    _require(bool(text.strip()) or "thoughtSignature" in part, f"{at}: an empty text")


def _image(image: Any, at: str) -> None:
    _require(isinstance(image, dict) and set(image) == {"mimeType", "data"}, f"{at}: image {image!r:.100}")
    _require(image["mimeType"] in _IMAGES, f"{at}: Unsupported MIME type: {image['mimeType']}")
    try:
        data = b64decode(image["data"], validate=True)
    except ValueError as error:
        raise Invalid(f"{at}: an image that is not base64") from error
    measured = measure(data)
    _require(measured is not None and measured.media_type == image["mimeType"], f"{at}: is no {image['mimeType']}")
    _require((why := why_not_decoded(data)) is None, f"{at}: Unable to process input image: {why}")


def check_schema(schema: Any, at: str) -> None:
    """Raises `Invalid` for a schema that is not of the dialect; `at` says where it stands."""
    _require(isinstance(schema, dict), f"{at}: {schema!r:.100} is no schema")
    _require(set(schema) <= _SCHEMA, f"{at}: {sorted(set(schema) - _SCHEMA)} in a schema")
    properties = schema.get("properties", {})
    _require(set(schema.get("required", [])) <= set(properties), f"{at}: required is not defined in properties")
    members = schema.get("enum", [])
    _require(all(type(each) in (str, int, float) for each in members), f"{at}: enum {members!r:.100}")
    below = [*properties.values(), *schema.get("anyOf", []), *schema.get("prefixItems", [])]
    below += [schema["items"]] if "items" in schema else []
    below += [schema["additionalProperties"]] if isinstance(schema.get("additionalProperties"), dict) else []
    for each in below:
        check_schema(each, at)
