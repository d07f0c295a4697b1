"""Servers that take a connection and never finish what it is for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import SocketAttribute, SocketStream


class Silent:
    """At `port`, reads what comes. To `CONNECT` it says that it is through, as a proxy does, and nothing after that."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.greeted = anyio.Event()
        """A client has begun its TLS handshake."""
        self.left = anyio.Event()
        """A client that began it has closed its connection."""

    async def serve(self, stream: SocketStream) -> None:
        """One connection."""
        has_begun = False
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    data = await stream.receive()
                    if data.startswith(b"CONNECT "):
                        await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
                    elif data.startswith(b"\x16"):  # a record of a handshake: RFC 8446, section 5.1
                        has_begun = True
                        self.greeted.set()
        if has_begun:
            self.left.set()


@asynccontextmanager
async def listening() -> AsyncIterator[Silent]:
    """Such a server on this machine, in the loop of the test."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        silent = Silent(listener.extra(SocketAttribute.local_port))
        tasks.start_soon(listener.serve, silent.serve)
        yield silent
        tasks.cancel_scope.cancel()
