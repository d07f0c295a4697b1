from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hames_client.frames
from hames.server.rpc import Notification
from hames.server.rpc import decode as decode_at_server
from hames_client.frames import FrameTooLarge, Splitter, decode, encode

LINES = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"\r")), max_size=8)
TEXTS = st.text(st.characters(categories=["L", "N", "Z", "Cc", "Cs"]))


@given(LINES, st.lists(st.integers(1, 60), max_size=20))
def test_lines_do_not_depend_on_how_the_stream_is_cut(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"unfinished"
    splitter = Splitter()

    seen = []
    for cut in [*cuts, len(stream)]:
        seen += splitter.feed(stream[:cut])
        stream = stream[cut:]

    assert seen == lines


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hames_client.frames, "MAX_FRAME_BYTES", 10)
    splitter = Splitter()

    assert splitter.feed(b"0123456789\n0123456789") == [b"0123456789"]
    with pytest.raises(FrameTooLarge):
        splitter.feed(b"0")


@given(st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_what_is_sent_is_one_line_that_the_server_reads(params: dict[str, Any]) -> None:
    frame = encode({"jsonrpc": "2.0", "method": "m", "params": params})

    message = decode_at_server(frame[:-1])

    assert frame.endswith(b"\n")
    assert frame.count(b"\n") == 1
    assert isinstance(message, Notification)
    if not message.repaired:
        assert message.params == params


@pytest.mark.parametrize("line", [b"", b"a banner", b"[1]", b"\xff", b"3"])
def test_a_line_that_holds_no_message_is_none(line: bytes) -> None:
    assert decode(line) is None


def test_a_number_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"x": float("nan")})
