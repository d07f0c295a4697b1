"""A model's answer while it comes: deltas for those who listen, durable chunks for those who come later."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from hames.core.artifacts import size_bytes
from hames.core.commands import Draft
from hames.core.conversation import CallDelta, Part, ReasoningDelta, Reply, TextDelta
from hames.core.plan import LimitReached
from hames.engine.attempt import Attempt
from hames.engine.ids import new_id
from hames.engine.live import LiveItem

CHUNK_CHARS = 16 * 1024
"""Most characters of a chunk, so that it fits a frame: some servers send a whole answer at once."""

CALLS_BEYOND = 32
"""Calls of one answer beyond the turn's limit that are still answered as not run; with more the answer is cut."""


class _Text:
    """One item of text: its live part and the chunks that are recorded of it."""

    def __init__(self, attempt: Attempt, kind: str, base_seq: int) -> None:
        self._attempt = attempt
        self._kind = "reasoning" if kind == "reasoning" else "message"
        self.item: LiveItem = attempt.live.open(
            new_id("i"), attempt.turn_id, "reasoning" if kind == "reasoning" else "message", base_seq
        )
        self.recorded = 0
        self._waiting: list[str] = []
        self._waiting_bytes = 0
        self._flushed_at = anyio.current_time()

    def add(self, text: str) -> None:
        """More text; a chunk is recorded at `chunkBytes`."""
        before = self.item.size
        self._attempt.live.add(self.item, text)
        self._waiting.append(text)
        self._waiting_bytes += self.item.size - before
        if self._waiting_bytes >= self._attempt.limits["chunkBytes"]:
            self.flush()

    def flush(self) -> None:
        """Record what is not in a chunk yet."""
        self._flushed_at = anyio.current_time()
        if not self._waiting:
            return
        text, self._waiting = "".join(self._waiting), []
        drafts: list[Draft] = []
        for start in range(0, len(text), CHUNK_CHARS):
            piece = text[start : start + CHUNK_CHARS]
            data = {"itemId": self.item.item_id, "offset": self.recorded, "text": piece}
            drafts.append(Draft(f"{self._kind}.chunk", data))
            self.recorded += size_bytes(piece)
        self._attempt.record(*drafts)
        self._waiting_bytes = 0

    def due(self, now: float) -> bool:
        """Text has waited for `chunkMs`."""
        return bool(self._waiting) and now - self._flushed_at >= self._attempt.limits["chunkMs"] / 1000

    def close(self, step: int, *, cause: str | None, in_context: bool) -> list[Draft]:
        """The item's end. What was withdrawn before a chunk of it was kept leaves no trace."""
        self._attempt.live.close(self.item)
        text = self.item.text()
        if not text or (cause is not None and not in_context and self.recorded == 0):
            return []
        data: dict[str, object] = {
            "itemId": self.item.item_id,
            "text": text,
            "inContext": in_context,
            "step": step,
        }
        if cause is not None:
            data["cause"] = cause
        return [Draft(f"{self._kind}.completed", data)]


class Answer:
    """Collects the parts of one try. `over` is set when the turn's output limit was passed."""

    def __init__(self, attempt: Attempt, step: int, base_seq: int, stop: Callable[[], None]) -> None:
        self._attempt = attempt
        self._step = step
        self._base_seq = base_seq
        self._stop = stop
        self._room = attempt.bounds.output_bytes - attempt.progress.output_bytes
        self.seen_bytes = 0
        """Of text, reasoning and arguments, as they came."""
        self._message: _Text | None = None
        self._reasoning: _Text | None = None
        self._calls: dict[int, LiveItem] = {}
        self._calls_room = attempt.bounds.tool_calls - attempt.progress.tool_calls + CALLS_BEYOND
        self.over = False
        self.shown = False

    def on_part(self, part: Part) -> None:
        """Take a part as it comes; never waits."""
        if not self.shown:
            self.shown = True
            self._attempt.live.enter("model_streaming")
        size = len(part.text) if part.text.isascii() else len(part.text.encode())
        self.seen_bytes += size
        self._room -= size
        if self._room < 0 and not self.over:
            self.over = True
            self._stop()
        match part:
            case TextDelta():
                if self._message is None:
                    self._message = _Text(self._attempt, "message", self._base_seq)
                self._message.add(part.text)
            case ReasoningDelta():
                if self._reasoning is None:
                    self._reasoning = _Text(self._attempt, "reasoning", self._base_seq)
                self._reasoning.add(part.text)
            case CallDelta():
                self._on_call(part)

    def _on_call(self, part: CallDelta) -> None:
        item = self._calls.get(part.index)
        if item is None:
            if len(self._calls) >= self._calls_room:
                self.over = True
                self._stop()
                return
            item = self._attempt.live.open(new_id("i"), self._attempt.turn_id, "toolArguments", self._base_seq)
            self._calls[part.index] = item
        if part.text:
            self._attempt.live.add(item, part.text)

    @property
    def reached(self) -> LimitReached:
        """The limit that cut the answer, where `over` is set."""
        bounds = self._attempt.bounds
        if self._room >= 0:
            asked = self._attempt.progress.tool_calls + len(self._calls) + 1
            return LimitReached("toolCalls", bounds.tool_calls, asked)
        return LimitReached("outputBytes", bounds.output_bytes, bounds.output_bytes - self._room)

    async def tick(self) -> None:
        """Record a chunk of what has waited for `chunkMs`, for as long as the answer comes."""
        while True:
            await anyio.sleep(self._attempt.limits["chunkMs"] / 1000)
            now = anyio.current_time()
            for text in (self._reasoning, self._message):
                if text is not None and text.due(now):
                    text.flush()

    def whole(self, reply: Reply) -> list[Draft]:
        """The ends of the items of a whole answer."""
        if reply.reasoning and self._reasoning is None:
            self.on_part(ReasoningDelta(reply.reasoning))
        if reply.text and self._message is None:
            self.on_part(TextDelta(reply.text))
        self._close_calls()
        drafts: list[Draft] = []
        if self._reasoning is not None:
            drafts += self._reasoning.close(self._step, cause=None, in_context=False)
        if self._message is not None:
            counts = bool(reply.text.strip())
            drafts += self._message.close(self._step, cause=None, in_context=counts)
        return drafts

    def cut(self, cause: str, *, in_context: bool) -> list[Draft]:
        """The ends of the items of an answer that is not whole. Calls in the making never count."""
        self._close_calls()
        drafts: list[Draft] = []
        if self._reasoning is not None:
            drafts += self._reasoning.close(self._step, cause=cause, in_context=False)
        if self._message is not None:
            counts = in_context and bool(self._message.item.text().strip())
            drafts += self._message.close(self._step, cause=cause, in_context=counts)
        return drafts

    def withdraw(self) -> None:
        """Nothing of it can be kept: show no more of it."""
        self._close_calls()
        for text in (self._reasoning, self._message):
            if text is not None:
                self._attempt.live.close(text.item)

    def item_ids(self) -> list[str]:
        """The text items of this try that have a chunk in the log."""
        texts = [text for text in (self._reasoning, self._message) if text is not None]
        return [text.item.item_id for text in texts if text.recorded]

    def _close_calls(self) -> None:
        for item in self._calls.values():
            self._attempt.live.close(item)
