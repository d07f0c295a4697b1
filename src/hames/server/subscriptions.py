"""A subscription: a position in a session's log from which a client gets every event once, and previews.

Rule 1: it is a position, not a queue: it reads the store past its cursor, and waits for room before it sends, so
a client that stops reading costs no memory, loses nothing and slows nobody.
Rule 2: what it sends are the stored bytes (invariant 2). Rule 3: deltas are dropped rather than waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from hames.engine.live import Listener, LiveItem
from hames.protocol.errors import HamesError
from hames.server import rpc

if TYPE_CHECKING:
    from hames.engine.service import Service
    from hames.server.connection import Connection

SEND_BYTES = 512 * 1024
"""Events sent at once: what a reader that falls behind has in memory here, beside what is pending."""

SEND_EVENTS = 10_000
"""The same as a number: such a page is bounded by its bytes, small as events may be."""

DELTA_ROOM_BYTES = 5 * 512 * 1024
"""Pending bytes beyond which deltas are dropped: more than a burst that a reading client takes, less than would
hurt when it does not read."""

DELETED = "deleted"
"""Why a subscription ends when its session does for good: no error."""

CATCH_UP_BYTES = 256 * 1024
"""Largest delta: the text that a late subscriber missed comes in pieces."""


class Subscription(Listener):
    """Sends a session's events after `cursor` (`seq`) to one connection, until it is stopped."""

    def __init__(
        self,
        connection: Connection,
        service: Service,
        *,
        subscription_id: str,
        session_id: str,
        cursor: str | None,
        seq: int,
        deltas: bool,
    ) -> None:
        self.subscription_id = subscription_id
        self.session_id = session_id
        self.seq = seq
        self._cursor = cursor
        self._deltas = deltas
        self._connection = connection
        self._service = service
        self._offsets: dict[str, int] = {}
        self._ended: set[str] = set()
        self._scope = anyio.CancelScope()
        self._moved = anyio.Event()
        self._head = b'{"jsonrpc":"2.0","method":"event","params":{"subscriptionId":"%b",' % subscription_id.encode()

    def start(self) -> None:
        """Begin, behind the answer that names the subscription."""
        self._service.live(self.session_id).listeners.add(self)
        self._connection.tasks.start_soon(self._run)

    def stop(self, reason: str | None) -> None:
        """End it; with a reason the client is told."""
        self._scope.cancel()
        self._service.live(self.session_id).listeners.discard(self)
        self._connection.subscriptions.pop(self.subscription_id, None)
        self._moved.set()
        if reason is not None:
            params = {"subscriptionId": self.subscription_id, "reason": reason}
            self._connection.notify("subscription/closed", params)

    async def sent_through(self, seq: int) -> None:
        """Until everything up to `seq` has been sent, or the subscription ended."""
        while self.seq < seq and not self._scope.cancel_called:
            await self._moved.wait()

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._pump()
        except HamesError as failure:
            self.stop(DELETED if failure.kind == "session_deleted" else failure.kind)
        except Exception as error:
            # A top border: a defect ends this subscription, told to its client, and nothing else.
            self._connection.host.report(f"subscription to {self.session_id} broke", error)
            self.stop("internal")

    async def _pump(self) -> None:
        while True:
            async with self._connection.room_for_page(self._connection.event_slots):
                more = await self._send_page()
            moved, self._moved = self._moved, anyio.Event()
            moved.set()
            if not more:
                self._catch_up_previews()
                await self._service.store.changed(self.session_id, self.seq)

    async def _send_page(self) -> bool:
        """Send what comes next; whether there is more."""
        page = await self._service.store.read(
            self.session_id, after=self._cursor, limit=SEND_EVENTS, max_bytes=SEND_BYTES
        )
        if page.count:
            self._note_ends(page.lines)
            await self._connection.answered(self.session_id)
            self._connection.outlet.send_lines(self._head, page.lines)
        self._cursor, self.seq = page.cursor, page.last_seq
        return page.more

    def _note_ends(self, lines: bytes) -> None:
        """Remember items that are still made here and have their end in the log: another process took the turn."""
        items = self._service.live(self.session_id).items
        self._ended &= items.keys()
        for item_id in items:
            ends = (b'.completed","data":{"%b":"%b"' % (member, item_id.encode()) for member in (b"itemId", b"callId"))
            if any(end in lines for end in ends):
                self._ended.add(item_id)

    # --- previews -----------------------------------------------------------------------------------------

    def delta(self, item: LiveItem, offset: int, text: str) -> None:
        """Pass on more text, unless the client is behind: chunks and the whole item make up for it."""
        if not self._deltas or self.seq < item.base_seq or item.item_id in self._ended:
            return
        if self._connection.outlet.pending_bytes > DELTA_ROOM_BYTES:
            return
        if offset and item.item_id not in self._offsets:
            self._send_delta(item, 0, item.text())
            return
        self._send_delta(item, offset, text)

    def _catch_up_previews(self) -> None:
        """At the head: what is being produced now, from its start, where nothing of it was sent yet."""
        items = self._service.live(self.session_id).items
        self._offsets = {item: offset for item, offset in self._offsets.items() if item in items}
        if not self._deltas or self._connection.outlet.pending_bytes > DELTA_ROOM_BYTES:
            return
        for item in items.values():
            known = item.item_id in self._offsets or item.item_id in self._ended
            if not known and item.size and self.seq >= item.base_seq:
                self._send_delta(item, 0, item.text())

    def _send_delta(self, item: LiveItem, offset: int, text: str) -> None:
        if len(text) > CATCH_UP_BYTES // 4:
            for start in range(0, len(text), CATCH_UP_BYTES // 4):
                piece = text[start : start + CATCH_UP_BYTES // 4]
                self._send_one(item, offset, piece)
                offset += len(piece.encode())
            return
        self._send_one(item, offset, text)

    def _send_one(self, item: LiveItem, offset: int, text: str) -> None:
        self._offsets[item.item_id] = offset
        params: dict[str, Any] = {
            "subscriptionId": self.subscription_id,
            "sessionId": self.session_id,
            "turnId": item.turn_id,
            "itemId": item.item_id,
            "kind": item.kind,
            "offset": offset,
            "text": text,
        }
        self._connection.outlet.send(rpc.encode_notification("delta", params))

    def heartbeat(self, turn_id: str, phase: str, since_ms: int) -> None:
        """Pass on that the turn waits: once a connection, by its oldest subscription to the session."""
        subscriptions = self._connection.subscriptions.values()
        first = next((one for one in subscriptions if one.session_id == self.session_id), None)
        if first is self and self._connection.outlet.pending_bytes <= DELTA_ROOM_BYTES:
            params = {"sessionId": self.session_id, "turnId": turn_id, "phase": phase, "sinceMs": since_ms}
            self._connection.notify("heartbeat", params)
