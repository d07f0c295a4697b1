"""The rules of a session a second time, as plainly as they can be said: what `decide` is compared with.

Nothing here is shared with `hames.core`: lists, dicts, and one method for each thing that can be asked.
Each method answers with the events that must follow, or raises `No` with the published kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Expected = tuple[str, str | None, Mapping[str, Any]]
"""An event that must follow: its type, its turn, and members of its data (None: must be absent)."""


class No(Exception):
    """The request is refused."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


@dataclass
class Job:
    """A turn. `asked` is the cause of its cancel, once one is durable."""

    turn_id: str
    principal: str
    delivery: str
    status: str = "queued"
    host: str | None = None
    asked: str | None = None
    attempt: int = 0
    fence: int = 0


@dataclass
class Session:
    """One session."""

    status: str = "none"
    title: str | None = None
    jobs: dict[str, Job] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    running: str | None = None
    held: bool = False
    steers: list[str] = field(default_factory=list)
    compacts: bool = False
    lease: int = 0
    processes: dict[str, str | None] = field(default_factory=dict)
    """Those that run, each with the cause of its stop, once one is durable."""
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Key to the method and the content it was used for."""

    # --- what clients ask -----------------------------------------------------------------------------------

    def create(self, key: str | None, content: str, first: str | None, principal: str) -> list[Expected]:
        stored = None if key is None else f"create {key}"
        if self._repeats(stored, "create", content):
            return []
        if self.status != "none":
            raise No("session_exists")
        self._use(stored, "create", content)
        self.status = "open"
        events: list[Expected] = [("session.created", None, {"idempotencyKey": key})]
        if first is not None:
            events.append(self._admit(first, principal, "queue", None))
        return events

    def submit(
        self,
        turn_id: str,
        principal: str,
        delivery: str,
        key: str | None,
        content: str,
        *,
        resume: bool,
        room: int,
        repaired: bool,
    ) -> list[Expected]:
        self._exists()
        if self._repeats(key, "submit", content):
            return []
        if turn_id in self.jobs:
            raise No("turn_exists")
        self._takes_more()
        if delivery == "reject" and (self.running or self.queue):
            raise No("session_busy")
        if len(self.queue) >= room:
            raise No("queue_full")
        self._use(key, "submit", content)
        events = self._unhold() if resume else []
        admitted = self._admit(turn_id, principal, "join" if delivery == "join" else "queue", key)
        return [*events, admitted, *_warning(turn_id, repaired)]

    def update(self, turn_id: str, delivery: str | None, *, text: bool) -> list[Expected]:
        self._exists()
        job = self._job(turn_id)
        if job.status != "queued":
            raise No("turn_started")
        if delivery is None and not text:
            return []
        job.delivery = delivery or job.delivery
        return [("turn.updated", turn_id, {"delivery": delivery})]

    def steer(
        self, steer_id: str, expected: str | None, key: str | None, content: str, *, repaired: bool
    ) -> list[Expected]:
        self._exists()
        if self._repeats(key, "steer", content):
            return []
        if self.running is None or self.jobs[self.running].asked:
            raise No("no_active_turn")
        if expected is not None and expected != self.running:
            raise No("turn_mismatch")
        self._use(key, "steer", content)
        self.steers.append(steer_id)
        return [("turn.steered", self.running, {"steerId": steer_id}), *_warning(self.running, repaired)]

    def cancel(self, turn_id: str | None, queue: str, cause: str) -> list[Expected]:
        self._exists()
        if turn_id is None and self.running is None:
            raise No("no_active_turn")
        job = self._job(turn_id or str(self.running))
        if job.status in ("completed", "failed", "cancelled"):
            return []
        if job.host is not None:
            raise No("turn_joined")
        if job.status == "queued":
            return self._cancel_queued(job, cause)
        events: list[Expected] = []
        first_time = job.asked is None
        if first_time:
            job.asked = cause
            events.append(("turn.cancel_requested", job.turn_id, {"cause": cause, "queue": queue}))
        if queue == "drop":
            events += self._cancel_all_queued(cause)
        elif queue == "continue":
            events += self._unhold()
        elif first_time and self.queue and not self.held:
            self.held = True
            events.append(("queue.held", None, {"cause": "turn_cancelled"}))
        return events

    def resume_queue(self) -> list[Expected]:
        self._exists()
        return self._unhold()

    def rename(self, title: str) -> list[Expected]:
        self._exists()
        self.title = title
        return [("session.updated", None, {"title": title})]

    def compact(self) -> list[Expected]:
        self._exists()
        self._takes_more()
        if self.compacts:
            return []
        self.compacts = True
        return [("context.compact_requested", None, {})]

    def close(self) -> list[Expected]:
        self._exists()
        if self.status == "closed":
            return []
        events = self._cancel_all_queued("session_closed")
        for process_id, cause in self.processes.items():
            if cause != "session_closed":
                self.processes[process_id] = "session_closed"
                events.append(("process.stop_requested", None, {"processId": process_id, "cause": "session_closed"}))
        if self.running is None and not self.processes:
            self.status = "closed"
            return [*events, ("session.closed", None, {})]
        if self.running is None:
            return events
        job = self.jobs[self.running]
        if job.asked is None:
            job.asked = "session_closed"
            events.append(("turn.cancel_requested", job.turn_id, {"cause": "session_closed"}))
        return events

    def _takes_more(self) -> None:
        # A close that waits for the running turn, or for a process, takes nothing more.
        waits = self.running and self.jobs[self.running].asked == "session_closed"
        if self.status == "closed" or waits or "session_closed" in self.processes.values():
            raise No("session_closed")

    def stop_process(self, process_id: str) -> list[Expected]:
        self._exists()
        if process_id not in self.processes:
            raise No("process_not_found")
        if self.processes[process_id] is not None:
            return []
        self.processes[process_id] = "client"
        return [("process.stop_requested", None, {"processId": process_id, "cause": "client"})]

    def begin_process(self, fence: int, turn_id: str, process_id: str) -> list[Expected]:
        if self._mine(fence, turn_id).asked is not None:
            raise No("no_active_turn")
        self.processes[process_id] = None
        return [("process.started", turn_id, {"processId": process_id})]

    def leave_process(self, fence: int, process_id: str) -> list[Expected]:
        self._exists()
        if fence != self.lease:
            raise No("lease_lost")
        if process_id not in self.processes:
            raise No("process_not_found")
        del self.processes[process_id]
        return [("process.exited", None, {"processId": process_id})]

    def reopen(self) -> list[Expected]:
        self._exists()
        if self.status == "open":
            return []
        self.status = "open"
        return [("session.resumed", None, {})]

    # --- what an attempt asks -------------------------------------------------------------------------------

    def start(self, fence: int, previous: str | None, types: list[str]) -> list[Expected]:
        self._holds(fence)
        if self.running is not None:
            job = self.jobs[self.running]
            if job.fence == fence and previous is None:
                raise No("internal")
            if job.asked is not None:
                # A cancel that is durable: the turn does not begin again, it is settled.
                return []
            before: Any = {"attempt": job.attempt, "reason": previous or "owner_lost"}
        else:
            if self.status != "open" or self.held or not self.queue:
                return []
            job = self.jobs[self.queue.pop(0)]
            self.running = job.turn_id
            before = None
        job.status = "running"
        job.attempt += 1
        job.fence = fence
        self._empty_is_never_held()
        facts = {"attempt": job.attempt, "fence": fence, "previous": before}
        left: list[Expected] = [(type_, job.turn_id, {}) for type_ in types]
        return [*left, ("turn.started", job.turn_id, facts)]

    def record(self, fence: int, turn_id: str, types: list[str]) -> list[Expected]:
        self._mine(fence, turn_id)
        self.compacts = self.compacts and not {"context.replaced", "context.kept"} & set(types)
        return [(type_, turn_id, {}) for type_ in types]

    def boundary(self, fence: int, turn_id: str, step: int) -> list[Expected]:
        host = self._mine(fence, turn_id)
        if host.asked is not None:
            return []
        events: list[Expected] = []
        for waiting in list(self.queue):
            job = self.jobs[waiting]
            if job.delivery == "join" and job.principal == host.principal:
                self.queue.remove(waiting)
                job.status = "running"
                job.host = turn_id
                events.append(("turn.joined", waiting, {"hostTurnId": turn_id, "step": step}))
        if self.steers:
            events.append(("steer.delivered", turn_id, {"steerIds": self.steers, "step": step}))
            self.steers = []
        return events

    def end(
        self, fence: int, turn_id: str, status: str, types: list[str], *, forced: bool, recovering: bool
    ) -> list[Expected]:
        host = self._mine(fence, turn_id, settling=recovering)
        facts: list[Expected] = [(type_, turn_id, {}) for type_ in types]
        if host.asked is not None:
            status = "cancelled"
        elif status == "cancelled":
            raise No("internal")
        elif status == "completed" and self.steers:
            return facts
        joined = [job for job in self.jobs.values() if job.host == turn_id and job.status == "running"]
        events = [self._joined_end(job, host, status) for job in joined]
        members: dict[str, Any] = {
            "undelivered": self.steers or None,
            "hostTurnId": None,
            "forced": True if forced else None,
            "cause": host.asked,
        }
        host.status = status
        self.running = None
        self.steers = []
        return [*facts, *events, (f"turn.{status}", turn_id, members)]

    # --- the rules ------------------------------------------------------------------------------------------

    def _joined_end(self, job: Job, host: Job, status: str) -> Expected:
        job.status = status
        members: dict[str, Any] = {"hostTurnId": host.turn_id, "forced": None, "undelivered": None}
        if status == "cancelled":
            members["cause"] = "host"
        return f"turn.{status}", job.turn_id, members

    def _admit(self, turn_id: str, principal: str, delivery: str, key: str | None) -> Expected:
        position = len(self.queue)
        self.jobs[turn_id] = Job(turn_id, principal, delivery)
        self.queue.append(turn_id)
        return "turn.queued", turn_id, {"position": position, "delivery": delivery, "idempotencyKey": key}

    def _cancel_queued(self, job: Job, cause: str) -> list[Expected]:
        self.queue.remove(job.turn_id)
        job.status = "cancelled"
        job.asked = cause
        self._empty_is_never_held()
        return [
            ("turn.cancel_requested", job.turn_id, {"cause": cause}),
            ("turn.cancelled", job.turn_id, {"cause": cause, "hostTurnId": None}),
        ]

    def _cancel_all_queued(self, cause: str) -> list[Expected]:
        events: list[Expected] = []
        for turn_id in list(self.queue):
            events += self._cancel_queued(self.jobs[turn_id], cause)
        return events

    def _unhold(self) -> list[Expected]:
        if not self.held:
            return []
        self.held = False
        return [("queue.resumed", None, {})]

    def _empty_is_never_held(self) -> None:
        if not self.queue:
            self.held = False

    def _repeats(self, key: str | None, method: str, content: str) -> bool:
        """Whether `key` was used for the same before."""
        if key is None or key not in self.keys:
            return False
        if self.keys[key] != (method, content):
            raise No("idempotency_conflict")
        return True

    def _use(self, key: str | None, method: str, content: str) -> None:
        if key is not None:
            self.keys[key] = (method, content)

    def _exists(self) -> None:
        if self.status == "none":
            raise No("session_not_found")

    def _job(self, turn_id: str) -> Job:
        if turn_id not in self.jobs:
            raise No("turn_not_found")
        return self.jobs[turn_id]

    def _holds(self, fence: int) -> None:
        if fence != self.lease:
            raise No("lease_lost")

    def _mine(self, fence: int, turn_id: str, *, settling: bool = False) -> Job:
        self._holds(fence)
        if self.running != turn_id or (self.jobs[turn_id].fence != fence and not settling):
            raise No("lease_lost")
        return self.jobs[turn_id]


def _warning(turn_id: str, repaired: bool) -> list[Expected]:
    """What was mended in a caller's text is said."""
    return [("warning", turn_id, {"code": "text_repaired"})] if repaired else []
