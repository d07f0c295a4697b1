"""What holds for every tool in the table."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from hames.ports import Tool
from hames.tools import CORE, TABLE, all_tools, tools_for

TOOLS = all_tools()

ARGUMENTS: dict[str, dict[str, Any]] = {
    "read": {"path": "a\nb" * 200},
    "write": {"path": "a" * 500, "content": ""},
    "edit": {"path": "a" * 500, "oldText": "a", "newText": "b", "replaceAll": True},
    "bash": {"command": "echo\n\ttwo\x1b[31m" * 100},
    "grep": {"pattern": "x" * 500},
    "glob": {"pattern": "x" * 500},
    "process": {"action": "read", "process": "x" * 300},
    "apply_patch": {"patch": f"*** Begin Patch\n*** Delete File: {'a' * 500}\n*** End Patch"},
    "view_image": {"path": "a\nb" * 200},
    "list_dir": {"path": "a\nb" * 200},
    "read_many_files": {"paths": ["a" * 500, "b"]},
    "todo": {"items": [{"text": "x" * 200, "status": "in_progress"}]},
    "web_fetch": {"url": "x" * 500},
    "web_search": {"query": "x" * 400},
}


def test_the_table_names_the_core_tools_with_their_effects() -> None:
    assert {tool.spec.name: tool.effect for tool in TOOLS} == {
        "read": "read",
        "write": "write",
        "edit": "write",
        "bash": "execute",
        "grep": "read",
        "glob": "read",
        "process": "execute",
        "apply_patch": "write",
        "view_image": "read",
        "list_dir": "read",
        "read_many_files": "read",
        "todo": "read",
        "web_fetch": "execute",
        "web_search": "execute",
    }
    assert [tool.spec.name for tool in TOOLS] == list(TABLE)


def chosen(provider: str, model: str = "m", *, strict: bool = False, network: bool = True, key: bool = False) -> str:
    return " ".join(tools_for(provider, model, strict=strict, network=network, is_set=lambda _: key))


def test_a_family_gets_the_core_and_what_its_models_know() -> None:
    assert " ".join(CORE) == "read write edit bash grep glob"

    core = "read write edit bash grep glob process"
    assert chosen("anthropic") == f"{core} todo web_fetch"
    assert chosen("openai") == f"{core} apply_patch view_image todo web_fetch"
    assert chosen("gemini") == f"{core} list_dir read_many_files todo web_fetch"
    assert chosen("compatible", "gpt-5") == chosen("openai")
    assert chosen("compatible", "qwen3") == chosen("offline") == f"{core} todo web_fetch"


def test_what_goes_out_wants_a_network_and_a_search_wants_a_key() -> None:
    assert chosen("anthropic", network=False, key=True).endswith("glob process todo")
    assert chosen("anthropic", key=True).endswith("glob process todo web_fetch web_search")


def test_a_strict_session_gets_the_core_alone() -> None:
    assert chosen("openai", strict=True, key=True) == " ".join(CORE)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool.spec.name))
def test_parameters_are_a_closed_json_schema(tool: Tool) -> None:
    jsonschema.Draft202012Validator.check_schema(tool.spec.parameters)

    assert tool.spec.parameters["additionalProperties"] is False
    arguments = ARGUMENTS[tool.spec.name]
    validator = jsonschema.Draft202012Validator(tool.spec.parameters)
    assert validator.is_valid(arguments)
    assert not validator.is_valid({**arguments, "more": 1})
    assert validator.is_valid({}) is ("required" not in tool.spec.parameters)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool.spec.name))
def test_a_summary_is_one_short_printable_line(tool: Tool) -> None:
    summary = tool.summary(ARGUMENTS[tool.spec.name])

    assert 0 < len(summary) <= 200
    assert summary.isprintable()
