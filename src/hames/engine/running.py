"""One background process that was started here: what it writes, who ends it, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from hames.core.state import Process
from hames.ports import Output, ProcessResult, Screen
from hames.protocol.errors import HarnessFault, ToolFailed
from hames.protocol.jsontext import clean_text


@dataclass(slots=True)
class Running:
    """A process that was started here. `why` is who ended it, None while nobody did; `end` does it, once it runs."""

    process: Process
    output: Output
    screens: tuple[Screen, ...]
    why: str | None = None
    result: ProcessResult | None = None
    failure: ToolFailed | HarnessFault | None = None
    grace_ms: int = 0
    end: Callable[[int], None] | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)
    news: anyio.Event = field(default_factory=anyio.Event)

    def take(self, data: bytes) -> None:
        """Output of it."""
        for screen in self.screens:
            data = screen.feed(data)
        self._write(data)

    def finish(self) -> None:
        """There is no more output."""
        data = b""
        for screen in self.screens:
            data = screen.feed(data) + screen.rest()
        self._write(data)

    def _write(self, data: bytes) -> None:
        if data:
            self.output.write(data)
            self.news.set()
            self.news = anyio.Event()

    def stop(self, why: str, grace_ms: int) -> None:
        """End it; who says so first is told of, and who has less patience is heeded."""
        self.why = self.why or why
        self.grace_ms = grace_ms
        if self.end is not None:
            self.end(grace_ms)

    def begun(self, end: Callable[[int], None]) -> None:
        """It runs, and `end` ends it; it may be unwanted by now."""
        self.end = end
        if self.why is not None:
            end(self.grace_ms)


def how_it_ended(one: Running) -> dict[str, Any]:
    """How it ended."""
    data: dict[str, Any] = {"why": one.why or "exited", "outputBytes": one.output.total_bytes}
    if one.failure is not None:
        data["error"] = {"kind": one.failure.kind, "message": clean_text(one.failure.message)}
        if isinstance(one.failure, ToolFailed):
            data["why"] = "not_started"
        elif "mayStillRun" in one.failure.details:
            data["mayStillRun"] = list(one.failure.details["mayStillRun"])
    result = one.result
    if result is None:
        return data
    if result.timed_out:
        data["why"] = "limit"
    elif result.exit_code < 0:
        data["signal"] = -result.exit_code
    else:
        data["exitCode"] = result.exit_code
    if result.met:
        data["met"] = dict(result.met)
    if result.killed and not result.timed_out:
        data["killed"] = result.killed
    return data
