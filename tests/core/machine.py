"""A state machine: commands of several clients, workers, crashes and takeovers, on one session.

Rule 1: every answer and every event is compared with `reference.py`, every log with `log_rules.py`, and the state
with its own log (`ledger.py`).
Rule 2: the functions under test are a parameter, so the same machine that proves the source also kills its mutants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.ledger import REAL, Core, Ledger
from core.log_rules import LogRules
from core.reference import Expected, No, Session
from hames.core.commands import (
    Boundary,
    CancelTurn,
    CloseSession,
    Command,
    CompactContext,
    CreateSession,
    Draft,
    Ending,
    EndTurn,
    ExitProcess,
    OpenSession,
    Record,
    Reply,
    ResumeQueue,
    StartProcess,
    StartTurn,
    SteerTurn,
    StopProcess,
    SubmitTurn,
    UpdateSession,
    UpdateTurn,
)
from hames.core.compaction import EARLIER, Group, Replacement, plan_cut
from hames.core.composition import Composition, Part, compose_data
from hames.core.context import Conversation
from hames.core.conversation import Message, history_faults
from hames.core.session import Event
from hames.protocol.errors import Refused

COSTS: tuple[Mapping[str, Any], ...] = (
    {"cost": {"reported": {"amount": "0.1", "currency": "USD"}}},
    {"cost": {"reported": {"amount": "0.2", "currency": "USD"}}},
    {"costReason": "missing_provider_detail"},
    {"cost": {"reported": {"amount": "0.000001", "currency": "USD"}}},
    {},
)
"""What is known of the cost of one request after another; the last is of a build that knew no prices."""

ROOM = 4
"""The queue's limit here: small, so that it is reached."""


def by(principal: str) -> dict[str, str]:
    return {"principal": principal, "client": "test"}


def slots(text: str) -> tuple[dict[str, str], ...]:
    return ({"type": "text", "text": text},)


def _unmarked(group: Group) -> Group:
    """As it was before it stood before a cut."""
    said = (replace(each, text=each.text.replace(f"{EARLIER}\n", "")) for each in group.messages)
    return replace(group, messages=tuple(said))


class Machine:
    """One session, its clients and its workers. `act` does one thing and checks all that must hold."""

    def __init__(self, core: Core = REAL) -> None:
        self.ledger = Ledger(core)
        self.reference = Session()
        self.rules = LogRules()
        self.conversation = Conversation()
        self.answers: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.number = 0
        self.steps = 0
        self.open_calls: list[str] = []
        self.sent: tuple[Message, ...] = ()

    def act(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Do the action `name` of `ACTIONS`.

        Raises:
            AssertionError: something does not hold.
        """
        if self.reference.status == "none" and name not in ("create", "steer"):
            # Little can be seen before there is a session.
            self.create("ann", None, "c1", first=True)
        if name in ("record", "boundary", "end", "begin_process") and self.reference.running is None:
            # A worker with nothing to do looks for the next turn.
            self.start(stale=False, again=False)
        getattr(self, name)(**arguments)
        self.check_state()
        self.check_history()

    # --- clients --------------------------------------------------------------------------------------------

    def create(self, principal: str, key: str | None, content: str, first: bool) -> None:
        turn_id = self._fresh("t") if first else None
        turn = None if turn_id is None else SubmitTurn(turn_id, slots("First."), content, by(principal))
        command = CreateSession({}, "snapshot", "keyed", content, by(principal), key=key, turn=turn)
        self._ask(command, lambda: self.reference.create(key, content, turn_id, principal), ("store", key))

    def submit(
        self,
        pick: int,
        principal: str,
        delivery: Any,
        key: str | None,
        content: str,
        resume: bool,
        text: str,
        repaired: bool,
    ) -> None:
        turn_id = self._turn(pick) if pick == 0 else self._fresh("t")
        command = SubmitTurn(
            turn_id,
            slots(text),
            content,
            by(principal),
            delivery=delivery,
            key=key,
            resume_queue=resume,
            queue_limit=ROOM,
            repaired=repaired,
        )
        self._ask(
            command,
            lambda: self.reference.submit(
                turn_id, principal, delivery, key, content, resume=resume, room=ROOM, repaired=repaired
            ),
            ("session", key),
        )

    def update(self, pick: int, delivery: Any, text: bool) -> None:
        turn_id = self._turn(pick)
        command = UpdateTurn(turn_id, by("ann"), input=slots("Instead.") if text else None, delivery=delivery)
        self._ask(command, lambda: self.reference.update(turn_id, delivery, text=text))

    def steer(self, aim: str | None, pick: int, key: str | None, content: str, repaired: bool) -> None:
        steer_id = self._fresh("s")
        expected = {None: None, "running": self.reference.running, "other": self._turn(pick)}[aim]
        command = SteerTurn(
            steer_id, slots("Also this."), content, by("ann"), expected=expected, key=key, repaired=repaired
        )
        self._ask(
            command, lambda: self.reference.steer(steer_id, expected, key, content, repaired=repaired), ("session", key)
        )

    def cancel(self, pick: int, queue: Any, cause: Any) -> None:
        turn_id = None if pick > 6 else self._turn(pick)
        command = CancelTurn(by("bob"), turn_id, queue=queue, cause=cause)
        self._ask(command, lambda: self.reference.cancel(turn_id, queue, cause))

    def resume_queue(self) -> None:
        self._ask(ResumeQueue(by("ann")), self.reference.resume_queue)

    def rename(self, title: str) -> None:
        self._ask(UpdateSession(title, by("ann")), lambda: self.reference.rename(title))

    def compact(self) -> None:
        self._ask(CompactContext(by("ann")), self.reference.compact)

    def close(self, again: bool) -> None:
        self._ask(CloseSession(by("ann")), self.reference.close)
        if again:
            self._ask(OpenSession(by("bob")), self.reference.reopen)

    def reopen(self) -> None:
        self._ask(OpenSession(by("bob")), self.reference.reopen)

    # --- workers --------------------------------------------------------------------------------------------

    def start(self, stale: bool, again: bool) -> None:
        if not self.ledger.fence:
            self.reference.lease = self.ledger.claim()
        fence = self._fence(stale)
        previous = "owner_lost" if again else None
        drafts = tuple(self._facts("results")) if self.reference.running is not None else ()
        types = [draft.type for draft in drafts]
        command = StartTurn(fence, {"pid": 1}, self.ledger.now_ms, 60_000, previous=previous, drafts=drafts)
        self._ask(command, lambda: self.reference.start(fence, previous, types), fence=fence)

    def record(self, stale: bool, pick: int, what: str) -> None:
        fence, turn_id = self._fence(stale), self._running(pick)
        drafts = self._facts(what)
        types = [draft.type for draft in drafts]
        command = Record(fence, turn_id, tuple(drafts))
        self._ask(command, lambda: self.reference.record(fence, turn_id, types), fence=fence)

    def boundary(self, stale: bool, pick: int) -> None:
        fence, turn_id = self._fence(stale), self._running(pick)
        command = Boundary(fence, turn_id, self.steps + 1)
        self._ask(command, lambda: self.reference.boundary(fence, turn_id, self.steps + 1), fence=fence)

    def end(self, stale: bool, pick: int, status: Any, forced: bool, recovering: bool) -> None:
        fence, turn_id = self._fence(stale), self._running(pick)
        drafts = self._facts("step") if status == "completed" else []
        # Only what did not succeed is ever forced.
        forced = forced and status != "completed"
        error = {"kind": "internal", "message": "", "retryable": False, "details": {}}
        ending = Ending(
            status,
            text="Done.",
            error=error if status == "failed" else None,
            forced=forced,
            may_still_run=("pid 7",) if forced else (),
        )
        types = [draft.type for draft in drafts]
        reply = self._ask(
            EndTurn(fence, turn_id, ending, tuple(drafts), recovering=recovering),
            lambda: self.reference.end(fence, turn_id, status, types, forced=forced, recovering=recovering),
            fence=fence,
        )
        if reply is not None:
            assert reply.ended == (self.reference.running is None)
            # Calls that a turn leaves open stay without a result.
            self.open_calls = []

    # --- background processes -------------------------------------------------------------------------------

    def begin_process(self, stale: bool, pick: int) -> None:
        fence, turn_id, process_id = self._fence(stale), self._running(pick), self._fresh("p")
        data: dict[str, Any] = {"command": "sleep 1", "callId": "c0", "lifetimeMs": 1000}
        if pick % 2:
            data |= {"name": "web", "reaper": {"pid": 7, "startTime": 8, "socket": "/s"}}
        command = StartProcess(fence, turn_id, process_id, data)
        self._ask(command, lambda: self.reference.begin_process(fence, turn_id, process_id), fence=fence)

    def stop_process(self, pick: int) -> None:
        process_id = self._process(pick)
        self._ask(StopProcess(process_id, by("ann")), lambda: self.reference.stop_process(process_id))

    def leave_process(self, stale: bool, pick: int) -> None:
        fence, process_id = self._fence(stale), self._process(pick)
        data: dict[str, Any] = {
            "why": "exited",
            "outputBytes": pick,
            **({"signal": 9} if pick % 2 else {"exitCode": 0}),
        }
        command = ExitProcess(fence, process_id, data)
        self._ask(command, lambda: self.reference.leave_process(fence, process_id), fence=fence)

    def _process(self, pick: int) -> str:
        """One that runs, mostly."""
        running = list(self.reference.processes)
        return running[pick % len(running)] if running else "p0"

    def take_over(self, then: str) -> None:
        self.reference.lease = self.ledger.claim()
        if then == "start":
            self.start(stale=False, again=False)
        elif then == "settle":
            self.end(stale=False, pick=0, status="failed", forced=True, recovering=True)

    def release(self) -> None:
        self.ledger.release()
        self.reference.lease = 0

    def crash(self) -> None:
        self.ledger.crash()

    # --- what must hold -------------------------------------------------------------------------------------

    def check_state(self) -> None:
        state, reference = self.ledger.state, self.reference
        assert (state.status, state.title) == (reference.status, reference.title)
        assert list(state.queue) == reference.queue
        assert state.running == reference.running
        assert (state.hold is not None) == reference.held
        assert list(state.steers) == reference.steers
        assert (state.compact is not None) == reference.compacts
        assert [process.process_id for process in state.open_processes()] == list(reference.processes)
        for job in reference.jobs.values():
            turn = self.ledger.turns[job.turn_id]
            found = (turn.status, turn.host, turn.attempt, turn.fence, turn.delivery, turn.cancel is not None)
            wanted = (job.status, job.host, job.attempt, job.fence, job.delivery, job.asked is not None)
            assert found == wanted
            assert turn.ended == (job.turn_id not in state.turns)

    def check_history(self) -> None:
        messages = self.conversation.messages()
        assert not messages or history_faults(messages) == []

    # --- how ------------------------------------------------------------------------------------------------

    def _ask(
        self,
        command: Command,
        expect: Callable[[], list[Expected]],
        key: tuple[str, str | None] = ("", None),
        *,
        fence: int | None = None,
    ) -> Reply | None:
        """Run `command`, and compare with what the reference expects; the answer, or None where it is refused."""
        before = self.ledger.state
        refusal, expected = _attempt(expect)
        found = None
        try:
            reply, events = self.ledger.run(command)
        except Refused as refused:
            found = refused.kind
        assert found == refusal, f"{command} was {found or 'accepted'}, expected {refusal or expected}"
        if found is not None:
            assert self.ledger.state == before, "a refused command changes nothing"
            return None
        assert fence in (None, self.ledger.fence), "a stale fence appends nothing"
        assert [(event.type, event.turn_id) for event in events] == [item[:2] for item in expected]
        for event, (_, _, members) in zip(events, expected, strict=True):
            assert {name: event.data.get(name) for name in members} == members
        self.rules.commit(events, self.ledger.fence)
        self._converse(events)
        self._same_answer(reply, *key)
        return reply

    def _converse(self, events: Sequence[Event]) -> None:
        """Fold `events`; what one step sends stands at the start of what the next one sends."""
        for event in events:
            if event.type == "context.replaced":
                self._begin_anew(event)
                continue
            self.conversation.apply(event)
            if event.type == "context.composed":
                self.sent = ()  # changes that were told before are not told again
            if event.type == "step.started":
                sent, self.sent = self.sent, self.conversation.messages()
                if sent:
                    assert self.sent[: len(sent) - 1] == sent[:-1], "a prefix that was sent stays as it was"
                    last, now = sent[-1], self.sent[len(sent) - 1]
                    assert type(last) is type(now)
                    assert now.text.startswith(last.text)

    def _begin_anew(self, event: Event) -> None:
        """Fold as a process does that comes now; what stays reads as it did."""
        before = {group.seq: group for group in self.conversation.groups()}
        replacement = Replacement.of(event)
        base = self.conversation.composition
        self.conversation, self.sent = Conversation(replacement=replacement), ()
        composed_at = self.ledger.state.composed_at
        assert composed_at == (0 if base is None else base.seq)
        if 0 < composed_at < replacement.read_from:
            self.conversation.composition = Composition.of(self.ledger.events[composed_at - 1])
        for each in self.ledger.events[replacement.read_from - 1 : event.seq]:
            self.conversation.apply(each)
        again = self.conversation.composition
        assert (again and again.parts) == (base and base.parts), "what goes beside it is as it was"
        first, *rest = self.conversation.groups()
        assert first.messages[0].text == replacement.text
        stay = [group for seq, group in before.items() if seq and replacement.keeps(seq)]
        assert [_unmarked(group) for group in rest] == [_unmarked(group) for group in stay]
        for group in rest:
            is_earlier = group.is_said and replacement.is_earlier(group.seq, group.turn_id)
            assert (EARLIER in group.messages[0].text) == is_earlier

    def _shorter(self) -> Draft:
        conversation = self.conversation
        cut = plan_cut(
            conversation.groups(),
            window_tokens=160,
            running=self.reference.running or "",
            read_from=conversation.needed_from(),
            kept_from=conversation.kept_from,
        )
        if cut is None:
            return Draft("context.kept", {"trigger": "threshold", "reason": "short"})
        data = {"trigger": "threshold", "keptFrom": cut.kept_from, "kept": list(cut.kept), "readFrom": cut.read_from}
        counts = {"messagesGone": 1, "messagesLeft": 1, "tokensBefore": 2, "tokensAfter": 1}
        return Draft("context.replaced", {**data, **counts, "files": [], "summary": f"Of {len(cut.gone)}."})

    def _same_answer(self, reply: Reply, scope: str, key: str | None) -> None:
        if key is None:
            return
        answer = (reply.turn_id, reply.steer_id, reply.seq)
        assert reply.repeated == ((scope, key) in self.answers)
        assert self.answers.setdefault((scope, key), answer) == answer, "a repeat gets the first answer"

    def _facts(self, what: str) -> list[Draft]:
        match what:
            case "step" | "calls":
                return [*self._results(), *self._step(calls=2 if what == "calls" else 0)]
            case "results":
                return self._results()
            case "shorter":
                return [self._shorter()]
            case "composed":
                parts = [Part("agent", "Agent."), Part("document", f"Of {self.number}.", "AGENTS.md")]
                return [*self._results(), Draft("context.composed", compose_data("p", "m", "model", "other", parts))]
            case "changed":
                data = {"kind": "changed", **Part("document", f"Since {self.number}.", "AGENTS.md").data()}
                return [*self._results(), Draft("resources.changed", data)]
            case "late":
                return [
                    self._result("c0", "ok"),
                    Draft("file.changed", _change("a")),
                    Draft("file.changed", _change("a")),
                ]
            case _:
                return [Draft("warning", {"code": "x", "message": "", "details": {}}), Draft("of.a.later.build", {})]

    def _results(self) -> list[Draft]:
        """A result for each open call: without it the model is not asked again."""
        calls, self.open_calls = self.open_calls, []
        return [self._result(call, "ok" if call.endswith("1") else "error") for call in calls]

    def _step(self, calls: int) -> list[Draft]:
        self.steps += 1
        step = {"step": self.steps}
        drafts = [
            Draft("step.started", step),
            Draft("model.requested", {**step, "modelRequestId": f"m{self.steps}"}),
            Draft(
                "message.completed",
                {**step, "itemId": f"i{self.steps}", "text": "Well.", "inContext": self.steps % 5 > 0},
            ),
        ]
        for _ in range(calls):
            call = self._fresh("c")
            self.open_calls.append(call)
            data = {"callId": call, "providerCallId": f"p{call}", "tool": "read", "arguments": "{}", **step}
            drafts.append(Draft("tool.requested", data))
        if self.steps % 3:
            counters = {"in": self.steps, f"odd{self.steps % 2}": 1}
            drafts.append(Draft("usage.recorded", {"counters": counters, **COSTS[self.steps % len(COSTS)]}))
        return [*drafts, Draft("step.completed", {**step, "stopReason": "stop"})]

    def _result(self, call: str, outcome: str) -> Draft:
        return Draft("tool.completed", {"callId": call, "tool": "read", "outcome": outcome, "text": "", "details": {}})

    def _fresh(self, letter: str) -> str:
        self.number += 1
        return f"{letter}{self.number}"

    def _turn(self, pick: int) -> str:
        """The running turn, one that waits, one that was admitted, or one that never was."""
        reference = self.reference
        if pick < 5 and reference.queue:
            return reference.queue[pick % len(reference.queue)]
        known = list(reversed(reference.jobs))
        return known[pick % len(known)] if known and pick < 9 else "nowhere"

    def _running(self, pick: int) -> str:
        """The running turn, mostly."""
        return self._turn(pick) if pick == 1 else str(self.reference.running)

    def _fence(self, stale: bool) -> int:
        return max(0, self.ledger.last_fence - 1) if stale else self.ledger.last_fence


def _attempt(expect: Callable[[], list[Expected]]) -> tuple[str | None, list[Expected]]:
    try:
        return None, expect()
    except No as no:
        return no.kind, []


def _change(path: str) -> Mapping[str, Any]:
    return {"callId": "c0", "path": path, "kind": "modified"}
