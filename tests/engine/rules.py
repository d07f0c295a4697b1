"""What must hold of every log, whoever wrote it and whatever went wrong: checked on the published events alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hames.core.artifacts import references, whole
from hames.core.context import Conversation
from hames.core.conversation import UserMessage, history_faults
from hames.core.session import Event

Log = list[dict[str, Any]]

TERMINALS = ("turn.completed", "turn.failed", "turn.cancelled")


def check_log(log: Sequence[Mapping[str, Any]]) -> None:
    """Raise AssertionError, naming the event, where a rule is broken."""
    rules = _Rules()
    for seq, event in enumerate(log, 1):
        assert event["seq"] == seq, f"the log is dense: {event}"
        try:
            rules.take(event)
        except AssertionError as broken:
            raise AssertionError(f"{broken} [at {seq}: {event!r:.600}]") from None
    _check_sendable(log)


class _Rules:
    def __init__(self) -> None:
        self.admitted: list[str] = []
        self.waiting: list[str] = []
        self.ended: set[str] = set()
        self.running: str | None = None
        self.attempt = 0
        self.fence = 0
        self.cancelled: set[str] = set()
        self.held = False
        self.joined: list[str] = []
        self.steers: list[str] = []
        self.items: dict[str, bytes] = {}
        self.whole: set[str] = set()
        self.calls: dict[str, str] = {}
        self.output: dict[str, int] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        turn_id = event.get("turnId")
        assert turn_id not in self.ended, "nothing of a turn comes after its terminal"
        kind = event["type"]
        data = event["data"]
        if kind in TERMINALS:
            self._terminal(turn_id or "", kind, data)
        elif kind.startswith(("turn.", "queue.", "steer.")):
            self._lifecycle(event, turn_id or "")
        elif turn_id is not None:
            assert turn_id == self.running, "facts are of the running turn"
            assert event["attempt"] == self.attempt, "facts are of the newest attempt"
            self._fact(kind, data)

    def _lifecycle(self, event: Mapping[str, Any], turn_id: str) -> None:
        data = event["data"]
        match event["type"]:
            case "turn.queued":
                assert turn_id not in self.admitted, "a turn is admitted once"
                self.admitted.append(turn_id)
                self.waiting.append(turn_id)
            case "turn.started":
                self._started(event, turn_id)
            case "turn.joined":
                assert data["hostTurnId"] == self.running
                assert not self.calls, "a turn joins after the whole batch of results"
                self.waiting.remove(turn_id)
                self.joined.append(turn_id)
            case "turn.steered":
                assert turn_id == self.running
                assert turn_id not in self.cancelled, "nobody steers a turn that is being cancelled"
                self.steers.append(data["steerId"])
            case "steer.delivered":
                assert data["steerIds"] == self.steers
                assert not self.calls, "a steer is delivered after the whole batch of results"
                self.steers = []
            case "turn.cancel_requested":
                assert turn_id not in self.cancelled, "a cancel is recorded once"
                self.cancelled.add(turn_id)
            case "queue.held":
                self.held = True
            case "queue.resumed":
                assert self.held
                self.held = False

    def _started(self, event: Mapping[str, Any], turn_id: str) -> None:
        data = event["data"]
        assert not self.items, f"items {sorted(self.items)} have chunks and no end"
        assert data["fence"] >= self.fence, "no attempt has a lower fence than one before it"
        if data["attempt"] == 1:
            assert self.running is None, "one turn runs at a time"
            assert not self.held, "a held queue starts nothing"
            assert self.waiting.pop(0) == turn_id, "first in, first out"
        else:
            assert self.running == turn_id
            assert data["attempt"] == self.attempt + 1
            assert turn_id not in self.cancelled, "a cancelled turn is not run again"
            assert data["fence"] > self.fence, "an attempt has a fence of its own"
        self.running, self.attempt, self.fence = turn_id, data["attempt"], data["fence"]

    def _terminal(self, turn_id: str, kind: str, data: Mapping[str, Any]) -> None:
        assert turn_id in self.admitted
        if turn_id in self.cancelled:
            assert kind == "turn.cancelled", "a cancel that was first wins"
        if turn_id == self.running:
            assert not self.calls, f"calls {self.calls} have no result"
            assert not self.items, f"items {sorted(self.items)} have chunks and no end"
            assert not self.joined, "joined turns end before their host"
            assert data.get("undelivered", []) == self.steers
            assert kind != "turn.completed" or not self.steers, "a steer forces a step"
            self.running, self.steers = None, []
        elif turn_id in self.joined:
            assert data["hostTurnId"] == self.running
            self.joined.remove(turn_id)
        else:
            assert kind == "turn.cancelled"
            self.waiting.remove(turn_id)
        self.held = self.held and bool(self.waiting)
        self.ended.add(turn_id)

    def _fact(self, kind: str, data: Mapping[str, Any]) -> None:
        match kind:
            case "message.chunk" | "reasoning.chunk":
                item = data["itemId"]
                assert item not in self.whole, "no chunk comes after the whole item"
                have = self.items.get(item, b"")
                assert data["text"], "a chunk says something"
                assert data["offset"] == len(have), "chunks are gapless, in UTF-8 bytes"
                self.items[item] = have + data["text"].encode()
            case "message.completed" | "reasoning.completed":
                item = data["itemId"]
                assert item not in self.whole, "an item ends once"
                self.whole.add(item)
                assert _begins(data["text"], self.items.pop(item, b"")), "chunks are a part of the whole"
            case "tool.requested":
                assert data["callId"] not in self.calls
                self.calls[data["callId"]] = "requested"
            case "tool.started":
                assert data["callId"] in self.calls
                self.calls[data["callId"]] = "started"
            case "tool.chunk":
                assert self.calls.get(data["callId"]) == "started", "output comes while the call runs"
                end = self.output.get(data["callId"], 0)
                assert data["offset"] == end + data["skippedBytes"], "what is left out is counted"
                self.output[data["callId"]] = data["offset"] + len(data["text"].encode())
            case "tool.completed":
                state = self.calls.pop(data["callId"], None)
                assert state is not None, "a call has one result"
                assert state == "started" or data["outcome"] != "ok", "what succeeded had begun"
            case "model.requested":
                assert not self.calls, "the model is asked after the whole batch of results"


def _check_sendable(log: Sequence[Mapping[str, Any]]) -> None:
    """Whatever stands in the log, a next turn can be sent to a model."""
    conversation = Conversation()
    for event in log:
        names = references(event["type"], event["data"])
        data = whole(event["type"], event["data"], dict.fromkeys(names, b"large")) if names else event["data"]
        conversation.apply(Event.of({**event, "data": data}))
    faults = history_faults((*conversation.messages(), UserMessage("and now?")))
    if not conversation.messages():
        faults = []
    assert faults == [], faults


def _begins(text: str | Mapping[str, Any], have: bytes) -> bool:
    if isinstance(text, str):
        return text.encode().startswith(have)
    head: bytes = text["head"].encode()
    return len(have) <= text["sizeBytes"] and (head.startswith(have) or have.startswith(head))
