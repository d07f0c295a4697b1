"""Standard output and error of a command: written by threads, so that who reads slowly does not stop a turn.

Rule 1: what is given goes out whole and in order, also between the two where they are one terminal, pipe or file.
Rule 2: what is for people is made visible, wherever it goes; an answer is exact where it does not go to a terminal.
Rule 3: standard error is never waited for long.
Rule 4: output that is lost is told and ends with exit code 1, unless its reader went away: who reads with `head` has
seen enough.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import anyio

from hames.commands.output import OutputLost
from hames.commands.visible import visible
from hames.server.stdio import Writer
from hames.threads import LoopPort

NOTES_S = 1.0
"""How long the end of a command waits for somebody to read its standard error."""


class Streams:
    """Both streams, inside an event loop. `on_broken` is called once when nobody takes the output any more."""

    def __init__(self, on_broken: Callable[[], object] = lambda: None) -> None:
        port = LoopPort()
        self.is_terminal = os.isatty(1)
        self.is_joined = os.path.sameopenfile(1, 2)
        self.lost: OutputLost | None = None
        self._broken = anyio.Event()
        self._on_broken = on_broken
        self._out = Writer(1, port, on_broken=self._broke)
        self._notes = self._out if self.is_joined else Writer(2, port, on_broken=lambda _: None)
        self._out.start()
        if not self.is_joined:
            self._notes.start()

    def _broke(self, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            self.lost = OutputLost(error)
        self._broken.set()
        self._on_broken()

    @property
    def pending_bytes(self) -> int:
        """Output that nobody has taken yet."""
        return self._out.pending_bytes

    async def room(self, limit_bytes: int) -> None:
        """Wait until less output than that is pending."""
        await self._out.room(limit_bytes)

    def text(self, text: str) -> None:
        """Output for people."""
        self._out.send(visible(text).encode())

    def answer(self, text: str) -> None:
        """Output that a program may want as it is: the text of an answer."""
        self._out.send((visible(text) if self.is_terminal else text).encode("utf-8", "replace"))

    def line(self, line: bytes) -> None:
        """Output: one line of JSON, which needs no escaping but its own."""
        self._out.send(line + b"\n")

    def note(self, text: str) -> None:
        """A line or more for people, on standard error."""
        self._notes.send((visible(text).rstrip("\n") + "\n").encode())

    async def finish(self) -> None:
        """Wait until the output is taken or nobody takes it; a little for the notes, which tell what was lost."""
        if not await self._out.drain(math.inf):
            # It is known to be broken before it is told why.
            await self._broken.wait()
        if self.lost is not None:
            self.note(f"hames: {self.lost}")
        if not self.is_joined:
            await self._notes.drain(NOTES_S)
