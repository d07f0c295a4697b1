"""One server from its start to its end: frames out, frames in, answers matched to requests.

Rule 1: a frame goes out whole. One task writes; a request that is cancelled is still written to its last byte.
Rule 2: the reader never waits for a consumer: a notification is handed over by a plain call.
Rule 3: whatever ends the server, every waiting request is answered: with `ConnectionLost`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from hames_client.errors import ConnectionLost, HamesError
from hames_client.frames import FrameTooLarge, Splitter, decode, encode
from hames_client.transport import GONE, Transport

LAST_WORDS_S = 0.5
"""After the end of stdout, how long to wait for the exit code and the end of stderr, which a child may hold open."""

QUEUED_FRAMES = 64
"""Frames that wait to be written; a request beyond that waits for its place."""


@dataclass(slots=True)
class _Pending:
    on_result: Callable[[Any], None] | None
    done: anyio.Event = field(default_factory=anyio.Event)
    result: Any = None
    error: Exception | None = None


class Connection:
    """A running server. `run` is started in a task group; `end` stops it; `lost` is set once nothing more comes."""

    def __init__(self, transport: Transport, on_notification: Callable[[str, dict[str, Any]], None]) -> None:
        self.pid = transport.pid
        self.lost = anyio.Event()
        self.reason = ConnectionLost("the server is gone")
        self.frame_in_bytes: int | None = None
        """What the server takes at most in one frame, once `initialize` has told."""
        self._transport = transport
        self._on_notification = on_notification
        self._pending: dict[int, _Pending] = {}
        self._last_id = 0
        self._outgoing, self._to_write = anyio.create_memory_object_stream[bytes](QUEUED_FRAMES)
        self._scope = anyio.CancelScope()
        self._running = False
        self._stopped = anyio.Event()

    async def run(self) -> None:
        """Read and write until `end` is done."""
        self._running = True
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read)
                    tasks.start_soon(self._write)
                    tasks.start_soon(self._transport.run)
                    await anyio.sleep_forever()
        finally:
            self._lose("the connection was closed")
            self._stopped.set()

    async def request(
        self, method: str, params: Mapping[str, Any], *, on_result: Callable[[Any], None] | None = None
    ) -> Any:
        """Send a request and wait for its result. Cancelling it tells the server with `$/cancelRequest`.

        `on_result` is called with the result before any later frame is looked at: what it registers is in place
        for the notifications that follow.

        Raises:
            HamesError: the server refused or failed it.
            ConnectionLost: the server ended before it answered.
        """
        if self.lost.is_set():
            raise self.reason
        self._last_id += 1
        identifier = self._last_id
        frame = encode({"jsonrpc": "2.0", "id": identifier, "method": method, "params": dict(params)})
        if self.frame_in_bytes is not None and len(frame) > self.frame_in_bytes:
            # The server would answer without an id, since it does not read what is too large.
            details = {"limit": "frameInBytes", "configured": self.frame_in_bytes, "observed": len(frame)}
            message = f"The request has {len(frame)} bytes; the server takes {self.frame_in_bytes}."
            raise HamesError("frame_too_large", -32000, message, {"kind": "frame_too_large", "details": details})
        pending = self._pending[identifier] = _Pending(on_result)
        try:
            # If the frame cannot be written any more, the end of the connection answers.
            with suppress(*GONE):
                await self._outgoing.send(frame)
            await pending.done.wait()
            if pending.error is not None:
                raise pending.error
            return pending.result
        finally:
            del self._pending[identifier]
            if not pending.done.is_set():
                self.notify("$/cancelRequest", {"id": identifier})

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, if there is room for it now."""
        with suppress(anyio.WouldBlock, *GONE):
            self._outgoing.send_nowait(encode({"jsonrpc": "2.0", "method": method, "params": dict(params)}))

    async def end(self, timeout_s: float) -> None:
        """Tell the server to end, give it `timeout_s`, then make it; returns when it is gone."""
        self._outgoing.close()
        with anyio.CancelScope(shield=True):
            if not self._running:
                await self._transport.close()
            await self._transport.end(timeout_s)
            self._scope.cancel()
            if self._running:
                await self._stopped.wait()
            self._to_write.close()
            await self._transport.aclose()

    async def _read(self) -> None:
        splitter = Splitter()
        why = "the server closed its stdout"
        try:
            while True:
                for frame in splitter.feed(await self._transport.receive()):
                    self._receive(frame)
        except FrameTooLarge as error:
            why = f"the server sent {error}"
        except GONE:
            pass
        with anyio.move_on_after(LAST_WORDS_S):
            await self._transport.last_words()
        self._lose(why)

    async def _write(self) -> None:
        try:
            async for frame in self._to_write:
                await self._transport.send(frame)
        except GONE:
            self._to_write.close()
            # Its death shows on stdout as well, and better explained; but it may have closed stdin alone.
            with anyio.move_on_after(2 * LAST_WORDS_S):
                await self.lost.wait()
            self._lose("the server closed its stdin")
        finally:
            await self._transport.close()

    def _receive(self, frame: bytes) -> None:
        message = decode(frame)
        if message is None:
            return
        if "method" in message:
            params = message.get("params")
            self._on_notification(str(message["method"]), params if isinstance(params, dict) else {})
            return
        identifier = message.get("id")
        pending = self._pending.get(identifier) if isinstance(identifier, int) else None
        if pending is None or pending.done.is_set():
            return
        if isinstance(message.get("error"), dict):
            pending.error = HamesError.from_wire(message["error"])
        else:
            pending.result = message.get("result")
            if pending.on_result is not None:
                pending.on_result(pending.result)
        pending.done.set()

    def _lose(self, why: str) -> None:
        if self.lost.is_set():
            return
        code = self._transport.exit_code
        ending = "" if code is None else f" (exit code {code})"
        self.reason = ConnectionLost(why + ending, exit_code=code, stderr=self._transport.stderr)
        self.lost.set()
        self._outgoing.close()
        for pending in self._pending.values():
            pending.error = pending.error or self.reason
            pending.done.set()
