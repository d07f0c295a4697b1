"""`turn/*` and `queue/resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from hames.core.commands import CancelTurn, SteerTurn, SubmitTurn, UpdateTurn
from hames.core.digests import content_digest
from hames.core.limits import LIMITS, check_limit
from hames.core.state import Turn
from hames.core.views import queue_view, turn_view
from hames.engine.ids import new_id
from hames.protocol.errors import InvalidParams
from hames.protocol.jsontext import dumps
from hames.server.handlers.fitting import fitting
from hames.server.handlers.slots import bounded, check_input

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hames.engine.service import Service
    from hames.ports import Committed, Loaded
    from hames.server.connection import Call

MAX_TURNS = 200
"""Turns in one answer of `turn/list`."""


def check_size(params: Mapping[str, Any], limits: Mapping[str, int]) -> None:
    """What is admitted fits into an event, and an event into a frame, however its text is escaped.

    Raises:
        Refused: `limit_exceeded`, naming the limit and the member.
    """
    slots = params.get("input", ())
    bounded(limits, "inputSlots", "input", len(slots), unit="slots")
    labels = "".join(slot.get("label", "") for slot in slots)
    texts = "".join((*(slot.get("text", "") for slot in slots), labels, params.get("instructions", "")))
    bounded(limits, "inputBytes", "input and instructions", len(texts.encode()))
    bounded(limits, "metadataBytes", "labels", len(dumps(labels)))
    for member in ("metadata", "_meta"):
        if member in params:
            bounded(limits, "metadataBytes", member, len(dumps(params[member])))


def check_limits(wish: dict[str, Any], ceiling: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """Limits that a caller may ask for: within the table, and not above `ceiling` where that names one.

    Raises:
        InvalidParams: naming the limit.
    """
    for name, value in wish.items():
        if name not in LIMITS:
            continue
        try:
            check_limit(name, value)
        except ValueError as error:
            raise InvalidParams(f"limits.{name}", str(error)) from error
        if name in ceiling and value > ceiling[name]:
            raise InvalidParams(f"limits.{name}", f"may not be above the {what}'s {ceiling[name]}, not {value}")
    return wish


async def turn_submit(call: Call) -> dict[str, Any]:
    """Admit a turn; the answer is the receipt."""
    params = call.params
    service = await call.service()
    session_id = params["sessionId"]
    check_size(params, call.host.limits)
    snapshot = await service.snapshot(session_id)
    command = SubmitTurn(
        turn_id=params.get("turnId") or new_id("t"),
        input=await check_input(params["input"], call.host.limits),
        digest=content_digest(params),
        by=call.by,
        delivery=params.get("delivery", "queue"),
        key=params.get("idempotencyKey"),
        resume_queue=params.get("resumeQueue", False),
        limits=check_limits(params.get("limits", {}), snapshot["limits"], what="session"),
        instructions=params.get("instructions"),
        meta=params.get("_meta"),
        queue_limit=call.host.limits["queueLength"],
        repaired=call.repaired,
    )
    committed = await service.submit(session_id, command)
    call.connection.sessions.add(session_id)
    turn_id = committed.reply.turn_id or command.turn_id
    return {
        "turn": await view_after(service, committed, turn_id),
        "queue": queue_view(committed.state),
        "cursor": committed.reply_cursor,
    }


async def view(service: Service, session_id: str, turn_id: str, cursor: str | None = None) -> dict[str, Any]:
    """A turn as published, as it stands now; `cursor` where the answer must name an older place."""
    loaded = await service.load(session_id)
    turn, head = await service.store.turn(session_id, turn_id)
    return _view(turn, loaded, cursor or head)


async def view_after(service: Service, committed: Committed, turn_id: str) -> dict[str, Any]:
    """A turn as published, as it stood right after a commit; read only where the commit does not hold it."""
    state = committed.state
    turn = state.turns.get(turn_id)
    if turn is None or turn.status == "running" or committed.reply.repeated:
        return await view(service, state.session_id, turn_id, committed.reply_cursor)
    return turn_view(turn, state.session_id, committed.reply_cursor, held=state.hold is not None)


def _view(turn: Turn, loaded: Loaded, cursor: str) -> dict[str, Any]:
    owner = loaded.owner
    runner = "none" if owner is None or not owner.alive else "local" if owner.mine else "remote"
    return turn_view(
        turn,
        loaded.state.session_id,
        cursor,
        held=loaded.state.hold is not None,
        runner=runner,  # type: ignore[arg-type]
    )


async def turn_update(call: Call) -> dict[str, Any]:
    """Change a queued turn."""
    params = call.params
    if "input" not in params and "delivery" not in params:
        raise InvalidParams("", "must hold `input` or `delivery`: there is nothing to change")
    service = await call.service()
    check_size(params, call.host.limits)
    slots = await check_input(params["input"], call.host.limits) if "input" in params else None
    command = UpdateTurn(params["turnId"], call.by, slots, params.get("delivery"))
    committed = await service.commit(params["sessionId"], command)
    return {
        "turn": await view_after(service, committed, params["turnId"]),
        "cursor": committed.cursor,
    }


async def turn_steer(call: Call) -> dict[str, Any]:
    """Speak to the running turn."""
    params = call.params
    service = await call.service()
    check_size(params, call.host.limits)
    command = SteerTurn(
        steer_id=new_id("r"),
        input=await check_input(params["input"], call.host.limits),
        digest=content_digest(params),
        by=call.by,
        expected=params.get("expectedTurnId"),
        key=params.get("idempotencyKey"),
        repaired=call.repaired,
    )
    committed = await service.commit(params["sessionId"], command)
    reply = committed.reply
    return {
        "turn": await view(service, params["sessionId"], reply.turn_id or "", committed.reply_cursor),
        "steerId": reply.steer_id,
        "cursor": committed.reply_cursor,
    }


async def turn_cancel(call: Call) -> dict[str, Any]:
    """Make a cancel durable; the turn ends soon after."""
    params = call.params
    service = await call.service()
    command = CancelTurn(call.by, params.get("turnId"), params.get("queue", "hold"), params.get("reason"))
    committed = await service.cancel(params["sessionId"], command)
    turn_id = committed.reply.turn_id or ""
    return {
        "turn": await view(service, params["sessionId"], turn_id),
        "cursor": committed.cursor,
    }


async def turn_get(call: Call) -> dict[str, Any]:
    """A turn as it stands."""
    service = await call.service()
    turn = await view(service, call.params["sessionId"], call.params["turnId"])
    return {"turn": turn, "cursor": turn["cursor"]}


async def turn_list(call: Call) -> dict[str, Any]:
    """Turns, newest first."""
    params = call.params
    service = await call.service()
    loaded = await service.load(params["sessionId"])
    limit = min(params.get("limit", 50), MAX_TURNS)
    turns, cursor = await service.store.turns(
        params["sessionId"], before=params.get("before"), limit=limit, status=params.get("status")
    )
    shown = fitting([_view(turn, loaded, cursor) for turn in turns], call.host.limits["pageBytes"])
    result: dict[str, Any] = {"turns": shown, "cursor": cursor}
    if (len(turns) == limit or len(shown) < len(turns)) and turns[len(shown) - 1].n > 1:
        result["nextBefore"] = turns[len(shown) - 1].n
    return result


async def turn_wait(call: Call) -> dict[str, Any]:
    """Wait for the end; the terminal goes out to this connection's subscriptions first."""
    params = call.params
    session_id, turn_id = params["sessionId"], params["turnId"]
    service = await call.service()
    timeout_ms = params.get("timeoutMs")
    with anyio.move_on_after(None if timeout_ms is None else timeout_ms / 1000) as timed:
        turn, cursor, why = await service.wait(session_id, turn_id)
    if timed.cancelled_caught:
        return {"turn": await view(service, session_id, turn_id), "why": "timeout"}
    if turn.end_seq is not None:
        for subscription in list(call.connection.subscriptions.values()):
            if subscription.session_id == session_id:
                await subscription.sent_through(turn.end_seq)
    await call.connection.answered(session_id)
    if turn.end_seq is None:
        return {"turn": await view(service, session_id, turn_id), "why": why}
    return {"turn": turn_view(turn, session_id, cursor), "why": why}


async def queue_resume(call: Call) -> dict[str, Any]:
    """Let a held queue go on."""
    service = await call.service()
    committed = await service.resume_queue(call.params["sessionId"], call.by)
    call.connection.sessions.add(call.params["sessionId"])
    return {"queue": queue_view(committed.state), "cursor": committed.cursor}
