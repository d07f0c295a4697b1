"""`hames serve`: one connection on stdin and stdout, from the first byte to an orderly exit.

Rule 1: the end of stdin, SIGTERM, SIGHUP, a broken stdout and a dead parent are one thing: stop admitting, apply
`on_disconnect`, settle, leave. Rule 2: leaving is bounded, whatever hangs: what is not settled then, recovery
settles from the log.
"""

from __future__ import annotations

import gc
import signal
from collections import deque
from collections.abc import Callable
from typing import Literal

import anyio
from anyio.abc import TaskGroup

from hames.server.connection import Connection
from hames.server.frames import FrameDecoder, encode_frame, encode_lines
from hames.server.greeting import Opening
from hames.server.host import Host
from hames.server.stdio import Reader, Stdio, Writer
from hames.threads import LoopPort

LEAVE_S = 0.75
"""For running turns to be cancelled and settled when the client is gone; the published bound is 1 s in all."""

CLOSE_S = 0.2
"""For the store and the reaper to be closed after that."""

DRAIN_S = 0.3
"""For a client that still reads to take what it was sent."""

MAX_UNREAD_ANSWERS = 8 * 2**20
"""Answers that the client has not taken, in bytes, beyond which its requests are not read either."""


MAX_SERVED = 500
"""Requests being served at once, beside those that wait for a turn, beyond which no further ones are read."""

MAX_SERVED_BYTES = 8 * 2**20
"""The same by their frames; one of any allowed size always passes."""


class StdioOutlet:
    """Frames payloads as the client does, once it is known how."""

    def __init__(self, writer: Writer, decoder: FrameDecoder) -> None:
        self._writer = writer
        self._decoder = decoder

    @property
    def pending_bytes(self) -> int:
        """What the client has not taken yet."""
        return self._writer.pending_bytes

    def send(self, payload: bytes) -> None:
        """Queue a payload as one frame."""
        self._writer.send(encode_frame(payload, self._decoder.framing))

    def send_lines(self, head: bytes, lines: bytes) -> None:
        """Queue one frame a line; a page costs one replacement where frames are lines."""
        if self._decoder.framing == "line":
            self._writer.send(encode_lines(head, lines))
            return
        for line in lines.splitlines():
            self.send(head + line + b"}}")

    async def room(self, limit_bytes: int) -> None:
        """Wait until less than that is pending."""
        await self._writer.room(limit_bytes)


class _Inlet:
    """Bytes to frames to the connection. Waits only when the client does not take its answers.

    The reader's callbacks run outside of any task, so they only wake the one that feeds.
    """

    def __init__(self, decoder: FrameDecoder, connection: Connection, writer: Writer) -> None:
        self.reader: Reader | None = None
        self.ended = anyio.Event()
        self._decoder = decoder
        self._connection = connection
        self._writer = writer
        self._chunks: deque[bytes] = deque()
        self._woken = anyio.Event()
        self._at_end = False

    def on_data(self, chunk: bytes) -> None:
        """Take bytes."""
        self._chunks.append(chunk)
        self._woken.set()

    def on_end(self, _: object) -> None:
        """The stream ended."""
        self._at_end = True
        self._woken.set()

    async def feed(self) -> None:
        """Decode and dispatch what comes, until the end."""
        while True:
            while self._chunks:
                await self._writer.room(MAX_UNREAD_ANSWERS)
                await self._connection.quiet(MAX_SERVED, MAX_SERVED_BYTES)
                chunk = self._chunks.popleft()
                for frame in self._decoder.feed(chunk):
                    self._connection.accept(frame)
                if self.reader is not None:
                    self.reader.consumed(len(chunk))
            if self._at_end:
                break
            await self._woken.wait()
            self._woken = anyio.Event()
        for frame in self._decoder.end():
            self._connection.accept(frame)
        self.ended.set()


async def serve_stdio(
    stdio: Stdio,
    make_host: Callable[[TaskGroup], Host],
    *,
    opening: Opening,
    on_disconnect: Literal["cancel", "drain"],
    follow_parent: bool,
) -> None:
    """Serve until the client is gone or asks to stop."""
    async with anyio.create_task_group() as tasks:
        host = make_host(tasks)
        port = LoopPort()
        gone = anyio.Event()
        decoder = opening.decoder
        writer = Writer(stdio.stdout, port, on_broken=lambda _: gone.set())
        connection = Connection(host, StdioOutlet(writer, decoder), tasks, "stdio")
        host.connections.add(connection)
        inlet = _Inlet(decoder, connection, writer)
        reader = Reader(stdio.stdin, port, on_data=inlet.on_data, on_end=inlet.on_end, follow_parent=follow_parent)
        inlet.reader = reader
        writer.start()
        reader.start()
        if opening.client is not None:
            connection.greet(opening.client)
            host.warm_up()
        for frame in opening.frames:
            connection.accept(frame)
        tasks.start_soon(inlet.feed)
        tasks.start_soon(_on_signal, gone)
        await first_of(gone, inlet.ended, host.leaving)
        # A thousand sessions that end at once would be searched for garbage again and again.
        gc.disable()
        if not host.leaving.is_set():
            await disconnect(host, connection, on_disconnect)
        connection.give_up()
        connection.close_subscriptions()
        await host.flush()
        with anyio.move_on_after(CLOSE_S):
            await host.aclose()
        if not await writer.drain(DRAIN_S):
            # What was not begun is dropped, so that a client that reads slowly gets no torn frame.
            writer.drop_waiting()
            await writer.drain(CLOSE_S)
        tasks.cancel_scope.cancel()


async def disconnect(host: Host, connection: Connection, on_disconnect: Literal["cancel", "drain"]) -> None:
    """Serve what was read, then cancel or wait for what runs."""
    if on_disconnect == "drain":
        await connection.quiet()
        await host.shut_down("drain", cause="disconnect")
        # Who waited for a turn is answered by what came of it.
        with anyio.move_on_after(LEAVE_S):
            await connection.all_answered()
        return
    with anyio.move_on_after(LEAVE_S / 2):
        await connection.quiet()
    with anyio.move_on_after(LEAVE_S):
        await host.shut_down("cancel", cause="disconnect")


async def _on_signal(gone: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as received:
        async for _ in received:
            gone.set()


async def first_of(*events: anyio.Event) -> None:
    """Until one of them is set."""
    async with anyio.create_task_group() as waiting:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            waiting.cancel_scope.cancel()

        for event in events:
            waiting.start_soon(wait, event)
