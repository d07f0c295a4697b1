"""The generated parts of `protocol/*.md`: Markdown between markers, from the same messages as the schemas, and from
examples.

Rule 1: prose outside the markers is written by people and never touched.
Rule 2: like `schema.py`, the same messages give the same text, and a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from hames.protocol import errors, events, methods, params, results
from hames.protocol.schema import Schema, error_schema, shape
from hames.protocol.shown import NO_EXAMPLES, Examples, Record, exchange, refusal, single

PAGES: Final = ("protocol/methods.md", "protocol/events.md", "protocol/errors.md")
"""Pages with generated parts, by their path from the root of the repository."""

_PART: Final = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str, examples: Examples = NO_EXAMPLES) -> str:
    """`page` with the text between its markers made anew, with the `examples` there are.

    Raises:
        KeyError: a marker names no part.
    """
    return _PART.sub(lambda part: f"{part[1]}\n{_PARTS[part[2]](examples)}\n{part[3]}", page)


def _example(examples: Examples, family: str, name: str) -> Record | None:
    return examples.get(family, {}).get(name)


def _methods(_: Examples) -> str:
    rows = (
        (f"[`{method.name}`](#{_anchor(method.name)})", method.summary, _flag_words(method))
        for method in methods.METHODS.values()
    )
    return _table(("method", "", "flags"), rows)


def _messages(examples: Examples) -> str:
    parts = []
    for method in methods.METHODS.values():
        sent = shape(getattr(params, method.params), open_=False)
        answered = shape(getattr(results, method.result), open_=True)
        parts.append(f"### `{method.name}`\n\n{sent['description']}\n\n{_members(sent, 'Params')}")
        parts.append(f"{answered['description']}\n\n{_members(answered, 'Result')}")
        parts.append(exchange(_example(examples, "methods", method.name)))
    return "\n".join(part for part in parts if part)


def _objects(_: Examples) -> str:
    found: dict[str, Schema] = {}
    for method in methods.METHODS.values():
        found.update(shape(getattr(results, method.result), open_=True).get("$defs", {}))
        found.update(shape(getattr(params, method.params), open_=False).get("$defs", {}))
    for info in events.EVENTS.values():
        for name, schema in shape(info.data, open_=True).get("$defs", {}).items():
            found.setdefault(name, schema)
    return "\n".join(
        f"### {name}\n\n{found[name]['description']}\n\n{_members(found[name], 'Members')}" for name in sorted(found)
    )


def _notifications(examples: Examples) -> str:
    parts = []
    for name, message in methods.NOTIFICATIONS.items():
        schema = shape(getattr(results, message), open_=True)
        parts.append(f"### `{name}`\n\n{schema['description']}\n\n{_members(schema, 'Params')}")
        parts.append(single(_example(examples, "notifications", name), "frame"))
    return "\n".join(part for part in parts if part)


def _events(_: Examples) -> str:
    rows = (
        (f"[`{type_}`](#{_anchor(type_)})", shape(info.data, open_=True)["description"], _event_words(type_, info))
        for type_, info in events.EVENTS.items()
    )
    return _table(("type", "", "flags"), rows)


def _data(examples: Examples) -> str:
    parts = []
    for type_, info in events.EVENTS.items():
        schema = shape(info.data, open_=True)
        parts.append(f"### `{type_}`\n\n{schema['description']}\n\n{_members(schema, 'Data')}")
        parts.append(single(_example(examples, "events", type_), "entry"))
    return "\n".join(part for part in parts if part)


def _codes(examples: Examples) -> str:
    """How each standard code comes about."""
    return "\n".join(f"`{code}`:\n\n{refusal(record)}" for code, record in examples.get("codes", {}).items())


def _kind_examples(examples: Examples) -> str:
    """A section for each kind, also for those of which there is no example yet."""
    parts = []
    for kind, info in errors.KINDS.items():
        shown = refusal(_example(examples, "kinds", kind))
        parts.append(f"### `{kind}`\n\n{info.meaning} {info.advice}\n" + (f"\n{shown}" if shown else ""))
    return "\n".join(parts)


def _kinds(_: Examples) -> str:
    rows = (
        (f"[`{kind}`](#{_anchor(kind)})", info.meaning, info.advice, "yes" if info.retryable else "")
        for kind, info in errors.KINDS.items()
    )
    return _table(("kind", "what it means", "what to do", "retryable"), rows)


def _error_data(_: Examples) -> str:
    boundaries = ", ".join(f"`{name}`" for name in get_args(errors.Boundary))
    return f"{_members(error_schema(), 'Member', enums=False)}\nBoundaries: {boundaries}.\n"


_PARTS: Final[Mapping[str, Callable[[Examples], str]]] = {
    "methods": _methods,
    "messages": _messages,
    "objects": _objects,
    "notifications": _notifications,
    "events": _events,
    "data": _data,
    "kinds": _kinds,
    "kind_examples": _kind_examples,
    "codes": _codes,
    "error_data": _error_data,
}


def _members(schema: Schema, title: str, *, enums: bool = True) -> str:
    """A table of an object's members, those that are required first."""
    members: Mapping[str, Schema] = schema.get("properties", {})
    required = schema.get("required", [])
    names = [name for name in sorted(members, key=lambda name: name not in required) if name != "_meta"]
    if not names:
        return f"{title}: none.\n"
    rows = []
    for name in names:
        type_ = _type(members[name]) if enums or "enum" not in members[name] else "string"
        rows.append((f"`{name}`" + ("" if name in required else "?"), type_, members[name].get("description", "")))
    return _table((title, "type", ""), rows)


def _type(schema: Schema) -> str:
    """What a value is, in few words: `integer ≥ 1`, `array of Slot`, `"queue" or "join"`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](methods.md#{name.lower()})"
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(_type(choice) for choice in schema.get("anyOf") or schema["oneOf"])
    if "enum" in schema or "const" in schema:
        return " or ".join(f'`"{value}"`' for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        some = " (one or more)" if schema.get("minItems") == 1 else ""
        return f"array of {_type(schema['items'])}{some}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any")) + _bounds(schema)


def _bounds(schema: Mapping[str, Any]) -> str:
    if "minimum" in schema:
        return f" ≥ {schema['minimum']}"
    if "pattern" in schema:
        return " (id)"
    return f" to {schema['maxLength']} characters" if "maxLength" in schema else ""


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def _anchor(heading: str) -> str:
    """The fragment that renderers make of a heading: lower case, punctuation dropped."""
    return re.sub(r"[^\w-]", "", heading.lower())


def _flag_words(method: methods.Method) -> str:
    flags = {"early": method.early, "ordered": method.ordered, "waits": method.waits}
    return ", ".join(name for name, value in flags.items() if value)


def _event_words(type_: str, info: events.EventInfo) -> str:
    flags = {
        "terminal": type_ in events.TERMINAL_TYPES,
        "lifecycle": info.lifecycle,
        "experimental": info.stability == "experimental",
    }
    return ", ".join(name for name, value in flags.items() if value)
