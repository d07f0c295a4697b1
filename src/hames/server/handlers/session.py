"""`session/*` and `usage/get`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hames.core.commands import CompactContext, SubmitTurn
from hames.core.digests import content_digest
from hames.core.limits import SESSION_LIMITS
from hames.core.session import Event
from hames.core.usage import usage_total
from hames.core.views import ITEM_TYPES, item_view, queue_view, session_view, turn_view
from hames.engine.ids import new_id
from hames.engine.service import fresh_session_id, owner_view
from hames.protocol.errors import InvalidParams, Refused
from hames.protocol.jsontext import dumps, reread
from hames.server.handlers.events import subscribe
from hames.server.handlers.fitting import VIEW_ITEMS_BYTES, VIEW_TURNS_BYTES, fitting
from hames.server.handlers.slots import bounded, check_input
from hames.server.handlers.turn import check_limits, check_size, view
from hames.server.subscriptions import DELETED

if TYPE_CHECKING:
    from hames.engine.service import Service
    from hames.ports import Loaded, Page
    from hames.server.connection import Call, Connection
    from hames.server.subscriptions import Subscription

ITEMS = 100
"""Items of a view unless the caller asks for another number; `before` pages further back."""

MAX_ITEMS = 1_000
SESSIONS = 50
MAX_SESSIONS = 200


async def session_create(call: Call) -> dict[str, Any]:
    """Make a session, durable when answered; the same key gives the same session for ever."""
    params = call.params
    service = await call.service()
    session_id = params.get("sessionId") or fresh_session_id()
    check_size(params, call.host.limits)
    bounded(call.host.limits, "instructionsBytes", "instructions", len(dumps(params.get("instructions", ""))))
    check_size(params.get("turn", {}), call.host.limits)
    ceiling = {name: call.host.limits[name] for name in SESSION_LIMITS}
    check_limits(params.get("limits", {}), ceiling, what="server")
    first = await _first_turn(call, params)
    committed = await service.create(
        params, session_id=session_id, digest=content_digest(params), by=call.by, turn=first
    )
    session_id = committed.reply.session_id or session_id
    call.connection.sessions.add(session_id)
    # Who runs it is told by `ownership`: the lease is taken behind this answer.
    loaded = replace(await service.load(session_id), owner=None)
    call.after.append(partial(call.host.warm_up_turns, loaded.state.effective(loaded.snapshot)["model"]["provider"]))
    result: dict[str, Any] = {
        "session": _session(loaded),
        "snapshot": loaded.snapshot,
        "cursor": committed.reply_cursor,
    }
    if first is not None and committed.reply.turn_id is not None:
        result["turn"] = await view(service, session_id, committed.reply.turn_id, committed.reply_cursor)
    if "subscribe" in params:
        subscribed = await subscribe(call, session_id, params["subscribe"])
        result["subscriptionId"] = subscribed["subscriptionId"]
    return result


async def _first_turn(call: Call, params: dict[str, Any]) -> SubmitTurn | None:
    wish = params.get("turn")
    if wish is None:
        return None
    ceiling = params.get("limits", {})
    return SubmitTurn(
        turn_id=wish.get("turnId") or new_id("t"),
        input=await check_input(wish["input"], call.host.limits, "turn.input"),
        digest=content_digest(wish),
        by=call.by,
        limits=check_limits(wish.get("limits", {}), ceiling, what="session"),
        instructions=wish.get("instructions"),
        meta=params.get("_meta"),
        repaired=call.repaired,
    )


def _session(loaded: Loaded) -> dict[str, Any]:
    owner = None if loaded.owner is None else owner_view(loaded.owner)
    return session_view(loaded.state, loaded.snapshot, loaded.metadata, loaded.cursor, owner)


def _result(loaded: Loaded) -> dict[str, Any]:
    return {"session": _session(loaded), "snapshot": loaded.snapshot, "cursor": loaded.cursor}


async def session_resume(call: Call) -> dict[str, Any]:
    """Attach; answered from the log at once."""
    params = call.params
    service = await call.service()
    session_id = params["sessionId"]
    loaded = await service.resume(
        session_id,
        expect=params.get("expect", {}),
        own=params.get("own", "prefer"),
        recover=params.get("recover", "continue"),
        by=call.by,
    )
    call.connection.sessions.add(session_id)
    result = _result(loaded)
    async with call.connection.room_for_page(call.connection.read_slots):
        result["view"] = await _view(service, loaded, None, ITEMS)
    if "subscribe" in params:
        subscribed = await subscribe(call, session_id, params["subscribe"], default_after=loaded.cursor)
        result["subscriptionId"] = subscribed["subscriptionId"]
    return result


async def session_get(call: Call) -> dict[str, Any]:
    """Read a session; with `view` its newest items."""
    params = call.params
    service = await call.service()
    loaded = await service.load(params["sessionId"])
    result = _result(loaded)
    if params.get("view", False):
        limit = min(params.get("limit", ITEMS), MAX_ITEMS)
        async with call.connection.room_for_page(call.connection.read_slots):
            result["view"] = await _view(service, loaded, params.get("before"), limit)
    return result


async def _view(service: Service, loaded: Loaded, before: str | None, limit: int) -> dict[str, Any]:
    state = loaded.state
    lines, more = await _item_lines(service, loaded, before, limit)
    turns, cursor = await service.store.turns(state.session_id, before=None, limit=20, status=None)
    held = state.hold is not None
    return {
        "items": [item_view(Event.of(line["event"]), line["cursor"]) for line in lines],
        "turns": fitting([turn_view(turn, state.session_id, cursor, held=held) for turn in turns], VIEW_TURNS_BYTES),
        "queue": queue_view(state),
        "usage": usage_total(state.usage),
        "hasMore": more,
    }


async def _item_lines(
    service: Service, loaded: Loaded, before: str | None, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """The newest events that are items, of all or of those before a cursor; and whether there may be older ones."""

    async def read(**where: str) -> Page:
        return await service.store.read(
            loaded.state.session_id,
            limit=limit,
            max_bytes=min(service.world.limits["pageBytes"], VIEW_ITEMS_BYTES),
            types=tuple(ITEM_TYPES),
            **where,
        )

    page = await read(before=loaded.cursor if before is None else before)
    lines = page.lines.splitlines()
    if before is None:
        # A cursor is exclusive: the head's own event stands behind the page.
        lines += (await read(after=page.cursor)).lines.splitlines()
    newest = [reread(b"{" + line + b"}") for line in lines[-limit:]]
    shown = fitting(newest[::-1], VIEW_ITEMS_BYTES)[::-1]
    return shown, len(shown) == limit or len(shown) < len(lines)


async def session_list(call: Call) -> dict[str, Any]:
    """Sessions, newest first."""
    params = call.params
    service = await call.service()
    await service.opened()
    limit = min(params.get("limit", SESSIONS), MAX_SESSIONS)
    page = params.get("page")
    if page is not None and not (page.isascii() and page.isdigit()):
        raise InvalidParams("page", f"must be what `nextPage` gave, not {page[:40]!r}")
    async with call.connection.room_for_page(call.connection.read_slots):
        found = await service.store.sessions(
            workspace=params.get("workspace"),
            query=params.get("query"),
            before=None if page is None else int(page),
            limit=limit,
        )
    shown = fitting([_session(loaded) for _, loaded in found], call.host.limits["pageBytes"])
    result: dict[str, Any] = {"sessions": shown}
    if len(found) == limit or len(shown) < len(found):
        result["nextPage"] = str(found[len(shown) - 1][0])
    return result


async def session_update(call: Call) -> dict[str, Any]:
    """Change the title or the model."""
    params = call.params
    if not params.keys() & {"title", "model"}:
        raise InvalidParams("", "must have `title` or `model`")
    service = await call.service()
    committed = await service.update(params["sessionId"], params.get("title"), params.get("model"), call.by)
    loaded = await service.load(params["sessionId"])
    effective = "nextTurn" if "model" in params and committed.state.running is not None else "now"
    return {"session": _session(loaded), "effective": effective, "cursor": committed.cursor}


async def session_compact(call: Call) -> dict[str, Any]:
    """Ask for a shorter context with the next model request."""
    service = await call.service()
    committed = await service.commit(call.params["sessionId"], CompactContext(call.by))
    return {"effective": "nextRequest", "cursor": committed.cursor}


async def session_close(call: Call) -> dict[str, Any]:
    """Cancel what runs, close; answered when nothing of the session runs."""
    service = await call.service()
    # Others of the session go on once that is durable: a close may wait for a tool to be reaped.
    loaded = await service.close(call.params["sessionId"], call.by, call.release)
    for subscription in list(call.connection.subscriptions.values()):
        if subscription.session_id == call.params["sessionId"]:
            await subscription.sent_through(loaded.state.seq)
    return _result(loaded)


async def session_delete(call: Call) -> dict[str, Any]:
    """Cancel what runs, remove the session; answered when nothing of it runs and it is gone for everybody."""
    from hames.engine.deletion import delete_session

    session_id = call.params["sessionId"]
    service = await call.service()

    async def settled(seq: int) -> None:
        for subscription in followers(call.connection):
            await subscription.sent_through(seq)

    def followers(connection: Connection) -> list[Subscription]:
        return [each for each in connection.subscriptions.values() if each.session_id == session_id]

    expect = call.params.get("expect", {})
    at = await delete_session(service, session_id, expect=expect, by=call.by, closing=call.release, settled=settled)
    for connection in tuple(call.host.connections):
        connection.sessions.discard(session_id)
        for subscription in followers(connection):
            subscription.stop(DELETED)
    return {"sessionId": session_id, "deletedAt": at}


async def usage_get(call: Call) -> dict[str, Any]:
    """Usage of the session, or of one turn."""
    params = call.params
    service = await call.service()
    loaded = await service.load(params["sessionId"])
    if "turnId" not in params:
        return {"usage": usage_total(loaded.state.usage), "cursor": loaded.cursor}
    turn, cursor = await service.store.turn(params["sessionId"], params["turnId"])
    if turn.host is not None:
        raise Refused("turn_joined", turnId=turn.turn_id, hostTurnId=turn.host)
    return {"usage": usage_total(turn.usage), "cursor": cursor}
