from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hames.protocol.chain import check_cursor, cursor, encode_event, first_digest, next_digest, parse_cursor
from hames.protocol.errors import Refused
from hames.protocol.jsontext import loads

SEQ = st.integers(0, 10**16 - 1)
DIGEST = st.binary(min_size=6, max_size=32)


def _refusal(text: str, stored: bytes | None, head: int) -> str | None:
    try:
        check_cursor(text, *parse_cursor(text), stored, head)
    except Refused as refused:
        return refused.kind
    return None


@given(SEQ, DIGEST)
def test_a_cursor_reads_back(seq: int, digest: bytes) -> None:
    assert parse_cursor(cursor(seq, digest)) == (seq, digest[:6].hex())


@given(st.lists(st.binary(max_size=20), max_size=5), st.text(max_size=5))
def test_the_chain_is_what_anyone_can_recompute(events: list[bytes], session_id: str) -> None:
    digest = first_digest(session_id)
    for event in events:
        digest = next_digest(digest, event)

    expected = hashlib.blake2b(b"hames-log-1\x00" + session_id.encode("utf-8"), digest_size=32).digest()
    for event in events:
        expected = hashlib.blake2b(expected + event, digest_size=32).digest()
    assert digest == expected


def test_a_known_cursor() -> None:
    # printf 'hames-log-1\\0s1' | b2sum -l 256
    assert cursor(0, first_digest("s1")) == "0.c70f4d9196cf"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.",
        ".c70f4d9196cf",
        "1.c70f4d9196c",
        "1.c70f4d9196cf0",
        "1.C70F4D9196CF",
        "01.c70f4d9196cf",
        "-1.c70f4d9196cf",
        "1.c70f4d9196cf\n",
        " 1.c70f4d9196cf",
        "١.c70f4d9196cf",
        "12345678901234567.c70f4d9196cf",
        "x" * 1000,
    ],
)
def test_what_is_no_cursor_is_refused_and_quoted_shortly(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_cursor(text)

    assert refused.value.kind == "cursor_malformed"
    assert repr(text[:80]) in refused.value.message
    assert len(refused.value.message) < 250


@given(SEQ, DIGEST, st.integers(0, 10))
def test_a_cursor_of_this_log_is_taken(seq: int, digest: bytes, more: int) -> None:
    assert _refusal(cursor(seq, digest), digest, seq + more) is None


@given(SEQ, DIGEST, DIGEST)
def test_a_cursor_of_another_log_is_foreign(seq: int, digest: bytes, other: bytes) -> None:
    assume(digest[:6] != other[:6])

    assert _refusal(cursor(seq, digest), other, seq) == "cursor_foreign"
    assert _refusal(cursor(seq, digest), None, seq) == "cursor_foreign"


@given(SEQ, DIGEST)
def test_a_cursor_beyond_the_head_is_ahead_whatever_its_digest(seq: int, digest: bytes) -> None:
    assume(seq > 0)

    assert _refusal(cursor(seq, digest), digest, seq - 1) == "cursor_ahead"
    assert _refusal(cursor(seq, digest), None, seq - 1) == "cursor_ahead"


@given(st.none() | st.just("t1"), st.none() | st.integers(1, 9), st.dictionaries(st.text(max_size=3), st.integers()))
def test_an_event_is_encoded_in_one_order_and_reads_back(turn: Any, attempt: Any, data: dict[str, int]) -> None:
    text = encode_event("s1", 7, "time", "a.type", data, turn_id=turn, attempt=attempt)

    optional = {"turnId": turn, "attempt": attempt}
    expected = {
        "sessionId": "s1",
        "seq": 7,
        "time": "time",
        **{name: value for name, value in optional.items() if value is not None},
        "type": "a.type",
        "data": data,
    }
    assert list(loads(text)) == list(expected)
    assert loads(text).keys() == expected.keys()
    assert b"\n" not in text


def test_the_bytes_of_an_event_hold_no_line_end_of_any_kind() -> None:
    text = encode_event("s1", 1, "time", "a.type", {"text": "\u0085\u2028\u2029\n\ud800"})

    assert len(text.decode().splitlines()) == 1
    assert loads(text)["data"]["text"] == "\u0085\u2028\u2029\n\ufffd"
