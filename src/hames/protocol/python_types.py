"""What a server sends, as Python types for the client package, which does not import the server.

Rule: made from the JSON Schemas and from nothing else, so that a client type can say no more than what is published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any, Final

from hames.protocol import events, methods, results
from hames.protocol.schema import Schema, shape

PATH: Final = "clients/python/src/hames_client/messages.py"

_HEAD: Final = '''"""What the server sends. Generated from its messages; `make gen` writes it.

Members may be added in any version, so a message may hold more than stands here.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict
'''


def python_types() -> str:
    """The text of the module at `PATH`."""
    found: dict[str, Schema] = {}
    for message in _messages():
        schema = shape(message, open_=True)
        found.update(schema.pop("$defs", {}))
        found[message.__name__] = schema
    return "\n".join([_HEAD, *(_class(name, found[name]) for name in sorted(found))])


LINE_CHARS = 120
"""As the formatter has it."""


def _messages() -> Iterator[type]:
    for method in methods.METHODS.values():
        yield getattr(results, method.result)
    for name in methods.NOTIFICATIONS.values():
        yield getattr(results, name)
    for info in events.EVENTS.values():
        yield info.data


def _class(name: str, schema: Schema) -> str:
    lines = [f"\nclass {name}(TypedDict):", *_docstring(schema["description"])]
    members: Mapping[str, Schema] = schema.get("properties", {})
    if members:
        lines.append("")
    for member, value in members.items():
        type_ = _type(value)
        line = f"    {member}: {type_ if member in schema.get('required', []) else f'NotRequired[{type_}]'}"
        lines += [line] if len(line) <= LINE_CHARS or not line.endswith("]") else _broken(line)
        if "description" in value:
            lines += _docstring(value["description"])
    return "\n".join([*lines, ""])


def _broken(line: str) -> list[str]:
    """A long type over three lines, as the formatter has it."""
    head, _, inner = line.removesuffix("]").partition("[")
    lines = [f"        {inner}"]
    if len(lines[0]) > LINE_CHARS:
        choices = inner.split(" | ")
        lines = [each for place, choice in enumerate(choices) for each in _choice("| " if place else "", choice)]
    return [f"{head}[", *lines, "    ]"]


def _choice(mark: str, choice: str) -> list[str]:
    """One of several types on a line of its own; of a long list of words, each."""
    line = f"        {mark}{choice}"
    if len(line) <= LINE_CHARS or not choice.startswith("Literal["):
        return [line]
    words = choice.removeprefix("Literal[").removesuffix("]").split(", ")
    return [f"        {mark}Literal[", *(f"            {word}," for word in words), "        ]"]


def _docstring(text: str) -> list[str]:
    short = f'    """{text}"""'
    if len(short) <= LINE_CHARS:
        return [short]
    first, *rest = wrap(text, 110)
    return [f'    """{first}', *(f"    {line}" for line in rest), '    """']


def _type(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"$ref": reference}:
            return str(reference).rpartition("/")[2]
        case {"anyOf": choices}:
            return " | ".join(_type(choice) for choice in choices)
        case {"enum": _} | {"const": _}:
            values = schema.get("enum", [schema.get("const")])
            return "Literal[" + ", ".join(f'"{value}"' for value in values) + "]"
        case {"type": "array", "items": items}:
            return f"list[{_type(items)}]"
        case {"type": "object", "additionalProperties": dict(inner)}:
            return f"dict[str, {_type(inner)}]"
    return _SIMPLE[str(schema.get("type", "any"))]


_SIMPLE: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "array": "list[Any]",
    "object": "dict[str, Any]",
    "any": "Any",
}
