"""One HTTP/1.1 connection of the fake provider: requests one after the other, with keep-alive.

Rule: a client that goes is seen at once, whatever the answer waits for, and is noted when its answer was not
yet whole.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from fake.answers import Answer, Cut, Never, Send, Stall, Status, Step, Trickle, WaitFor

if TYPE_CHECKING:
    from fake.provider import FakeProvider

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"x-request-id: fake-request\r\ntransfer-encoding: chunked\r\n\r\n"
)
_PIECE_BYTES = 256 * 1024
"""One HTTP chunk of a large body: few writes, but the client reads while we still write."""


@dataclass(frozen=True, slots=True)
class Request:
    """A model was asked. `at` is `time.monotonic()`; `connection` counts from 1; `target` is path and query."""

    body: Mapping[str, Any]
    headers: Mapping[str, str]
    raw: bytes
    at: float
    connection: int
    target: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    """A client that went before its answer was whole."""

    connection: int
    at: float


class _Gone(Exception):
    """The client closed the connection, or we did."""


class Connection(asyncio.Protocol):
    """The protocol of one connection, and the task that answers on it."""

    def __init__(self, fake: FakeProvider) -> None:
        self._fake = fake
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._gone = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closing = False
        self._number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._number = self._fake.note_connection(self)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._arrived.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone.set()
        self._arrived.set()
        self._writable.set()
        self._fake.forget(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    async def _run(self) -> None:
        try:
            while True:
                line, headers, raw = await self._read_request()
                await self._respond(line, headers, raw)
        except _Gone:
            return
        finally:
            self._transport.close()

    async def _read_request(self) -> tuple[str, dict[str, str], bytes]:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if self._buffer and not self._buffer[:1].isalpha():
                raise _Gone  # not HTTP, but TLS for instance
            await self._more()
        line, *rest = self._take(end + 4).decode("latin-1").strip().split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (item.partition(":") for item in rest)}
        length = int(headers.get("content-length", "0"))
        while len(self._buffer) < length:
            await self._more()
        return line, headers, self._take(length)

    async def _more(self) -> None:
        self._arrived.clear()
        if self._gone.is_set():
            raise _Gone
        await self._arrived.wait()
        if self._gone.is_set():
            raise _Gone

    def _take(self, length: int) -> bytes:
        data = bytes(self._buffer[:length])
        del self._buffer[:length]
        return data

    async def _respond(self, line: str, headers: Mapping[str, str], raw: bytes) -> None:
        method, target, _ = line.split(" ", 2)
        wire, path = self._fake.wire, target.partition("?")[0]
        inside = path.startswith(wire.prefix)
        path = path.removeprefix(wire.prefix)
        given = wire.key(headers)
        if self._fake.api_key is not None and given != self._fake.api_key:
            await self._error(401, f"Incorrect API key provided: {given or 'none'}", "invalid_api_key")
        elif inside and method == "GET" and path == wire.listing_path and self._fake.listing is not None:
            await self._play(self._fake.listing)
        elif inside and method == "GET" and path == wire.listing_path:
            listed = orjson.dumps(wire.listing(self._fake.models))
            await self._status(Status(200, listed, {"content-type": "application/json"}))
        elif inside and method == "POST" and wire.is_ask(path):
            await self._ask(target, headers, raw)
        else:
            await self._error(404, f"no such resource: {method} {target}", "not_found")

    async def _ask(self, target: str, headers: Mapping[str, str], raw: bytes) -> None:
        body, reason = self._fake.wire.refusal(target, headers, raw)
        parsed = body if isinstance(body, dict) else {}
        self._fake.note_request(Request(parsed, headers, raw, time.monotonic(), self._number, target), reason)
        if reason is not None:
            await self._error(400, reason, "invalid_request")
            return
        try:
            await self._play(self._fake.choose(parsed))
        except _Gone:
            if not self._closing:
                self._fake.note_disconnect(self._number)
            raise

    async def _play(self, answer: Answer) -> None:
        streaming = False
        for step in answer:
            if (
                isinstance(step, Send | Trickle | Stall | WaitFor)
                and not streaming
                and not isinstance(answer[0], Status)
            ):
                streaming = True
                await self._write(_HEAD)
            await self._step(step)
        if streaming:
            await self._write(b"0\r\n\r\n")

    async def _step(self, step: Step) -> None:
        match step:
            case Send(data):
                for at in range(0, len(data), _PIECE_BYTES):
                    await self._write_chunk(data[at : at + _PIECE_BYTES])
            case Trickle(data, each_ms):
                for at in range(len(data)):
                    await self._write_chunk(data[at : at + 1])
                    await self._unless_gone(asyncio.sleep(each_ms / 1000))
            case Stall():
                await self._unless_gone(self._fake.until_released())
            case WaitFor(gate):
                await self._unless_gone(self._fake.gate(gate).pass_through())
            case Never():
                await self._gone.wait()
                raise _Gone
            case Cut(reset):
                self._cut(reset)
            case Status():
                await self._status(step)

    def _cut(self, reset: bool) -> None:
        self._closing = True
        if reset:
            # A close with a linger time of 0 sends RST: man 7 socket, SO_LINGER.
            raw: socket.socket = self._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        raise _Gone

    async def _write_chunk(self, data: bytes) -> None:
        await self._write(b"%x\r\n%b\r\n" % (len(data), data))

    async def _write(self, data: bytes) -> None:
        await self._writable.wait()
        if self._gone.is_set():
            raise _Gone
        self._transport.write(data)

    async def _unless_gone(self, waited: Awaitable[None]) -> None:
        """Wait for `waited`, and no longer than the client stays."""
        tasks = [asyncio.ensure_future(waited), asyncio.ensure_future(self._gone.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._gone.is_set():
            raise _Gone

    async def _status(self, answer: Status) -> None:
        headers = {"content-length": str(len(answer.body)), **answer.headers}
        lines = [f"HTTP/1.1 {answer.code} Fake", *(f"{name}: {value}" for name, value in headers.items())]
        await self._write("\r\n".join([*lines, "", ""]).encode("latin-1") + answer.body)

    async def _error(self, code: int, message: str, kind: str) -> None:
        body = orjson.dumps(self._fake.wire.error(code, message, kind))
        headers = {"content-type": "application/json", "x-request-id": "fake-request"}
        await self._status(Status(code, body, headers))
