"""One server process from its start to its end: frames out, frames in, stderr drained, answers matched to requests.

Rule 1: a frame goes out whole. One task writes; a request that is cancelled is still written to its last byte.
Rule 2: the reader never waits for a consumer: a notification is handed over by a plain call.
Rule 3: whatever ends the process, every waiting request is answered: with `ConnectionLost`.
Rule 4: the process is ended by what this object started and is reaped here; closing stdin comes first, then SIGTERM,
then SIGKILL, each with its time.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process

from hames_client.errors import ConnectionLost, HamesError
from hames_client.frames import FrameTooLarge, Splitter, decode, encode

STDERR_BYTES = 8 * 1024
"""What is kept of stderr for the message of a `ConnectionLost`."""

LAST_WORDS_S = 0.5
"""After the end of stdout, how long to wait for the exit code and the end of stderr, which a child may hold open."""

TERM_S = 5.0
"""From SIGTERM to SIGKILL. The server settles what runs within a second of SIGTERM."""

QUEUED_FRAMES = 64
"""Frames that wait to be written; a request beyond that waits for its place."""

_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


@dataclass(slots=True)
class _Pending:
    on_result: Callable[[Any], None] | None
    done: anyio.Event = field(default_factory=anyio.Event)
    result: Any = None
    error: Exception | None = None


class Connection:
    """A running server. `run` is started in a task group; `end` stops it; `lost` is set once nothing more comes."""

    def __init__(self, process: Process, on_notification: Callable[[str, dict[str, Any]], None]) -> None:
        self.pid = process.pid
        self.lost = anyio.Event()
        self.reason = ConnectionLost("the server is gone")
        self.frame_in_bytes: int | None = None
        """What the server takes at most in one frame, once `initialize` has told."""
        self._process = process
        self._on_notification = on_notification
        self._pending: dict[int, _Pending] = {}
        self._last_id = 0
        self._outgoing, self._to_write = anyio.create_memory_object_stream[bytes](QUEUED_FRAMES)
        self._stderr = bytearray()
        self._stderr_ended = anyio.Event()
        self._scope = anyio.CancelScope()
        self._running = False
        self._stopped = anyio.Event()

    @classmethod
    async def open(
        cls,
        command: Sequence[str],
        on_notification: Callable[[str, dict[str, Any]], None],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
    ) -> Connection:
        """Start the server.

        Raises:
            ConnectionLost: the command cannot be started.
        """
        try:
            # A session of its own: Ctrl-C at a terminal is for this program, which then closes the server in order.
            process = await anyio.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise ConnectionLost(
                f"the server {command[0]!r} cannot be started: {error.strerror}: {error.filename!r}. "
                "Install Hames, or give `spawn` the command, like ['/path/to/hames', 'serve']"
            ) from error
        return cls(process, on_notification)

    async def run(self) -> None:
        """Read, write and drain until `end` is done."""
        self._running = True
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read)
                    tasks.start_soon(self._write)
                    tasks.start_soon(self._drain)
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
            with suppress(*_GONE):
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
        with suppress(anyio.WouldBlock, *_GONE):
            self._outgoing.send_nowait(encode({"jsonrpc": "2.0", "method": method, "params": dict(params)}))

    async def end(self, timeout_s: float) -> None:
        """Close stdin, give the server `timeout_s` to end, then make it; returns when it is reaped."""
        self._outgoing.close()
        with anyio.CancelScope(shield=True):
            if not self._running:
                await self._close_stdin()
            for stop, grace_s in ((None, timeout_s), (self._process.terminate, TERM_S), (self._process.kill, None)):
                if stop is not None:
                    with suppress(ProcessLookupError):
                        stop()
                with anyio.move_on_after(grace_s):
                    await self._process.wait()
                    break
            self._scope.cancel()
            if self._running:
                await self._stopped.wait()
            self._to_write.close()
            with suppress(*_GONE):
                await self._process.aclose()

    async def _read(self) -> None:
        splitter = Splitter()
        why = "the server closed its stdout"
        try:
            while True:
                for frame in splitter.feed(await _stream(self._process.stdout).receive(256 * 1024)):
                    self._receive(frame)
        except FrameTooLarge as error:
            why = f"the server sent {error}"
        except _GONE:
            pass
        with anyio.move_on_after(LAST_WORDS_S):
            await self._process.wait()
            await self._stderr_ended.wait()
        self._lose(why)

    async def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            async for frame in self._to_write:
                await stdin.send(frame)
        except _GONE:
            self._to_write.close()
            # Its death shows on stdout as well, and better explained; but it may have closed stdin alone.
            with anyio.move_on_after(2 * LAST_WORDS_S):
                await self.lost.wait()
            self._lose("the server closed its stdin")
        finally:
            await self._close_stdin()

    async def _close_stdin(self) -> None:
        # Shielded: the server is told to end also where this is cancelled. Closing a pipe does not wait.
        stdin = self._process.stdin
        with anyio.CancelScope(shield=True), suppress(*_GONE):
            if stdin is not None:
                await stdin.aclose()

    async def _drain(self) -> None:
        """Read stderr to its end: a server whose stderr is full would have to drop what it writes there."""
        with suppress(*_GONE):
            while True:
                self._stderr += await _stream(self._process.stderr).receive()
                del self._stderr[:-STDERR_BYTES]
        self._stderr_ended.set()

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
        code = self._process.returncode
        ending = "" if code is None else f" (exit code {code})"
        text = self._stderr.decode(errors="replace").strip()
        self.reason = ConnectionLost(why + ending, exit_code=code, stderr=text)
        self.lost.set()
        self._outgoing.close()
        for pending in self._pending.values():
            pending.error = pending.error or self.reason
            pending.done.set()


def _stream(stream: ByteReceiveStream | None) -> ByteReceiveStream:
    assert stream is not None
    return stream
