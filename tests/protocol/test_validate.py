from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from hames.protocol import params
from hames.protocol.base import MAX_INTEGER
from hames.protocol.errors import InvalidParams
from hames.protocol.methods import CLIENT_NOTIFICATIONS, METHODS
from hames.protocol.validate import check_params, prepare_params

NAMES = sorted({method.params for method in METHODS.values()} | set(CLIENT_NOTIFICATIONS.values()))

JARGON = re.compile(
    r"input should|dictionary|list\b|should have|pydantic|input_|errors\.|type=|https?:|TypedDict|dict\[|NoneType",
    re.IGNORECASE,
)


# --- a valid value of any shape, and every member of it, with its path --------------------------------------


def _bare(hint: Any) -> Any:
    while get_origin(hint) in (Annotated, NotRequired, Required):
        hint = get_args(hint)[0]
    if get_origin(hint) is UnionType and is_typeddict(get_args(hint)[0]):
        return get_args(hint)[0]
    return hint


def _valid(hint: Any) -> Any:
    """The fullest value of `hint`: optional members too."""
    hint = _bare(hint)
    if is_typeddict(hint):
        return {name: _valid(inner) for name, inner in get_type_hints(hint, include_extras=True).items()}
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if get_origin(hint) is list:
        return [_valid(get_args(hint)[0])]
    if hint in (str, str | int):
        return "a1"
    return {bool: True, int: 1}.get(hint, {})


def _places(hint: Any, path: str = "") -> list[tuple[str, Any]]:
    """The path and the type of every member within `hint`, and of the whole."""
    hint = _bare(hint)
    found = [(path, hint)]
    if is_typeddict(hint):
        for name, inner in get_type_hints(hint, include_extras=True).items():
            found += _places(inner, f"{path}.{name}" if path else name)
    elif get_origin(hint) is list:
        found += _places(get_args(hint)[0], f"{path}[0]")
    return found


def _required(shape: Any) -> set[str]:
    """Annotations are text here, so `__required_keys__` does not know which are `NotRequired`."""
    hints = get_type_hints(shape, include_extras=True)
    return {name for name, hint in hints.items() if shape.__total__ and get_origin(hint) is not NotRequired}


def _with(value: Any, path: str, member: Any) -> Any:
    """`value` with what stands at `path` exchanged."""
    steps = re.findall(r"\w+", path)
    if not steps:
        return member
    whole = inner = value
    for step in steps[:-1]:
        inner = inner[int(step) if isinstance(inner, list) else step]
    inner[int(steps[-1]) if isinstance(inner, list) else steps[-1]] = member
    return whole


def _shape(name: str) -> Any:
    return getattr(params, name)


def _refusal(name: str, value: Any) -> InvalidParams:
    with pytest.raises(InvalidParams) as refused:
        check_params(name, value)
    assert not JARGON.search(str(refused.value)), str(refused.value)
    assert len(str(refused.value)) < 250
    return refused.value


# --- every message ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_fullest_message_is_taken_as_it_is(name: str) -> None:
    value = _valid(_shape(name))

    assert check_params(name, value) == value


@pytest.mark.parametrize("name", NAMES)
def test_the_barest_message_is_taken_and_each_required_member_is_missed(name: str) -> None:
    shape = _shape(name)
    bare = {member: value for member, value in _valid(shape).items() if member in _required(shape)}

    assert check_params(name, bare) == bare
    for member in bare:
        refused = _refusal(name, {other: bare[other] for other in bare if other != member})
        assert (refused.path, refused.message) == (member, "is required")


WRONG: tuple[tuple[Any, str], ...] = (
    (None, "null"),
    (1.5, "1.5"),
    ("other", "'other'"),
    ([], "an array"),
    ({}, "an object"),
)


def _fits(hint: Any, value: Any) -> bool:
    """Whether `value` of `WRONG` is right after all, or what is wrong is within it."""
    if hint is Any:
        return True
    if isinstance(value, str):
        return hint in (str, str | int)
    if isinstance(value, list):
        return get_origin(hint) is list
    return isinstance(value, dict) and (get_origin(hint) is dict or is_typeddict(hint))


@pytest.mark.parametrize("name", NAMES)
def test_a_member_of_the_wrong_type_is_named_by_its_path_with_what_was_seen(name: str) -> None:
    for path, hint in _places(_shape(name))[1:]:
        for wrong, shown in WRONG:
            if not _fits(hint, wrong):
                refused = _refusal(name, _with(_valid(_shape(name)), path, wrong))
                assert (refused.path, shown in refused.message) == (path, True), str(refused)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_member_is_named_by_its_path_at_every_depth(name: str) -> None:
    for path, hint in _places(_shape(name)):
        nonsense = f"{path}.nonsense" if path else "nonsense"
        if not is_typeddict(hint):
            continue
        value = _with(_valid(_shape(name)), nonsense, 1)
        if name == "Initialize":
            # The handshake ignores what it does not know, so that both sides can grow.
            assert check_params(name, value) == _valid(_shape(name))
        else:
            refused = _refusal(name, value)
            assert refused.path == nonsense
            assert "is not a member here" in refused.message


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [[], "text", None, 1], ids=["array", "string", "null", "integer"])
def test_params_that_are_no_object_are_refused(name: str, value: Any) -> None:
    refused = _refusal(name, value)

    assert refused.path == ""
    assert refused.message.startswith("must be an object, not ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from([(name, path) for name in NAMES for path, _ in _places(_shape(name))]), JSON)
def test_any_value_anywhere_is_taken_as_it_is_or_refused(place: tuple[str, str], member: Any) -> None:
    name, path = place
    value = _with(_valid(_shape(name)), path, member)

    with suppress(InvalidParams):
        checked = check_params(name, value)
        assert name == "Initialize" or checked == value


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_shape(name))


@given(st.sampled_from([(name, path) for name in NAMES for path, _ in _places(_shape(name))]), JSON)
def test_what_is_checked_is_what_the_published_schemas_are_made_of(place: tuple[str, str], member: Any) -> None:
    name, path = place
    value = _with(_valid(_shape(name)), path, member)
    try:
        expected = _adapter(name).validate_python(value, strict=True)
    except ValidationError:
        _refusal(name, value)
    else:
        assert check_params(name, value) == expected


# --- bounds -------------------------------------------------------------------------------------------------


def _submit(**members: Any) -> dict[str, Any]:
    return {"sessionId": "s1", "input": [{"type": "text", "text": "Hello."}], **members}


@pytest.mark.parametrize("text", ["a", "A.b_c-9", "0", "x" * 64])
def test_ids_may_be(text: str) -> None:
    assert check_params("SessionRef", {"sessionId": text}) == {"sessionId": text}


@pytest.mark.parametrize("text", ["", "x" * 65, "a/b", ".a", "-a", "a b", "a\n", "é", "a\x00", "../a"])
def test_ids_may_not_be(text: str) -> None:
    refused = _refusal("SessionRef", {"sessionId": text})

    assert refused.message.startswith("must match ^[A-Za-z0-9]")


@pytest.mark.parametrize(
    ("members", "path", "said"),
    [
        ({"idempotencyKey": ""}, "idempotencyKey", "of 1 characters or more, not ''"),
        ({"idempotencyKey": "k" * 257}, "idempotencyKey", "of 256 characters or fewer, not 'kkk"),
        ({"limits": {"steps": 0}}, "limits.steps", "must be at least 1, not 0"),
        ({"limits": {"toolCalls": -1}}, "limits.toolCalls", "must be at least 0, not -1"),
        ({"limits": {"steps": MAX_INTEGER + 1}}, "limits.steps", f"at most {MAX_INTEGER}, not {MAX_INTEGER + 1}"),
        ({"limits": {"steps": True}}, "limits.steps", "must be an integer, not true"),
        ({"limits": {"steps": "7"}}, "limits.steps", "must be an integer, not '7'"),
        ({"limits": {"steps": 7.0}}, "limits.steps", "must be an integer, not 7.0"),
        ({"resumeQueue": 1}, "resumeQueue", "must be true or false, not 1"),
        ({"delivery": "now"}, "delivery", "must be one of 'queue', 'join' or 'reject', not 'now'"),
        ({"input": [{"type": "text", "text": "a", "role": "boss"}]}, "input[0].role", "not 'boss'"),
        ({"input": [{"type": "text", "text": "a"}, {"type": "text"}]}, "input[1].text", "is required"),
        ({"input": [{"text": "a"}]}, "input[0].type", "is required"),
        ({"input": {"0": 1}}, "input", "must be an array, not an object"),
        ({"instructions": ["a"]}, "instructions", "must be a string, not an array"),
    ],
)
def test_bounds_say_what_was_seen_and_what_is_allowed(members: dict[str, Any], path: str, said: str) -> None:
    refused = _refusal("TurnSubmit", _submit(**members))

    assert refused.path == path
    assert said in refused.message


@pytest.mark.parametrize("members", [{"idempotencyKey": "k" * 256}, {"limits": {"steps": MAX_INTEGER}}])
def test_bounds_are_inclusive(members: dict[str, Any]) -> None:
    assert check_params("TurnSubmit", _submit(**members)) == _submit(**members)


@pytest.mark.parametrize("name", ["TurnSubmit", "TurnSteer"])
def test_an_input_without_a_slot_is_refused(name: str) -> None:
    refused = _refusal(name, {"sessionId": "s", "input": []})

    assert (refused.path, refused.message) == ("input", "must not be empty")


def test_a_long_text_is_quoted_shortly_with_its_length() -> None:
    refused = _refusal("SessionCreate", {"workspace": "w" * 5000})

    assert refused.message.endswith("… (5000 characters)")


def test_meta_is_kept_as_it_is() -> None:
    value = _submit(_meta={"trace": {"deep": [1, None]}})

    assert check_params("TurnSubmit", value) == value


def test_params_that_were_prepared_are_checked_as_before() -> None:
    prepare_params(["SessionRef", "TurnWait"])

    assert check_params("SessionRef", {"sessionId": "s1"}) == {"sessionId": "s1"}
