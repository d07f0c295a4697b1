from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.protocol.errors import HAMES_ERROR, INVALID_REQUEST, PARSE_ERROR
from hames.server.frames import MAX_HEADER_BYTES, FrameDecoder, FrameFault, Framing, encode_frame
from hames.server.rpc import Batch, Malformed, Notification, Request, Response, decode

MAX = 1000
BODIES = st.binary(min_size=1, max_size=60).map(lambda data: json.dumps(data.hex()).encode())
FRAMINGS: list[Framing] = ["line", "header"]


def feed_all(data: bytes, *, framing: str = "auto", step: int | None = None) -> list[bytes | FrameFault]:
    decoder = FrameDecoder(MAX, framing)  # type: ignore[arg-type]
    found: list[bytes | FrameFault] = []
    for at in range(0, len(data), step or max(1, len(data))):
        found += decoder.feed(data[at : at + (step or len(data))])
    return found + decoder.end()


def codes(found: list[bytes | FrameFault]) -> list[bytes | int]:
    return [item.code if isinstance(item, FrameFault) else item for item in found]


@pytest.mark.parametrize("framing", FRAMINGS)
@given(bodies=st.lists(BODIES, max_size=5), blank=st.sampled_from([b"", b"\r\n", b"\n \t\n"]))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    framing: Framing, bodies: list[bytes], blank: bytes
) -> None:
    data = blank.join([b"", *(encode_frame(body, framing) for body in bodies)])

    assert feed_all(data) == bodies
    for cut in range(len(data) + 1):
        decoder = FrameDecoder(MAX)
        assert decoder.feed(data[:cut]) + decoder.feed(data[cut:]) + decoder.end() == bodies


@given(st.lists(BODIES | st.binary(max_size=MAX + 100), max_size=6).map(b"\n".join), st.integers(1, 50))
def test_any_bytes_give_the_same_frames_however_they_are_cut(data: bytes, step: int) -> None:
    assert feed_all(data, step=step) == feed_all(data)


@given(
    st.lists(
        st.sampled_from(
            [
                b"Content-Length: 5\r\n",
                b"content-length:7\n",
                b"Content-Length: 2000\r\n",
                b"Content-Length: x\r\n",
                b"Content-Type: a\r\n",
                b"\r\n",
                b"\n",
                b"{}",
                b'{"a":1}',
                b"x" * 300,
                b"X-Other: 1\r\n",
                b"\xff\n",
            ]
        ),
        max_size=12,
    ).map(b"".join),
    st.integers(1, 20),
)
def test_any_headers_give_the_same_frames_however_they_are_cut(data: bytes, step: int) -> None:
    data = b"Content-Length: 2\r\n\r\n{}" + data

    assert feed_all(data, step=step) == feed_all(data)


@given(st.lists(BODIES, min_size=1, max_size=5), st.data())
def test_a_damaged_line_costs_itself_and_no_other(bodies: list[bytes], data: st.DataObject) -> None:
    stream = bytearray(b"".join(encode_frame(body, "line") for body in bodies))
    at = data.draw(st.integers(0, len(stream) - 2))
    stream[at] = data.draw(st.sampled_from([*range(10), *range(11, 256)]))
    damaged = bytes(stream).split(b"\n")[:-1]

    found = feed_all(b"{}\n" + bytes(stream) + b'{"last":1}\n')

    assert found[0] == b"{}"
    assert found[-1] == b'{"last":1}'
    assert [item for item in found if item in bodies] == [line for line in damaged if line in bodies]


@pytest.mark.parametrize("text", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_the_byte_lf_ends_a_frame(text: str) -> None:
    line = f'{{"a":"{text}b"}}'.encode()

    assert feed_all(line + b"\n" + line + b"\r\n") == [line, line]


def test_a_last_line_needs_no_end() -> None:
    assert feed_all(b'{"a":1}\n{"b":2}') == [b'{"a":1}', b'{"b":2}']
    assert feed_all(b'{"b":2}\r') == [b'{"b":2}']
    assert feed_all(b"\n \t\r\n") == []
    assert feed_all(b"") == []


@pytest.mark.parametrize("framing", ["auto", "line", "header"])
@pytest.mark.parametrize("step", [None, 1, 2])
def test_a_byte_order_mark_at_the_start_is_dropped_once(framing: str, step: int | None) -> None:
    bom = b"\xef\xbb\xbf"
    frame = encode_frame(b"{}", "header" if framing == "header" else "line")

    assert feed_all(bom + frame, framing=framing, step=step) == [b"{}"]
    if framing != "header":
        assert feed_all(bom + bom + frame, framing=framing, step=step) == [bom + b"{}"]
        assert feed_all(frame + bom + frame, framing=framing, step=step) == [b"{}", bom + b"{}"]


@pytest.mark.parametrize(
    ("start", "framing"),
    [
        (b"\r\n\n  Content-Length: 2\r\n\r\n{}", "header"),
        (b"content-type: x\nCONTENT-LENGTH:2\n\n{}", "header"),
        (b"{}\n", "line"),
        (b"Content\n", "line"),
        (b"Content-Encoding: x\n", "line"),
        (b"C", "line"),
        (b"", "line"),
    ],
)
def test_the_first_line_that_is_not_blank_tells_the_framing(start: bytes, framing: str) -> None:
    for step in (1, len(start) + 1):
        decoder = FrameDecoder(MAX)
        for at in range(0, len(start), step):
            decoder.feed(start[at : at + step])

        assert decoder.framing == framing


def test_a_forced_framing_holds_whatever_comes() -> None:
    assert codes(feed_all(b"Content-Length: 2\r\n\r\n{}", framing="line")) == [PARSE_ERROR, b"{}"]
    assert codes(feed_all(b'{"a":1}\n', framing="header")) == [INVALID_REQUEST]
    assert FrameDecoder(MAX, "header").framing == "header"


def test_a_header_block_after_lines_costs_one_fault_and_no_other_frame() -> None:
    block = encode_frame(b'{"a":1}', "header")

    assert codes(feed_all(b"{}\n" + block + b'{"b":2}\n')) == [b"{}", PARSE_ERROR, b'{"a":1}', b'{"b":2}']
    assert codes(feed_all(b"{}\n" + block + b'\n{"b":2}\n')) == [b"{}", PARSE_ERROR, b'{"a":1}', b'{"b":2}']
    assert codes(feed_all(b'{}\nContent-Length: 99\n{"b":2}\n{}')) == [b"{}", PARSE_ERROR, b'{"b":2}', b"{}"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_may_have_the_limit_and_not_a_byte_more(end: bytes) -> None:
    for step in (1, 7, 5000):
        fits, exceeds, *others = feed_all(b"x" * MAX + end + b"y" * (MAX + 1) + end + b"{}" + end, step=step)

        assert fits == b"x" * MAX
        assert isinstance(exceeds, FrameFault)
        assert others == [b"{}"]


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_frame_that_is_too_large_is_dropped_and_its_size_told(framing: Framing) -> None:
    stream = b"".join(encode_frame(body, framing) for body in (b"{}", b"x" * 5000, b'{"a":1}'))

    for step in (1, 64, len(stream)):
        first, fault, last = feed_all(stream, step=step)

        assert (first, last) == (b"{}", b'{"a":1}')
        assert isinstance(fault, FrameFault)
        assert fault.code == HAMES_ERROR
        assert fault.data is not None
        assert fault.data["kind"] == "frame_too_large"
        assert fault.data["details"] == {"actualBytes": 5000, "maxBytes": MAX}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_frame_that_is_too_large_is_not_kept(framing: Framing) -> None:
    import tracemalloc

    decoder = FrameDecoder(MAX, framing)
    chunk = b"x" * 4096
    if framing == "header":
        decoder.feed(b"Content-Length: 900000000000\r\n\r\n")
    tracemalloc.start()
    for _ in range(1000):
        decoder.feed(chunk)
    kept_bytes, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most_bytes < 100_000
    assert kept_bytes < 10_000


def test_a_cut_line_that_is_too_large_is_told_at_the_end() -> None:
    (fault,) = feed_all(b"x" * 5000)

    assert isinstance(fault, FrameFault)
    assert fault.data is not None


@pytest.mark.parametrize(
    "block",
    [
        b"Content-Type: application/json\r\n\r\n",
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: +5\r\n\r\n",
        b"Content-Length: five\r\n\r\n",
        b"Content-Length: 1.5\r\n\r\n",
        b"Content-Length:\r\n\r\n",
        b"Content-Length: " + b"9" * 4000 + b"\r\n\r\n",
        b"Content-Length: 7\r\nContent-Length: 7\r\n\r\n",
        b"Content-Length: 7\r\ncontent-length: 8\r\n\r\n",
        b"Content-Length: 7\r\nnonsense\r\n\r\n",
        b"Content-Length: 7\r\nbad name: x\r\n\r\n",
        b"Content-Length: 7\r\nX: " + b"x" * MAX_HEADER_BYTES + b"\r\n\r\n",
        b"X-Filler: " + b"x" * 10 * MAX_HEADER_BYTES + b"\r\n\r\n",
        b"X: y\r\n" * MAX_HEADER_BYTES + b"\r\n",
        b"\xff\xfe\r\n",
        b'{"jsonrpc":"2.0","method":"m"}\n',
    ],
)
def test_a_bad_header_block_costs_one_fault_and_reading_goes_on_at_the_next(block: bytes) -> None:
    good = encode_frame(b'{"a":1}', "header")

    for step in (1, 100, 100_000):
        found = feed_all(good + block + b'{"b":2}' + good + good, step=step)

        assert codes(found) == [b'{"a":1}', INVALID_REQUEST, b'{"a":1}', b'{"a":1}']


def test_an_empty_body_is_a_fault() -> None:
    good = encode_frame(b"{}", "header")

    assert codes(feed_all(good + b"Content-Length: 0\r\n\r\n" + good)) == [b"{}", INVALID_REQUEST, b"{}"]


def test_a_length_that_is_too_small_costs_the_rest_of_its_body_and_no_other_frame() -> None:
    good = encode_frame(b'{"a":1}', "header")

    found = feed_all(b'Content-Length: 3\r\n\r\n{"b":2}' + good + good)

    assert codes(found) == [b'{"b', INVALID_REQUEST, b'{"a":1}', b'{"a":1}']


@pytest.mark.parametrize("cut", [b"Content-Length: 5\r\n\r\n{", b"Content-Length: 5\r\n", b"Content-Len"])
def test_a_frame_with_headers_that_is_cut_is_a_fault_at_the_end(cut: bytes) -> None:
    assert codes(feed_all(b"Content-Length: 2\r\n\r\n{}" + cut)) == [b"{}", PARSE_ERROR]


def test_nothing_but_lost_bytes_is_kept_while_looking_for_a_header() -> None:
    decoder = FrameDecoder(MAX, "header")
    found = decoder.feed(b"nonsense\n")
    for _ in range(3000):
        found += decoder.feed(b"x" * 4096)
    found += decoder.feed(b"y\n" * 10_000 + encode_frame(b"{}", "header"))

    assert codes(found) == [INVALID_REQUEST, b"{}"]


@given(st.binary(max_size=200))
def test_what_goes_out_comes_in(payload: bytes) -> None:
    payload = b'"' + payload.hex().encode() + b'"'

    assert encode_frame(payload, "line") == payload + b"\n"
    assert feed_all(encode_frame(payload, "header")) == [payload]


@pytest.mark.parametrize(
    ("line", "kind", "code"),
    [
        (b"{nonsense", Malformed, PARSE_ERROR),
        (b"", None, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', Batch, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', Request, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}', Request, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', Malformed, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', Malformed, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":"a","method":"ping"}', Request, None),
        (b'{"id":1,"method":"ping"}', Malformed, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":"no/such"}', Request, None),
        (b'{"jsonrpc":"2.0","method":"no/such"}', Notification, None),
        (b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":99}}', Notification, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"unknown":1}}', Request, None),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', Response, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/list"}', Request, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}\r', Request, None),
        (b"Content-Length: 40", FrameFault, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","more":1}', Request, None),
        ('{"jsonrpc":"2.0","id":1,"method":"pi\u2028ng"}'.encode(), Request, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"pi\xff\xfeng"}', Malformed, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 20_000_000 + b'"}', FrameFault, HAMES_ERROR),
    ],
    ids=range(1, 22),
)
def test_the_21_odd_lines_are_told_apart_and_leave_the_stream_whole(
    line: bytes, kind: type | None, code: int | None
) -> None:
    ping = b'{"jsonrpc":"2.0","id":"p","method":"ping"}\n'
    decoder = FrameDecoder(16 * 2**20)
    stream = ping + line + b"\n" + ping

    found = [item for at in range(0, len(stream), 65_536) for item in decoder.feed(stream[at : at + 65_536])]
    messages = [item if isinstance(item, FrameFault) else decode(item) for item in found]

    assert messages[0] == messages[-1] == Request("p", "ping", {})
    assert [type(message) for message in messages[1:-1]] == ([kind] if kind else [])
    assert [getattr(message, "code", None) for message in messages[1:-1]] == ([code] if kind else [])
