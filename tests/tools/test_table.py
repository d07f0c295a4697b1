"""What holds for every tool in the table."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from hames.ports import Tool
from hames.tools import TOOLS

ARGUMENTS: dict[str, dict[str, Any]] = {
    "read": {"path": "a\nb" * 200},
    "write": {"path": "a" * 500, "content": ""},
    "edit": {"path": "a" * 500, "oldText": "a", "newText": "b", "replaceAll": True},
    "bash": {"command": "echo\n\ttwo\x1b[31m" * 100},
    "grep": {"pattern": "x" * 500},
    "glob": {"pattern": "x" * 500},
}


def test_the_table_names_the_core_tools_with_their_effects() -> None:
    assert {tool.spec.name: tool.effect for tool in TOOLS} == {
        "read": "read",
        "write": "write",
        "edit": "write",
        "bash": "execute",
        "grep": "read",
        "glob": "read",
    }


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool.spec.name))
def test_parameters_are_a_closed_json_schema(tool: Tool) -> None:
    jsonschema.Draft202012Validator.check_schema(tool.spec.parameters)

    assert tool.spec.parameters["additionalProperties"] is False
    arguments = ARGUMENTS[tool.spec.name]
    validator = jsonschema.Draft202012Validator(tool.spec.parameters)
    assert validator.is_valid(arguments)
    assert not validator.is_valid({**arguments, "more": 1})
    assert not validator.is_valid({})


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool.spec.name))
def test_a_summary_is_one_short_printable_line(tool: Tool) -> None:
    summary = tool.summary(ARGUMENTS[tool.spec.name])

    assert 0 < len(summary) <= 200
    assert summary.isprintable()
