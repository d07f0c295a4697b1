"""JSON Schemas for Anthropic: those of tools are taken, and that of an answer says what can be said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fake.anthropic_histories import ADAPTIVE, ASK, BUDGET, sent, why_refused
from hames.core.conversation import ModelRequest, ToolSpec
from hames.providers.anthropic_schema import answer_schema, tool_schema

TEXT: dict[str, Any] = {"type": "string"}
POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": "object", "anyOf": [{"required": ["a"]}]}, {"type": "object", "properties": {}}),
        (
            {
                "type": "object",
                "properties": {"a.b-c_1": TEXT, "filter[id]": TEXT},
                "required": ["a.b-c_1", "filter[id]"],
            },
            {"type": "object", "properties": {"a.b-c_1": TEXT}, "required": ["a.b-c_1"]},
        ),
        (
            {"properties": {"a": {"oneOf": [TEXT, {"$ref": "#/$defs/p"}]}}, "$defs": {"p": POINT}},
            {"type": "object", "properties": {"a": {"oneOf": [TEXT, {"$ref": "#/$defs/p"}]}}, "$defs": {"p": POINT}},
        ),
    ],
    ids=["nothing", "a choice at the top", "a member that cannot be named", "a choice and a reference within"],
)
def test_a_tool_has_an_object_without_what_is_refused(parameters: dict[str, Any], expected: dict[str, Any]) -> None:
    request = ModelRequest(ADAPTIVE, "", (ASK,), (ToolSpec("t", "", parameters),))

    assert tool_schema(parameters) == expected
    assert why_refused(request) is None


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (POINT, POINT),
        (
            {"type": "object", "properties": {"a": TEXT}},
            {"type": "object", "properties": {"a": TEXT}, "additionalProperties": False},
        ),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "description": '{"minimum":1}'}),
        (
            {"type": "string", "description": "A day.", "format": "date", "maxLength": 10},
            {"type": "string", "format": "date", "description": 'A day.\n\n{"maxLength":10}'},
        ),
        ({"type": "string", "format": "regex"}, {"type": "string", "description": '{"format":"regex"}'}),
        ({"type": ["string", "null"]}, {"anyOf": [TEXT, {"type": "null"}]}),
        (
            {"type": ["object", "null"], "properties": {"a": TEXT}, "title": "T"},
            {
                "anyOf": [
                    {"type": "object", "properties": {"a": TEXT}, "additionalProperties": False},
                    {"type": "null"},
                ],
                "title": "T",
            },
        ),
        ({"oneOf": [TEXT, POINT]}, {"anyOf": [TEXT, POINT]}),
        ({"enum": ["a", 1, None], "type": "string"}, {"enum": ["a", 1, None]}),
        ({"const": False}, {"const": False}),
        ({"type": "array", "items": TEXT, "minItems": 1}, {"type": "array", "items": TEXT, "minItems": 1}),
        (
            {"type": "array", "items": TEXT, "minItems": 3},
            {"type": "array", "items": TEXT, "description": '{"minItems":3}'},
        ),
        (
            {"$ref": "#/$defs/list", "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/p"}}, "p": POINT}},
            {"type": "array", "items": POINT},
        ),
        ({"$ref": "#/definitions/p", "description": "d", "definitions": {"p": POINT}}, {**POINT, "description": "d"}),
    ],
)
def test_an_answer_is_bound_in_the_words_of_the_vendor(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    request = ModelRequest(ADAPTIVE, "", (ASK,), output_schema=schema)

    assert answer_schema(schema) == expected
    assert sent(request)["output_config"] == {"format": {"type": "json_schema", "schema": expected}}
    assert why_refused(request) is None


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": TEXT},
        {"type": "object", "properties": {"a": TEXT}, "required": ["b"]},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": TEXT}, "anyOf": [{"required": ["a"]}]},
        {"type": "object", "properties": {"a": TEXT}, "allOf": [{"required": ["b"]}]},
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}},
        {"$ref": "https://example.com/schema"},
        {"enum": [{"a": 1}]},
        {"type": "strange"},
        {"$ref": "#/$defs/0", "$defs": {f"{n}": {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)}},
    ],
)
def test_an_answer_that_the_vendor_has_no_words_for_is_not_bound(schema: dict[str, Any]) -> None:
    assert answer_schema(schema) is None
    assert "output_config" not in sent(ModelRequest(ADAPTIVE, "", (ASK,), output_schema=schema))


def test_a_model_that_takes_no_schema_is_sent_none() -> None:
    assert "output_config" in sent(ModelRequest(BUDGET, "", (ASK,), output_schema=POINT))
    assert "output_config" not in sent(ModelRequest("claude-opus-4-1", "", (ASK,), output_schema=POINT))
    assert "output_config" not in sent(ModelRequest("another", "", (ASK,), output_schema=POINT))


LEAVES = st.sampled_from(
    [TEXT, {"type": "integer", "maximum": 3}, {"enum": ["a"]}, {"const": None}, {"type": ["number", "null"]}, {}, True]
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3)},
            optional={
                "required": st.lists(st.sampled_from("abcd"), unique=True, max_size=2),
                "additionalProperties": st.sampled_from([False, True, TEXT]),
            },
        )
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"minItems": st.integers(0, 2)})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
    ),
    max_leaves=6,
)
ANSWERS = st.recursive(
    st.none() | st.integers(0, 5) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=6,
)


@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), st.lists(ANSWERS, max_size=5))
def test_what_fits_the_schema_that_is_sent_fits_the_one_asked_for_but_for_bounds(
    schema: Any, answers: list[Any]
) -> None:
    said = answer_schema(schema)

    assert why_refused(ModelRequest(ADAPTIVE, "", (ASK,), output_schema=schema)) is None
    for answer in answers if said is not None else ():
        if Draft202012Validator(said).is_valid(answer):
            faults = Draft202012Validator(schema).iter_errors(answer)
            assert {fault.validator for fault in faults} <= {"maximum", "minItems", "anyOf"}
