"""Spans to a collector: OTLP over HTTP, as JSON (https://opentelemetry.io/docs/specs/otlp/#otlphttp).

Rule 1: what waits is bounded in bytes; a span that finds no room is dropped and counted.
Rule 2: a batch that the collector may take later is sent again a few times, further and further apart, and then
dropped and counted too; while it waits, others wait behind it.
Rule 3: nothing is imported, opened or started before there is a span.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import anyio

from hames import __version__
from hames.core.retry import retry_delay_ms
from hames.ports import ModelLimits, ProviderFailed
from hames.protocol.errors import HarnessFault
from hames.protocol.jsontext import dumps
from hames.telemetry.spans import Span

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from hames.providers.http_route import HttpRoute, Want

QUEUE_BYTES: Final = 8 * 2**20
"""Spans that wait, encoded: some ten thousand without content."""

BATCH_BYTES: Final = 2**20
"""In one request, about."""

BATCH_S: Final = 1.0
"""From a span to the request it goes with, so that a turn is one request or two."""

TRIES: Final = 5
"""Of one batch."""

LIMITS: Final = ModelLimits(connect_ms=3_000, first_byte_ms=5_000, idle_ms=5_000, request_ms=10_000)
"""Of one request: 10 s is the default of the specification's exporters."""

CLOSE_S: Final = 0.2
"""For a connection to be closed."""

BASE_MS, BUDGET_MS = 1_000, 60_000
"""The first wait before a batch is sent again, and all of them together."""


class _Taken:
    """The sink of an answer: that it is a success is all there is to know."""

    def __init__(self) -> None:
        self._is_taken = False

    def begin(self, headers: Mapping[str, str]) -> None:
        self._is_taken = True

    def feed(self, data: bytes) -> Want:
        return "enough"

    def finish(self) -> None:
        pass

    def is_whole(self) -> bool:
        return self._is_taken


class Exporter:
    """Sends spans to `url`, in a task of `tasks` that starts with the first. `report` tells the operator of trouble."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        tasks: TaskGroup,
        *,
        report: Callable[[str, BaseException], None],
    ) -> None:
        self.dropped = 0
        """Spans that were not sent."""
        self._url = url
        self._headers = headers
        self._tasks = tasks
        self._report = report
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._scope: anyio.CancelScope | None = None
        self._hurried = anyio.Event()
        self._ended = anyio.Event()
        self._woken = anyio.Event()
        self._is_told = False
        self._route: HttpRoute | None = None

    def offer(self, spans: Iterable[Span]) -> None:
        """Have spans sent soon. Never waits."""
        for span in spans:
            encoded = dumps(encoded_span(span))
            if self._waiting_bytes + len(encoded) > QUEUE_BYTES:
                self.dropped += 1
                continue
            self._waiting.append(encoded)
            self._waiting_bytes += len(encoded)
        if self._waiting:
            self._woken.set()
            if self._scope is None:
                self._scope = anyio.CancelScope()
                self._tasks.start_soon(self._run, self._scope)

    async def flush(self) -> None:
        """Send what waits, without waiting for anything else; who calls it bounds it. Nothing is sent after that."""
        if self._scope is not None:
            self._hurried.set()
            self._woken.set()
            await self._ended.wait()

    async def aclose(self) -> None:
        """Give up what is not sent, and close the connection."""
        if self._scope is not None:
            self._scope.cancel()
            with anyio.move_on_after(CLOSE_S, shield=True):
                await self._ended.wait()
                if self._route is not None:
                    await self._route.aclose()
        self.dropped += len(self._waiting)
        self._waiting.clear()

    async def _run(self, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                while self._waiting or not self._hurried.is_set():
                    await self._woken.wait()
                    await self._pause(BATCH_S)
                    while self._waiting:
                        await self._deliver(self._next())
                    self._woken = anyio.Event()
        except Exception as error:
            # A top border: a defect here costs spans, and no session.
            self._report("spans are not exported any more", error)
        finally:
            self._ended.set()

    async def _pause(self, seconds: float) -> None:
        """Wait so long, unless there is no time left."""
        with anyio.move_on_after(seconds):
            await self._hurried.wait()

    def _next(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        while self._waiting and (not batch or size + len(self._waiting[0]) <= BATCH_BYTES):
            batch.append(self._waiting.popleft())
            size += len(batch[-1])
        self._waiting_bytes -= size
        return batch

    async def _deliver(self, batch: list[bytes]) -> None:
        """Send a batch, again where that may help and there is time."""
        number = waited_ms = 0
        while True:
            number += 1
            is_last = self._hurried.is_set() or number == TRIES
            try:
                await self._send(batch)
            except ProviderFailed as failure:
                delay_ms = None
                if failure.retryable and not is_last:
                    delay_ms = retry_delay_ms(
                        number,
                        base_ms=BASE_MS,
                        retry_after_ms=failure.retry_after_ms,
                        jitter=0.0,
                        waited_ms=waited_ms,
                        budget_ms=BUDGET_MS,
                    )
                if delay_ms is None:
                    self._drop(batch, failure)
                    return
                waited_ms += delay_ms
                await self._pause(delay_ms / 1000)
            except anyio.get_cancelled_exc_class():
                self.dropped += len(batch)
                raise
            else:
                self._is_told = False
                return

    def _drop(self, batch: list[bytes], failure: ProviderFailed) -> None:
        self.dropped += len(batch)
        if not self._is_told:
            # Once until it works again.
            self._is_told = True
            why = failure.details.get("status") or failure.details.get("phase")
            fault = HarnessFault("capability_unavailable", f"The collector took none of {len(batch)} spans ({why}).")
            self._report(f"telemetry to {self._url}", fault)

    async def _send(self, batch: list[bytes]) -> None:
        if self._route is None:
            # It takes a while, and the loop has turns to run.
            await anyio.to_thread.run_sync(import_module, "httpx")
            from hames.providers.http_route import HttpRoute

            self._route = HttpRoute(self._url, None, self._headers)
        await self._route.exchange("", encoded_batch(batch), LIMITS, _Taken())


def encoded_batch(spans: Iterable[bytes]) -> bytes:
    """An `ExportTraceServiceRequest` of encoded spans."""
    resource = {"attributes": _attributes({"service.name": "hames", "service.version": __version__})}
    scope = {"name": "hames", "version": __version__}
    head = b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{"scope":%b,"spans":[' % (dumps(resource), dumps(scope))
    return head + b",".join(spans) + b"]}]}]}"


def encoded_span(span: Span) -> dict[str, Any]:
    """A `Span` of opentelemetry-proto in JSON: ids in hex, 64-bit integers as text."""
    encoded: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": _nanos(span.start_ms),
        "endTimeUnixNano": _nanos(span.end_ms),
        "attributes": _attributes(span.attributes),
        "status": {} if span.error is None else {"code": 2, "message": span.error},
    }
    if span.parent_id is not None:
        encoded["parentSpanId"] = span.parent_id
    if span.events:
        encoded["events"] = [
            {"name": event.name, "timeUnixNano": _nanos(event.at_ms), "attributes": _attributes(event.attributes)}
            for event in span.events
        ]
    return encoded


def _nanos(ms: int) -> str:
    return str(ms * 1_000_000)


def _attributes(attributes: Mapping[str, str | int]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for name, value in attributes.items()
    ]
