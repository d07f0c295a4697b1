"""Every event can be told to a person, whatever it leaves out of what it may leave out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hames.commands.telling import told
from hames.protocol.events import EVENTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", EVENTS)
def test_every_event_can_be_told(name: str, whole: bool) -> None:
    lines = (ROOT / "protocol/examples/events.jsonl").read_text("utf-8").splitlines()
    event = next(row["entry"]["event"] for row in map(json.loads, lines) if row["name"] == name)
    schema = json.loads((ROOT / f"schemas/events/{name}.json").read_text("utf-8"))["properties"]["data"]
    if "$ref" in schema:
        definitions = json.loads((ROOT / f"schemas/events/{name}.json").read_text("utf-8"))["$defs"]
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    required = {key: value for key, value in event["data"].items() if key in schema.get("required", [])}

    told(event, tool_output=whole)
    told({**event, "data": required}, tool_output=whole)


def test_a_new_model_is_told() -> None:
    route = {"provider": "openai", "model": "m"}

    assert told({"type": "session.updated", "data": {"by": {}, "model": route}}) == "[model: openai/m]"
    both = {"by": {}, "title": "T", "model": route}
    assert told({"type": "session.updated", "data": both}) == "[title: T, model: openai/m]"


@pytest.mark.parametrize(
    ("outcome", "text", "short", "whole"),
    [
        ("ok", "fine", None, "  fine"),
        ("error", "Error (not_found): There is no x.\nmore", "  read: error (not_found): There is no x.",
         "  Error (not_found): There is no x.\n  more"),
        ("error", "Errors were found", "  read: error: Errors were found", "  [error] Errors were found"),
        ("denied", "Error (denied): No.", "  read: denied (denied): No.", "  [denied] Error (denied): No."),
        ("cancelled", "Cancelled.", "  read: cancelled: Cancelled.", "  [cancelled] Cancelled."),
    ],
)  # fmt: skip
def test_a_result_is_told_with_its_tool_and_how_it_went_once(
    outcome: str, text: str, short: str | None, whole: str
) -> None:
    data = {"callId": "c-1", "tool": "read", "outcome": outcome, "text": text, "details": {}}
    event = {"type": "tool.completed", "data": data}

    assert told(event) == short
    assert told(event, tool_output=True) == whole
