"""The event stream parser: the same events however the bytes were split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.ports import ProviderFailed
from hames.providers import sse
from hames.providers.sse import SseParser

STREAM = (
    b'\xef\xbb\xbfdata: {"a":"\xc3\xa9\xf0\x9f\x98\x80"}\n\n: ping\n\ndata:no space\r\n\r\ndata:  two spaces\r\r'
    b"event: x\nid: 1\ndata: line one\ndata: line two\n\n\n\ndata\n\ndata: \n\nretry: 5\ndata: [DONE]\n\ndata: last"
)
EVENTS = [
    '{"a":"é😀"}'.encode(),
    b"no space",
    b" two spaces",
    b"line one\nline two",
    b"[DONE]",
    b"last",
]


def events_of(pieces: list[bytes]) -> list[bytes]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.flush()


def reference(data: bytes) -> list[bytes]:
    """The format read line by line, as the standard words it."""
    data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[bytes] = []
    lines: list[bytes] = []
    for line in [*data.split(b"\n"), b""]:
        if not line:
            if any(lines) or len(lines) > 1:
                events.append(b"\n".join(lines))
            lines = []
        elif line == b"data":
            lines.append(b"")
        elif line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
    return events


def test_a_stream_gives_the_data_of_its_events() -> None:
    assert events_of([STREAM]) == EVENTS


def test_a_stream_split_at_every_offset_gives_the_same_events() -> None:
    for at in range(len(STREAM) + 1):
        assert events_of([STREAM[:at], STREAM[at:]]) == EVENTS


def test_a_stream_fed_byte_by_byte_gives_the_same_events() -> None:
    assert events_of([STREAM[at : at + 1] for at in range(len(STREAM))]) == EVENTS


LINES = st.lists(
    st.sampled_from([b"data: x", b"data:y", b"data", b"data: ", b": c", b"event: e", b"", b"data: \xf0\x9f\x98\x80"])
    | st.binary(max_size=8)
)


@given(lines=LINES, end=st.sampled_from([b"\n", b"\r", b"\r\n"]), bom=st.booleans(), cuts=st.data())
def test_any_stream_gives_what_the_standard_says_however_it_is_split(
    lines: list[bytes], end: bytes, bom: bool, cuts: st.DataObject
) -> None:
    stream = (b"\xef\xbb\xbf" if bom else b"") + b"".join(line + end for line in lines)
    pieces = []
    rest = stream
    while rest:
        size = cuts.draw(st.integers(1, len(rest)))
        pieces.append(rest[:size])
        rest = rest[size:]

    assert events_of(pieces) == reference(stream)


def test_an_event_comes_out_as_soon_as_its_empty_line_is_there() -> None:
    parser = SseParser()

    assert parser.feed(b"data: one\n") == []
    assert parser.feed(b"\ndata: tw") == [b"one"]
    assert parser.feed(b"o\n\n") == [b"two"]


@pytest.mark.parametrize("size", [1000, 100_000])
def test_an_event_beyond_the_bound_ends_the_stream(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 10_000)
    stream = b"data: ok\n\ndata: " + b"x" * 20_000 + b"\n\n"

    with pytest.raises(ProviderFailed) as caught:
        events_of([stream[at : at + size] for at in range(0, len(stream), size)])

    assert caught.value.kind == "model_gateway"
    assert not caught.value.retryable


def test_many_events_in_one_read_are_not_taken_for_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)

    assert len(SseParser().feed(b"data: 0123456789\n\n" * 50)) == 50
