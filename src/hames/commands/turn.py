"""The run of `hames run` inside the event loop: admit a turn, show it, wait for its end, tell how it ended.

    create or resume the session -> submit -> show events until the terminal -> record and exit code
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
from anyio.abc import TaskStatus

from hames.commands.exits import COMPLETED, FAILED, INTERRUPTED, LIMIT, TERMINATED
from hames.commands.local import CallFailed, LocalClient, local_client, message_of
from hames.commands.run import exit_code_of, failure_record
from hames.commands.showing import Showing
from hames.commands.streams import Streams
from hames.commands.telling import model_name
from hames.config import Config
from hames.protocol.errors import HamesError
from hames.protocol.jsontext import dumps

Form = Literal["text", "json", "jsonl"]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for. `workspace` is an absolute real path, None for the session's own."""

    prompt: str
    workspace: str | None
    session_id: str | None
    model: str | None
    title: str | None
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
    streams = Streams(on_broken=lambda: stop.request(FAILED, "stdout is closed"))
    showing = Showing(streams, form=request.form)
    record: dict[str, Any] = {}
    async with anyio.create_task_group() as tasks:
        await tasks.start(_watch_signals, stop, tasks.cancel_scope)
        client = LocalClient(on_event=showing.event, on_notification=showing.notification, streams=streams)
        try:
            async with local_client(config, environ, client) as client:
                record = await _Run(request, config, client, showing, stop).run()
        except (CallFailed, HamesError) as error:
            record = _refused(error, showing)
        _finish(record, streams, showing, stop)
        await streams.finish()
        tasks.cancel_scope.cancel()
    if not record:
        return stop.code or FAILED
    return int(record["exitCode"])


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
        self, request: Request, config: Config, client: LocalClient, showing: Showing, stop: _Stop
    ) -> None:
        self._request = request
        self._config = config
        self._client = client
        self._showing = showing
        self._stop = stop

    async def run(self) -> dict[str, Any]:
        """The record.

        Raises:
            CallFailed: the session or the turn was refused.
        """
        session = await self._session()
        self._showing.session_id = session["sessionId"]
        turn = await self._submit(session["sessionId"])
        self._showing.turn_id = turn["turnId"]
        turn, why = await self._end_of(turn)
        return _record(session, turn, why, self._showing, self._stop)

    async def _session(self) -> Mapping[str, Any]:
        wish = self._request
        subscribe = {"deltas": wish.form == "text"}
        if wish.session_id is None:
            params: dict[str, Any] = {"workspace": wish.workspace, "subscribe": subscribe}
            optional = {"model": wish.model, "title": wish.title, "limits": self._ceiling()}
            params |= {name: value for name, value in optional.items() if value}
            answer = await self._client.request("session/create", params)
        else:
            params = {"sessionId": wish.session_id, "subscribe": subscribe}
            if wish.workspace is not None:
                params["expect"] = {"workspace": wish.workspace}
            answer = await self._client.request("session/resume", params)
        session: Mapping[str, Any] = answer["session"]
        self._showing.note(_about(session, self._config, wish))
        return session

    def _ceiling(self) -> dict[str, int]:
        """Limits that the new session must allow for this turn; the others keep their defaults for later turns."""
        defaults = self._config.limits
        return {name: value for name, value in self._request.limits.items() if value > defaults[name]}

    async def _submit(self, session_id: str) -> Mapping[str, Any]:
        params: dict[str, Any] = {
            "sessionId": session_id,
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


def _about(session: Mapping[str, Any], config: Config, wish: Request) -> str:
    """The session, and which model was taken when none was named."""
    line = f"session {session['sessionId']}, model {model_name(session['model'])}, in {session['workspace']}"
    if wish.session_id is None and wish.model is None and config.get("model") is None:
        line += "\nno model is configured: "
        if session["model"]["provider"] == "offline":
            line += "this is the offline interpreter; see `hames config list`"
        else:
            line += f"the server at {session['model'].get('baseUrl')} is used"
    return line


def _record(
    session: Mapping[str, Any], turn: Mapping[str, Any], why: str, showing: Showing, stop: _Stop
) -> dict[str, Any]:
    """How the turn ended, with its exit code."""
    outcome = turn.get("outcome", {})
    terminal = showing.terminal or {}
    record: dict[str, Any] = {
        "status": turn["status"],
        "exitCode": _exit_code(turn, stop),
        "sessionId": turn["sessionId"],
        "turnId": turn["turnId"],
        "workspace": session["workspace"],
        "model": session["model"],
        "cursor": turn["cursor"],
    }
    if why != "ended":
        record["cause"] = stop.why or why
    for name in ("text", "error", "cause", "forced", "undelivered"):
        if name in outcome and name not in record:
            record[name] = outcome[name]
    for name in ("usage", "evidence"):
        if name in terminal:
            record[name] = terminal[name]
    return record


def _exit_code(turn: Mapping[str, Any], stop: _Stop) -> int:
    if turn["status"] == "completed":
        return COMPLETED
    if stop.code is not None:
        return stop.code
    kind = turn.get("outcome", {}).get("error", {}).get("kind")
    return LIMIT if kind == "limit_exceeded" else FAILED


def _refused(error: CallFailed | HamesError, showing: Showing) -> dict[str, Any]:
    code = error.code if isinstance(error, CallFailed) else None
    data = error.data if isinstance(error, CallFailed) else error.data()
    kind = "invalid_config" if code is not None and not error.kind else error.kind
    known = {} if showing.session_id is None else {"sessionId": showing.session_id}
    message = error.message
    return failure_record(message, {"kind": kind, **data}, exit_code_of(kind, code=code), **known)


def _finish(record: dict[str, Any], streams: Streams, showing: Showing, stop: _Stop) -> None:
    """Print the record, or for people what they did not see yet."""
    showing.end()
    if showing.form != "text":
        streams.line(dumps(record))
        return
    error = record.get("error")
    if error is not None:
        streams.note(f"hames: {error['message']} [{error['kind']}]")
    elif record["status"] != "completed":
        streams.note(f"hames: the turn is {record['status']}: {record.get('cause', 'nobody runs it')}")
