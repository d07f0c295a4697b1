from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.protocol.jsontext import (
    MAX_DEPTH,
    WRITTEN_DEPTH,
    JsonInvalid,
    clean_text,
    dumps,
    escape_separators,
    loads,
    parse,
    repeated_member,
    reread,
)

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT
    | st.sampled_from(["\x85", "\u2028", "\u2029", "\ud800", "\udc00", "\ud83d\ude00", "😀", "\\ud800"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(ANY_TEXT, inner, max_size=5), max_leaves=20
)


def cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): cleaned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [cleaned(inner) for inner in value]
    return value


@given(VALUES)
def test_what_leaves_is_one_line_of_strict_json_that_reads_back_equal(value: Any) -> None:
    text = dumps(value)

    assert len(text.decode().splitlines()) == 1
    assert json.loads(text) == cleaned(value)


@given(VALUES)
def test_the_fast_and_the_slow_parser_agree_but_for_integers_beyond_64_bits(value: Any) -> None:
    text = dumps(value)

    assert parse(text, exact_integers=True) == (json.loads(text), False)
    assert loads(text) == orjson.loads(text)


@given(ANY_TEXT)
def test_clean_text_is_utf_8_keeps_whole_text_and_joins_pairs(text: str) -> None:
    clean_text(text).encode()
    assert clean_text(clean_text(text)) == clean_text(text)
    assert len(clean_text(text)) <= len(text)
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert clean_text(text) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud800\ud800x", "\ufffd\ufffdx"),
        ("\ud83d\ude00", "😀"),
        ("\ud800\ud83d\ude00", "\ufffd😀"),
    ],
)
def test_each_lone_surrogate_becomes_one_replacement_character(text: str, clean: str) -> None:
    assert clean_text(text) == clean
    assert json.loads(dumps({text: [text]})) == {clean: [clean]}


@given(ANY_TEXT.filter(lambda text: '"' not in text and "\\" not in text))
def test_surrogate_escapes_are_read_as_clean_text_reads_surrogates(text: str) -> None:
    escaped = b'"' + b"".join(b"\\u%04x" % unit for unit in _utf16_units(text)) + b'"'

    value, repaired = parse(escaped)

    assert value == clean_text(text)
    assert repaired == (clean_text(text) != text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore"))


def _utf16_units(text: str) -> list[int]:
    data = text.encode("utf-16-le", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2)]


@pytest.mark.parametrize(
    ("text", "value", "repaired"),
    [
        (rb'"\ud800"', "\ufffd", True),
        (rb'"\uDFFF"', "\ufffd", True),
        (rb'"\ud800\ud83d\ude00"', "\ufffd😀", True),
        (rb'"\ud800\n\udc00"', "\ufffd\n\ufffd", True),
        (rb'"\\\ud800"', "\\\ufffd", True),
        (rb'"\\ud800"', "\\ud800", False),
        (rb'"\\\\ud800 \udc00"', "\\\\ud800 \ufffd", True),
        (rb'"\ud83d\ude00"', "😀", False),
        (rb'{"\ud800": 1}', {"\ufffd": 1}, True),
        ('"\ufffd"'.encode(), "\ufffd", False),
    ],
)
def test_a_lone_surrogate_escape_is_replaced_and_reported(text: bytes, value: Any, repaired: bool) -> None:
    assert parse(text) == (value, repaired)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"18446744073709551615", 2**64 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"1e400", 1.7976931348623157e308),
        (b"-1e400", -1.7976931348623157e308),
        (b"1" + b"0" * 400, 1.7976931348623157e308),
        (b"-1" + b"0" * 5000, -1.7976931348623157e308),
        (b"1e-999", 0.0),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b' \t\r\n{"a": [1, 2.5, true, null, "\\u0000"]} ', {"a": [1, 2.5, True, None, "\0"]}),
    ],
)
def test_a_number_is_never_refused_for_its_size_and_the_last_member_wins(text: bytes, value: Any) -> None:
    assert loads(text) == value


def test_integers_beyond_64_bits_are_exact_on_request() -> None:
    text = b"[-18446744073709551615, 18446744073709551616]"

    assert parse(text, exact_integers=True)[0] == [-(2**64 - 1), 2**64]
    assert [type(number) for number in loads(text)] == [float, float]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{nonsense",
        b"NaN",
        b"-Infinity",
        b"[1e400, NaN]",
        b'["\\ud800", Infinity]',
        b"01",
        b"[1,]",
        b"{'a':1}",
        b'{"a":1}{"b":2}',
        b'"\x01"',
        b'"\\x41"',
        b'"\\ud8"',
        b'["\\ud800", "\\u12"]',
        b'"\xff\xfe"',
        b'"\xed\xa0\x80"',
        b'"\\ud800 \xff"',
        b"\xef\xbb\xbf1",
        '{"a":1}'.encode("utf-16"),
    ],
)
def test_what_is_not_json_is_refused(text: bytes) -> None:
    for exact_integers in (False, True):
        with pytest.raises(JsonInvalid):
            parse(text, exact_integers=exact_integers)


def test_text_that_is_not_utf_8_is_refused_with_the_byte() -> None:
    with pytest.raises(JsonInvalid, match="not UTF-8 at byte 3"):
        loads(b'"ab\xff"')


@pytest.mark.parametrize("leaf", [b"", b"1", b'"[[["', b'"\\ud800"', b"1e400"])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_ends_at_its_limit(opening: bytes, leaf: bytes) -> None:
    def nested(depth: int) -> bytes:
        if opening == b"[":
            return b"[" * depth + leaf + b"]" * depth
        return opening * (depth - 1) + b"{" + (b'"a":' + leaf if leaf else b"") + b"}" * depth

    loads(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 1024, 1025, 100_000):
        with pytest.raises(JsonInvalid):
            loads(nested(depth))


@pytest.mark.parametrize("depth", [1, MAX_DEPTH, WRITTEN_DEPTH])
def test_what_is_written_is_read_again_however_deep_it_is(depth: int) -> None:
    value: object = "leaf"
    for _ in range(depth):
        value = [value]

    text = b'{"cursor":"1","event":{"data":' + dumps(value) + b"}}"
    assert reread(text)["event"]["data"] == value
    with pytest.raises(TypeError):
        dumps([value] if depth == WRITTEN_DEPTH else object())


def test_brackets_in_text_and_beside_one_another_are_not_nesting() -> None:
    assert len(loads(b'["' + b"[{" * 1000 + b'",' + b"[]," * 1000 + b"0]")) == 1002


@pytest.mark.parametrize("value", [{1: 2}, {"\ud800": {1: 2}}, object(), {"a": object()}, 2**70j, b"bytes", {"a", "b"}])
def test_what_json_does_not_have_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        dumps(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[object] = ["\ud800"]
    value.append(value)

    with pytest.raises(TypeError):
        dumps(value)


@pytest.mark.parametrize(("value", "text"), [(2**70, b"1180591620717411303424"), ([float("nan")], b"[null]")])
def test_large_integers_leave_exactly_and_what_is_not_finite_as_null(value: object, text: bytes) -> None:
    assert dumps(value) == text
    assert dumps(["\ud800", 2**70, value]) == b'["\xef\xbf\xbd",1180591620717411303424,' + text + b"]"


def test_separators_are_escaped_in_text_that_was_encoded_elsewhere() -> None:
    value = {"\x85": "a\u2028b\u2029c\x85d é € 😀"}

    text = escape_separators(json.dumps(value, ensure_ascii=False).encode())

    assert not any(separator in text.decode() for separator in "\x85\u2028\u2029")
    assert json.loads(text) == value


@given(VALUES)
def test_what_is_written_has_no_member_twice(value: Any) -> None:
    assert repeated_member(dumps(value)) is None


@given(st.lists(ANY_TEXT, min_size=1, max_size=6, unique_by=clean_text), st.data())
def test_a_member_that_is_there_twice_is_found_wherever_it_stands(names: list[str], data: st.DataObject) -> None:
    twice = data.draw(st.sampled_from(names))
    members = ", ".join(f"{dumps(name).decode()}: {{}}" for name in data.draw(st.permutations([*names, twice])))

    assert repeated_member(f"{{{members}}}".encode()) == clean_text(twice)
    assert repeated_member(f'{{"a": [1, {{"b": {{{members}}}}}]}}'.encode()) == f"a[1].b.{clean_text(twice)}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"3", None),
        (b"[[{}], {}]", None),
        (b'{"a": {"a": {"a": 1}}}', None),
        (b'{"a": 1, "A": 2}', None),
        (b'{"a": 1e400, "b": [2, {"c": 99999999999999999999999999999999999999999999}], "c": 1, "c": 2}', "c"),
        (b'{"a": 1, "\\u0061": 2}', "a"),
        (b'{"\\ud800": 1, "\\udfff": 2}', "\ufffd"),
        (b'{"m": {"n": 1, "n": 2}, "m": {}}', "m"),
    ],
)
def test_names_are_equal_as_they_are_read(text: bytes, place: str | None) -> None:
    assert repeated_member(text) == place


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1, "a": 01}', b"[" * 200])
def test_what_is_not_json_is_refused_before_it_is_searched(text: bytes) -> None:
    with pytest.raises(JsonInvalid):
        repeated_member(text)
