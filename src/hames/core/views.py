"""The published forms of session, turn, queue and items, from the folded state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hames.core.session import Event
from hames.core.state import State, Turn

ITEM_TYPES: Mapping[str, str] = {
    "turn.queued": "user",
    "turn.steered": "user",
    "message.completed": "message",
    "reasoning.completed": "reasoning",
    "tool.requested": "toolCall",
    "tool.completed": "toolResult",
}
"""Event types that are items of the conversation, with the item's kind."""

Runner = Literal["local", "remote", "none"]


def turn_view(
    turn: Turn, session_id: str, cursor: str, *, held: bool = False, runner: Runner = "none"
) -> dict[str, Any]:
    """A turn as published."""
    view: dict[str, Any] = {
        "turnId": turn.turn_id,
        "sessionId": session_id,
        "status": turn.status,
        "delivery": turn.delivery,
        "runner": runner if turn.status == "running" else "none",
        "queuedAt": turn.queued_at,
        "cursor": cursor,
    }
    optional = {
        "held": True if held and turn.status == "queued" else None,
        "hostTurnId": turn.host,
        "attempt": turn.attempt or None,
        "cancelRequested": turn.cancel,
        "startedAt": turn.started_at,
        "endedAt": turn.ended_at,
        "deadlineAt": turn.deadline_at,
        "outcome": turn.outcome,
    }
    return view | {name: value for name, value in optional.items() if value is not None}


def queue_view(state: State) -> dict[str, Any]:
    """The queue as published."""
    view: dict[str, Any] = {"length": len(state.queue), "turnIds": list(state.queue)}
    if state.hold is not None:
        view["held"] = state.hold
    return view


def session_view(
    state: State,
    snapshot: Mapping[str, Any],
    metadata: Mapping[str, Any] | None,
    cursor: str,
    owner: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """A session as published."""
    view: dict[str, Any] = {
        "sessionId": state.session_id,
        "status": state.status,
        "createdAt": state.created_at,
        "updatedAt": state.updated_at,
        "workspace": snapshot["workspace"]["path"],
        "cwd": snapshot["cwd"],
        "model": state.effective(snapshot)["model"],
        "snapshotDigest": state.snapshot_digest,
        "turns": state.count,
        "queue": queue_view(state),
        "headSeq": state.seq,
        "cursor": cursor,
    }
    optional = {
        "title": state.title,
        "metadata": metadata,
        "runningTurnId": state.running,
        "owner": owner,
    }
    return view | {name: value for name, value in optional.items() if value is not None}


def item_view(event: Event, cursor: str) -> dict[str, Any]:
    """An event of `ITEM_TYPES` as an item; `cursor` is its event's, to page back from."""
    data = dict(event.data)
    item_id = data.get("itemId") or data.get("callId") or data.get("steerId") or event.turn_id
    item: dict[str, Any] = {"itemId": item_id, "kind": ITEM_TYPES[event.type], "data": data, "cursor": cursor}
    if event.turn_id is not None:
        item["turnId"] = event.turn_id
    return item
