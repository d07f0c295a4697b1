"""What is generated from the messages: JSON Schemas (2020-12), their index, and the OpenRPC document.

Rule 1: the same messages give the same bytes; a test compares them with what is checked in, and `make gen` writes it.
Rule 2: input is closed and output is open, as the server behaves: an object that stands in both (a slot) refuses
unknown members in params and allows them in what is sent.
Rule 3: nothing here is needed to serve a session; importing it imports pydantic, so that is done on demand.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Final, get_args

import orjson

from hames.protocol import base, errors, events, methods, objects, params, processes, results, usage

Schema = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
OPENRPC: Final = "1.3.2"

_CLAUSES: Final = re.compile(r" \(AH-[A-Z]+-\d+(?:, AH-[A-Z]+-\d+)*\)")


def documents() -> dict[str, bytes]:
    """Every generated file, by its path from the root of the repository."""
    files: dict[str, Schema] = {}
    for method in methods.METHODS.values():
        stem = f"methods/{_stem(method.name)}"
        files[f"{stem}.params.json"] = _file(method.name, getattr(params, method.params), "params")
        files[f"{stem}.result.json"] = _file(method.name, getattr(results, method.result), "result")
    for name, shape in methods.CLIENT_NOTIFICATIONS.items():
        files[f"methods/{_stem(name)}.params.json"] = _file(name, getattr(params, shape), "params")
    for name, shape in methods.NOTIFICATIONS.items():
        files[f"notifications/{_stem(name)}.json"] = _file(name, getattr(results, shape), "notification")
    for type_, info in events.EVENTS.items():
        files[f"events/{type_}.json"] = event_schema(type_, info.data)
    files["error.json"] = error_schema()
    written = {f"schemas/{path}": _text(schema) for path, schema in files.items()}
    written["schemas/index.json"] = _text(index())
    written["protocol/openrpc.json"] = _text(openrpc_document())
    return dict(sorted(written.items()))


def event_schemas() -> dict[str, bytes]:
    """The schema of every published event, as its file, by type."""
    return {type_: _text(event_schema(type_, info.data)) for type_, info in events.EVENTS.items()}


def shape(message: type, *, open_: bool) -> Schema:
    """The schema of one message, with the objects it holds under `$defs`; `open_` allows unknown members."""
    made = _made(message)
    definitions = made.get("$defs", {})
    cleaned = _clean({key: value for key, value in made.items() if key != "$defs"}, open_=open_)
    cleaned.pop("title", None)
    _describe(cleaned, message.__name__)
    if definitions:
        cleaned["$defs"] = {name: _clean(definitions[name], open_=open_) for name in sorted(definitions)}
        for name, definition in cleaned["$defs"].items():
            definition.pop("title", None)
            _describe(definition, name)
    return cleaned


@cache
def _made(message: type) -> Mapping[str, Any]:
    """The schema as pydantic makes it: a few milliseconds each, so it is made once."""
    from pydantic import TypeAdapter

    return TypeAdapter(message).json_schema()


def event_schema(type_: str, data: type) -> Schema:
    """The schema of a published event of this type, as it stands in `event` notifications and in pages."""
    body = shape(data, open_=True)
    definitions = body.pop("$defs", None)
    identifier = {"type": "string", "pattern": base.ID_PATTERN}
    schema: Schema = {
        **_head(f"event.{type_}", type_),
        "description": body.pop("description"),
        "type": "object",
        "properties": {
            "sessionId": identifier,
            "seq": {"type": "integer", "minimum": 1, "maximum": base.MAX_INTEGER},
            "time": {"type": "string", "format": "date-time", "description": "Informative; `seq` is the order."},
            "turnId": identifier,
            "attempt": {"type": "integer", "minimum": 1, "maximum": base.MAX_INTEGER},
            "type": {"const": type_},
            "data": body,
        },
        "required": ["sessionId", "seq", "time", "type", "data"],
    }
    if definitions:
        schema["$defs"] = definitions
    return schema


def error_schema() -> Schema:
    """The schema of `error.data` where `error.code` is -32000; with `message`, also of a failed turn's error."""
    return {
        **_head("error", "error data"),
        "description": f"The `data` of a JSON-RPC error whose code is {errors.HAMES_ERROR}.",
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": list(get_args(errors.ErrorKind))},
            "retryable": {"type": "boolean", "description": "Waiting alone may cure it."},
            "boundary": {
                "type": "string",
                "enum": list(get_args(errors.Boundary)),
                "description": "Where a failure arose; absent on a refusal.",
            },
            "details": {"type": "object"},
        },
        "required": ["kind", "retryable", "details"],
    }


def index() -> Schema:
    """What there is, and which schema file holds it."""
    return {
        "protocolVersion": methods.PROTOCOL_VERSION,
        "schemaVersion": methods.SCHEMA_VERSION,
        "methods": [
            {
                "name": method.name,
                "summary": method.summary,
                "params": f"methods/{_stem(method.name)}.params.json",
                "result": f"methods/{_stem(method.name)}.result.json",
                **_flags(method),
            }
            for method in methods.METHODS.values()
        ],
        "clientNotifications": [
            {"name": name, "params": f"methods/{_stem(name)}.params.json"} for name in methods.CLIENT_NOTIFICATIONS
        ],
        "notifications": [
            {"name": name, "params": f"notifications/{_stem(name)}.json"} for name in methods.NOTIFICATIONS
        ],
        "events": [
            {
                "type": type_,
                "schema": f"events/{type_}.json",
                "stability": info.stability,
                "lifecycle": info.lifecycle,
                "terminal": type_ in events.TERMINAL_TYPES,
            }
            for type_, info in events.EVENTS.items()
        ],
        "errors": {
            "data": "error.json",
            "boundaries": list(get_args(errors.Boundary)),
            "kinds": [
                {"kind": kind, "retryable": info.retryable, "meaning": info.meaning, "advice": info.advice}
                for kind, info in errors.KINDS.items()
            ],
        },
    }


def openrpc_document() -> Schema:
    """The OpenRPC description of the methods; also the answer to `rpc.discover`.

    What the server sends by itself has no place in OpenRPC and stands under `x-notifications`.
    """
    components: dict[str, Schema] = {}
    entries = [_openrpc_method(method, components) for method in methods.METHODS.values()]
    for name, message in methods.CLIENT_NOTIFICATIONS.items():
        # OpenRPC 1.3: a method without a result is a notification.
        taken = _openrpc_params(getattr(params, message), components)
        entries.append({"name": name, "paramStructure": "by-name", "params": taken})
    notifications = [
        {"name": name, "params": _component(getattr(results, message), components, open_=True)}
        for name, message in methods.NOTIFICATIONS.items()
    ]
    return {
        "openrpc": OPENRPC,
        "info": {
            "title": "Hames",
            "version": methods.SCHEMA_VERSION,
            "description": "A durable agent harness, driven over stdin and stdout.",
            "license": {"name": "Apache-2.0"},
        },
        "methods": entries,
        "components": {
            "schemas": dict(sorted(components.items())),
            "errors": {
                "HamesError": {
                    "code": errors.HAMES_ERROR,
                    "message": "What was seen, what is allowed and what to do.",
                    "data": {key: value for key, value in error_schema().items() if not key.startswith("$")},
                }
            },
        },
        "x-protocol-version": methods.PROTOCOL_VERSION,
        "x-notifications": notifications,
    }


def _openrpc_method(method: methods.Method, components: dict[str, Schema]) -> Schema:
    message = getattr(params, method.params)
    result = getattr(results, method.result)
    return {
        "name": method.name,
        "summary": method.summary,
        "description": published(inspect.getdoc(message) or ""),
        "paramStructure": "by-name",
        "params": _openrpc_params(message, components),
        "result": {"name": method.result, "schema": _component(result, components, open_=True)},
        "errors": [{"$ref": "#/components/errors/HamesError"}],
        **{f"x-{flag}": value for flag, value in _flags(method).items()},
    }


def _openrpc_params(message: type, components: dict[str, Schema]) -> list[Schema]:
    schema = _with_components(shape(message, open_=False), components)
    required = schema.get("required", [])
    # A descriptor that is required comes before those that are not, OpenRPC 1.3 "Content Descriptor".
    names = sorted(schema.get("properties", {}), key=lambda name: name not in required)
    return [{"name": name, "required": name in required, "schema": schema["properties"][name]} for name in names]


def _component(message: type, components: dict[str, Schema], *, open_: bool) -> Schema:
    schema = _with_components(shape(message, open_=open_), components)
    components[message.__name__] = schema
    return {"$ref": f"#/components/schemas/{message.__name__}"}


def _with_components(schema: Schema, components: dict[str, Schema]) -> Schema:
    """`schema` with its `$defs` moved to `components`."""
    for name, definition in schema.pop("$defs", {}).items():
        components[name] = _refer(definition)
    moved: Schema = _refer(schema)
    return moved


def _refer(node: Any) -> Any:
    if isinstance(node, list):
        return [_refer(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    return {
        key: value.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _refer(value)
        for key, value in node.items()
    }


def _file(name: str, message: type, role: str) -> Schema:
    schema = shape(message, open_=role != "params")
    return {**_head(f"{_stem(name)}.{role}", f"{name} {role}"), **schema}


def _head(name: str, title: str) -> Schema:
    return {"$schema": DIALECT, "$id": f"urn:hames:{name}", "title": title}


def _stem(name: str) -> str:
    return name.removeprefix("$/").replace("/", ".")


def _flags(method: methods.Method) -> dict[str, bool]:
    return {"ordered": method.ordered, "waits": method.waits, "early": method.early}


def _text(document: Schema) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


_ORDER: Final = {
    key: place
    for place, key in enumerate(("$ref", "title", "description", "type", "const", "enum", "properties", "required"))
}


def _clean(node: Schema, *, open_: bool) -> Schema:
    """A schema node without made-up titles and without what says nothing, its keys in a fixed order."""
    cleaned: Schema = {}
    for key in sorted(node, key=lambda key: (_ORDER.get(key, len(_ORDER)), key)):
        value = node[key]
        if key == "discriminator":
            # OpenAPI's; JSON Schema says the same by the constants in `oneOf`.
            continue
        if key == "additionalProperties" and (value is True or (open_ and value is False)):
            continue
        if key == "properties":
            value = {name: _clean(member, open_=open_) for name, member in value.items()}
            for member in value.values():
                member.pop("title", None)
        elif isinstance(value, dict):
            value = _clean(value, open_=open_)
        elif key in {"anyOf", "allOf", "oneOf", "prefixItems"}:
            value = [_clean(member, open_=open_) for member in value]
        cleaned[key] = value
    return cleaned


def _describe(schema: Schema, name: str) -> None:
    """Add the docstrings of the members of the message called `name`."""
    for member, text in _member_docs().get(name, {}).items():
        schema["properties"][member]["description"] = published(text)
    schema["description"] = published(schema["description"])


def published(docstring: str) -> str:
    """A docstring as it is published: in one line, without the clauses of the specification it follows."""
    return _CLAUSES.sub("", " ".join(docstring.split()))


@cache
def _member_docs() -> Mapping[str, Mapping[str, str]]:
    """The docstring below each member, by class and member, from the source of the messages."""
    modules = (objects, processes, usage, params, results, events)
    return {name: docs for module in modules for name, docs in _docs_of(module) if docs}


def _docs_of(module: ModuleType) -> Iterable[tuple[str, dict[str, str]]]:
    for statement in ast.parse(inspect.getsource(module)).body:
        if not isinstance(statement, ast.ClassDef):
            continue
        docs: dict[str, str] = {}
        member = ""
        for part in statement.body:
            match part:
                case ast.AnnAssign(target=ast.Name(id=member)):
                    pass
                case ast.Expr(value=ast.Constant(value=str(text))) if member:
                    docs[member] = " ".join(text.split())
        yield statement.name, docs
