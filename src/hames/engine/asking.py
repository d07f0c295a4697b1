"""What requests wait for before anything of them is done, such as a program that prints a key, and what ends that: the
client that asked, or this process when it leaves.

Rule 1: a request is ended nowhere else, save those whose work is to wait: what was committed is answered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from typing import Final

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from hames.protocol.errors import Refused


class Asker:
    """The client of one request, which is served in `scope`. `waits`: its request may be ended at any time."""

    def __init__(self, scope: anyio.CancelScope, *, waits: bool) -> None:
        self._scope = scope
        self._waits = waits
        self._has_gone = False

    def leave(self) -> None:
        """It does not want the answer any more."""
        self._has_gone = True
        if self._waits:
            self._scope.cancel()

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Around a wait: the request ends there when its client has left, or leaves."""
        before, self._waits = self._waits, True
        try:
            if self._has_gone:
                self._scope.cancel()
            yield
            # A cancel that came at the very end must not strike a commit.
            await checkpoint_if_cancelled()
        finally:
            self._waits = before


ASKER: Final[ContextVar[Asker | None]] = ContextVar("asker", default=None)
"""Whose request this task serves, None where nobody asked."""


def begin() -> None:
    """Something of the request this task serves is done now: its client cannot take it back any more."""
    ASKER.set(None)


class Preparing:
    """The waits of this kind in a process."""

    def __init__(self) -> None:
        self._waits: dict[anyio.CancelScope, anyio.Event] = {}

    @asynccontextmanager
    async def wait(self) -> AsyncIterator[None]:
        """Around one of them.

        Raises:
            Refused: `shutting_down`: it was ended by `cancel`.
        """
        with anyio.CancelScope() as scope:
            self._waits[scope] = ended = anyio.Event()
            asker = ASKER.get()
            try:
                async with nullcontext() if asker is None else asker.waiting():
                    yield
            finally:
                del self._waits[scope]
                ended.set()
        if scope.cancelled_caught:
            raise Refused("shutting_down")

    def cancel(self) -> None:
        """Have all of them end."""
        for scope in self._waits:
            scope.cancel()

    async def end(self) -> None:
        """End all of them, also those that begin meanwhile."""
        while self._waits:
            self.cancel()
            await next(iter(self._waits.values())).wait()
