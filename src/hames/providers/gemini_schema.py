"""A JSON Schema in the part of JSON Schema that Gemini takes, without I/O.

Rule 1: what is not taken is left out, never refused: arguments are held against the whole schema when they come.
Rule 2: references are written out. The vendor takes them only alone, and unrolls circles to a depth that it does not
tell; here a circle ends where it closes.
Rule 3: the result is bounded, whatever refers to whatever.

Source: the list at `responseJsonSchema` in https://ai.google.dev/api/generate-content#generationconfig. For that
of a tool, `parametersJsonSchema`, the vendor gives no list; the same is sent there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_SCHEMAS = 2_000
"""Subschemas of one schema; what comes after them is left open."""

MAX_DEPTH = 32
"""Of subschemas in subschemas."""

_TYPES = {"string", "number", "integer", "boolean", "array", "object", "null"}
_TEXTS = ("title", "description")
_NUMBERS = ("minItems", "maxItems", "minimum", "maximum")
_FORMATS = {"date-time", "date", "time", "int32", "int64", "float", "double"}
_LISTS = {"anyOf": "anyOf", "oneOf": "anyOf"}
"""Lists of alternatives; the vendor takes `oneOf` for `anyOf`."""


def gemini_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` in the dialect; empty where nothing of it can be said."""
    return _Translation(schema).of(schema, (), 0)


class _Translation:
    """One schema; counts the subschemas and resolves references."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._count = 0

    def of(self, schema: Any, within: tuple[str, ...], depth: int) -> dict[str, Any]:
        """A subschema. `within` are the references that led to it."""
        self._count += 1
        if not isinstance(schema, Mapping) or self._count > MAX_SCHEMAS or depth > MAX_DEPTH:
            return {}
        out: dict[str, Any] = {}
        if isinstance(reference := schema.get("$ref"), str):
            out |= self._referred(reference, within, depth)
        for part in _each(schema.get("allOf")):
            _unite(out, self.of(part, within, depth + 1))
        out |= _plain(schema)
        for name, as_name in _LISTS.items():
            if (found := self._alternatives(schema.get(name), within, depth)) and as_name not in out:
                out[as_name] = found
        _unite(out, self._object(schema, within, depth))
        if (items := self.of(schema.get("items"), within, depth + 1)) or "items" in schema:
            out["items"] = items
        if prefix := [self.of(item, within, depth + 1) for item in _each(schema.get("prefixItems"))]:
            out["prefixItems"] = prefix
        return out

    def _object(self, schema: Mapping[str, Any], within: tuple[str, ...], depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if isinstance(properties := schema.get("properties"), Mapping) and properties:
            out["properties"] = {str(name): self.of(each, within, depth + 1) for name, each in properties.items()}
            required = [name for name in _each(schema.get("required")) if isinstance(name, str) and name in properties]
            if required:
                out["required"] = required
        more = schema.get("additionalProperties")
        if isinstance(more, bool):
            out["additionalProperties"] = more
        elif isinstance(more, Mapping):
            out["additionalProperties"] = self.of(more, within, depth + 1)
        return out

    def _alternatives(self, value: Any, within: tuple[str, ...], depth: int) -> list[dict[str, Any]]:
        """None where one of them allows everything: then they say nothing."""
        found = [self.of(each, within, depth + 1) for each in _each(value)]
        return found if all(found) else []

    def _referred(self, reference: str, within: tuple[str, ...], depth: int) -> dict[str, Any]:
        target = _resolved(self._root, reference)
        if reference in within:
            return _plain(target) if isinstance(target, Mapping) else {}
        return self.of(target, (*within, reference), depth + 1)


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The members that hold no subschema."""
    out: dict[str, Any] = {}
    types = schema.get("type")
    if isinstance(types, str) and types in _TYPES:
        out["type"] = types
    elif known := [each for each in _each(types) if isinstance(each, str) and each in _TYPES]:
        out["type"] = known
    out |= {name: schema[name] for name in _TEXTS if isinstance(schema.get(name), str)}
    out |= {name: schema[name] for name in _NUMBERS if _is_number(schema.get(name))}
    if isinstance(form := schema.get("format"), str) and form in _FORMATS:
        out["format"] = form
    members = [schema["const"]] if "const" in schema else _each(schema.get("enum"))
    if members and all(isinstance(each, str) or _is_number(each) for each in members):
        out["enum"] = members
    return out


def _unite(out: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add what holds as well. Of two values for one member the later stays."""
    properties = {**out.get("properties", {}), **more.get("properties", {})}
    required = [*out.get("required", []), *more.get("required", [])]
    out |= more
    if properties:
        out["properties"] = properties
    if required:
        out["required"] = list(dict.fromkeys(required))


def _resolved(root: Any, reference: str) -> Any:
    """What a reference into the same schema points to (RFC 6901), None where there is nothing."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    found = root
    for name in reference[2:].split("/"):
        name = name.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def _each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
