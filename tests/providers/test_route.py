"""One exchange with a server that means no good: what is kept of it, how far it is opened, and what is closed."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake.answers import delta, event, status
from fake.provider import FakeProvider
from fake.silent import listening
from hames.ports import ModelLimits, ProviderFailed
from hames.providers import http_route
from hames.providers.compatible import Compatible
from hames.providers.decoding import PIECE_BYTES, BrokenCoding, Decoder, UnknownCoding
from hames.providers.http_route import HttpRoute, Want
from hames.providers.sse import MAX_EVENT_BYTES
from providers.asking import LIMITS, Asking, hello, ignore

pytestmark = pytest.mark.anyio

KEY = "sk-secret-0123456789"
ASK = hello("fake-model")
ASKING = Asking(Compatible(), ASK)
provider_of, ask, failure = ASKING.provider, ASKING.ask, ASKING.failure
BODY = Compatible().body(ASK)
STREAM = event(delta({"content": "x"})) + event(delta(reason="stop"))


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server
        assert server.refusals == []


class Taking:
    """A sink that takes what comes, and tells of each piece."""

    def __init__(self, on_piece: Callable[[], Want] = lambda: "more") -> None:
        self.sizes: list[int] = []
        self._on_piece = on_piece
        self._has_ended = False

    def begin(self, headers: Mapping[str, str]) -> None:
        pass

    def feed(self, data: bytes) -> Want:
        self.sizes.append(len(data))
        return self._on_piece()

    def finish(self) -> None:
        self._has_ended = True

    def is_whole(self) -> bool:
        return self._has_ended


# --- nothing is kept ----------------------------------------------------------------------------------------------


async def test_no_cookie_goes_back(fake: FakeProvider) -> None:
    cookies = {"set-cookie": f"route={'v' * 3_000}; Path=/"}
    fake.script(status(200, STREAM, cookies), status(500, "no", cookies), status(200, STREAM))
    async with provider_of(fake.url) as provider:
        await provider.stream(ASK, ignore, LIMITS)
        with pytest.raises(ProviderFailed):
            await provider.stream(ASK, ignore, LIMITS)
        await provider.stream(ASK, ignore, LIMITS)

    first, *others = [request.headers for request in fake.requests]
    assert "cookie" not in first
    assert others == [first, first]


# --- what is compressed -------------------------------------------------------------------------------------------


CODINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("X-GZIP ", gzip.compress),
    ("deflate", zlib.compress),
]


def opened(coding: str, pieces: list[bytes]) -> list[bytes]:
    decoder = Decoder(coding)
    return [piece for data in pieces for piece in decoder.pieces(data)]


@given(
    st.sampled_from(CODINGS),
    st.binary(max_size=300) | st.integers(0, 5).map(lambda number: bytes(number * PIECE_BYTES)),
    st.lists(st.integers(0, 1_000)),
)
def test_a_body_is_opened_in_bounded_pieces_however_it_comes(
    coding: tuple[str, Callable[[bytes], bytes]], body: bytes, cuts: list[int]
) -> None:
    name, compress = coding
    raw = compress(body)
    places = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})

    pieces = opened(name, [raw[start:end] for start, end in pairwise(places)])

    assert b"".join(pieces) == body
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)


@given(st.sampled_from(["gzip", "deflate"]), st.lists(st.binary(max_size=20)))
def test_any_bytes_are_opened_or_broken(coding: str, pieces: list[bytes]) -> None:
    with suppress(BrokenCoding):
        opened(coding, pieces)


@pytest.mark.parametrize("coding", ["", "identity", "Identity"])
def test_a_body_that_is_not_compressed_stays(coding: str) -> None:
    assert opened(coding, [b"a", b"b"]) == [b"a", b"b"]


@pytest.mark.parametrize("coding", ["gzip, gzip", "gzip,identity", "br", "zstd", "x"])
def test_a_coding_that_is_not_read_is_told(coding: str) -> None:
    with pytest.raises(UnknownCoding):
        Decoder(coding)


@pytest.mark.parametrize("coding", ["gzip, gzip", "br", KEY])
async def test_an_answer_in_a_coding_that_is_not_read_is_a_failure_that_stays_one(
    fake: FakeProvider, coding: str
) -> None:
    fake.script(status(200, STREAM, {"content-encoding": coding}))
    async with provider_of(fake.url, KEY) as provider:
        with pytest.raises(ProviderFailed) as caught:
            await provider.stream(ASK, ignore, LIMITS)

    assert (caught.value.kind, caught.value.retryable) == ("model_gateway", False)
    assert "content encoding" in caught.value.message
    assert KEY not in caught.value.message


async def test_a_failure_in_a_coding_that_is_not_read_is_told_by_its_status(fake: FakeProvider) -> None:
    error = await failure(fake, status(503, b"\x00" * 100, {"content-encoding": "gzip, gzip"}))

    assert (error.details["status"], error.retryable) == (503, True)
    assert "content encoding" in error.message


async def test_a_failure_that_is_compressed_is_told_by_its_words(fake: FakeProvider) -> None:
    body = gzip.compress(b'{"error":{"message":"because"}}')

    assert "because" in (await failure(fake, status(400, body, {"content-encoding": "gzip"}))).message


@pytest.mark.parametrize("code", [200, 500])
async def test_an_answer_whose_compression_is_damaged_may_be_sent_again(fake: FakeProvider, code: int) -> None:
    error = await failure(fake, status(code, b"no gzip at all", {"content-encoding": "gzip"}))

    assert (error.kind, error.retryable) == ("model_gateway", True)


async def test_what_is_damaged_behind_a_whole_answer_is_of_no_matter(fake: FakeProvider) -> None:
    part = zlib.compressobj()
    whole = part.compress(STREAM + b":\n\n" * PIECE_BYTES + b"data: {") + part.flush(zlib.Z_SYNC_FLUSH)

    assert (await ask(fake, status(200, whole + b"\xff" * 100, {"content-encoding": "deflate"}))).text == "x"


def bomb(size: int) -> bytes:
    """So many bytes of white space, in a thousandth of it."""
    part = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS + 16)
    return b"".join(part.compress(b" " * 2**20) for _ in range(size // 2**20)) + part.flush()


@pytest.mark.parametrize("code", [200, 500])
async def test_a_bomb_is_opened_no_further_than_an_answer_may_be_long(fake: FakeProvider, code: int) -> None:
    body = gzip.compress(b"{" + b" " * 2 * MAX_EVENT_BYTES)

    error = await failure(fake, status(code, body, {"content-encoding": "gzip"}))

    assert error.kind == "model_gateway"


async def test_while_a_bomb_is_opened_others_have_their_turns(fake: FakeProvider) -> None:
    size = 32 * 2**20
    fake.script(status(200, bomb(size), {"content-encoding": "gzip"}))
    sink = Taking()
    seen: list[int] = []

    async def other() -> None:
        while True:
            await anyio.lowlevel.checkpoint()
            seen.append(len(sink.sizes))

    route = HttpRoute(fake.url, None, {})
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            await route.exchange("/chat/completions", BODY, LIMITS, sink)
            tasks.cancel_scope.cancel()
        await route.aclose()

    assert sum(sink.sizes) == size
    # Where both are ready, either may be first.
    assert all(later - earlier <= 2 for earlier, later in pairwise(seen))


async def test_a_bomb_that_is_cancelled_is_opened_no_further(fake: FakeProvider) -> None:
    fake.script(status(200, bomb(32 * 2**20), {"content-encoding": "gzip"}))
    route = HttpRoute(fake.url, None, {})
    with anyio.fail_after(30):
        with anyio.CancelScope() as scope:

            def on_piece() -> Want:
                scope.cancel()
                return "more"

            sink = Taking(on_piece)
            await route.exchange("/chat/completions", BODY, LIMITS, sink)
        await route.aclose()

    assert scope.cancelled_caught
    assert len(sink.sizes) == 1


# --- the key ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [200, 400, 500])
@pytest.mark.parametrize("left", [1, len(KEY) - 1, len(KEY), 40])
async def test_a_key_where_the_body_of_an_error_is_cut_is_told_in_no_part(
    fake: FakeProvider, code: int, left: int
) -> None:
    body = b" " * (http_route.ERROR_BYTES - left) + KEY.encode() + b" " * 1_000
    fake.script(status(code, body), status(code, body))
    fake.listing = status(code, body)
    async with provider_of(fake.url, KEY) as provider:
        for asked in (provider.stream(ASK, ignore, LIMITS), provider.models()):
            with pytest.raises(ProviderFailed) as caught:
                await asked

            assert KEY[:6] not in repr((caught.value.message, caught.value.details))


# --- connections that never stand ---------------------------------------------------------------------------------

SOON = ModelLimits(connect_ms=200, first_byte_ms=200, idle_ms=20_000, request_ms=25_000)


@pytest.fixture(params=["direct", "proxy"])
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], str]:
    """The base URL of a server behind TLS, at a port of this machine or behind a proxy there."""
    if request.param == "direct":
        return lambda port: f"https://127.0.0.1:{port}/v1"

    def behind(port: int) -> str:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        return "https://models.invalid/v1"

    return behind


async def test_a_cancel_in_the_handshake_closes_the_connection(host: Callable[[int], str]) -> None:
    async with listening() as silent, provider_of(host(silent.port)) as provider:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provider.stream, ASK, ignore, LIMITS)
            await silent.greeted.wait()
            tasks.cancel_scope.cancel()

        await silent.left.wait()


async def test_a_handshake_that_takes_too_long_closes_the_connection(host: Callable[[int], str]) -> None:
    async with listening() as silent, provider_of(host(silent.port)) as provider:
        # The time may be over before the handshake has begun.
        while not silent.greeted.is_set():
            with pytest.raises(ProviderFailed) as caught:
                await provider.stream(ASK, ignore, SOON)
            assert caught.value.retryable

        await silent.left.wait()
