"""Background processes, as methods show them and events tell of them."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from hames.protocol.base import Count, Id, Positive
from hames.protocol.objects import By, Reference

ExitWhy = Literal[
    "exited", "stopped", "session_closed", "limit", "cancelled", "not_started", "owner_left", "owner_died"
]
"""Why a background process ended: by itself; a client or the model stopped it; its session was closed; its lifetime was
over; the call that started it was cancelled before it was answered; it could not be started (see `error`); the server
that ran it left, in good order or by being killed."""


class StopRequest(TypedDict):
    """Who wants a background process to end."""

    by: By
    at: str
    cause: Literal["client", "session_closed"]


class Process(TypedDict):
    """A background process as it stands, and how it ended, as `process.exited` told."""

    processId: Id
    name: NotRequired[Id]
    """What the model calls it: no two that run in a session have one name."""
    status: Literal["running", "stopping", "exited"]
    runner: Literal["local", "remote", "none"]
    """Who runs it: this server, another one, or nobody. One that is `running` with nobody has ended with its server;
    who runs the session next says so."""
    command: str
    """In one line of at most 200 characters."""
    turnId: Id
    """The turn that started it."""
    callId: Id
    startedAt: str
    stopRequested: NotRequired[StopRequest]
    outputBytes: Count
    """Written so far, of which the newest `limits.processOutputBytes` are kept."""
    endedAt: NotRequired[str]
    why: NotRequired[ExitWhy]
    exitCode: NotRequired[int]
    signal: NotRequired[Positive]
    killed: NotRequired[Count]
    met: NotRequired[dict[str, int]]
    artifact: NotRequired[Reference]
    """Its output: the newest bytes, where it wrote more than is kept."""
    error: NotRequired[dict[str, Any]]
    mayStillRun: NotRequired[list[Count]]
