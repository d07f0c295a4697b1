"""`events/read`, `events/subscribe`, `events/unsubscribe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from hames.engine.ids import new_id
from hames.protocol.errors import InvalidParams, Refused
from hames.protocol.jsontext import reread
from hames.server.subscriptions import Subscription

if TYPE_CHECKING:
    from hames.engine.service import Service
    from hames.server.connection import Call


async def events_read(call: Call) -> dict[str, Any]:
    """A page; with `waitMs`, wait for the first event when there is none yet."""
    params = call.params
    if "after" in params and "before" in params:
        raise InvalidParams("before", "cannot stand beside `after`; a page goes one way")
    service = await call.service()
    head = (await service.load(params["sessionId"])).state.seq
    wait_ms = min(params.get("waitMs", 0), call.host.limits["waitMs"])
    result = await _read(call, service)
    if not result["events"] and wait_ms and "before" not in params:
        with anyio.move_on_after(wait_ms / 1000):
            while not result["events"]:
                head = await service.store.changed(params["sessionId"], max(head, result["headSeq"]))
                result = await _read(call, service)
    return result


async def _read(call: Call, service: Service) -> dict[str, Any]:
    params, limits = call.params, call.host.limits
    async with call.connection.room_for_page(call.connection.event_slots):
        page = await service.store.read(
            params["sessionId"],
            after=params.get("after"),
            before=params.get("before"),
            limit=min(params.get("limit", limits["pageEvents"]), limits["pageEvents"]),
            max_bytes=limits["pageBytes"],
            types=params.get("types"),
        )
        await call.connection.answered(params["sessionId"])
        events = [reread(b"{" + line + b"}") for line in page.lines.splitlines()]
    more = bool(events) and events[0]["event"]["seq"] > 1 if "before" in params else page.more
    return {
        "events": events,
        "nextCursor": page.cursor,
        "headCursor": page.head_cursor,
        "headSeq": page.head_seq,
        "hasMore": more,
    }


async def events_subscribe(call: Call) -> dict[str, Any]:
    """Follow the log; events begin behind the answer."""
    return await subscribe(call, call.params["sessionId"], call.params)


async def subscribe(
    call: Call, session_id: str, wish: dict[str, Any], *, default_after: str | None = None
) -> dict[str, Any]:
    """Make a subscription that starts once the call is answered; its id and the head."""
    service = await call.service()
    loaded = await service.load(session_id)
    after = wish.get("after", default_after)
    seq = 0
    if after is not None:
        # Reading proves the cursor, so a foreign one is refused here and not later.
        page = await service.store.read(session_id, after=after, limit=1, max_bytes=1)
        seq = page.last_seq - page.count
    subscription = Subscription(
        call.connection,
        service,
        subscription_id=new_id("u"),
        session_id=session_id,
        cursor=after,
        seq=seq,
        deltas=wish.get("deltas", True),
    )
    call.connection.subscriptions[subscription.subscription_id] = subscription
    call.connection.sessions.add(session_id)
    call.after.append(subscription.start)
    return {
        "subscriptionId": subscription.subscription_id,
        "headCursor": loaded.cursor,
        "headSeq": loaded.state.seq,
    }


async def events_unsubscribe(call: Call) -> dict[str, Any]:
    """End a subscription of this connection."""
    subscription = call.connection.subscriptions.get(call.params["subscriptionId"])
    if subscription is None:
        raise Refused("subscription_not_found", subscriptionId=call.params["subscriptionId"])
    subscription.stop(None)
    return {}
