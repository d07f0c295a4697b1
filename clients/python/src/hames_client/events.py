"""A session's events as an iteration: each once, in order, without a hole, whatever happens to the server.

Rule 1: `cursor` is that of the last event that was handed out; start again after it and nothing is missed or doubled.
Rule 2: memory is bounded. What comes faster than it is taken is dropped beyond `MAX_WAITING` and read again later:
the log keeps it.
Rule 3: events are put in by the reader of the connection and never wait for the consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

import anyio

from hames_client.errors import LogBroken

MAX_WAITING = 1_000
"""Events that wait for the consumer."""

OnDelta = Callable[[dict[str, Any]], None]


class Subscriber(Protocol):
    """What an iteration needs of the client."""

    async def subscribe(self, events: Events, params: Mapping[str, Any]) -> None:
        """Ask for events; call `events.attached` before any of them comes."""
        ...

    def unsubscribe(self, subscription_id: str) -> None:
        """Route nothing more of it; tell the server when there is time."""
        ...


class Events:
    """Made by `Session.events`. Iterate over it with `async for`; use it as a context manager, or call `close`.

    One consumer at a time. Raises `HamesError` (the cursor is not of this log, the session is gone),
    `ConnectionLost` (the server cannot be started again), `LogBroken`.
    """

    def __init__(self, client: Subscriber, session_id: str, *, after: str | None, on_delta: OnDelta | None) -> None:
        self.session_id = session_id
        self.cursor = after
        self._client = client
        self._on_delta = on_delta
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._received_cursor = after
        self._last_seq: int | None = 0 if after is None else None
        self._subscription_id: str | None = None
        self._endings = 0
        self._ended: Exception | None = None
        self._closed = False
        self._changed = anyio.Event()

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            if self._ended is not None:
                raise self._ended
            if self._subscription_id is None:
                await self._attach()
            else:
                await self._changed.wait()
        cursor, event = self._waiting.popleft()
        self.cursor = cursor
        return event

    def close(self) -> None:
        """Stop: what waits is dropped, and an iteration that waits ends."""
        self._closed = True
        self._waiting.clear()
        self._leave()
        self._wake()

    async def __aenter__(self) -> Events:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _attach(self) -> None:
        params: dict[str, Any] = {"sessionId": self.session_id}
        if self._received_cursor is not None:
            params["after"] = self._received_cursor
        if self._on_delta is not None:
            params["deltas"] = True
        await self._client.subscribe(self, params)

    # --- called by the client, from the reader of the connection ---------------------------------------------

    def attached(self, subscription_id: str) -> None:
        """Events of this subscription come from now on."""
        self._subscription_id = subscription_id
        if self._closed:
            self._leave()

    def detached(self) -> None:
        """The connection is gone: subscribe again when more is wanted."""
        self._subscription_id = None
        self._endings = 0
        self._wake()

    def received(self, cursor: str, event: dict[str, Any]) -> None:
        """An event came."""
        seq = event.get("seq")
        if not isinstance(seq, int) or self._ended is not None:
            return
        if self._last_seq is not None and seq <= self._last_seq:
            return
        if self._last_seq is not None and seq != self._last_seq + 1:
            self._end(f"event {seq} of session {self.session_id} came after event {self._last_seq}")
            return
        self._last_seq = seq
        self._received_cursor = cursor
        self._endings = 0
        self._waiting.append((cursor, event))
        if len(self._waiting) >= MAX_WAITING:
            self._leave()
        self._wake()

    def delta(self, params: dict[str, Any]) -> None:
        """A preview came."""
        if self._on_delta is not None:
            self._on_delta(params)

    def ended(self, reason: str) -> None:
        """The server ended the subscription. Once, a new one is the answer; twice without an event, it is a failure."""
        self._subscription_id = None
        self._endings += 1
        if self._endings > 1:
            self._end(f"the server ended the subscription to session {self.session_id}: {reason}")
        self._wake()

    def _end(self, why: str) -> None:
        self._ended = LogBroken(why)
        self._leave()
        self._wake()

    def _leave(self) -> None:
        if self._subscription_id is not None:
            self._client.unsubscribe(self._subscription_id)
            self._subscription_id = None

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
