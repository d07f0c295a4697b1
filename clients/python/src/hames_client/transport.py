"""The way to a server as a connection needs it: frames out, bytes in, and its end.

`process.py` has the one that starts a process; a server that runs in this process brings its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import anyio

GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)
"""What `send` and `receive` raise once the server takes or gives nothing more."""


class Transport(Protocol):
    """One server from its start to its end. Used by one `Connection`, in one event loop."""

    @property
    def pid(self) -> int | None:
        """The server's process; None where it has none of its own."""
        ...

    @property
    def exit_code(self) -> int | None:
        """How the process ended, negative for a signal; None where that is not known."""
        ...

    @property
    def stderr(self) -> str:
        """The last that it wrote there, or what else explains its end."""
        ...

    async def run(self) -> None:
        """What has to be done as long as it is open; may return before."""
        ...

    async def send(self, frame: bytes) -> None:
        """Pass on a frame, all of it. Waits while the server takes none."""
        ...

    async def receive(self) -> bytes:
        """Some bytes of what the server sends, at least one."""
        ...

    async def close(self) -> None:
        """Send nothing more, which tells the server to end. Does not wait; may be called again."""
        ...

    async def last_words(self) -> None:
        """Wait, after the end of what it sends, until `exit_code` and `stderr` are known."""
        ...

    async def end(self, grace_s: float) -> None:
        """Return when the server is gone, after `grace_s` by force. It was told to end before."""
        ...

    async def aclose(self) -> None:
        """Free what is left, once nobody uses it."""
        ...


Opener = Callable[[], Awaitable[Transport]]
"""Starts a server.

Raises:
    ConnectionLost: it cannot be started.
"""
