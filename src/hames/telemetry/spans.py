"""From a session's events to its spans, without I/O: session > turn > attempt > step > tool call.

Rule 1: every span carries the ids of what it is in: `hames.session.id`, `hames.turn.id`, `hames.attempt`,
`hames.call.id`. Ids of spans are made from these, so that every process gives one turn one id.
Rule 2: without `content` an attribute is a number, an id, or a word of a closed set: nothing that a person or a model
wrote, nor what a provider says.
Rule 3: what is still open when its turn gets the terminal is closed then, and says so (`hames.span.forced_close`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

from hames.core.records import record
from hames.core.session import TERMINAL_EVENTS, Event
from hames.core.times import epoch_ms

EVENT_TYPES: Final = (
    "session.closed",
    "turn.queued",
    "turn.started",
    "turn.joined",
    "step.started",
    "model.requested",
    "model.retried",
    "usage.recorded",
    "step.completed",
    "tool.requested",
    "tool.started",
    "tool.completed",
    *TERMINAL_EVENTS,
)
"""What spans are made of."""

FORCED_CLOSE: Final = "hames.span.forced_close"

CONTENT_CHARS: Final = 8 * 1024
"""Of one text in a span."""

INTERNAL, CLIENT = 1, 3
"""Kinds of spans: opentelemetry-proto, `trace.proto`."""

_COUNTER = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,63}")
"""A name of a counter; others are what a provider made up."""

Value = str | int
Redact = Callable[[str], str]


@record
class SpanEvent:
    """Something that happened within a span."""

    name: str
    at_ms: int
    attributes: Mapping[str, Value]


@record
class Span:
    """A finished span. Ids are hex, times milliseconds since 1970; `error` is a kind, None for what did not fail."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: int
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Value]
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None


class _Open:
    """A span that has not ended."""

    def __init__(self, name: str, span_id: str, parent: _Open | None, start_ms: int, **attributes: Value) -> None:
        self.name = name
        self.span_id = span_id
        self.parent = parent
        self.start_ms = start_ms
        self.kind = INTERNAL
        self.correlation: dict[str, Value] = {**({} if parent is None else parent.correlation), **attributes}
        """The ids, for the spans in it too."""
        self.attributes = dict(self.correlation)
        self.events: list[SpanEvent] = []


class SessionSpans:
    """The spans of one session, for as long as this process runs it.

    `content` redacts texts; None: none are taken. `pid`: attempts of other processes are not told, since those do it;
    None: all are.
    """

    def __init__(
        self,
        session_id: str,
        trace_id: str,
        since_ms: int,
        *,
        attributes: Mapping[str, Value],
        content: Redact | None = None,
        pid: int | None = None,
    ) -> None:
        self._trace_id = trace_id
        self._content = content
        self._pid = pid
        span_id = self._id("session", since_ms)
        self._session = _Open("session", span_id, None, since_ms, **{"hames.session.id": session_id})
        self._session.attributes |= attributes
        self._turns: dict[str, _Open] = {}
        self._attempt: _Open | None = None
        self._step: _Open | None = None
        self._request_id: str | None = None
        self._answered = False
        self._calls: dict[str, _Open] = {}
        self._done: list[Span] = []

    def take(self, event: Event) -> list[Span]:
        """The spans that ended with `event`."""
        at_ms = epoch_ms(event.time)
        if event.type in TERMINAL_EVENTS:
            self._end_turn(event, at_ms)
        else:
            change = _CHANGES.get(event.type)
            if change is not None:
                change(self, event, at_ms)
        done, self._done = self._done, []
        return done

    def queued(self, turn_id: str, at_ms: int) -> None:
        """A turn waits that was admitted before this process looked."""
        if turn_id not in self._turns:
            span_id = self._id("turn", turn_id)
            self._turns[turn_id] = _Open("turn", span_id, self._session, at_ms, **{"hames.turn.id": turn_id})

    def leave(self, at_ms: int, **attributes: Value) -> list[Span]:
        """This process looks no more. Turns that go on are told by who sees their end; what it ran of them ends."""
        self._end_attempt(at_ms, {"hames.outcome": "left"})
        self._session.attributes |= attributes
        self._end(self._session, at_ms)
        done, self._done = self._done, []
        return done

    # --- turns and attempts -------------------------------------------------------------------------------

    def _turn_queued(self, event: Event, at_ms: int) -> None:
        self.queued(event.turn_id or "", at_ms)
        turn = self._turns[event.turn_id or ""]
        turn.attributes["hames.turn.delivery"] = event.data["delivery"]
        said = [slot.get("text", "") for slot in event.data["input"]]
        self._add_text(turn, "hames.content.prompt", *said)

    def _turn_started(self, event: Event, at_ms: int) -> None:
        turn_id, number = event.turn_id or "", int(event.data["attempt"])
        self.queued(turn_id, at_ms)
        self._end_attempt(at_ms, {"hames.outcome": event.data.get("previous", {}).get("reason", "left")})
        if self._pid not in (None, event.data["worker"]["pid"]):
            return
        self._attempt = _Open(
            "attempt", self._id("attempt", turn_id, number), self._turns[turn_id], at_ms, **{"hames.attempt": number}
        )

    def _turn_joined(self, event: Event, at_ms: int) -> None:
        self.queued(event.turn_id or "", at_ms)
        self._turns[event.turn_id or ""].attributes["hames.turn.host.id"] = event.data["hostTurnId"]

    def _end_turn(self, event: Event, at_ms: int) -> None:
        turn_id, data = event.turn_id or "", event.data
        self.queued(turn_id, at_ms)
        turn = self._turns.pop(turn_id)
        outcome: dict[str, Value] = {"hames.outcome": TERMINAL_EVENTS[event.type]}
        error = str(data["error"]["kind"]) if "error" in data else None
        if error is not None:
            outcome["error.type"] = error
        if data.get("forced"):
            outcome[FORCED_CLOSE] = "settlement"
        if self._attempt is not None and self._attempt.parent is turn:
            self._end_attempt(at_ms, outcome, error=error, is_settled=True)
        total = data["usage"]["direct"]
        turn.attributes |= {**outcome, **_counters(total["counters"]), "hames.requests": total["requests"]}
        for kind, cost in total.get("cost", {}).items():
            turn.attributes |= {f"hames.cost.{kind}": cost["amount"], f"hames.cost.{kind}.currency": cost["currency"]}
        self._add_text(turn, "hames.content.output", data.get("text", ""))
        self._end(turn, at_ms, error=error)

    def _end_attempt(
        self, at_ms: int, outcome: Mapping[str, Value], *, error: str | None = None, is_settled: bool = False
    ) -> None:
        """End the attempt, if there is one, with all that is open in it."""
        left: dict[str, Value] = {FORCED_CLOSE: "settlement"} if is_settled else dict(outcome)
        for call_id in list(self._calls):
            self._end_call(call_id, at_ms, left)
        if self._step is not None:
            self._end_step(at_ms, left, error=error)
        if self._attempt is not None:
            self._attempt.attributes |= outcome
            self._end(self._attempt, at_ms, error=error)
            self._attempt = None

    # --- steps and calls ----------------------------------------------------------------------------------

    def _step_started(self, event: Event, at_ms: int) -> None:
        if self._attempt is None:
            return
        if self._step is not None:
            self._end_step(at_ms, {})
        number = int(event.data["step"])
        span_id = self._id("step", event.turn_id or "", event.attempt or 0, number)
        self._step = _Open("step", span_id, self._attempt, at_ms)
        self._step.kind = CLIENT
        self._step.attributes["hames.step"] = number
        self._request_id, self._answered = None, False

    def _model_requested(self, event: Event, at_ms: int) -> None:
        if self._step is None or "purpose" in event.data:
            return
        self._request_id = event.data["modelRequestId"]
        self._step.name = f"chat {event.data['model']}"
        self._step.attributes |= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": event.data["provider"],
            "gen_ai.request.model": event.data["model"],
            "hames.request.id": event.data["modelRequestId"],
            "hames.request.tries": event.data["tryNumber"],
        }

    def _model_retried(self, event: Event, at_ms: int) -> None:
        if self._step is not None:
            told: dict[str, Value] = {
                "error.type": str(event.data["error"]["kind"]),
                "hames.delay_ms": int(event.data["delayMs"]),
            }
            self._step.events.append(SpanEvent("retry", at_ms, told))

    def _usage_recorded(self, event: Event, at_ms: int) -> None:
        if self._step is not None and event.data["modelRequestId"] == self._request_id:
            for name, count in _counters(event.data["counters"]).items():
                self._step.attributes[name] = int(self._step.attributes.get(name, 0)) + count

    def _step_completed(self, event: Event, at_ms: int) -> None:
        if self._step is not None:
            self._answered = True
            self._step.attributes["hames.stop_reason"] = event.data["stopReason"]
            if not self._calls:
                self._end_step(at_ms, {})

    def _end_step(self, at_ms: int, more: Mapping[str, Value], *, error: str | None = None) -> None:
        assert self._step is not None
        self._step.attributes |= more
        self._end(self._step, at_ms, error=error)
        self._step = None

    def _tool_requested(self, event: Event, at_ms: int) -> None:
        call = self._open_call(event, at_ms)
        if call is not None:
            self._add_text(call, "hames.content.arguments", event.data["arguments"])

    def _tool_started(self, event: Event, at_ms: int) -> None:
        call = self._calls.get(event.data["callId"]) or self._open_call(event, at_ms)
        if call is not None:
            call.start_ms = at_ms
            # Of a tool that exists; until now it was a word of the model.
            call.name = f"execute_tool {event.data['tool']}"
            call.attributes |= {"gen_ai.tool.name": event.data["tool"], "hames.tool.effect": event.data["effect"]}

    def _open_call(self, event: Event, at_ms: int) -> _Open | None:
        parent = self._step or self._attempt
        if parent is None:
            return None
        call_id = event.data["callId"]
        # By its attempt too: a call that is safe to repeat may have been started by the one before.
        span_id = self._id("call", event.attempt or 0, call_id)
        call = self._calls[call_id] = _Open("execute_tool", span_id, parent, at_ms, **{"hames.call.id": call_id})
        call.attributes["gen_ai.operation.name"] = "execute_tool"
        return call

    def _tool_completed(self, event: Event, at_ms: int) -> None:
        call = self._calls.get(event.data["callId"])
        if call is None:
            return
        outcome = str(event.data["outcome"])
        told: dict[str, Value] = {"hames.outcome": outcome}
        if outcome == "unknown" or "durationMs" not in event.data:
            # It did not end by itself: the result was written for it.
            told[FORCED_CLOSE] = "settlement"
        self._add_text(call, "hames.content.result", event.data["text"])
        self._end_call(event.data["callId"], at_ms, told, error=outcome if outcome in ("error", "unknown") else None)
        if self._answered and self._step is not None and not self._calls:
            self._end_step(at_ms, {})

    def _end_call(self, call_id: str, at_ms: int, more: Mapping[str, Value], *, error: str | None = None) -> None:
        call = self._calls.pop(call_id)
        call.attributes |= more
        self._end(call, at_ms, error=error)

    # --- spans --------------------------------------------------------------------------------------------

    def _add_text(self, span: _Open, name: str, *texts: Any) -> None:
        """Put content into a span, where that is wanted: a text, or the beginning of one that is kept apart."""
        if self._content is not None:
            told = [text if isinstance(text, str) else str(text.get("head", "")) for text in texts]
            # Redacted before it is cut: half a key is not found.
            span.attributes[name] = self._content("\n".join(filter(None, told)))[:CONTENT_CHARS]

    def _end(self, span: _Open, at_ms: int, *, error: str | None = None) -> None:
        self._done.append(
            Span(
                self._trace_id,
                span.span_id,
                None if span.parent is None else span.parent.span_id,
                span.name,
                span.kind,
                span.start_ms,
                max(at_ms, span.start_ms),
                span.attributes,
                tuple(span.events),
                error,
            )
        )

    def _id(self, *names: str | int) -> str:
        return blake2b("/".join(map(str, (self._trace_id, *names))).encode(), digest_size=8).hexdigest()


def _counters(counters: Mapping[str, int]) -> dict[str, int]:
    return {f"hames.usage.{name}": count for name, count in counters.items() if _COUNTER.fullmatch(name)}


_CHANGES: Final[Mapping[str, Callable[[SessionSpans, Event, int], None]]] = {
    "turn.queued": SessionSpans._turn_queued,
    "turn.started": SessionSpans._turn_started,
    "turn.joined": SessionSpans._turn_joined,
    "step.started": SessionSpans._step_started,
    "model.requested": SessionSpans._model_requested,
    "model.retried": SessionSpans._model_retried,
    "usage.recorded": SessionSpans._usage_recorded,
    "step.completed": SessionSpans._step_completed,
    "tool.requested": SessionSpans._tool_requested,
    "tool.started": SessionSpans._tool_started,
    "tool.completed": SessionSpans._tool_completed,
}
