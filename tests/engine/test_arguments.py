"""Arguments that do not fit are answered by the place and the rule, and not repeated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake.histories import nested, nested_text
from hames.core.conversation import ARGUMENTS_DEPTH, ToolSpec
from hames.engine.arguments import check_arguments
from hames.protocol.errors import ToolFailed

SPEC = ToolSpec(
    "look",
    "",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "maxLength": 9},
            "count": {"type": "integer", "minimum": 1, "maximum": 5},
            "ratio": {"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "mode": {"enum": ["slow", "fast"]},
            "name": {"type": "string", "pattern": "^[a-z]+$"},
            "list": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
            "env": {
                "type": "object",
                "propertyNames": {"pattern": "^[A-Z]+$"},
                "additionalProperties": {"type": "string"},
            },
            "odd": {"not": {"type": "string"}},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)


def told(arguments: Any) -> str:
    with pytest.raises(ToolFailed) as failure:
        check_arguments(SPEC, arguments if isinstance(arguments, str) else json.dumps(arguments))
    assert failure.value.kind == "invalid_arguments"
    return failure.value.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "look: arguments must have `path`. Nothing was run."),
        ({"path": "a", "count": "x"}, "look: count must be of the type integer. Nothing was run."),
        ({"path": "a", "count": 0}, "look: count must be 1 or more. Nothing was run."),
        ({"path": "a", "count": 9}, "look: count must be 5 or less. Nothing was run."),
        ({"path": ""}, "look: path must have 1 characters or more. Nothing was run."),
        ({"path": "x" * 10}, "look: path must have 9 characters or fewer. Nothing was run."),
        ({"path": "a", "ratio": "x"}, "look: ratio must be of the type number or null. Nothing was run."),
        ({"path": "a", "ratio": 0}, "look: ratio must be more than 0. Nothing was run."),
        ({"path": "a", "ratio": 1}, "look: ratio must be less than 1. Nothing was run."),
        ({"path": "a", "mode": "x"}, 'look: mode must be one of ["slow","fast"]. Nothing was run.'),
        ({"path": "a", "name": "X"}, "look: name must match the pattern ^[a-z]+$. Nothing was run."),
        ({"path": "a", "list": []}, "look: list must have 1 items or more. Nothing was run."),
        ({"path": "a", "list": ["a", "b", "c"]}, "look: list must have 2 items or fewer. Nothing was run."),
        ({"path": "a", "list": ["a", 1]}, "look: list.1 must be of the type string. Nothing was run."),
        ({"path": "a", "env": {"SECRET": 1}}, "look: env.* must be of the type string. Nothing was run."),
        ({"path": "a", "odd": "x"}, "look: odd does not fit `not` of its schema. Nothing was run."),
        ([], "The arguments of look must be a JSON object."),
    ],
)
def test_a_fault_is_told_by_place_and_rule(arguments: Any, message: str) -> None:
    assert told(arguments) == message


def test_names_that_are_not_allowed_are_told_by_those_that_are() -> None:
    assert told({"path": "a", "frobnicate": 1}) == (
        "look: arguments has a member that is not known; there are: `path`, `count`, `ratio`, `mode`, `name`, `list`, "
        "`env`, `odd`. Nothing was run."
    )
    assert told({"path": "a", "env": {"low": "x"}}) == (
        "look: env has a name that is not allowed; names match ^[A-Z]+$. Nothing was run."
    )


MARK = "zqzq"
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([MARK, MARK * 300, 987654, True, None]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([MARK, "env", "path"]), inner, max_size=2)
    ),
)


@given(st.dictionaries(st.sampled_from([MARK, *SPEC.parameters["properties"]]), VALUES))
def test_nothing_of_what_was_given_is_repeated(arguments: dict[str, Any]) -> None:
    try:
        check_arguments(SPEC, json.dumps(arguments))
    except ToolFailed as failure:
        message = failure.message
    else:
        message = ""

    assert MARK not in message
    assert "987654" not in message
    assert len(message) < 500


@pytest.mark.parametrize("raw", ["{zqzq", '{"path": "zqzq', '{"path": zqzq}', '{"path": NaN}', "\x00zqzq"])
def test_text_that_is_no_json_is_not_repeated(raw: str) -> None:
    message = told(raw)

    assert "not valid JSON" in message
    assert MARK not in message


@pytest.mark.parametrize("depth", [ARGUMENTS_DEPTH, ARGUMENTS_DEPTH + 1, 128, 129, 300, 5_000])
def test_arguments_that_are_too_deep_for_a_provider_are_refused(depth: int) -> None:
    spec = ToolSpec("look", "", {"type": "object"})

    if depth == ARGUMENTS_DEPTH:
        assert check_arguments(spec, nested_text(depth)) == nested(depth)
        return
    with pytest.raises(ToolFailed) as failure:
        check_arguments(spec, nested_text(depth))

    assert failure.value.kind == "invalid_arguments"
    assert "nested" in failure.value.message or "depth" in failure.value.message
