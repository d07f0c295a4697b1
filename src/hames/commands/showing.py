"""A turn as it runs, shown: its text on stdout as it comes, what else happens on stderr; or the events as they are.

Rule 1: text is kept by its offset: previews may be missing, the whole item follows them (`message.completed`).
Rule 2: only the own turn's text goes to stdout; of others in the session only the notes are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hames.commands.streams import Streams
from hames.commands.telling import told
from hames.protocol.events import TERMINAL_TYPES
from hames.protocol.jsontext import reread

_TOLD_ELSEWHERE = frozenset({"session.created", "turn.queued", "message.completed", "model.discarded", *TERMINAL_TYPES})
"""What `hames run` says in its own way."""


class Showing:
    """Shows what a client is sent. `ids` are those of session and turn, once they exist; `turn_id` is known before;
    `terminal` is the data of the turn's last event, once it came.
    """

    def __init__(self, streams: Streams, *, form: Literal["text", "json", "jsonl"]) -> None:
        self.form = form
        self.ids: dict[str, str] = {}
        self.turn_id = ""
        self.terminal: Mapping[str, Any] | None = None
        self._streams = streams
        self._item: str | None = None
        self._shown_bytes = 0
        self._line_open = False

    def event(self, line: bytes) -> None:
        """An event, as it is stored."""
        if self.form == "jsonl":
            self._streams.line(line)
        event = reread(line)["event"]
        ends = event["type"] in TERMINAL_TYPES and event.get("turnId") == self.turn_id
        if ends:
            self.terminal = event["data"]
        if self.form != "text":
            return
        if ends:
            # An item that was never completed: too short for the log, and its try was the last.
            self._withdraw()
        if event.get("turnId") == self.turn_id:
            if event["type"] == "message.completed":
                self._message(event["data"])
            elif event["type"] in ("model.retried", "model.discarded"):
                self._withdraw()
        if event["type"] not in _TOLD_ELSEWHERE:
            text = told(event)
            if text is not None:
                self.note(text)

    def notification(self, method: str, params: Mapping[str, Any]) -> None:
        """A preview; other notifications are not shown."""
        if method == "delta" and params["kind"] == "message" and params["turnId"] == self.turn_id:
            self._text(params["itemId"], params["offset"], params["text"])

    def note(self, text: str) -> None:
        """Something for people."""
        if self.form != "text":
            return
        if self._streams.is_joined:
            self.end()
        self._streams.note(text)

    def end(self) -> None:
        """End the line that text stands on."""
        if self._line_open:
            self._streams.answer("\n")
            self._line_open = False

    def _message(self, data: Mapping[str, Any]) -> None:
        """The whole item: show what is missing of it, or tell that it does not count."""
        if not data["inContext"]:
            self._withdraw()
            return
        shown = self._shown_bytes if data["itemId"] == self._item else 0
        self._text(data["itemId"], shown, data["text"].encode()[shown:].decode("utf-8", "ignore"))
        self.end()
        self._item, self._shown_bytes = None, 0

    def _withdraw(self) -> None:
        """What was shown of an item does not count, and a new item says the same or something else."""
        if self._shown_bytes:
            self.end()
            self.note("[the text above does not count]")
        self._item, self._shown_bytes = None, 0

    def _text(self, item: str, offset: int, text: str) -> None:
        """Text of an item from `offset` on, which counts UTF-8 bytes."""
        if item != self._item:
            self.end()
            self._item, self._shown_bytes = item, 0
        raw = text.encode("utf-8", "replace")
        missed = offset > self._shown_bytes
        if missed or offset + len(raw) <= self._shown_bytes:
            return
        new = raw[self._shown_bytes - offset :].decode("utf-8", "ignore")
        self._shown_bytes = offset + len(raw)
        self._streams.answer(new)
        self._line_open = not new.endswith("\n")
