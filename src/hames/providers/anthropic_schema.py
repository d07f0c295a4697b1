"""JSON Schemas as Anthropic takes them, without I/O: those of tools, and that of an answer.

Rule 1: a tool's schema may be nearly all of JSON Schema. What is refused all the same is left out, and the tool checks
its arguments itself: one tool that is refused is every request refused.
Rule 2: an answer that fits the schema that is sent fits the one that was asked for, but for constraints that the
vendor cannot check; the model is told of these in the description. A schema that cannot be said so is not sent at all.

Sources: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/overview,
https://platform.claude.com/docs/en/build-with-claude/structured-outputs (JSON Schema limitations).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

_NOT_ON_TOP = ("oneOf", "anyOf", "allOf")
"""`input_schema does not support oneOf, allOf, or anyOf at the top level`."""

_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""`Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'`: asked of the members of a tool's arguments."""

_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_DEFINITIONS = ("$defs", "definitions")
_ABOUT = ("title", "description", "default", "examples")
_LEFT_OUT = {*_DEFINITIONS, "$schema", "$id", "$comment"}

_MOST_NODES = 2_000
"""Of a schema whose references are resolved: they can double with each step."""


class _CannotBeSaid(Exception):
    """The vendor has no way to ask for this."""


def tool_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a tool, always an object. Members that no name can be sent for are left out."""
    schema = {name: value for name, value in parameters.items() if name not in _NOT_ON_TOP}
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        properties = {}
    named = {name: value for name, value in properties.items() if _PROPERTY.fullmatch(name)}
    schema |= {"type": "object", "properties": named}
    if isinstance(required := schema.get("required"), list):
        schema["required"] = [name for name in required if name in named or name not in properties]
    return schema


def answer_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """`schema` in the part of JSON Schema that answers can be bound to; None where it cannot be said in that."""
    try:
        return _Said(schema).of(schema, ())
    except (_CannotBeSaid, TypeError, AttributeError):
        return None


class _Said:
    """One schema of an answer, its references resolved."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def of(self, schema: Any, inside: tuple[str, ...]) -> dict[str, Any]:
        """`schema`, which stands within the references `inside`."""
        self._nodes += 1
        if not isinstance(schema, Mapping) or self._nodes > _MOST_NODES:
            raise _CannotBeSaid
        if "$ref" in schema:
            ref = schema["$ref"]
            if ref in inside:  # a schema that holds itself
                raise _CannotBeSaid
            beside = {name: value for name, value in schema.items() if name != "$ref"}
            return self.of({**self._defined(ref), **beside}, (*inside, ref))
        rest = {name: value for name, value in schema.items() if name not in _LEFT_OUT}
        said = self._kind(rest, inside)
        for name in ("title", "description"):
            if name in rest:
                said[name] = rest.pop(name)
        if rest:
            hint = orjson.dumps(rest).decode()
            said["description"] = f"{said['description']}\n\n{hint}" if "description" in said else hint
        return said

    def _defined(self, ref: Any) -> Mapping[str, Any]:
        for where in _DEFINITIONS:
            found = self._root.get(where, {}).get(str(ref).removeprefix(f"#/{where}/"))
            if str(ref).startswith(f"#/{where}/") and isinstance(found, Mapping):
                return found
        raise _CannotBeSaid

    def _kind(self, rest: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        """What `rest` says in the vendor's words, taken out of it."""
        for name in ("enum", "const"):
            values = rest.get(name) if name == "enum" else [rest.get(name)]
            if name in rest and values and all(_is_simple(value) for value in values):
                rest.pop("type", None)
                return {name: rest.pop(name)}
        for name in ("anyOf", "oneOf"):
            if name in rest:
                if not rest.keys() <= {name, *_ABOUT}:
                    raise _CannotBeSaid  # what stands beside would have to hold in each
                return {"anyOf": [self.of(each, inside) for each in rest.pop(name)]}
        kind = rest.pop("type", None)
        if isinstance(kind, list):
            ways = [{**rest, "type": each} for each in kind]
            said = {"anyOf": [self._kind(way, inside) for way in ways]}
            for name in [name for name in rest if not all(name in way for way in ways)]:
                del rest[name]
            return said
        if kind not in _TYPES or "allOf" in rest:
            raise _CannotBeSaid
        return {"type": kind, **self._members(kind, rest, inside)}

    def _members(self, kind: str, rest: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        if kind == "object":
            properties = rest.pop("properties", {})
            if rest.pop("additionalProperties", True) is not False and not properties:
                raise _CannotBeSaid  # any object: none but the empty one could be said
            said: dict[str, Any] = {
                "properties": {name: self.of(value, inside) for name, value in properties.items()},
                "additionalProperties": False,
            }
            required = rest.pop("required", [])
            if not set(required) <= set(properties):
                raise _CannotBeSaid
            return {**said, "required": list(required)} if required else said
        if kind == "array":
            said = {"items": self.of(rest.pop("items"), inside)} if "items" in rest else {}
            return {**said, "minItems": rest.pop("minItems")} if rest.get("minItems") in (0, 1) else said
        if kind == "string" and rest.get("format") in _FORMATS:
            return {"format": rest.pop("format")}
        return {}


def _is_simple(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
