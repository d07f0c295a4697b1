"""JSON Schemas as OpenAI takes them, without I/O.

Rule 1: a tool's parameters are sent without `strict`, where OpenAI takes nearly all of JSON Schema; what it refuses
all the same is left out or made plain, and the tool checks its arguments itself.
Rule 2: `strict` is asked for only where the schema is of the kind that it takes: one that is not is refused.

Source: https://platform.openai.com/docs/guides/structured-outputs (supported schemas).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NOT_ON_TOP = ("oneOf", "anyOf", "allOf", "enum", "not")
"""Refused at the top of a tool's parameters: these must be an object and nothing else."""

_STRICT = {
    *("type", "title", "description", "enum", "const", "anyOf", "$ref", "$defs", "definitions"),
    *("properties", "required", "additionalProperties"),
    *("items", "minItems", "maxItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that a strict schema may have."""

_OF_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keywords whose value maps names to schemas."""


def parameters(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a tool: an object with `properties`, and arrays with `items`."""
    top = {name: value for name, value in schema.items() if name not in _NOT_ON_TOP}
    return {**_plain(top), "type": "object", "properties": _plain_each(top.get("properties"))}


def is_strict(schema: Any) -> bool:
    """Whether a schema may be sent with `strict`: every object is closed and all of its members are required."""
    if isinstance(schema, list):
        return all(is_strict(each) for each in schema)
    if not isinstance(schema, Mapping) or not schema.keys() <= _STRICT:
        return False
    properties = schema.get("properties", {})
    kinds = schema.get("type")
    if "object" in (kinds if isinstance(kinds, list) else [kinds]) and (
        schema.get("additionalProperties") is not False or sorted(schema.get("required", [])) != sorted(properties)
    ):
        return False
    inner = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("definitions", {}).values()]
    inner += schema.get("anyOf", [])
    return is_strict(inner) and ("items" not in schema or is_strict(schema["items"]))


def _plain(schema: Any) -> Any:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, Mapping):
        return schema
    plain: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _OF_SCHEMAS:
            plain[name] = _plain_each(value)
        elif name == "additionalProperties":
            plain[name] = value if isinstance(value, bool) else _plain(value)
        elif name in ("items", "contains", "propertyNames", "if", "then", "else", "not"):
            plain[name] = _plain(value)
        elif name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            plain[name] = [_plain(each) for each in value]
        else:
            plain[name] = value
    kinds = plain.get("type")
    if "array" in (kinds if isinstance(kinds, list) else [kinds]) and "items" not in plain:
        plain["items"] = {}
    return plain


def _plain_each(schemas: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in schemas.items()} if isinstance(schemas, Mapping) else {}
