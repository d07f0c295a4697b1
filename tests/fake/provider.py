"""`FakeProvider`: a strict server of models on 127.0.0.1 in a thread of its own, of Chat Completions or another wire.

It answers 400 to whatever a vendor might refuse and keeps the reason in `refusals`: a test asserts that the
list is empty. Answers are scripted with the builders of `fake.answers`, which this module gives out again.

Rule 1: nothing here sleeps to be in step with a test; a test waits for a request, a gate or a disconnect.
Rule 2: state is changed in the server's thread, or under `_changed`, and read from any.

By hand: `python tests/fake/provider.py --port 0 [--echo]`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio.to_thread

if __package__ in (None, ""):  # run by hand: the package is beside, not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fake.answers import (
    USAGE,
    Answer,
    call_fragments,
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
from fake.chat import Chat, last_user_text
from fake.connection import Connection, Disconnect, Request
from fake.wire import Wire

__all__ = [
    "USAGE",
    "Answer",
    "FakeProvider",
    "Request",
    "call_fragments",
    "calls",
    "chunk",
    "cut",
    "delta",
    "delta_text",
    "deltas",
    "event",
    "finish",
    "last_user_text",
    "never",
    "partial",
    "ping",
    "reset",
    "send",
    "stall",
    "status",
    "text",
    "thinking",
    "trickle",
    "wait_for",
]

Predicate = Callable[[Mapping[str, Any]], bool]


class Gate:
    """A place in an answer where the server waits until the test opens it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._opened = asyncio.Event()
        self._reached = threading.Event()

    def open(self) -> None:
        self._loop.call_soon_threadsafe(self._opened.set)

    def wait_reached(self, timeout: float = 30) -> None:
        """Block until an answer waits here, or has passed."""
        if not self._reached.wait(timeout):
            raise TimeoutError("no answer came to the gate")

    async def reached(self, timeout: float = 30) -> None:
        await anyio.to_thread.run_sync(self.wait_reached, timeout, abandon_on_cancel=True)

    async def pass_through(self) -> None:
        """Wait here. Called in the server's loop."""
        self._reached.set()
        await self._opened.wait()


class FakeProvider:
    """The server. `with FakeProvider() as fake:` starts it, `fake.url` is its base URL.

    A request takes its answer from the first rule of `on` that matches and has an answer left, then from
    `script`, then from `answer`. With `api_key` set, any other key gets 401 with that key echoed.
    """

    def __init__(self, *, port: int = 0, api_key: str | None = None, wire: Wire | None = None) -> None:
        self.wire: Wire = wire or Chat()
        self.requests: list[Request] = []
        self.refusals: list[str] = []
        self.disconnects: list[Disconnect] = []
        self.connections = 0
        self.models: list[str] = ["fake-model", "another-model"]
        self.listing: Answer | None = None
        """Answers `GET /models` in place of a listing of `models`."""
        self.api_key = api_key
        self.answer: Callable[[Mapping[str, Any]], Answer] = lambda _body: self.wire.text("ok")
        self.url = ""
        self._port = port
        self._queue: deque[Answer] = deque()
        self._rules: list[tuple[Predicate, deque[Answer]]] = []
        self._gates: dict[str, Gate] = {}
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="fake-provider", daemon=True)
        self._started = threading.Event()
        self._released = asyncio.Event()
        self._open: set[Connection] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    # --- scripting ------------------------------------------------------------------------------------------

    def script(self, *answers: Answer) -> None:
        """Answer the next requests with `answers`, one each."""
        with self._changed:
            self._queue.extend(answers)

    def on(self, match: str | Predicate, *answers: Answer) -> None:
        """Answer requests that match with `answers`, one each: by the body, or by text in the last user message."""
        predicate = match if callable(match) else (lambda body: match in self.wire.last_user_text(body))
        with self._changed:
            self._rules.append((predicate, deque(answers)))

    def gate(self, name: str) -> Gate:
        """The gate of this name; made when it is first asked for."""
        with self._changed:
            return self._gates.setdefault(name, Gate(self._loop))

    def release(self) -> None:
        """End every `stall`, also those to come."""
        self._loop.call_soon_threadsafe(self._released.set)

    # --- waiting --------------------------------------------------------------------------------------------

    def wait_for_requests(self, n: int, timeout: float = 30) -> None:
        """Block until `n` chat requests have arrived in all."""
        self._wait(lambda: len(self.requests) >= n, timeout, f"{n} requests")

    def wait_for_disconnects(self, n: int, timeout: float = 30) -> None:
        """Block until `n` clients have gone in the middle of an answer."""
        self._wait(lambda: len(self.disconnects) >= n, timeout, f"{n} disconnects")

    async def await_requests(self, n: int, timeout: float = 30) -> None:
        await anyio.to_thread.run_sync(self.wait_for_requests, n, timeout, abandon_on_cancel=True)

    async def await_disconnects(self, n: int, timeout: float = 30) -> None:
        await anyio.to_thread.run_sync(self.wait_for_disconnects, n, timeout, abandon_on_cancel=True)

    def _wait(self, reached: Callable[[], bool], timeout: float, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(reached, timeout):
                raise TimeoutError(f"not seen in {timeout} s: {what}; refusals: {self.refusals}")

    # --- in the server's thread -----------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            self._loop.create_server(lambda: Connection(self), "127.0.0.1", self._port)
        )
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{self.wire.prefix}"
        self._started.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            self._loop.run_until_complete(self._close_connections())
            self._loop.close()

    async def _close_connections(self) -> None:
        for connection in list(self._open):
            connection.abort()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def note_request(self, request: Request, reason: str | None) -> None:
        with self._changed:
            self.requests.append(request)
            if reason is not None:
                self.refusals.append(reason)
            self._changed.notify_all()

    def note_disconnect(self, connection: int) -> None:
        with self._changed:
            self.disconnects.append(Disconnect(connection, time.monotonic()))
            self._changed.notify_all()

    def note_connection(self, connection: Connection) -> int:
        self._open.add(connection)
        self.connections += 1
        return self.connections

    def forget(self, connection: Connection) -> None:
        self._open.discard(connection)

    async def until_released(self) -> None:
        await self._released.wait()

    def choose(self, body: Mapping[str, Any]) -> Answer:
        with self._changed:
            for predicate, answers in self._rules:
                if answers and predicate(body):
                    return answers.popleft()
            if self._queue:
                return self._queue.popleft()
        return self.answer(body)


def main() -> None:
    """Serve by hand, until interrupted."""
    parser = argparse.ArgumentParser(description="A strict fake Chat Completions server.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--echo", action="store_true", help="answer with the last user text")
    options = parser.parse_args()
    with FakeProvider(port=options.port) as fake:
        fake.answer = lambda body: text(
            last_user_text(body) if options.echo else "Hello from the fake provider.", chunks=4
        )
        print(fake.url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
