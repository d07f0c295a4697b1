"""Stories of a session as text: commands, and the events and answers they led to, as recorded.

`HAMES_REWRITE=1` writes the files anew; read the difference before you keep it. A line that starts with `>` is a
command, `#` a comment; all others are what was recorded. Words `name=value` are options, the rest are arguments.

    > create [TITLE] [by=] [key=] [turn=]        > submit TURN TEXT [by=] [delivery=] [key=] [resume] [room=]
    > update TURN [text=] [delivery=]            > steer STEER TEXT [expected=] [key=]
    > cancel [TURN] [queue=] [reason=]           > resume | close | open | rename TITLE
    > claim | release | crash | state            > start [fence=] [previous=]
    > step TURN TEXT [calls=] [fence=]           > result TURN CALL [outcome=] [fence=]
    > boundary TURN STEP [fence=]                > end TURN STATUS [TEXT] [fence=] [forced] [recovering]
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.ledger import Ledger
from hames.core.commands import (
    Boundary,
    CancelTurn,
    CloseSession,
    Command,
    CreateSession,
    Draft,
    Ending,
    EndTurn,
    OpenSession,
    Record,
    Reply,
    ResumeQueue,
    StartTurn,
    SteerTurn,
    SubmitTurn,
    UpdateSession,
    UpdateTurn,
)
from hames.core.session import Event
from hames.protocol.errors import Refused
from hames.protocol.jsontext import dumps

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))

SHOWN = {
    "session.created": ("title",),
    "session.updated": ("title",),
    "turn.queued": ("delivery", "position"),
    "turn.started": ("fence", "previous", "deadlineAt"),
    "turn.joined": ("hostTurnId", "step"),
    "turn.steered": ("steerId",),
    "steer.delivered": ("steerIds", "step"),
    "turn.updated": ("delivery", "input"),
    "turn.cancel_requested": ("cause", "queue", "reason"),
    "queue.held": ("cause",),
    "message.completed": ("text",),
    "tool.requested": ("callId",),
    "tool.completed": ("callId", "outcome"),
    "turn.completed": ("text", "hostTurnId"),
    "turn.failed": ("text", "error", "undelivered", "hostTurnId", "forced", "mayStillRun"),
    "turn.cancelled": ("cause", "reason", "undelivered", "hostTurnId", "forced", "mayStillRun"),
}
"""The members of an event's data that a scenario shows."""

Options = Mapping[str, str]


def _by(options: Options) -> dict[str, str]:
    return {"principal": options.get("by", "ann")}


def _slots(text: str) -> tuple[dict[str, str], ...]:
    return ({"type": "text", "text": text},)


def _create(words: list[str], options: Options, ledger: Ledger) -> Command:
    turn = SubmitTurn(options["turn"], _slots("First."), "d", _by(options)) if "turn" in options else None
    title = words[0] if words else None
    return CreateSession({}, "snapshot", "keyed", str(title), _by(options), options.get("key"), title, turn=turn)


def _submit(words: list[str], options: Options, ledger: Ledger) -> Command:
    delivery: Any = options.get("delivery", "queue")
    return SubmitTurn(
        words[0],
        _slots(words[1]),
        words[1],
        _by(options),
        delivery,
        key=options.get("key"),
        resume_queue="resume" in words,
        queue_limit=int(options.get("room", 100)),
    )


def _update(words: list[str], options: Options, ledger: Ledger) -> Command:
    delivery: Any = options.get("delivery")
    text = options.get("text")
    return UpdateTurn(words[0], _by(options), None if text is None else _slots(text), delivery)


def _steer(words: list[str], options: Options, ledger: Ledger) -> Command:
    return SteerTurn(words[0], _slots(words[1]), words[1], _by(options), options.get("expected"), options.get("key"))


def _cancel(words: list[str], options: Options, ledger: Ledger) -> Command:
    queue: Any = options.get("queue", "hold")
    return CancelTurn(_by(options), words[0] if words else None, queue, options.get("reason"))


def _start(words: list[str], options: Options, ledger: Ledger) -> Command:
    return StartTurn(_fence(options, ledger), {"pid": 1}, ledger.now_ms, 60_000, options.get("previous"))


def _step(words: list[str], options: Options, ledger: Ledger) -> Command:
    drafts = [Draft("step.started", {"step": 1}), Draft("message.completed", {"text": words[1], "inContext": True})]
    drafts += [Draft("tool.requested", {"callId": call}) for call in options.get("calls", "").split()]
    return Record(_fence(options, ledger), words[0], tuple(drafts))


def _result(words: list[str], options: Options, ledger: Ledger) -> Command:
    data = {"callId": words[1], "outcome": options.get("outcome", "ok"), "text": ""}
    return Record(_fence(options, ledger), words[0], (Draft("tool.completed", data),))


def _boundary(words: list[str], options: Options, ledger: Ledger) -> Command:
    return Boundary(_fence(options, ledger), words[0], int(words[1]))


def _end(words: list[str], options: Options, ledger: Ledger) -> Command:
    status: Any = words[1]
    flags = words[2:]
    text = next((word for word in flags if word not in ("forced", "recovering")), None)
    error = {"kind": "internal", "message": "It broke.", "retryable": False, "details": {}}
    forced = "forced" in flags
    ending = Ending(
        status, text, error if status == "failed" else None, forced=forced, may_still_run=(7,) if forced else ()
    )
    return EndTurn(_fence(options, ledger), words[0], ending, recovering="recovering" in flags)


def _fence(options: Options, ledger: Ledger) -> int:
    return int(options.get("fence", ledger.fence))


COMMANDS: Mapping[str, Callable[[list[str], Options, Ledger], Command]] = {
    "create": _create,
    "submit": _submit,
    "update": _update,
    "steer": _steer,
    "cancel": _cancel,
    "resume": lambda words, options, ledger: ResumeQueue(_by(options)),
    "close": lambda words, options, ledger: CloseSession(_by(options)),
    "open": lambda words, options, ledger: OpenSession(_by(options)),
    "rename": lambda words, options, ledger: UpdateSession(words[0], _by(options)),
    "start": _start,
    "step": _step,
    "result": _result,
    "boundary": _boundary,
    "end": _end,
}


def play(ledger: Ledger, line: str) -> list[str]:
    """What `line` leads to."""
    name, *rest = shlex.split(line)
    match name:
        case "claim":
            return [f"  fence {ledger.claim()}"]
        case "release":
            ledger.release()
            return []
        case "crash":
            ledger.crash()
            return []
        case "state":
            return _show_state(ledger)
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    command = COMMANDS[name]([word for word in rest if "=" not in word], options, ledger)
    try:
        reply, events = ledger.run(command)
    except Refused as refused:
        details = "".join(f" {name}={value}" for name, value in refused.details.items())
        return [f"  refused: {refused.kind}{details}"]
    return [*map(_show_event, events), _show_reply(reply)]


def _show_event(event: Event) -> str:
    of = "" if event.turn_id is None else f" {event.turn_id}"
    attempt = "" if event.attempt is None else f"#{event.attempt}"
    shown = [f" {name}={_value(event.data[name])}" for name in SHOWN.get(event.type, ()) if name in event.data]
    return f"  {event.seq} {event.type}{of}{attempt}{''.join(shown)}"


def _show_reply(reply: Reply) -> str:
    members = {
        "turn": reply.turn_id,
        "steer": reply.steer_id,
        "joined": list(reply.joined) or None,
        "steered": list(reply.steered) or None,
        "repeated": reply.repeated or None,
        "ended": reply.ended or None,
        "at": reply.seq,
    }
    return "  answer:" + "".join(f" {name}={_value(value)}" for name, value in members.items() if value is not None)


def _show_state(ledger: Ledger) -> list[str]:
    state = ledger.state
    held = "" if state.hold is None else " (held)"
    lines = [f"  {state.status}, running: {state.running or '-'}, queue{held}: {' '.join(state.queue) or '-'}"]
    if state.steers:
        lines.append(f"  steers: {' '.join(state.steers)}")
    for turn in ledger.turns.values():
        joined = "" if turn.host is None else f" in {turn.host}"
        asked = " (cancel requested)" if turn.cancel is not None and not turn.ended else ""
        lines.append(f"  {turn.turn_id}: {turn.status}{joined}{asked}")
    return lines


def _value(value: object) -> str:
    return value if isinstance(value, str) and " " not in value else dumps(value).decode()


def retell(text: str) -> str:
    """`text` with what its commands lead to now."""
    ledger = Ledger()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(">"):
            lines += [line, *play(ledger, line[1:])]
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_story_goes_as_it_was_recorded(path: Path) -> None:
    recorded = path.read_text(encoding="utf-8")
    told = retell(recorded)
    if os.environ.get("HAMES_REWRITE") == "1":
        path.write_text(told, encoding="utf-8")
        recorded = told
    assert told == recorded
