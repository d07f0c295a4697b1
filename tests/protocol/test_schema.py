from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from hames.protocol import schema, tables
from hames.protocol.errors import KINDS
from hames.protocol.events import EVENTS
from hames.protocol.methods import CLIENT_NOTIFICATIONS, METHODS, NOTIFICATIONS

DOCUMENTS = schema.documents()
SCHEMAS = {path: json.loads(text) for path, text in DOCUMENTS.items() if path.startswith("schemas/")}
OPENRPC = json.loads(DOCUMENTS["protocol/openrpc.json"])


def test_every_schema_is_a_valid_schema_with_an_id_of_its_own() -> None:
    files = {path: content for path, content in SCHEMAS.items() if path != "schemas/index.json"}

    for content in files.values():
        Draft202012Validator.check_schema(content)

    assert len({content["$id"] for content in files.values()}) == len(files)
    assert all(content["$id"].startswith("urn:hames:") and content["description"] for content in files.values())


def test_the_index_names_every_file_and_nothing_else() -> None:
    index = SCHEMAS["schemas/index.json"]
    named = [entry["params"] for entry in index["methods"] + index["clientNotifications"] + index["notifications"]]
    named += [entry["result"] for entry in index["methods"]]
    named += [entry["schema"] for entry in index["events"]] + [index["errors"]["data"]]

    assert sorted(f"schemas/{path}" for path in named) == sorted(set(SCHEMAS) - {"schemas/index.json"})
    assert [entry["name"] for entry in index["methods"]] == list(METHODS)
    assert [entry["name"] for entry in index["notifications"]] == list(NOTIFICATIONS)
    assert [entry["type"] for entry in index["events"]] == list(EVENTS)
    assert [entry["kind"] for entry in index["errors"]["kinds"]] == list(KINDS)


def test_params_refuse_unknown_members_at_every_depth_save_meta() -> None:
    params = {"sessionId": "s", "input": [{"type": "text", "text": "hi"}], "_meta": {"anything": 1}}

    _check("methods/turn.submit.params.json", params)

    for wrong in (params | {"extra": 1}, params | {"input": [{"type": "text", "text": "hi", "extra": 1}]}):
        with pytest.raises(ValidationError):
            _check("methods/turn.submit.params.json", wrong)


def test_what_is_sent_is_open_at_every_depth() -> None:
    closed = [path for path, content in SCHEMAS.items() if ".params." not in path and _refuses_members(content)]

    assert closed == []


def test_an_event_schema_describes_the_whole_published_event() -> None:
    event: dict[str, Any] = {
        "sessionId": "s",
        "seq": 3,
        "time": "2026-01-31T09:00:00.000Z",
        "turnId": "t",
        "attempt": 1,
        "type": "message.chunk",
        "data": {"itemId": "i", "offset": 0, "text": "hi", "later": True},
        "later": True,
    }

    _check("events/message.chunk.json", event)

    for wrong in (event | {"type": "turn.queued"}, event | {"seq": 0}, event | {"data": {"itemId": "i"}}):
        with pytest.raises(ValidationError):
            _check("events/message.chunk.json", wrong)


def test_docstrings_of_members_become_descriptions() -> None:
    members = SCHEMAS["schemas/methods/turn.submit.params.json"]["properties"]

    assert members["delivery"]["description"].startswith("`queue` (default)")
    assert "description" not in members["turnId"]


def test_titles_that_only_repeat_a_name_are_left_out_but_a_member_called_title_stays() -> None:
    members = SCHEMAS["schemas/methods/session.update.params.json"]["properties"]

    assert members["title"] == {"type": "string", "maxLength": 500}


def test_openrpc_names_every_method_and_resolves_every_reference() -> None:
    names = [method["name"] for method in OPENRPC["methods"]]
    references = set(_references(OPENRPC))

    assert names == [*METHODS, *CLIENT_NOTIFICATIONS]
    assert [entry["name"] for entry in OPENRPC["x-notifications"]] == list(NOTIFICATIONS)
    assert all(_resolve(reference) for reference in references)


def test_openrpc_lists_required_params_first_and_keeps_input_closed() -> None:
    submit = next(method for method in OPENRPC["methods"] if method["name"] == "turn/submit")

    assert [param["name"] for param in submit["params"] if param["required"]] == ["sessionId", "input"]
    assert [param["required"] for param in submit["params"]] == sorted(
        (param["required"] for param in submit["params"]), reverse=True
    )
    assert OPENRPC["components"]["schemas"]["TextSlot"]["additionalProperties"] is False


def test_no_result_holds_an_object_that_is_closed_as_input() -> None:
    # OpenRPC keeps one definition a name; an object in both directions would need two.
    sent = [
        content for path, content in SCHEMAS.items() if path.endswith((".result.json",)) or "/notifications/" in path
    ]
    taken = [content for path, content in SCHEMAS.items() if path.endswith(".params.json")]

    both = {name for content in sent for name in content.get("$defs", {})} & {
        name for content in taken for name in content.get("$defs", {})
    }

    assert both == set()


def test_a_marker_that_names_no_part_is_an_error() -> None:
    with pytest.raises(KeyError):
        tables.fill("<!-- generated: nothing -->\n<!-- end -->\n")


def _check(path: str, value: object) -> None:
    Draft202012Validator(SCHEMAS[f"schemas/{path}"]).validate(value)


def _refuses_members(node: Any) -> bool:
    if isinstance(node, list):
        return any(_refuses_members(inner) for inner in node)
    if not isinstance(node, dict):
        return False
    return node.get("additionalProperties") is False or any(_refuses_members(inner) for inner in node.values())


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [reference for inner in node for reference in _references(inner)]
    if not isinstance(node, dict):
        return []
    found = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return found + [reference for inner in node.values() for reference in _references(inner)]


def _resolve(reference: str) -> Any:
    node: Any = OPENRPC
    for part in reference.removeprefix("#/").split("/"):
        node = node[part]
    return node
