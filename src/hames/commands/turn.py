"""The run of `hames run` inside the event loop: admit a turn, show it, wait for its end, tell how it ended.

create or resume the session -> submit -> show events until the terminal -> record and exit code
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
from anyio.abc import TaskStatus

from hames.commands.exits import FAILED, INTERRUPTED, TERMINATED, USAGE
from hames.commands.local import CallFailed, LocalClient, local_client, message_of
from hames.commands.notes import LIMIT_OPTIONS, limits_that_do_not_hold, sandbox_in_force, unnamed_model
from hames.commands.record import exit_code_of, failure_record, interrupted_record, print_record, turn_record
from hames.commands.showing import Showing
from hames.commands.streams import Streams
from hames.commands.telling import model_name
from hames.config import Config
from hames.core.records import record
from hames.protocol.errors import HamesError
from hames.protocol.jsontext import dumps

Form = Literal["text", "json", "jsonl"]


@record
class Request:
    """What was asked for. `workspace` is an absolute real path, None for the session's own."""

    prompt: str
    workspace: str | None
    session_id: str | None
    model: str | None
    new_id: str | None
    title: str | None
    tools: tuple[str, ...] | None
    limits: Mapping[str, int]
    form: Form


@dataclass(slots=True)
class _Stop:
    """That the run shall end before its turn does: with which exit code, and why."""

    code: int | None = None
    why: str = ""
    waiting: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def request(self, code: int, why: str) -> None:
        """End the wait for the turn; the first reason counts."""
        if self.code is None:
            self.code, self.why = code, why
        self.waiting.cancel()


async def run_turn(request: Request, config: Config, environ: Mapping[str, str]) -> int:
    """Run it, print it; the exit code."""
    stop = _Stop()
    streams = Streams(on_broken=lambda: stop.request(FAILED, "nobody takes the output"))
    showing = Showing(streams, form=request.form)
    record: dict[str, Any] | None = None
    async with anyio.create_task_group() as tasks:
        await tasks.start(_watch_signals, stop, tasks.cancel_scope)
        client = LocalClient(
            on_event=showing.event,
            on_notification=showing.notification,
            streams=streams,
            whole_texts=request.form == "text",
        )
        try:
            async with local_client(config, environ, client):
                record = await _Run(request, config, client, streams, showing, stop).run()
        except (CallFailed, HamesError) as error:
            record = _refused(error, request, streams, showing)
        _finish(record, streams, showing)
        await streams.finish()
        tasks.cancel_scope.cancel()
    if record is None:
        # A second signal: what is known is told, unless nobody takes it.
        record = interrupted_record(stop.code or FAILED, stop.why, **showing.ids)
        if request.form != "text" and not streams.pending_bytes:
            print_record(record)
    return int(record["exitCode"]) if streams.lost is None else FAILED


async def _watch_signals(
    stop: _Stop, everything: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
        task_status.started()
        async for number in received:
            if stop.code is not None:
                everything.cancel()
            stop.request(INTERRUPTED if number == signal.SIGINT else TERMINATED, signal.Signals(number).name)


class _Run:
    """One turn, from its session to its record."""

    def __init__(
        self, request: Request, config: Config, client: LocalClient, streams: Streams, showing: Showing, stop: _Stop
    ) -> None:
        self._request = request
        self._config = config
        self._client = client
        self._streams = streams
        self._showing = showing
        self._stop = stop

    async def run(self) -> dict[str, Any]:
        """The record.

        Raises:
            CallFailed: the session or the turn was refused.
        """
        session = await self._session()
        self._showing.ids["sessionId"] = session["sessionId"]
        turn = await self._submit(session["sessionId"])
        self._showing.ids["turnId"] = turn["turnId"]
        turn, why = await self._end_of(turn)
        await self._client.taken()
        turn = await self._whole(turn)
        return turn_record(
            session,
            turn,
            self._showing.terminal or {},
            cause=None if why == "ended" else self._stop.why or why,
            interrupted=self._stop.code,
        )

    async def _whole(self, turn: Mapping[str, Any]) -> Mapping[str, Any]:
        """The turn with its whole answer: a record is never cut."""
        outcome = turn.get("outcome", {})
        if "text" not in outcome:
            return turn
        text = await self._client.text_of(turn["sessionId"], outcome["text"])
        return {**turn, "outcome": {**outcome, "text": text}}

    async def _session(self) -> Mapping[str, Any]:
        wish = self._request
        answer = await (self._made() if wish.session_id is None else self._resumed(wish.session_id))
        session: Mapping[str, Any] = answer["session"]
        self._showing.note(_about(session))
        backend = answer["snapshot"]["sandbox"]["backend"]
        for note in sandbox_in_force(self._config, backend, is_new=wish.session_id is None):
            self._streams.note(note)
        if wish.session_id is not None:
            for note in limits_that_do_not_hold(self._config, answer["snapshot"]["limits"], wish.limits):
                self._streams.note(note)
        elif wish.model is None and self._config.get("model") is None:
            self._streams.note(unnamed_model(session["model"], self._config))
        return session

    async def _made(self) -> Mapping[str, Any]:
        """A new session."""
        wish = self._request
        optional: dict[str, Any] = {
            "sessionId": wish.new_id,
            "model": wish.model,
            "title": wish.title,
            "limits": self._ceiling() or None,
            "tools": None if wish.tools is None else list(wish.tools),
        }
        params = {name: value for name, value in optional.items() if value is not None}
        params |= {"workspace": wish.workspace, "subscribe": self._subscription()}
        answer: Mapping[str, Any] = await self._client.request("session/create", params)
        return answer

    async def _resumed(self, session_id: str) -> Mapping[str, Any]:
        """The session that was named, with the model that was."""
        wish = self._request
        params: dict[str, Any] = {"sessionId": session_id, "subscribe": self._subscription()}
        if wish.workspace is not None:
            params["expect"] = {"workspace": wish.workspace}
        if wish.model is not None:
            # Only of the session that was meant. It subscribes here and not below again: an event is told once.
            await self._client.request("session/resume", {**params, "own": "observe"})
            del params["subscribe"]
            await self._client.request("session/update", {"sessionId": session_id, "model": wish.model})
        answer: Mapping[str, Any] = await self._client.request("session/resume", params)
        return answer

    def _subscription(self) -> dict[str, Any]:
        return {"deltas": self._request.form == "text"}

    def _ceiling(self) -> dict[str, int]:
        """Limits that the new session must allow for this turn; the others keep their defaults for later turns."""
        defaults = self._config.limits
        return {name: value for name, value in self._request.limits.items() if value > defaults[name]}

    async def _submit(self, session_id: str) -> Mapping[str, Any]:
        # The id is ours, so that no event of the turn comes before it is known.
        self._showing.turn_id = f"t-{secrets.token_hex(10)}"
        params: dict[str, Any] = {
            "sessionId": session_id,
            "turnId": self._showing.turn_id,
            "input": [{"type": "text", "text": self._request.prompt}],
            "resumeQueue": True,
        }
        if self._request.limits:
            params["limits"] = dict(self._request.limits)
        answer = await self._client.request("turn/submit", params)
        turn: Mapping[str, Any] = answer["turn"]
        return turn

    async def _end_of(self, turn: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
        """The turn at its end, and why the wait ended; cancels it when the run shall end, or nothing can end it."""
        names = {"sessionId": turn["sessionId"], "turnId": turn["turnId"]}
        answer: Mapping[str, Any] = {"turn": turn, "why": "interrupted"}
        with self._stop.waiting:
            answer = await self._client.request("turn/wait", names)
        if answer["why"] == "ended":
            return answer["turn"], "ended"
        why = str(answer["why"])
        cancel = {**names, "queue": "continue", "reason": self._stop.why or why}
        await self._client.request("turn/cancel", cancel)
        settle_ms = self._config.limits["settleMs"]
        answer = await self._client.request("turn/wait", {**names, "timeoutMs": settle_ms})
        return answer["turn"], why


_OPTIONS: Mapping[str, str] = {
    "sessionId": "--id",
    "title": "--title",
    "model": "--model",
    "workspace": "--workspace",
    "tools": "--tools",
    **{f"limits.{name}": option for name, option in LIMIT_OPTIONS.items()},
}
"""What a person types for a member of a request."""


def _about(session: Mapping[str, Any]) -> str:
    return f"session {session['sessionId']}, model {model_name(session['model'])}, in {session['workspace']}"


def _refused(error: CallFailed | HamesError, request: Request, streams: Streams, showing: Showing) -> dict[str, Any]:
    """The record of a refusal, which is told to a person too."""
    streams.note(f"hames: {_typed(message_of(error), request)}")
    if isinstance(error, HamesError):
        return failure_record(error.message, error.data(), exit_code_of(error.kind), **showing.ids)
    message, code = _typed(error.message, request), exit_code_of(error.kind, code=error.code)
    if error.kind:
        return failure_record(message, error.data, code, **showing.ids)
    data = {"kind": "invalid_config" if code == USAGE else "internal", "details": dict(error.data)}
    return failure_record(message, data, code, **showing.ids)


def _typed(message: str, request: Request) -> str:
    """`message` with the option that was typed for the member of a request."""
    for member, option in _OPTIONS.items():
        if message.startswith(f"params.{member} "):
            typed = option if member != "sessionId" or request.session_id is None else "--session"
            return typed + message.removeprefix(f"params.{member}")
    return message


def _finish(record: Mapping[str, Any], streams: Streams, showing: Showing) -> None:
    """Print the record, and for people how the turn ended if it did not end well."""
    if showing.form != "text":
        streams.line(dumps(record))
    elif streams.is_joined or record["status"] == "completed":
        showing.end()
    if "turnId" not in record or record["status"] == "completed":
        return
    if "error" in record:
        streams.note(f"hames: {record['error']['message']} [{record['error']['kind']}]")
    else:
        streams.note(f"hames: the turn is {record['status']}: {record.get('cause', 'no cause is known')}")
