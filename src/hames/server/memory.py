"""A server whose client is in the same process and event loop: frames go through memory instead of pipes.

Rule 1: nothing else differs from stdio: the same frames, decoder, dispatcher and bounds in both directions.
Rule 2: it ends as a process would: with its input, or asked by `shutdown`; what runs is settled first, also where the
client's task is cancelled. A defect of it ends the connection, and not the program that it is in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from hames.server.connection import Connection
from hames.server.frames import FrameDecoder, encode_frame, encode_lines
from hames.server.host import Host
from hames.server.serve import MAX_SERVED, MAX_SERVED_BYTES, MAX_UNREAD_ANSWERS, disconnect, first_of

RECEIVE_BYTES: Final = 256 * 1024
"""Handed to the client at once, as a read of a pipe would be; a longer frame is handed over whole."""


class MemoryServer:
    """A server and the way to it: a `Transport` of `hames_client`. `make_host` is as for `serve_stdio`."""

    pid: int | None = None
    exit_code: int | None = None

    def __init__(self, make_host: Callable[[TaskGroup], Host]) -> None:
        self.stderr = ""
        self._make_host = make_host
        self._outlet = MemoryOutlet()
        self._connection: Connection | None = None
        self._decoder: FrameDecoder | None = None
        self._began = anyio.Event()
        self._input_ended = anyio.Event()
        self._ended = anyio.Event()
        # Shielded, as a process would be from what cancels its client; `end` cancels it.
        self._scope = anyio.CancelScope(shield=True)

    async def run(self) -> None:
        """Serve until the input ends or the client asks for the end."""
        self._began.set()
        try:
            with self._scope:
                await self._serve()
        # The border of the server: a defect of it ends it, and the client is told as by a process that died.
        except Exception as error:
            self.stderr = f"the server failed: {_leaf(error)!r}"
        finally:
            self._connection = None
            self._outlet.end()
            self._ended.set()

    async def _serve(self) -> None:
        if self._input_ended.is_set():
            return
        async with anyio.create_task_group() as tasks:
            host = self._make_host(tasks)
            self._decoder = FrameDecoder(host.limits["frameInBytes"], "line")
            self._connection = connection = Connection(host, self._outlet, tasks, "memory")
            host.connections.add(connection)
            self._outlet.open()
            try:
                await first_of(self._input_ended, host.leaving)
                if not host.leaving.is_set():
                    await disconnect(host, connection, "cancel")
            finally:
                connection.give_up()
                connection.close_subscriptions()
                # Also where a task broke: the store's threads and the reaper must not outlive this.
                with anyio.CancelScope(shield=True):
                    await host.flush()
                    await host.aclose()
            tasks.cancel_scope.cancel()

    # --- as the client sees it --------------------------------------------------------------------------------

    async def send(self, frame: bytes) -> None:
        """Have a frame decoded and dispatched, when what is served and what is unread leave room for it.

        Raises:
            BrokenResourceError: the server is gone.
        """
        await self._outlet.opened()
        await self._outlet.room(MAX_UNREAD_ANSWERS)
        if self._connection is not None:
            await self._connection.quiet(MAX_SERVED, MAX_SERVED_BYTES)
        if self._connection is None or self._decoder is None:
            raise anyio.BrokenResourceError
        for whole in self._decoder.feed(frame):
            self._connection.accept(whole)

    async def receive(self) -> bytes:
        """Frames, once there are some.

        Raises:
            EndOfStream: the server has ended.
        """
        return await self._outlet.take()

    async def close(self) -> None:
        """End the input."""
        self._input_ended.set()

    async def last_words(self) -> None:
        """Until it has ended."""
        await self._ended.wait()

    async def end(self, grace_s: float) -> None:
        """Return when it has ended, after `grace_s` by cancelling what it does."""
        if not self._began.is_set():
            return
        with anyio.move_on_after(grace_s):
            await self._ended.wait()
        self._scope.cancel()
        await self._ended.wait()

    async def aclose(self) -> None:
        """Nothing is left."""


class MemoryOutlet:
    """Frames from the dispatcher to the client. Implements `Outlet`."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._frames_bytes = 0
        self._taken_or_ended = anyio.Event()
        self._filled = anyio.Event()
        self._opened = anyio.Event()
        self._is_ended = False

    @property
    def pending_bytes(self) -> int:
        """What the client has not taken yet."""
        return self._frames_bytes

    def send(self, payload: bytes) -> None:
        """Queue a payload as one frame."""
        self._put(encode_frame(payload, "line"))

    def send_lines(self, head: bytes, lines: bytes) -> None:
        """Queue one frame a line."""
        self._put(encode_lines(head, lines))

    async def room(self, limit_bytes: int) -> None:
        """Wait until less than that is pending, or nobody waits for it any more."""
        while self._frames_bytes >= limit_bytes and not self._is_ended:
            await self._taken_or_ended.wait()

    def open(self) -> None:
        """The server takes frames now."""
        self._opened.set()

    async def opened(self) -> None:
        """Until it does, or will not."""
        await self._opened.wait()

    def end(self) -> None:
        """Nothing more is sent. What was can still be taken."""
        self._is_ended = True
        self._opened.set()
        self._filled.set()
        self._taken_or_ended.set()

    async def take(self) -> bytes:
        """Some frames, once there are some.

        Raises:
            EndOfStream: there will be none.
        """
        await anyio.lowlevel.checkpoint()
        while not self._frames:
            if self._is_ended:
                raise anyio.EndOfStream
            self._filled = anyio.Event()
            await self._filled.wait()
        taken: list[bytes] = []
        size_bytes = 0
        while self._frames and size_bytes < RECEIVE_BYTES:
            taken.append(self._frames.popleft())
            size_bytes += len(taken[-1])
        self._frames_bytes -= size_bytes
        woken, self._taken_or_ended = self._taken_or_ended, anyio.Event()
        woken.set()
        return b"".join(taken)

    def _put(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._frames_bytes += len(frame)
        self._filled.set()


def _leaf(error: BaseException) -> BaseException:
    """The first of what a task group gathered."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
