"""The body of a Gemini request: always one that a strict server takes, always the same bytes for the same request."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import gemini_strict
from fake.gemini import MODEL, call_parts, chunk, signed_text, signed_thought
from fake.histories import TEXT, histories, plain_answers
from fake.pictures import gif, png
from fake.vendors import GIVEN
from hames.core.conversation import (
    AssistantMessage,
    Effort,
    Message,
    ModelRequest,
    Picture,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from hames.core.signed import CallItem, OwnItem, TextItem, signed_parts
from hames.providers.gemini import Gemini
from hames.providers.gemini_body import GO_ON, NOT_SHOWN, UNSIGNED
from hames.providers.gemini_reply import ReplyBuilder
from hames.providers.gemini_schema import MAX_SCHEMAS, gemini_schema
from hames.providers.request import EMPTY, SHOWN

BASH = ToolSpec("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
TOOLS = (
    BASH,
    ToolSpec("ba sh", "", {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": {"$ref": "#/$defs/a"}}}}}),
    ToolSpec("ba_sh", " ", {"type": "object", "additionalProperties": False}),
    ToolSpec("1st", "one", {"type": "object"}),
)
ASK = UserMessage("hi")
OLD = "gemini-2.5-flash"
MODELS = st.sampled_from([MODEL, OLD, "gemini-2.0-flash", "gemma-3-27b-it", "gemini-flash-latest", "a/b c"])


def refused(request: ModelRequest) -> str | None:
    target = "/v1beta" + Gemini().path(request)
    return gemini_strict.refusal(target, Gemini().body(request), "application/json")[1]


def sent(request: ModelRequest) -> dict[str, Any]:
    parsed: dict[str, Any] = orjson.loads(Gemini().body(request))
    return parsed


def contents(*messages: Message, model: str = MODEL) -> list[dict[str, Any]]:
    request = ModelRequest(model, "", messages, (BASH,))
    assert refused(request) is None
    found: list[dict[str, Any]] = sent(request)["contents"]
    return found


def answered(*parts: Mapping[str, Any], model: str = MODEL) -> AssistantMessage:
    """What the model said, by way of the builder of replies."""
    builder = ReplyBuilder(ModelRequest(model, "", (ASK,), TOOLS))
    for part in parts:
        builder.add(json.dumps(chunk([part])).encode())
    builder.end()
    reply = builder.reply()
    return AssistantMessage(reply.text, reply.calls, reply.parts)


@st.composite
def signed_answers(draw: st.DrawFn) -> AssistantMessage:
    """An answer with signatures, of a model that may be another, and that may have been altered since."""
    model = draw(st.sampled_from([MODEL, OLD]))
    words = TEXT.filter(lambda text: text.isprintable())
    parts: list[dict[str, Any]] = []
    for kind in draw(st.lists(st.sampled_from(["text", "signed", "thought"]), max_size=3)):
        text = draw(words)
        parts.append(
            {"text": {"text": text}, "signed": signed_text(text, model)}.get(kind) or signed_thought(text, model)
        )
    names = draw(st.lists(st.sampled_from(["bash", "ba_sh", "ba sh", "default_api.x", "_1st"]), max_size=3))
    if names:
        signed_by = draw(st.sampled_from([model, None]))
        parts += call_parts([(name, draw(GIVEN)) for name in names], signed_by=signed_by)
    answer = answered(*parts, model=model)
    change = draw(st.sampled_from(["none", "none", "text", "calls", "dialect"]))
    if change == "text":
        answer = dataclasses.replace(answer, text=answer.text + "!")
    elif change == "calls":
        answer = dataclasses.replace(answer, calls=answer.calls[1:])
    elif change == "dialect" and answer.parts:
        answer = dataclasses.replace(answer, parts={**answer.parts, "dialect": "another"})
    return answer if answer.text or answer.calls else dataclasses.replace(answer, text=" ", parts={})


ANSWERS = plain_answers() | signed_answers()


@given(
    messages=histories(ANSWERS),
    model=MODELS,
    system=TEXT,
    tools=st.sampled_from([(), (BASH,), TOOLS]),
    choice=st.sampled_from(["auto", "none"]),
    effort=st.sampled_from([None, "none", "minimal", "low", "medium", "high"]),
    schema=st.sampled_from([None, {"type": "object", "properties": {"a": {"const": 1, "default": 2}}}]),
)
def test_a_strict_server_takes_every_history_whose_calls_have_results(
    messages: tuple[Message, ...],
    model: str,
    system: str,
    tools: tuple[ToolSpec, ...],
    choice: Any,
    effort: Effort | None,
    schema: dict[str, Any] | None,
) -> None:
    request = ModelRequest(model, system, messages, tools, choice, effort, output_schema=schema, cache_key="k")

    assert refused(request) is None


@given(messages=histories(ANSWERS), model=MODELS)
def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter(messages: tuple[Message, ...], model: str) -> None:
    whole = Gemini().body(ModelRequest(model, "s", messages, (BASH,)))
    ends = [at for at in range(1, len(messages)) if not isinstance(messages[at], ToolResult)]

    for length in ends:
        if isinstance(messages[length - 1], AssistantMessage):
            continue  # nothing is asked behind the model's own words but that it goes on
        shorter = Gemini().body(ModelRequest(model, "s", messages[:length], (BASH,)))
        assert whole.startswith(shorter.rstrip(b"]}"))


def test_the_shape_is_that_of_generate_content() -> None:
    call = ToolCall("c1", "p1", "bash", '{"command":  "ls"}')
    request = ModelRequest(
        OLD, "be brief", (ASK, AssistantMessage("", (call,)), ToolResult("c1", "p1", "bash", "a.txt")), (BASH,)
    )

    assert sent(request) == {
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "bash", "description": "Run a command.", "parametersJsonSchema": BASH.parameters}
                ]
            }
        ],
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "p1", "name": "bash", "args": {"command": "ls"}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "p1", "name": "bash", "response": {"output": "a.txt"}}}],
            },
        ],
    }


def test_tool_choice_none_changes_only_the_end_of_the_body() -> None:
    free = ModelRequest(MODEL, "", (ASK,), (BASH,))
    bound = dataclasses.replace(free, tool_choice="none")

    assert sent(bound)["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}
    assert Gemini().body(bound).startswith(Gemini().body(free).removesuffix(b"}"))
    assert "toolConfig" not in sent(dataclasses.replace(bound, tools=()))


# --- signatures -------------------------------------------------------------------------------------------------


def test_signed_parts_go_back_as_they_came_and_in_order() -> None:
    parts = [
        signed_thought("hm"),
        {"text": "a"},
        signed_text("b"),
        {"text": "c"},
        signed_text(""),
        *call_parts([("bash", {"x": 1.0}), ("default_api.y", {})]),
    ]
    answer = answered(*parts)
    results = [ToolResult("", call.provider_id, call.tool, "x") for call in answer.calls]

    assert contents(ASK, answer, *results)[1]["parts"] == parts


def test_the_parts_of_another_model_go_back_as_text_and_calls_with_the_mark_for_it() -> None:
    answer = answered(signed_text("a"), *call_parts([("bash", {}), ("bash", {})]))
    results = [ToolResult("", call.provider_id, call.tool, "x") for call in answer.calls]

    third = contents(ASK, answer, *results, model="gemini-3.1-pro-preview")[1]["parts"]
    older = contents(ASK, answer, *results, model=OLD)[1]["parts"]

    assert third[0] == {"text": "a"}
    assert [part.get("thoughtSignature") for part in third[1:]] == [UNSIGNED, None]
    assert "thoughtSignature" not in repr(older)


def test_parts_that_do_not_give_the_whole_answer_go_back_not_at_all() -> None:
    answer = dataclasses.replace(answered(signed_text("a"), {"text": "b"}), text="abc")

    assert contents(ASK, answer, ASK)[1]["parts"] == [{"text": "abc"}]


def test_parts_under_a_foreign_dialect_are_left_out() -> None:
    call = ToolCall("c", "toolu_1", "bash", "{}")
    parts = signed_parts("anthropic", MODEL, [OwnItem({"thinking": "x"}), TextItem("a"), CallItem(call)])
    answer = AssistantMessage("a", (call,), parts)

    said = contents(ASK, answer, ToolResult("c", "toolu_1", "bash", "x"))[1]["parts"]

    assert said[0] == {"text": "a"}
    assert said[1]["thoughtSignature"] == UNSIGNED


def test_a_signed_call_of_a_tool_by_a_name_that_is_not_taken_goes_back_unsigned() -> None:
    answer = answered(*call_parts([("run it!", {})]))

    said = contents(ASK, answer, ToolResult("", answer.calls[0].provider_id, "run it!", "x"))[1]["parts"]

    assert (said[0]["functionCall"]["name"], said[0]["thoughtSignature"]) == ("run_it_", UNSIGNED)


# --- order, roles, empty texts ------------------------------------------------------------------------------------


def test_results_are_a_content_of_their_own_in_the_order_of_the_calls() -> None:
    calls = tuple(ToolCall("", f"p{n}", "bash", "{}") for n in (1, 2))
    results = [ToolResult("", "p2", "bash", ""), ToolResult("", "p1", "bash", "no", is_error=True)]

    *_, step, steered = contents(ASK, AssistantMessage("", calls), *results, ASK, UserMessage("now"))

    assert [part["functionResponse"]["id"] for part in step["parts"]] == ["p1", "p2"]
    assert [part["functionResponse"]["response"] for part in step["parts"]] == [{"error": "no"}, {"output": EMPTY}]
    assert steered == {"role": "user", "parts": [{"text": "hi"}, {"text": "now"}]}


def test_neighbours_of_one_role_are_one_content_and_the_user_has_the_last_word() -> None:
    found = contents(ASK, ASK, AssistantMessage("a"), AssistantMessage(" "), AssistantMessage("b"))

    assert [(content["role"], len(content["parts"])) for content in found] == [("user", 2), ("model", 3), ("user", 1)]
    assert found[1]["parts"][1] == {"text": EMPTY}
    assert found[2]["parts"] == [{"text": GO_ON}]


def test_ids_that_come_again_are_told_apart() -> None:
    step = (AssistantMessage("", (ToolCall("", "call_0", "bash", "{}"),)), ToolResult("", "call_0", "bash", "x"))

    found = contents(ASK, *step, *step)

    ids = [found[at]["parts"][0]["functionCall"]["id"] for at in (1, 3)]
    assert ids[0] == "call_0"
    assert ids[1] != "call_0"
    assert found[4]["parts"][0]["functionResponse"]["id"] == ids[1]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [('{"a": 1}', {"a": 1}), ("", {}), ("[1]", {}), ('{"a": NaN}', {}), (r'{"a": "\ud83d"}', {"a": "\ufffd"})],
)
def test_arguments_that_are_no_object_are_an_empty_one(raw: str, expected: dict[str, Any]) -> None:
    call = ToolCall("", "p", "bash", raw)

    found = contents(ASK, AssistantMessage("", (call,)), ToolResult("", "p", "bash", "x"))

    assert found[1]["parts"][0]["functionCall"]["args"] == expected


# --- images -------------------------------------------------------------------------------------------------------

SEEN = Picture("a-1", "image/png", png())
NOT_SEEN = Picture("a-2", "image/gif", gif())


def test_images_stand_in_the_message_and_one_of_a_type_that_is_not_taken_is_named() -> None:
    (user,) = contents(UserMessage("look", (SEEN, NOT_SEEN)))

    assert [list(part) for part in user["parts"]] == [["inlineData"], ["text"], ["text"]]
    assert user["parts"][1] == {"text": NOT_SHOWN.format("image/gif")}


def test_images_of_results_stand_in_them_where_the_model_takes_that_and_else_behind_them() -> None:
    call = ToolCall("", "p", "read", "{}")
    step = (AssistantMessage("", (call,)), ToolResult("", "p", "read", "one", images=(SEEN, NOT_SEEN)))

    *_, inside = contents(ASK, *step)
    *_, result, behind = contents(ASK, *step, ASK, model=OLD)

    response = inside["parts"][0]["functionResponse"]
    assert list(response["parts"][0]) == ["inlineData"]
    assert response["response"] == {"output": "one", "images": [NOT_SHOWN.format("image/gif")]}
    assert "parts" not in result["parts"][0]["functionResponse"]
    assert [part.get("text") for part in behind["parts"]] == [None, NOT_SHOWN.format("image/gif"), SHOWN, "hi"]


# --- tools and configuration --------------------------------------------------------------------------------------


def test_tools_whose_names_would_be_equal_are_told_apart_and_called_by_their_own_names() -> None:
    declared = sent(ModelRequest(MODEL, "", (ASK,), TOOLS))["tools"][0]["functionDeclarations"]
    names = [function["name"] for function in declared]

    assert (names[0], names[2], names[3]) == ("bash", "ba_sh", "_1st")
    assert names[1].startswith("ba_sh_")
    assert [call.tool for call in answered(*call_parts([(name, {}) for name in names])).calls] == [
        "bash",
        "ba sh",
        "ba_sh",
        "1st",
    ]


def test_a_tool_without_parameters_has_no_schema() -> None:
    declared = sent(ModelRequest(MODEL, "", (ASK,), TOOLS))["tools"][0]["functionDeclarations"]

    assert declared[3] == {"name": "_1st", "description": "one"}


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-3-flash-preview", "none", {"includeThoughts": True, "thinkingLevel": "minimal"}),
        ("models/gemini-3.8-flash", "minimal", {"includeThoughts": True, "thinkingLevel": "low"}),
        ("gemini-4-argon", "medium", {"includeThoughts": True, "thinkingLevel": "medium"}),
        ("gemini-3-pro-preview", "medium", {"includeThoughts": True, "thinkingLevel": "high"}),
        ("gemini-flash-latest", "high", {"includeThoughts": True, "thinkingLevel": "high"}),
        ("gemini-3-flash-preview", None, {"includeThoughts": True}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", "none", {"includeThoughts": True, "thinkingBudget": 128}),
        ("gemini-2.5-flash-lite", "low", {"includeThoughts": True, "thinkingBudget": 1_024}),
        ("gemini-2.5-flash", "high", {"includeThoughts": True, "thinkingBudget": 24_576}),
        ("gemini-2.5-flash-image", "high", None),
        ("gemini-2.0-flash", "high", None),
        ("gemma-3-27b-it", "high", None),
        ("gemini-3", "low", {"includeThoughts": True, "thinkingLevel": "low"}),
    ],
)
def test_effort_is_a_level_or_a_budget_that_the_model_takes(
    model: str, effort: Effort | None, thinking: dict[str, Any] | None
) -> None:
    request = ModelRequest(model, "", (ASK,), effort=effort)

    assert sent(request).get("generationConfig", {}).get("thinkingConfig") == thinking
    assert refused(request) is None


def test_an_answer_is_bound_to_its_length_and_its_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}
    request = ModelRequest(OLD, "", (ASK,), max_output_tokens=5, output_schema=schema)

    config = sent(request)["generationConfig"]

    assert config["maxOutputTokens"] == 5
    assert config["responseMimeType"] == "application/json"
    assert config["responseJsonSchema"] == {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert "responseJsonSchema" not in sent(dataclasses.replace(request, tools=(BASH,)))["generationConfig"]
    assert "responseJsonSchema" in sent(dataclasses.replace(request, model=MODEL, tools=(BASH,)))["generationConfig"]


# --- schema -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "pattern": "x", "minLength": 1, "default": "a"}, {"type": "string"}),
        ({"const": "a"}, {"enum": ["a"]}),
        ({"enum": ["a", None]}, {}),
        ({"type": ["string", "null", "odd"]}, {"type": ["string", "null"]}),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"anyOf": [{"type": "string"}, True]}, {}),
        ({"format": "date"}, {"format": "date"}),
        ({"format": "uri"}, {}),
        ({"type": "array"}, {"type": "array"}),
        ({"items": True}, {"items": {}}),
        ({"properties": {"a": {}}, "required": ["a", "b"]}, {"properties": {"a": {}}, "required": ["a"]}),
        (
            {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}], "title": "t"},
            {"properties": {"a": {}, "b": {}}, "required": ["a"], "title": "t"},
        ),
        (
            {"$ref": "#/$defs/a~1b", "title": "t", "$defs": {"a/b": {"type": "string"}}},
            {"type": "string", "title": "t"},
        ),
        ({"$ref": "https://example.com/x"}, {}),
        ({"$ref": "#/$defs/none"}, {}),
        ({"additionalProperties": {"$ref": "#"}, "type": "object"}, None),
    ],
)
def test_a_schema_says_what_the_vendor_takes_of_it(schema: dict[str, Any], expected: dict[str, Any] | None) -> None:
    found = gemini_schema(schema)

    gemini_strict.check_schema(found, "the schema")
    if expected is not None:
        assert found == expected


def test_a_circle_of_references_ends_and_a_flood_of_them_is_bounded() -> None:
    node: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}
    flood = {f"d{n}": {"properties": {side: {"$ref": f"#/$defs/d{n + 1}"} for side in "lr"}} for n in range(30)}

    circle = gemini_schema({"$ref": "#/$defs/n", "$defs": {"n": node}})
    bounded = gemini_schema({"$ref": "#/$defs/d0", "$defs": flood})

    assert circle["properties"]["next"] == {"type": "object"}
    assert orjson.dumps(bounded).count(b"properties") <= MAX_SCHEMAS


SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["object", "string", "a", "#/properties/a", "#"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "enum", "const", "items", "properties", "required", "anyOf", "allOf", "$ref", "a", "minimum"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(SCHEMAS)
def test_whatever_is_given_as_a_schema_one_of_the_dialect_comes_of_it(schema: Any) -> None:
    gemini_strict.check_schema(gemini_schema(schema), "the schema")
