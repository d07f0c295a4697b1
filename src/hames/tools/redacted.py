"""A tool whose answers hold no credential of Hames, wherever it came across it.

Rule: only what is shown is redacted, never what is read or written: an edit must not put the mark into a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from hames.core.redaction import MARK, RedactedStream, redact
from hames.core.state import Process
from hames.ports import Background, FileChange, Spool, Tool, ToolContext, ToolOutcome, Wish
from hames.protocol.errors import ToolFailed


class _RedactedSpool:
    """`spool`, with `secret` taken out of what is written to it. Implements `ports.Spool`."""

    def __init__(self, spool: Spool, secret: str) -> None:
        self._spool = spool
        self._stream = RedactedStream(secret.encode(), MARK.encode())

    @property
    def size_bytes(self) -> int:
        """See `Spool.size_bytes`."""
        return self._spool.size_bytes

    def write(self, data: bytes) -> None:
        """See `Spool.write`."""
        if shown := self._stream.feed(data):
            self._spool.write(shown)

    def sync(self) -> None:
        """See `Spool.sync`."""
        self._spool.sync()

    def discard(self) -> None:
        """See `Spool.discard`."""
        self._spool.discard()

    def whole(self) -> Spool:
        """The spool, with the end of what was written."""
        if rest := self._stream.rest():
            self._spool.write(rest)
        return self._spool


class _RedactedBackground:
    """`background`, with `secret` taken out of what is started. Implements `ports.Background`."""

    def __init__(self, background: Background, secret: str) -> None:
        self._background = background
        self._secret = secret
        self.all = background.all
        self.read = background.read
        self.stop = background.stop

    async def start(self, wish: Wish) -> Process:
        """See `Background.start`."""
        screen = RedactedStream(self._secret.encode(), MARK.encode())
        screened = replace(wish, command=redact(wish.command, self._secret), screens=(*wish.screens, screen))
        return await self._background.start(screened)


class RedactedTool:
    """`tool`, with `secret` taken out of its summary, live output, outcome and failures. Implements `ports.Tool`."""

    def __init__(self, tool: Tool, secret: str) -> None:
        self.spec = tool.spec
        self.effect = tool.effect
        self._tool = tool
        self._secret = secret

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | tuple[str, ...] | None:
        """See `ports.Tool.lock_key`."""
        return self._tool.lock_key(arguments, context)

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """See `ports.Tool.summary`."""
        return self._tool.summary(arguments).replace(self._secret, MARK)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """See `ports.Tool.run`."""
        stream = RedactedStream(self._secret.encode(), MARK.encode())

        def emit(data: bytes) -> None:
            if shown := stream.feed(data):
                context.emit(shown)

        make = context.spool
        spool = None if make is None else lambda: _RedactedSpool(make(), self._secret)
        background = None if context.background is None else _RedactedBackground(context.background, self._secret)
        screened = replace(context, emit=emit, spool=spool, background=background)
        try:
            outcome = await self._tool.run(arguments, screened)
        except ToolFailed as failed:
            raise ToolFailed(failed.kind, self._shown(failed.message), **self._shown(failed.details)) from failed
        finally:
            if rest := stream.rest():
                context.emit(rest)
        return replace(
            outcome,
            text=self._shown(outcome.text),
            details=self._shown(outcome.details),
            truncation=self._shown(outcome.truncation),
            changes=tuple(self._change(change) for change in outcome.changes),
            kept=outcome.kept.whole() if isinstance(outcome.kept, _RedactedSpool) else outcome.kept,
        )

    def _change(self, change: FileChange) -> FileChange:
        return replace(change, path=self._shown(change.path), diff=self._shown(change.diff))

    def _shown(self, value: Any) -> Any:
        return redact(value, self._secret)


class HidingTool:
    """`tool`, with everything that `secrets` tells when it is used taken out: a key may become known after the tool was
    made. Implements `ports.Tool`."""

    def __init__(self, tool: Tool, secrets: Callable[[], Iterable[str]]) -> None:
        self.spec = tool.spec
        self.effect = tool.effect
        self._tool = tool
        self._secrets = secrets

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | tuple[str, ...] | None:
        """See `ports.Tool.lock_key`."""
        return self._tool.lock_key(arguments, context)

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """See `ports.Tool.summary`."""
        return self._redacted().summary(arguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """See `ports.Tool.run`."""
        return await self._redacted().run(arguments, context)

    def _redacted(self) -> Tool:
        tool = self._tool
        for secret in self._secrets():
            tool = RedactedTool(tool, secret)
        return tool
