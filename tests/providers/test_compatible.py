"""`CompatibleProvider` against a strict server on loopback."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import anyio
import pytest

from fake.provider import (
    USAGE,
    Answer,
    FakeProvider,
    calls,
    chunk,
    cut,
    delta,
    delta_text,
    deltas,
    event,
    finish,
    never,
    partial,
    ping,
    reset,
    send,
    stall,
    status,
    text,
    thinking,
    trickle,
    wait_for,
)
from hames.core.conversation import (
    AssistantMessage,
    CallDelta,
    ModelRequest,
    Part,
    ReasoningDelta,
    TextDelta,
    ToolResult,
)
from hames.ports import ModelLimits, ProviderFailed
from hames.protocol.errors import HarnessFault, Refused
from hames.providers import http_route
from hames.providers.compatible import Compatible
from hames.providers.http_provider import HttpProvider
from providers.asking import BASH, LIMITS, Asking, hello, ignore

pytestmark = pytest.mark.anyio

KEY = "sk-secret-0123456789"
ASK = hello("fake-model")
ASKING = Asking(Compatible(), ASK)
provider_of, ask, failure = ASKING.provider, ASKING.ask, ASKING.failure
FLAT_USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details.cached_tokens": 4,
}


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server
        assert server.refusals == []


# --- answers ----------------------------------------------------------------------------------------------------


async def test_text_comes_as_it_is_sent_and_as_a_whole(fake: FakeProvider) -> None:
    parts: list[Part] = []
    fake.script(thinking("hm") + text("Hello, wörld 😀", chunks=["Hel", "lo, ", "wörld 😀"]))

    async with provider_of(fake.url) as provider:
        reply = await provider.stream(ASK, parts.append, LIMITS)

    assert parts == [ReasoningDelta("hm"), TextDelta("Hel"), TextDelta("lo, "), TextDelta("wörld 😀")]
    assert (reply.text, reply.reasoning, reply.stop, reply.usage) == ("Hello, wörld 😀", "hm", "stop", FLAT_USAGE)


async def test_a_part_comes_before_the_answer_is_whole(fake: FakeProvider) -> None:
    fake.script(partial("first") + wait_for("seen") + text(" last"))
    seen: list[Part] = []

    def on_part(part: Part) -> None:
        seen.append(part)
        fake.gate("seen").open()

    async with provider_of(fake.url) as provider:
        reply = await provider.stream(ASK, on_part, LIMITS)

    assert reply.text == "first last"
    assert seen[0] == TextDelta("first")


async def test_parallel_calls_come_as_parts_and_go_back_in_a_form_that_is_taken(fake: FakeProvider) -> None:
    parts: list[Part] = []
    fake.script(calls([("bash", {"command": "ls é"}, "a"), ("bash", '{"broken', "b")], "look", fragment=2), text("ok"))

    async with provider_of(fake.url) as provider:
        reply = await provider.stream(ASK, parts.append, LIMITS)
        said = AssistantMessage(reply.text, reply.calls)
        results = tuple(ToolResult("c", call.provider_id, call.tool, "") for call in reply.calls)
        second = ModelRequest("fake-model", "", (*ASK.messages, said, *results), (BASH,), tool_choice="none")
        await provider.stream(second, ignore, LIMITS)

    assert reply.stop == "tool_calls"
    assert [json.loads(reply.calls[0].arguments), reply.calls[1].arguments] == [{"command": "ls é"}, '{"broken']
    assert "".join(part.text for part in parts if isinstance(part, CallDelta) and part.index == 1) == '{"broken'
    assert [call["function"]["arguments"] for call in fake.requests[1].body["messages"][1]["tool_calls"]] == [
        reply.calls[0].arguments,
        "{}",
    ]


async def test_an_answer_in_single_bytes_with_comments_is_whole(fake: FakeProvider) -> None:
    answer = trickle(event(delta({"content": "é😀"})).replace(b"\\u", b"\\u"), each_ms=0) + ping() + finish()

    assert (await ask(fake, answer)).text == "é😀"


async def test_carriage_returns_and_a_missing_last_line_feed_do_no_harm(fake: FakeProvider) -> None:
    stream = (event(delta({"content": "x"})) + event(delta(reason="stop"))).replace(b"\n", b"\r\n").rstrip()

    assert (await ask(fake, send(stream))).text == "x"


async def test_a_done_marker_is_not_needed_and_usage_is_absent_where_none_came(fake: FakeProvider) -> None:
    reply = await ask(fake, partial("x") + finish(usage=None, done=False))

    assert (reply.text, reply.usage) == ("x", None)


async def test_a_connection_that_is_cut_after_the_finish_reason_has_given_a_whole_answer(fake: FakeProvider) -> None:
    assert (await ask(fake, partial("x") + chunk(delta(reason="stop")) + reset())).text == "x"


async def test_a_server_that_stays_after_the_end_is_not_waited_for(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_route, "TAIL_MS", 100)
    endless = ModelLimits(20_000, 20_000, 3_600_000, 3_600_000)

    assert (await ask(fake, text("done") + stall(), limits=endless)).text == "done"
    assert (await ask(fake, partial("x") + chunk(delta(reason="stop")) + stall(), limits=endless)).text == "x"


async def test_a_json_answer_to_a_stream_request_is_taken(fake: FakeProvider) -> None:
    answer = {
        "id": "x",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": USAGE,
    }

    reply = await ask(fake, status(200, answer))

    assert (reply.text, reply.usage) == ("hi", FLAT_USAGE)


async def test_a_stream_under_a_wrong_content_type_or_compressed_is_taken(fake: FakeProvider) -> None:
    stream = event(delta({"content": "x"})) + event(delta(reason="stop"))

    assert (await ask(fake, status(200, stream, {"content-type": "application/json"}))).text == "x"
    assert (await ask(fake, status(200, gzip.compress(stream), {"content-encoding": "gzip"}))).text == "x"


async def test_lone_halves_are_replaced_and_a_cut_pair_is_whole(fake: FakeProvider) -> None:
    halves = [chunk(delta({"content": half})) for half in ("\ud83d", "\ude00", "\ud83d", "!")]

    reply = await ask(fake, halves[0] + halves[1] + halves[2] + halves[3] + finish())

    assert reply.text == "😀\ufffd!"


@pytest.mark.unmeasured
async def test_a_hundred_thousand_deltas_all_come(fake: FakeProvider) -> None:
    fake.script(deltas(100_000, 20))
    count = 0

    def on_part(part: Part) -> None:
        nonlocal count
        count += 1

    async with provider_of(fake.url) as provider:
        reply = await provider.stream(ASK, on_part, LIMITS)

    assert count == 100_000
    assert reply.text == delta_text(100_000, 20)


# --- failures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending",
    [
        cut(),
        reset(),
        send(b"data: [DONE]\n\n"),
        send(b""),
        send(b'data: {"choices": [{"delta": {"content": "\xc3') + cut(),
        send(b'data: {"choices": ['),
        calls([("bash", {})])[:2] + cut(),
    ],
    ids=["fin", "rst", "done", "end", "cut in a character", "end in a line", "cut after a call"],
)
async def test_a_stream_without_a_finish_reason_is_a_failure_that_may_be_sent_again(
    fake: FakeProvider, ending: Answer
) -> None:
    error = await failure(fake, partial("x") + ending)

    assert (error.kind, error.retryable, error.details["phase"]) == ("model_gateway", True, "stream")


async def test_a_cut_before_any_answer_may_be_sent_again(fake: FakeProvider) -> None:
    error = await failure(fake, reset())

    assert (error.kind, error.retryable, error.details["phase"]) == ("model_gateway", True, "first_byte")


@pytest.mark.parametrize("body", [{"error": {"message": "too busy", "code": "overloaded"}}, {"error": "too busy"}])
async def test_an_error_in_the_stream_ends_the_try_though_the_socket_stays(
    fake: FakeProvider, body: dict[str, Any]
) -> None:
    error = await failure(fake, chunk(delta({"content": "x"}, usage={"prompt_tokens": 3})) + chunk(body) + stall())
    await fake.await_disconnects(1)

    assert "too busy" in error.message
    assert error.retryable
    assert error.usage == {"prompt_tokens": 3}
    assert error.details["requestId"] == "fake-request"


async def test_a_success_with_an_error_in_it_is_the_error(fake: FakeProvider) -> None:
    error = await failure(fake, status(200, {"error": {"message": "no", "code": "insufficient_quota"}}))

    assert (error.kind, error.retryable) == ("model_gateway", False)
    assert error.details["providerCode"] == "insufficient_quota"


@pytest.mark.parametrize(
    ("body", "phrase"),
    [
        (b"", "without a finish reason"),
        (b" \n", "without a finish reason"),
        (b'{"choices": []}', "without a finish reason"),
        (b'{"choices": [', "not JSON"),
        (b"\xef\xbb\xbf\n [1]", "not an object"),
        (b'{"' + b"x" * 11 * 2**20, "more than"),
        (event(delta({"tool_calls": [{"function": {"arguments": "{}"}}]}, reason="stop")), "without a name"),
        (b" " * 100_000, "without a finish reason"),
    ],
    ids=[
        "nothing",
        "white space",
        "no choice",
        "half of it",
        "a list",
        "too much",
        "a call without a name",
        "much white space",
    ],
)
async def test_a_success_that_is_no_answer_is_a_failure_that_may_be_sent_again(
    fake: FakeProvider, body: bytes, phrase: str
) -> None:
    error = await failure(fake, status(200, body))

    assert (error.kind, error.retryable, error.details["phase"]) == ("model_gateway", True, "stream")
    assert phrase in error.message


async def test_a_half_of_a_pair_at_the_very_end_is_replaced_in_a_last_part(fake: FakeProvider) -> None:
    parts: list[Part] = []
    fake.script(chunk(delta({"content": "a\ud83d", "reasoning_content": "\ud83d"})) + finish())

    async with provider_of(fake.url) as provider:
        reply = await provider.stream(ASK, parts.append, LIMITS)

    assert (reply.text, reply.reasoning) == ("a\ufffd", "\ufffd")
    assert parts == [TextDelta("a"), ReasoningDelta("\ufffd"), TextDelta("\ufffd")]


async def test_a_web_page_is_no_answer(fake: FakeProvider) -> None:
    error = await failure(fake, status(200, "<html><title>Log in</title></html>", {"content-type": "text/html"}))

    assert not error.retryable
    assert "Log in" in error.message


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        (302, "model_gateway", False),
        (400, "model_gateway", False),
        (404, "model_unavailable", False),
        (429, "model_gateway", True),
        (502, "model_gateway", True),
    ],
)
async def test_a_status_is_classified_with_the_words_of_the_provider(
    fake: FakeProvider, code: int, kind: str, retryable: bool
) -> None:
    error = await failure(fake, status(code, {"error": {"message": "because"}}, {"location": "http://127.0.0.1:9/"}))

    assert (error.kind, error.retryable, error.details["status"]) == (kind, retryable, code)
    assert len(fake.requests) == 1
    assert code == 302 or "because" in error.message


async def test_the_wait_that_the_provider_asks_for_is_passed_on(fake: FakeProvider) -> None:
    dated = {"retry-after": formatdate(1_700_000_030, usegmt=True), "date": formatdate(1_700_000_000, usegmt=True)}

    assert (await failure(fake, status(429, "", {"retry-after": "2"}))).retry_after_ms == 2_000
    assert (await failure(fake, status(503, "", dated))).retry_after_ms == 30_000
    assert (await failure(fake, status(500, ""))).retry_after_ms is None


async def test_an_error_whose_body_stays_away_is_still_the_error(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_route, "TAIL_MS", 100)

    error = await failure(fake, status(500, b"half", {"content-length": "100"}) + stall())

    assert error.details["status"] == 500


async def test_a_long_error_is_bounded(fake: FakeProvider) -> None:
    error = await failure(fake, status(500, b"x" * 1_000_000))

    assert len(error.details["providerMessage"]) == 500


async def test_a_key_that_the_provider_echoes_is_redacted() -> None:
    with FakeProvider(api_key="another") as fake:
        async with provider_of(fake.url, KEY) as provider:
            with pytest.raises(ProviderFailed) as caught:
                await provider.stream(ASK, ignore, LIMITS)

    assert caught.value.kind == "credential_rejected"
    assert not caught.value.retryable
    assert KEY not in repr((caught.value, caught.value.details, caught.value.message))
    assert "[redacted]" in caught.value.message


# --- limits and cancellation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "limits", "phase"),
    [
        (never(), ModelLimits(20_000, 100, 20_000, 20_000), "first_byte"),
        (stall(), ModelLimits(20_000, 100, 20_000, 20_000), "first_byte"),
        (partial("x") + stall(), ModelLimits(20_000, 20_000, 100, 20_000), "idle"),
        (trickle(b": ping\n\n" * 10_000, each_ms=5), ModelLimits(20_000, 20_000, 20_000, 200), "total"),
    ],
    ids=["no head", "a head alone", "a stall", "pings for ever"],
)
async def test_a_limit_that_is_reached_is_named_and_closes_the_connection(
    fake: FakeProvider, answer: Answer, limits: ModelLimits, phase: str
) -> None:
    error = await failure(fake, answer, limits=limits)
    await fake.await_disconnects(1)

    assert (error.kind, error.retryable, error.details["phase"]) == ("model_gateway", True, phase)


async def test_any_byte_also_of_a_comment_puts_off_the_idle_limit(fake: FakeProvider) -> None:
    limits = ModelLimits(20_000, 20_000, 1_500, 25_000)
    # Comments for longer than the limit, a byte at a time and each long before it.
    answer = partial("x") + trickle(b": ping\n" * 4, each_ms=70) + text("y")

    assert (await ask(fake, answer, limits=limits)).text == "xy"


async def test_a_server_that_does_not_listen_cannot_be_reached() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody else gets the port
        async with provider_of(f"http://127.0.0.1:{taken.getsockname()[1]}/v1") as provider:
            with pytest.raises(ProviderFailed) as caught:
                await provider.stream(ASK, ignore, LIMITS)

    assert (caught.value.kind, caught.value.retryable) == ("model_unavailable", True)
    assert caught.value.details["phase"] == "connect"


async def test_a_connection_that_is_never_made_ends_at_its_limit() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        for _ in range(4):  # fill the backlog: a further SYN is not answered
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(full.getsockname())
            waiting.append(client)
        async with provider_of(f"http://127.0.0.1:{full.getsockname()[1]}/v1") as provider:
            with pytest.raises(ProviderFailed) as caught:
                await provider.stream(ASK, ignore, ModelLimits(200, 20_000, 20_000, 20_000))
        for client in waiting:
            client.close()

    assert (caught.value.retryable, caught.value.details["phase"]) == (True, "connect")


async def test_tls_that_fails_is_a_connection_that_failed(fake: FakeProvider) -> None:
    async with provider_of(fake.url.replace("http:", "https:")) as provider:
        with pytest.raises(ProviderFailed) as caught:
            await provider.stream(ASK, ignore, LIMITS)

    assert (caught.value.kind, caught.value.details["phase"]) == ("model_unavailable", "connect")


@pytest.mark.parametrize("answer", [never(), stall(), partial("x") + stall()], ids=["no head", "a head", "some text"])
async def test_cancelling_closes_the_connection_and_the_next_request_works(fake: FakeProvider, answer: Answer) -> None:
    fake.script(answer)
    async with provider_of(fake.url) as provider:
        async with anyio.create_task_group() as group:
            group.start_soon(provider.stream, ASK, ignore, LIMITS)
            await fake.await_requests(1)
            group.cancel_scope.cancel()
        await fake.await_disconnects(1)

        assert (await provider.stream(ASK, ignore, LIMITS)).text == "ok"


async def test_a_fault_of_whoever_takes_the_parts_ends_the_exchange(fake: FakeProvider) -> None:
    fake.script(partial("x") + stall())

    def on_part(part: Part) -> None:
        raise HarnessFault("limit_exceeded")

    async with provider_of(fake.url) as provider:
        with pytest.raises(HarnessFault) as caught:
            await provider.stream(ASK, on_part, LIMITS)
    await fake.await_disconnects(1)

    assert caught.value.kind == "limit_exceeded"


# --- connections, models, route ---------------------------------------------------------------------------------


async def test_one_connection_serves_requests_one_after_the_other(fake: FakeProvider) -> None:
    fake.script(text("a"), status(500, "no"), text("b"))
    async with provider_of(fake.url, KEY) as provider:
        assert (await provider.stream(ASK, ignore, LIMITS)).text == "a"
        with pytest.raises(ProviderFailed):
            await provider.stream(ASK, ignore, LIMITS)
        assert (await provider.stream(ASK, ignore, LIMITS)).text == "b"
        await provider.models()

    assert {request.connection for request in fake.requests} == {1}
    assert fake.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert fake.requests[0].headers["accept-encoding"] == "identity"


async def test_requests_at_the_same_time_do_not_wait_for_each_other(fake: FakeProvider) -> None:
    fake.answer = lambda _body: wait_for("go") + text("ok")
    async with provider_of(fake.url) as provider, anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(provider.stream, ASK, ignore, LIMITS)
        await fake.await_requests(20)
        fake.gate("go").open()

    assert len({request.connection for request in fake.requests}) == 20


async def test_the_models_are_listed_in_order(fake: FakeProvider) -> None:
    fake.models = ["b", "a", "b"]

    async with provider_of(fake.url) as provider:
        assert await provider.models() == ["a", "b"]


async def test_a_listing_from_a_wrong_base_url_is_a_failure(fake: FakeProvider) -> None:
    async with provider_of(fake.url.removesuffix("/v1")) as provider:
        with pytest.raises(ProviderFailed) as caught:
            await provider.models()

    assert caught.value.kind == "model_unavailable"


@pytest.mark.parametrize("body", ["<html><title>Log in</title></html>", '{"data": 1}', "[]", "", "x" * 11 * 2**20])
async def test_a_listing_that_is_none_is_a_failure_that_stays_one(fake: FakeProvider, body: str) -> None:
    fake.listing = status(200, body)

    async with provider_of(fake.url) as provider:
        with pytest.raises(ProviderFailed) as caught:
            await provider.models()

    assert (caught.value.kind, caught.value.retryable) == ("model_gateway", False)


def test_the_route_names_the_credential_and_never_holds_it() -> None:
    route = HttpProvider(Compatible(), "http://h/v1/", f" {KEY}\n", key_source="env:KEY", salt=b"a").route
    same = HttpProvider(Compatible(), "http://h/v1", KEY, key_source="env:KEY", salt=b"a").route
    salted = HttpProvider(Compatible(), "http://h/v1", KEY, key_source="env:KEY", salt=b"b").route
    none = HttpProvider(Compatible(), "http://h/v1", None, key_source="env:KEY", salt=b"a").route

    assert route == same
    assert route["baseUrl"] == "http://h/v1"
    assert route["credential"]["source"] == "env:KEY"
    assert len(route["credential"]["fingerprint"]) == 12
    assert route["credential"] != salted["credential"]
    assert none["credential"] == {"source": "none"}
    assert KEY not in repr(route)


@pytest.mark.parametrize("url", ["", "h/v1", "ftp://h", "http://", "http://u:p@h/", "http://h/?key=1", "http://h:x/"])
def test_a_base_url_that_cannot_be_used_or_holds_a_secret_is_refused(url: str) -> None:
    with pytest.raises(Refused) as caught:
        HttpProvider(Compatible(), url, None, key_source="", salt=b"")

    assert caught.value.kind == "invalid_config"


@pytest.mark.parametrize("key", ["sk-é", "sk-a\r\nx: y"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(Refused) as caught:
        HttpProvider(Compatible(), "http://h", key, key_source="env:KEY", salt=b"")

    assert "sk-" not in str(caught.value)


async def test_a_proxy_that_cannot_be_used_is_said_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://user:hunter2@127.0.0.1:1")

    async with provider_of("http://192.0.2.1/v1") as provider:
        with pytest.raises(ProviderFailed) as caught:
            await provider.stream(ASK, ignore, LIMITS)

    assert (caught.value.kind, caught.value.retryable) == ("invalid_config", False)
    assert "hunter2" not in str(caught.value)


@pytest.fixture
def dead_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a proxy that the environment names, and that does not listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.delenv(name.lower(), raising=False)
            monkeypatch.setenv(name, f"http://user:proxy-secret@127.0.0.1:{port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", f"http://user:proxy-secret@127.0.0.1:{port}")
        yield port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_this_machine_is_never_asked_for_through_a_proxy(fake: FakeProvider, dead_proxy: int, host: str) -> None:
    fake.script(text("direct"))
    async with provider_of(fake.url.replace("127.0.0.1", host)) as provider:
        assert (await provider.stream(ASK, ignore, LIMITS)).text == "direct"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_cannot_be_reached_is_named_without_its_password(dead_proxy: int, scheme: str) -> None:
    async with provider_of(f"{scheme}://models.invalid/v1") as provider:
        with pytest.raises(ProviderFailed) as caught:
            await provider.stream(ASK, ignore, LIMITS)

    assert caught.value.kind == "model_unavailable"
    assert f"through the proxy http://127.0.0.1:{dead_proxy} of the environment" in caught.value.message
    assert "proxy-secret" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://127.8.9.10/v1", True),
        ("https://[::1]:8080/v1", True),
        ("http://localhost/v1", True),
        ("http://LOCALHOST.:1/v1", True),
        ("http://127.0.0.1.example.com/v1", False),
        ("http://10.0.0.1/v1", False),
        ("http://localhost.example.com/v1", False),
    ],
)
def test_loopback_is_told_by_the_host(url: str, is_local: bool) -> None:
    assert http_route.is_loopback(url) == is_local


def test_making_a_provider_imports_no_http_client() -> None:
    code = (
        "import sys; from hames.providers import PROVIDERS, ProviderSettings\n"
        "PROVIDERS['compatible'].make(ProviderSettings('http://h', 'k', 's', b''))\n"
        "assert not {'httpx', 'ssl', 'email'} & set(sys.modules), sys.modules.keys()"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_a_key_that_the_provider_echoes_anywhere_in_an_answer_does_not_enter(fake: FakeProvider) -> None:
    call = {"id": KEY, "function": {"name": f"f{KEY}", "arguments": '{"a":"' + KEY[:5]}}
    document = {"model": KEY, "id": KEY, "usage": {KEY: {KEY: 1}}}
    fragments = [
        {"content": f"said {KEY[:7]}", "reasoning_content": f"thought {KEY}", "tool_calls": [call]},
        {"content": KEY[7:], "tool_calls": [{"function": {"arguments": f'{KEY[5:]}"}}'}}]},
        {"content": " and sk"},
    ]
    chunks = [{**document, "choices": [{"index": 0, "delta": delta}]} for delta in fragments]
    chunks.append({**document, "choices": [{"index": 0, "delta": {}, "finish_reason": KEY}]})
    events = b"".join(event(each) for each in chunks)
    # The same with every letter escaped, as JSON allows.
    escaped = events.replace(KEY.encode(), "".join(f"\\u{ord(letter):04x}" for letter in KEY).encode())
    fake.script(send(events), send(escaped))
    parts: list[Part] = []

    async with provider_of(fake.url, KEY) as provider:
        replies = [await provider.stream(ASK, parts.append, LIMITS) for _ in range(2)]

    assert replies[0] == replies[1]
    assert KEY not in repr(replies)
    assert replies[0].text == "said [redacted] and sk"
    assert replies[0].calls[0].arguments == '{"a":"[redacted]"}'
    assert replies[0].usage == {"[redacted].[redacted]": 1}
    for kind in (TextDelta, ReasoningDelta):
        shown = "".join(part.text for part in parts if isinstance(part, kind))
        assert KEY not in shown
        assert "[redacted]" in shown
    assert KEY not in "".join(part.text for part in parts if isinstance(part, CallDelta))


async def test_an_error_code_with_the_key_in_lower_case_is_redacted(fake: FakeProvider) -> None:
    key = "SK-Secret-0123456789"
    fake.script(status(400, {"error": {"message": f"bad {key}", "code": key}}))

    async with provider_of(fake.url, key) as provider:
        with pytest.raises(ProviderFailed) as failure:
            await provider.stream(ASK, ignore, LIMITS)

    assert key.lower() not in repr((failure.value.message, failure.value.details)).lower()


async def test_a_placeholder_for_a_key_spoils_no_text(fake: FakeProvider) -> None:
    fake.script(text("none of it is EMPTY"))
    async with provider_of(fake.url, "EMPTY") as provider:
        reply = await provider.stream(ASK, ignore, LIMITS)

    assert reply.text == "none of it is EMPTY"
