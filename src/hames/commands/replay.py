"""`hames replay`: the stored events of a session, as text or as the lines that any client is sent.

Rule 1: it reads as a subscriber does, page by page, and waits for who reads it: memory does not grow with the log.
Rule 2: it only looks: nothing of the session runs for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import anyio

from hames.commands.exits import COMPLETED
from hames.commands.local import LocalClient, run_with_client
from hames.commands.streams import Streams
from hames.commands.telling import told
from hames.protocol.jsontext import reread

SEQ_WIDTH = 6
"""Columns for an event's number in the text form."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `replay`."""
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--after", metavar="CURSOR", help="only what comes after this cursor")
    parser.add_argument("--jsonl", action="store_true", help="one {cursor, event} a line, as stored")
    parser.add_argument("--follow", action="store_true", help="go on with new events, until interrupted")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the events."""
    reader: _Reader | None = None

    def make_client(streams: Streams) -> LocalClient:
        nonlocal reader
        reader = _Reader(streams, as_lines=arguments.jsonl)
        return LocalClient(
            on_event=reader.take,
            on_notification=reader.closed,
            streams=streams,
            whole_texts=not arguments.jsonl,
        )

    async def body(client: LocalClient, streams: Streams) -> int:
        assert reader is not None
        params: dict[str, Any] = {"sessionId": arguments.session, "deltas": False}
        if arguments.after is not None:
            params["after"] = arguments.after
        head = await client.request("events/subscribe", params)
        reader.end_at(None if arguments.follow else head["headSeq"], arguments.after)
        await reader.ended.wait()
        if reader.failure is not None:
            streams.note(f"hames: the events cannot be read on [{reader.failure}]")
            return 1
        return COMPLETED

    return run_with_client(body, environ, make_client=make_client)


class _Reader:
    """Prints what comes, and knows when it is enough."""

    def __init__(self, streams: Streams, *, as_lines: bool) -> None:
        self.ended = anyio.Event()
        self.failure: str | None = None
        self._streams = streams
        self._as_lines = as_lines
        self._seq = 0
        self._last: int | None = None

    def end_at(self, last: int | None, after: str | None) -> None:
        """End with event `last`; None: never. After a cursor at `last` or beyond there is nothing to come."""
        self._last = last
        if after is not None:
            self._seq = max(self._seq, int(after.partition(".")[0]))
        self._look()

    def take(self, line: bytes) -> None:
        """An event."""
        if self._last is not None and self._seq >= self._last:
            return
        event = reread(line)["event"]
        self._seq = event["seq"]
        if self._as_lines:
            self._streams.line(line)
        else:
            self._tell(event)
        self._look()

    def closed(self, method: str, params: dict[str, Any]) -> None:
        """Nothing more can be read."""
        if method == "subscription/closed":
            self.failure = str(params["reason"])
            self.ended.set()

    def _look(self) -> None:
        if self._last is not None and self._seq >= self._last:
            self.ended.set()

    def _tell(self, event: Mapping[str, Any]) -> None:
        text = told(event, tool_output=True)
        if text is not None:
            first, *more = text.split("\n")
            lines = [f"{event['seq']:>{SEQ_WIDTH}}  {first}", *(f"{'':{SEQ_WIDTH}}  {line}" for line in more)]
            self._streams.text("\n".join(lines) + "\n")
