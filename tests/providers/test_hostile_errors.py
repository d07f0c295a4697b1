"""What a provider says of its failure, made to take long or to give the credential away."""

from __future__ import annotations

import json
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.providers.advice import Asked
from hames.providers.answer import MalformedAnswer, Reader, parse
from hames.providers.failures import (
    LOOKED_AT_CHARS,
    MESSAGE_CHARS,
    read_error,
    read_error_bytes,
    redacted,
    refused_by_provider,
    retry_after_ms,
)
from hames.providers.http_route import ERROR_BYTES
from hames.providers.sse import MAX_EVENT_BYTES

KEY = "sk-secret-0123456789"
ASKED = Asked("compatible", "http://h/v1", "/chat/completions", "/v1", has_tools=True)


def filled(piece: bytes, before: bytes = b"", after: bytes = b"") -> bytes:
    """As many of `piece` as an answer may hold, between two texts."""
    return before + piece * ((MAX_EVENT_BYTES - len(before) - len(after)) // len(piece)) + after


def message(piece: bytes, before: str = "") -> bytes:
    return filled(piece, b'{"error":{"message":"' + before.encode(), b'"}}')


def retry_info(piece: bytes) -> bytes:
    before = b'{"error":{"message":"x","details":[{"@type":"a.RetryInfo","retryDelay":"'
    return filled(piece, before, b'"}]}}')


LEVELS = b"[" * 900 + b"]" * 900
BODIES: dict[str, Callable[[], bytes]] = {
    "titles": lambda: filled(b"<title>"),
    "titles that do not end": lambda: filled(b"<title"),
    "titles with attributes": lambda: filled(b"<title a"),
    "one title": lambda: filled(b" ", b"<html><title>", b"</title>"),
    "white space": lambda: filled(b" "),
    "no UTF-8": lambda: filled(b"\xff"),
    "digits of a wait": lambda: message(b"1", "try again in "),
    "waits": lambda: message(b"try again in 1"),
    "spans": lambda: message(b"1s ", "try again in "),
    "numbers with points": lambda: message(b"1.", "try again in "),
    "backslashes": lambda: message(b"\\\\"),
    "escapes": lambda: message(b"\\u0073"),
    "spellings": lambda: message(b"&amp;%25"),
    "beginnings of the key": lambda: message(KEY[:-1].encode()),
    "words of an overflow": lambda: message(b"context too many input prompt is maximum "),
    "words about tools": lambda: message(b"cannot support the use of "),
    "digits of a delay": lambda: retry_info(b"1"),
    "delays": lambda: retry_info(b"1s "),
    "details": lambda: filled(b'{"@type":"QuotaFailure"},', b'{"error":{"details":[', b"{}]}}"),
    "lists": lambda: filled(b"[],", b'{"error":[', b"[]]}"),
    "names": lambda: filled(b'"a":1,', b'{"error":{', b'"b":2}}'),
    "levels": lambda: b'{"error":%b}' % LEVELS,
    "levels in a message": lambda: b'{"error":{"message":%b}}' % LEVELS,
    "levels in a detail": lambda: b'{"error":{"details":[{"@type":%b}]}}' % LEVELS,
    "levels of a quota": lambda: b'{"error":{"details":[{"@type":"QuotaFailure","violations":%b}]}}' % LEVELS,
}
"""Bodies of the full size that an answer may have, which its test makes."""


@pytest.mark.parametrize("body", BODIES)
def test_of_the_longest_body_only_so_much_is_looked_at(body: str) -> None:
    said = read_error_bytes(BODIES[body](), KEY)

    # All that looks for words looks here.
    assert len(said.message) <= LOOKED_AT_CHARS + len("a web page titled ''")
    assert sum(map(len, said.codes)) <= LOOKED_AT_CHARS
    assert len(said.details) <= 100
    for status in (None, 400, 404, 500):
        advice = ASKED.advice(status, said)
        error = refused_by_provider(status, said, phase="stream", secret=KEY, headers={}, now_s=0.0, advice=advice)
        assert len(error.details.get("providerMessage", "")) <= MESSAGE_CHARS
        orjson.dumps(error.data())


@pytest.mark.parametrize("text", ["9" * 100_000, "1 " * 50_000, "Mon, " * 20_000, "(" * 100_000])
def test_of_a_long_header_only_so_much_is_looked_at(text: str) -> None:
    said = read_error({}, None)

    for headers in ({"retry-after": text}, {"retry-after": text, "date": text}, {"retry-after-ms": text}):
        wait = retry_after_ms(headers, said, 0.0)
        assert wait is None or wait >= 0


def escaped(text: str) -> str:
    return json.dumps(text)[1:-1]


def in_hex(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


SPELLINGS: tuple[Callable[[str], str], ...] = (str, str.upper, escaped, in_hex, lambda text: escaped(in_hex(text)))
ODD_KEY = "pa'ss\"wo\\rd-0123456789"


@pytest.mark.parametrize("spell", SPELLINGS)
@pytest.mark.parametrize("filler", [" ", "x", "\n"])
@given(left=st.integers(1, 200))
def test_a_key_that_the_bound_of_a_body_cuts_is_told_in_no_part(
    spell: Callable[[str], str], filler: str, left: int
) -> None:
    body = (filler * (ERROR_BYTES - left) + spell(ODD_KEY)).encode()[:ERROR_BYTES]

    said = read_error_bytes(body, ODD_KEY, is_cut=True)

    assert set(redacted(said.message, ODD_KEY)) <= {"x", "…"}


@pytest.mark.parametrize("spell", SPELLINGS)
@given(left=st.integers(1, 200))
def test_a_key_where_a_message_is_looked_at_no_further_is_told_in_no_part(
    spell: Callable[[str], str], left: int
) -> None:
    text = " " * (LOOKED_AT_CHARS - left) + spell(ODD_KEY) + "x" * 1_000

    assert read_error({"error": {"message": text}}, ODD_KEY).message.strip() == ""
    assert redacted(text, ODD_KEY) == ""


@pytest.mark.parametrize(
    "body",
    [
        f"<html><title>{ODD_KEY}</title></html>".encode(),
        json.dumps({"error": {"k": ODD_KEY}}).encode(),
        json.dumps({"error": [{"k": {ODD_KEY: json.dumps(ODD_KEY)}}]}).encode(),
        json.dumps({"error": {"message": json.dumps(json.dumps(ODD_KEY))}}).encode(),
        json.dumps({"error": {"message": "x", "code": ODD_KEY}}).encode(),
        json.dumps({"error": {"message": repr(ODD_KEY), "n": 2**70}}).encode(),
        json.dumps({"error": {"k": ODD_KEY, "half": "\ud800"}}).encode(),
        ODD_KEY.encode(),
        escaped(ODD_KEY).encode(),
    ],
)
def test_a_key_with_quotes_and_backslashes_is_told_in_no_spelling(body: bytes) -> None:
    said = read_error_bytes(body, ODD_KEY)
    error = refused_by_provider(400, said, phase="stream", secret=ODD_KEY, headers={}, now_s=0.0)

    told = json.dumps([said.message, said.codes, error.message, error.details])
    assert "[redacted]" in told
    assert "0123456789" not in told


def lists(*, levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize("levels", [129, 900, 1_500, 100_000])
def test_an_answer_that_is_nested_too_deep_is_malformed(levels: int) -> None:
    with pytest.raises(MalformedAnswer):
        parse(b'{"content":"a\\n","x":' + lists(levels=levels) + b"}")


def test_an_answer_may_be_nested_deep_and_hold_many_lists() -> None:
    assert parse(lists(levels=128))
    assert len(parse(b"[" + b"[]," * 1_000 + b"[]]")) == 1_001


@pytest.mark.parametrize(
    ("secret", "payload"),
    [
        (KEY, json.dumps({KEY: [KEY, {"a": f"x{KEY}"}]}).encode()),
        (KEY, b'{"a":"' + in_hex(KEY).encode() + b'","b":1}'),
        (KEY, b'{"a":"' + in_hex(KEY).encode() + b'\\ud800","b":[1' + b"0" * 30 + b"]}"),
        (ODD_KEY, json.dumps({"a": ODD_KEY, "b": [ODD_KEY]}).encode()),
        ("caf/e-key-0", b'{"a":"caf\\/e-key-0"}'),
    ],
)
def test_a_reader_takes_the_key_out_of_an_event_however_json_spells_it(secret: str, payload: bytes) -> None:
    read = Reader(secret).read(payload)

    assert "[redacted]" in json.dumps(read)
    assert secret not in repr(read)
    assert escaped(secret) not in json.dumps(read)


@given(st.recursive(st.text('ab\\"/\n\ud800'), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_a_reader_changes_nothing_that_holds_no_key(value: object) -> None:
    assert Reader(KEY).read(json.dumps(value).encode()) == parse(json.dumps(value).encode())
