"""How a run of `hames run` ended: its exit code, and the one record that `--json` and `--jsonl` print."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hames.commands.exits import COMPLETED, DENIED, FAILED, LIMIT, USAGE
from hames.commands.output import OutputLost, emit
from hames.protocol.errors import INVALID_PARAMS

GIVEN = frozenset(
    {
        "invalid_config", "capability_unavailable", "credential_missing", "session_not_found", "session_exists",
        "session_deleted",
        "limit_exceeded", "frame_too_large", "cursor_malformed", "cursor_foreign", "cursor_ahead",
    }
)  # fmt: skip
"""Refusals that end with `USAGE`: what was typed or configured is to be changed. The limit is that of a prompt."""

DENIALS = frozenset({"authority_mismatch", "path_outside_mounts", "containment_unavailable"})
"""Refusals that end with `DENIED`: the session may not do that, or not here."""


def exit_code_of(kind: str, *, code: int | None = None) -> int:
    """The exit code of a refusal, so that nothing ran: by its kind, or by its JSON-RPC code where it has none."""
    if kind in GIVEN or code == INVALID_PARAMS:
        return USAGE
    return DENIED if kind in DENIALS else FAILED


def exit_code_of_turn(turn: Mapping[str, Any], *, interrupted: int | None) -> int:
    """The exit code of a turn; `interrupted` is that of what interrupted it, unless it was completed all the same."""
    if turn["status"] == "completed":
        return COMPLETED
    if interrupted is not None:
        return interrupted
    kind = turn.get("outcome", {}).get("error", {}).get("kind")
    return LIMIT if kind == "limit_exceeded" else FAILED


def turn_record(
    session: Mapping[str, Any],
    turn: Mapping[str, Any],
    terminal: Mapping[str, Any],
    *,
    cause: str | None,
    interrupted: int | None,
) -> dict[str, Any]:
    """The record of a turn. `terminal` is the data of its last event; `cause` is why this run did not wait for it."""
    outcome = turn.get("outcome", {})
    record: dict[str, Any] = {
        "status": turn["status"],
        "exitCode": exit_code_of_turn(turn, interrupted=interrupted),
        "sessionId": turn["sessionId"],
        "turnId": turn["turnId"],
        "workspace": session["workspace"],
        "model": session["model"],
        "cursor": turn["cursor"],
    }
    if cause is not None and turn["status"] != "completed":
        record["cause"] = cause
    optional = {name: outcome.get(name) for name in ("text", "error", "cause", "forced", "undelivered")}
    optional |= {name: terminal.get(name) for name in ("usage", "evidence")}
    return record | {name: value for name, value in optional.items() if value is not None and name not in record}


def failure_record(message: str, data: Mapping[str, Any], code: int, **known: Any) -> dict[str, Any]:
    """The record of a run that came to no turn; `data` is that of the error."""
    error = {"kind": "internal", "retryable": False, "details": {}, **data, "message": message}
    return {"status": "failed", "exitCode": code, **known, "error": error}


def interrupted_record(code: int, cause: str, **known: Any) -> dict[str, Any]:
    """The record of a run that was ended before it knew of a terminal."""
    return {"status": "cancelled", "exitCode": code, **known, "cause": cause}


def print_record(record: Mapping[str, Any]) -> None:
    """Print a record outside the event loop; that nobody takes it changes nothing, the exit code tells enough."""
    from hames.protocol.jsontext import dumps

    with suppress(BrokenPipeError, OutputLost):
        emit(dumps(record).decode() + "\n")
