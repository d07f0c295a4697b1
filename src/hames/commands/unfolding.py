"""Events with their whole texts: what a reference stands for is read before the event is passed on, in order.

Rule 1: nothing overtakes: what comes behind an event that is being completed waits for it.
Rule 2: memory is bounded by who sends: `waiting_bytes` counts as not taken yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from hames.protocol.jsontext import dumps, reread

_MARK: Final = b'"artifact":"a-'
"""Stands in every line with a reference, and may stand in others: they are only looked at."""

TextOf = Callable[[Mapping[str, Any]], Awaitable[str]]
"""Reads the text of a reference."""


class Unfolding:
    """Passes events to `on_event` and others to what they are for; reads texts by `text_of(session_id, reference)`."""

    def __init__(
        self, on_event: Callable[[bytes], None], text_of: Callable[[str, Mapping[str, Any]], Awaitable[str]]
    ) -> None:
        self.waiting_bytes = 0
        self._on_event = on_event
        self._text_of = text_of
        self._waiting: deque[tuple[bytes, Callable[[], None] | None]] = deque()
        self._taken = anyio.Event()

    def event(self, line: bytes, tasks: TaskGroup) -> None:
        """Pass on an event; at once where its texts are whole and nothing waits."""
        if not self._waiting and _MARK not in line:
            self._on_event(line)
            return
        self._wait(line, None, tasks)

    def other(self, pass_on: Callable[[], None]) -> None:
        """Pass on something that comes behind the events before it."""
        if self._waiting:
            self._waiting.append((b"", pass_on))
        else:
            pass_on()

    async def taken(self, limit_bytes: int = 0) -> None:
        """Until no more than that waits; nothing at all where it is 0."""
        while self._waiting and (limit_bytes == 0 or self.waiting_bytes > limit_bytes):
            await self._taken.wait()

    def _wait(self, line: bytes, pass_on: Callable[[], None] | None, tasks: TaskGroup) -> None:
        self.waiting_bytes += len(line)
        self._waiting.append((line, pass_on))
        if len(self._waiting) == 1:
            tasks.start_soon(self._pass_on)

    async def _pass_on(self) -> None:
        while self._waiting:
            line, pass_on = self._waiting[0]
            if pass_on is not None:
                pass_on()
            else:
                self._on_event(await self._whole(line) if _MARK in line else line)
            self._waiting.popleft()
            self.waiting_bytes -= len(line)
            taken, self._taken = self._taken, anyio.Event()
            taken.set()

    async def _whole(self, line: bytes) -> bytes:
        entry = reread(line)
        event = entry["event"]
        event["data"] = await with_texts(event["data"], partial(self._text_of, event["sessionId"]))
        return dumps(entry)


async def with_texts(value: Any, text_of: TextOf) -> Any:
    """`value` with every reference to a text replaced by the text."""
    if isinstance(value, list):
        return [await with_texts(inner, text_of) for inner in value]
    if not isinstance(value, dict):
        return value
    if is_text_reference(value):
        return await text_of(value)
    return {name: await with_texts(inner, text_of) for name, inner in value.items()}


def is_text_reference(value: Any) -> bool:
    """Whether `value` stands for a text that is kept apart."""
    return isinstance(value, Mapping) and "artifact" in value and "sha256" in value and "head" in value


def head_of(value: Any) -> str:
    """A text, or the beginning of the one that a reference stands for."""
    return str(value["head"]) if is_text_reference(value) else str(value)
