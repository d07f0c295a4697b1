"""Call into the event loop from another thread, on asyncio and on trio.

`anyio.from_thread.run_sync` waits for the result; a writer or reader thread must not wait for the loop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio.lowlevel import current_token

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future


class LoopPort:
    """The event loop it was made in, seen from other threads."""

    def __init__(self) -> None:
        native: Any = current_token().native_token
        self._soon: Callable[..., Any] = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon
        self._later: Callable[..., Any] = getattr(native, "call_soon", None) or native.run_sync_soon

    def post(self, function: Callable[..., object], *args: Any) -> bool:
        """Run `function(*args)` soon in the loop, in order of posting; False when the loop has ended."""
        try:
            self._soon(function, *args)
        except RuntimeError:
            # The loop is closed; trio's RunFinishedError is one too.
            return False
        return True

    def later(self, function: Callable[..., object], *args: Any) -> None:
        """Run `function(*args)` when the loop has done what is ready now. Called in the loop's own thread."""
        self._later(function, *args)


class Signal(Protocol):
    """Happens once, in the loop; any number of tasks wait for it. As `anyio.Event`, which it is on trio."""

    def set(self) -> None:
        """Let go who waits, and who will."""

    def is_set(self) -> bool:
        """It has happened."""
        ...

    async def wait(self) -> None:
        """Until it is set."""


class _FutureSignal:
    """On asyncio: a future for each who waits, five times cheaper than the event, its wrapper and its two locks."""

    __slots__ = ("_is_set", "_loop", "_waiters")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._is_set = False
        self._waiters: list[Future[None]] = []

    def set(self) -> None:
        self._is_set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def is_set(self) -> bool:
        return self._is_set

    async def wait(self) -> None:
        if not self._is_set:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter


def signal() -> Signal:
    """A new signal of the running event loop."""
    asyncio = sys.modules.get("asyncio.events")
    loop = None if asyncio is None else asyncio._get_running_loop()
    return anyio.Event() if loop is None else _FutureSignal(loop)
