"""Call into the event loop from another thread, on asyncio and on trio.

`anyio.from_thread.run_sync` waits for the result; a writer or reader thread must not wait for the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyio.lowlevel import current_token


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
