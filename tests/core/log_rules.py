"""What must hold of every log, checked commit by commit on its events alone: no state, no command is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hames.core.session import Event

TERMINALS = ("turn.completed", "turn.failed", "turn.cancelled")


@dataclass
class Facts:
    """What a turn's own events reported."""

    requests: int = 0
    reported: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    costs: list[Any] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)


@dataclass
class LogRules:
    """Follows a log. `commit` raises AssertionError where a rule is broken."""

    head: int = 0
    admitted: list[str] = field(default_factory=list)
    principals: dict[str, str] = field(default_factory=dict)
    deliveries: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    host: str | None = None
    joined: list[str] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    steers: list[str] = field(default_factory=list)
    processes: set[str] = field(default_factory=set)
    held: bool = False
    closed: bool = False
    fence: int = 0
    attempts: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Facts] = field(default_factory=dict)

    def commit(self, events: Sequence[Event], lease: int) -> None:
        """Check and follow one commit, made while the lease's fence was `lease`."""
        for place, event in enumerate(events):
            assert event.seq == self.head + 1, "the log is dense"
            self.head = event.seq
            turn_id = event.turn_id or ""
            assert turn_id not in self.ended, f"{event.type} after the terminal of {turn_id}"
            if event.type in TERMINALS:
                self._terminal(event, turn_id, events[place + 1 :])
            elif event.type.startswith("process."):
                self._process(event, turn_id)
            elif event.type.startswith("turn.") or event.type.startswith("queue."):
                self._lifecycle(event, turn_id, lease)
            else:
                self._other(event, turn_id)
        assert not self.held or self.waiting, "an empty queue is never held"

    def _lifecycle(self, event: Event, turn_id: str, lease: int) -> None:
        data = event.data
        match event.type:
            case "turn.queued":
                assert turn_id not in self.admitted, "an id is admitted once"
                assert not self.closed, "a closed session admits nothing"
                self.admitted.append(turn_id)
                self.waiting.append(turn_id)
                self.principals[turn_id] = data["by"]["principal"]
                self.deliveries[turn_id] = data["delivery"]
                self.facts[turn_id] = Facts()
            case "turn.updated":
                assert turn_id in self.waiting, "only a queued turn is updated"
                self.deliveries[turn_id] = data.get("delivery", self.deliveries[turn_id])
            case "turn.started":
                self._started(event, turn_id, lease)
            case "turn.joined":
                assert data["hostTurnId"] == self.host, "a turn joins the running one"
                assert self.host not in self.asked, "nobody joins a turn that is being cancelled"
                assert self.deliveries[turn_id] == "join"
                assert self.principals[turn_id] == self.principals[str(self.host)], "joins stay within a principal"
                self.waiting.remove(turn_id)
                self.joined.append(turn_id)
            case "turn.steered":
                assert turn_id == self.host
                self.steers.append(data["steerId"])
            case "turn.cancel_requested":
                assert turn_id not in self.asked, "a cancel is recorded once"
                assert turn_id not in self.joined, "a joined turn is not cancelled by itself"
                self.asked.add(turn_id)
            case "queue.held":
                assert not self.held
                assert self.waiting, "an empty queue is never held"
                assert self.host in self.asked, "only the cancel of a running turn holds the queue"
                self.held = True
            case "queue.resumed":
                assert self.held
                self.held = False

    def _started(self, event: Event, turn_id: str, lease: int) -> None:
        assert event.data["fence"] == lease, "an attempt starts under the lease"
        self.attempts[turn_id] = self.attempts.get(turn_id, 0) + 1
        assert event.attempt == event.data["attempt"] == self.attempts[turn_id], "attempts are counted from 1"
        if self.attempts[turn_id] == 1:
            assert self.host is None, "one turn runs at a time"
            assert not self.held, "a held queue starts nothing"
            assert not self.closed, "a closed session starts nothing"
            assert turn_id == self.waiting.pop(0), "turns start in order of admission"
            assert "previous" not in event.data
            self.host = turn_id
        else:
            assert turn_id == self.host, "only the running turn gets another attempt"
            assert event.data["previous"]["attempt"] == self.attempts[turn_id] - 1
        self.fence = lease
        self._empty_is_never_held()

    def _terminal(self, event: Event, turn_id: str, rest: Sequence[Event]) -> None:
        status = event.type.removeprefix("turn.")
        assert turn_id in self.admitted, "only an admitted turn ends"
        if turn_id in self.asked:
            assert status == "cancelled", "a cancel that was durable first wins"
        self._sums(event.data, self.facts[turn_id])
        if turn_id in self.joined:
            self._joined_terminal(event, turn_id, status, rest)
        elif turn_id == self.host:
            assert not self.joined, "joined turns end before their host, in its commit"
            assert status != "completed" or not self.steers, "a steer before the terminal forces a step"
            assert event.data.get("undelivered", []) == self.steers
            self.host = None
            self.steers = []
        else:
            assert status == "cancelled", "a turn that never ran can only be cancelled"
            assert turn_id in self.asked
            self.waiting.remove(turn_id)
            self._empty_is_never_held()
        self.ended[turn_id] = status

    def _joined_terminal(self, event: Event, turn_id: str, status: str, rest: Sequence[Event]) -> None:
        others = [other.turn_id for other in rest[: len(self.joined)]]
        assert others == [*self.joined[1:], self.host], "joined turns end in order, just before their host"
        host_end = rest[len(self.joined) - 1]
        assert turn_id == self.joined.pop(0)
        assert event.data["hostTurnId"] == self.host
        assert host_end.type == event.type, "a joined turn takes its host's outcome"
        assert event.data.get("text") == host_end.data.get("text")
        if status == "failed":
            assert event.data["error"]["kind"] == "host_failed"
        if status == "cancelled":
            assert event.data["cause"] == "host"

    def _process(self, event: Event, turn_id: str) -> None:
        process_id = event.data["processId"]
        if event.type == "process.started":
            assert not self.closed, "nothing starts in a closed session"
            assert turn_id == self.host, "what starts is of the running turn"
            assert event.attempt == self.attempts[turn_id]
            assert turn_id not in self.asked, "nothing starts behind a cancel"
            self.processes.add(process_id)
            return
        assert event.turn_id is None, "it is stopped and ends whatever its turn did"
        assert process_id in self.processes
        if event.type == "process.exited":
            assert event.data["originTurnId"] in self.admitted
            self.processes.remove(process_id)

    def _other(self, event: Event, turn_id: str) -> None:
        data = event.data
        if event.attempt is not None:
            assert turn_id == self.host, "facts are of the running turn"
            assert event.attempt == self.attempts[turn_id], "facts are of the newest attempt"
        elif event.turn_id is not None:
            assert turn_id in self.admitted, "what a client caused is of a turn that is there"
        match event.type:
            case "session.closed":
                assert self.host is None, "a session is closed once nothing runs"
                assert not self.waiting, "a session is closed once nothing waits"
                assert not self.processes, "a session is closed once nothing runs in its background"
                self.closed = True
            case "session.resumed":
                self.closed = False
            case "steer.delivered":
                assert data["steerIds"] == self.steers, "all steers that wait are delivered, in order"
                self.steers = []
            case "model.requested":
                self.facts[turn_id].requests += 1
            case "usage.recorded":
                facts = self.facts[turn_id]
                facts.reported += 1
                facts.costs.append(data.get("cost", {}).get("reported", {}).get("amount"))
                for name, value in data["counters"].items():
                    facts.counters[name] = facts.counters.get(name, 0) + value
            case "tool.completed" if turn_id:
                calls = self.facts[turn_id].calls
                calls[data["outcome"]] = calls.get(data["outcome"], 0) + 1
            case "file.changed":
                if data["path"] not in self.facts[turn_id].files:
                    self.facts[turn_id].files.append(data["path"])

    def _sums(self, data: Mapping[str, Any], facts: Facts) -> None:
        total = data["usage"]["direct"]
        assert total["counters"] == facts.counters, "counters are sums of what was reported, and of nothing else"
        assert (total["requests"], total["reported"]) == (facts.requests, facts.reported)
        is_whole = facts.requests == facts.reported > 0 and None not in facts.costs
        assert ("cost" in total) == is_whole, "a cost is told when every request has one, and only then"
        if is_whole:
            assert Decimal(total["cost"]["reported"]["amount"]) == sum(map(Decimal, facts.costs))
        assert ("costReason" in total) == (facts.requests > 0 and not is_whole)
        assert data["evidence"]["calls"] == facts.calls
        assert data["evidence"]["files"] == facts.files

    def _empty_is_never_held(self) -> None:
        if not self.waiting:
            self.held = False
