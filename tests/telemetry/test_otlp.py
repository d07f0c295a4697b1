"""What a collector is sent, and what becomes of it when it does not take it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest

from fake.collector import Collector, attributes
from hames.telemetry import otlp
from hames.telemetry.otlp import Exporter
from hames.telemetry.settings import checked, headers_of, secrets_of, traces_url
from hames.telemetry.spans import CLIENT, Span, SpanEvent

pytestmark = pytest.mark.anyio


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "BATCH_S", 0.01)
    monkeypatch.setattr(otlp, "BASE_MS", 1)


def span(number: int = 1, *, size: int = 0) -> Span:
    return Span("ab" * 16, f"{number:016x}", None, f"span {number}", 1, 1_000, 2_000, {"text": "x" * size, "n": number})


@asynccontextmanager
async def exporting(url: str, told: list[str] | None = None) -> AsyncIterator[Exporter]:
    """An exporter, in a task group that ends with the block."""

    def report(what: str, error: BaseException) -> None:
        if told is None:
            raise AssertionError(what) from error
        told.append(f"{what}: {error}")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            exporter = Exporter(traces_url(url), {"x-team": "tests"}, tasks, report=report)
            yield exporter
            await exporter.aclose()
            tasks.cancel_scope.cancel()


async def until_sent(collector: Collector, count: int) -> None:
    await anyio.to_thread.run_sync(collector.wait_requests, count)


async def test_a_span_arrives_whole_with_what_the_collector_asks_for(collector: Collector) -> None:
    whole = Span(
        "ab" * 16,
        "cd" * 8,
        "ef" * 8,
        "chat x",
        CLIENT,
        1_700_000_000_123,
        1_700_000_001_000,
        {"text": "ünï", "count": 3},
        (SpanEvent("retry", 1_700_000_000_500, {"error.type": "model_gateway"}),),
        "refused",
    )
    async with exporting(collector.url) as exporter:
        exporter.offer([whole])
        await until_sent(collector, 1)

    path, headers, body = collector.requests[0]
    assert path == "/v1/traces"
    assert (headers["content-type"], headers["x-team"]) == ("application/json", "tests")
    resource = body["resourceSpans"][0]["resource"]
    assert attributes(resource)["service.name"] == "hames"
    assert collector.spans == [
        {
            "traceId": "ab" * 16,
            "spanId": "cd" * 8,
            "parentSpanId": "ef" * 8,
            "name": "chat x",
            "kind": 3,
            "startTimeUnixNano": "1700000000123000000",
            "endTimeUnixNano": "1700000001000000000",
            "attributes": [
                {"key": "text", "value": {"stringValue": "ünï"}},
                {"key": "count", "value": {"intValue": "3"}},
            ],
            "status": {"code": 2, "message": "refused"},
            "events": [
                {
                    "name": "retry",
                    "timeUnixNano": "1700000000500000000",
                    "attributes": [{"key": "error.type", "value": {"stringValue": "model_gateway"}}],
                }
            ],
        }
    ]


async def test_what_was_not_sent_yet_is_sent_by_a_flush(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "BATCH_S", 600)
    async with exporting(collector.url) as exporter:
        exporter.offer([span(1), span(2)])
        await anyio.lowlevel.checkpoint()
        await exporter.flush()

        assert [each["name"] for each in collector.spans] == ["span 1", "span 2"]
        assert len(collector.requests) == 1


async def test_a_collector_that_may_take_it_later_is_asked_again(collector: Collector) -> None:
    collector.statuses = [503, 429]
    async with exporting(collector.url) as exporter:
        exporter.offer([span()])
        await until_sent(collector, 3)
        await exporter.flush()

    assert exporter.dropped == 0
    assert len(collector.spans) == 1


async def test_one_that_refuses_is_not_asked_again_and_that_is_told_once(collector: Collector) -> None:
    collector.statuses = [400, 400]
    told: list[str] = []
    async with exporting(collector.url, told) as exporter:
        exporter.offer([span(1)])
        await until_sent(collector, 1)
        exporter.offer([span(2)])
        await until_sent(collector, 2)
        exporter.offer([span(3)])
        await until_sent(collector, 3)
        await exporter.flush()

    assert [each["name"] for each in collector.spans] == ["span 3"]
    assert exporter.dropped == 2
    assert len(told) == 1
    assert "(400)" in told[0]


async def test_what_finds_no_room_is_dropped_and_counted(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "QUEUE_BYTES", 10_000)
    async with exporting(collector.url) as exporter:
        exporter.offer([span(number, size=1_000) for number in range(100)])

        assert 90 < exporter.dropped < 95
        await exporter.flush()
        assert len(collector.spans) == 100 - exporter.dropped


async def test_many_spans_go_in_several_requests(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "BATCH_BYTES", 10_000)
    async with exporting(collector.url) as exporter:
        exporter.offer([span(number, size=1_000) for number in range(50)])
        await exporter.flush()

    assert [each["name"] for each in collector.spans] == [f"span {number}" for number in range(50)]
    assert 5 < len(collector.requests) < 10


async def test_a_flush_does_not_wait_for_the_next_try_and_loses_nothing_that_waits(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "BASE_MS", 30_000)
    collector.statuses = [503]
    async with exporting(collector.url) as exporter:
        exporter.offer([span(1)])
        await until_sent(collector, 1)
        exporter.offer([span(2)])
        await exporter.flush()

    assert [each["name"] for each in collector.spans] == ["span 1", "span 2"]


async def test_a_flush_that_is_given_up_counts_what_it_did_not_send(collector: Collector) -> None:
    collector.hold.clear()
    async with exporting(collector.url) as exporter:
        exporter.offer([span(1)])
        await until_sent(collector, 1)
        with anyio.move_on_after(0.05) as scope:
            await exporter.flush()

        assert scope.cancelled_caught
        collector.hold.set()


async def test_nobody_there_costs_the_spans_and_nothing_else() -> None:
    told: list[str] = []
    async with exporting("http://127.0.0.1:9", told) as exporter:
        exporter.offer([span()])
        await exporter.flush()

    assert exporter.dropped == 1
    (line,) = told
    assert line.startswith("telemetry to http://127.0.0.1:9/v1/traces: ")
    assert line.endswith("The collector took none of 1 spans (connect).")


async def test_without_a_span_nobody_is_asked(collector: Collector) -> None:
    async with exporting(collector.url) as exporter:
        exporter.offer([])
        await exporter.flush()

    assert collector.requests == []


# --- the settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("https://c/otlp/", "https://c/otlp/v1/traces"),
        ("https://c/v1/traces", "https://c/v1/traces"),
    ],
)
def test_spans_go_to_the_path_of_the_specification(endpoint: str, url: str) -> None:
    assert traces_url(checked("endpoint", endpoint)) == url


@pytest.mark.parametrize("endpoint", ["c:4318", "http://user:secret@c", "http://c?key=secret", "http://", "grpc://c"])
def test_an_endpoint_that_is_no_plain_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="without user") as caught:
        checked("endpoint", endpoint)
    assert "secret" not in str(caught.value)


def test_headers_are_percent_decoded() -> None:
    assert headers_of("Authorization=Basic%20abc, x-team = a=b ,") == {"authorization": "Basic abc", "x-team": "a=b"}


@pytest.mark.parametrize("text", ["secret", "a b=secret", "=secret", "a=secret%0d%0ab", "a=s%C3%A9cret"])
def test_headers_that_are_none_are_refused_without_telling_them(text: str) -> None:
    with pytest.raises(ValueError, match="name=value") as caught:
        checked("headers", text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        (None, ()),
        ("not a list", ()),
        ("Authorization=Bearer%20abcdefgh", ("Bearer abcdefgh", "abcdefgh")),
        ("api-key=onlyletters,x-scope-orgid=the-name-of-a-tenant", ("onlyletters",)),
        ("x-team=0123456789abcdef", ("0123456789abcdef",)),
        ("x-team=tests,cookie=", ()),
    ],
)
def test_what_of_the_headers_gives_access_is_a_secret(text: str | None, secrets: tuple[str, ...]) -> None:
    assert secrets_of(text) == secrets
