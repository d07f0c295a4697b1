"""One client: its frames in, its answers and notifications out. Knows no transport, only an `Outlet`.

Rule 1: reading never waits for a turn, a model, a tool or the disk; every request is a task of its own.
Rule 2: requests that name one session commit in frame order; different sessions never wait for each other.
Rule 3: an answer that names a session or turn goes out before any event of it (`answered`).
Rule 4: what goes wrong in a handler becomes one typed error here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio.abc import TaskGroup

from hames.engine.asking import ASKER, Asker
from hames.protocol.errors import (
    HAMES_ERROR,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    HamesError,
    InvalidParams,
    Refused,
)
from hames.protocol.methods import CLIENT_NOTIFICATIONS, METHODS, Method
from hames.server import rpc
from hames.server.frames import FrameFault
from hames.server.handlers import handler_of

if TYPE_CHECKING:
    from hames.engine.service import Service
    from hames.server.host import Host
    from hames.server.subscriptions import Subscription


PAGES_AT_ONCE = 4
"""Pages that readers of the log hold, and as many that other requests hold: apart, since the former wait for the
answers of the latter."""

PAGE_ROOM_BYTES = 2**20
"""Pending bytes of a connection beyond which no page is read for it: it can be read at any time."""


class Outlet(Protocol):
    """Where payloads go, each as one frame, in order, whole or not at all."""

    @property
    def pending_bytes(self) -> int:
        """What the client has not taken yet."""
        ...

    def send(self, payload: bytes) -> None:
        """Queue a payload. Never waits."""
        ...

    def send_lines(self, head: bytes, lines: bytes) -> None:
        """Queue `head + line + b"}}"` for each of LF-ended `lines`."""
        ...

    async def room(self, limit_bytes: int) -> None:
        """Wait until less than that is pending."""
        ...


@dataclass(slots=True)
class Call:
    """A request being served. `params` fit the method. `release` lets later requests of the session go on."""

    connection: Connection
    params: dict[str, Any]
    release: Callable[[], None]
    repaired: bool = False
    """A lone surrogate in it was replaced; what is admitted then says so."""
    after: list[Callable[[], None]] = field(default_factory=list)
    """Done once the answer is queued: a subscription's first event comes behind it."""

    @property
    def host(self) -> Host:
        """What the process serves with."""
        return self.connection.host

    async def service(self) -> Service:
        """The sessions of this process."""
        return await self.connection.host.service()

    @property
    def by(self) -> dict[str, Any]:
        """Who asks, as it stands on events."""
        return self.connection.by


class Connection:
    """State of one client: handshake, lanes, requests in flight, subscriptions."""

    def __init__(self, host: Host, outlet: Outlet, tasks: TaskGroup, connection_id: str) -> None:
        self.host = host
        self.outlet = outlet
        self.tasks = tasks
        self.by: dict[str, Any] = {"principal": host.principal, "connectionId": connection_id}
        self.initialized = False
        self.subscriptions: dict[str, Subscription] = {}
        self.sessions: set[str] = set()
        self.read_slots = anyio.Semaphore(PAGES_AT_ONCE)
        self.event_slots = anyio.Semaphore(PAGES_AT_ONCE)
        self._lanes: dict[str, anyio.Event] = {}
        self._batches: dict[str, list[anyio.Event]] = {}
        self._askers: dict[str | int, Asker] = {}
        self._waiting = 0
        self._handshake: anyio.Event | None = None
        self._short = 0
        self._short_bytes = 0
        self._frame_bytes = 0
        self._one_less = anyio.Event()
        self._serving: set[anyio.CancelScope] = set()
        self._leaving = False

    def greet(self, client: str) -> None:
        """The handshake is done; `client` as it stands on events."""
        self.initialized = True
        self.by["client"] = client

    # --- in -----------------------------------------------------------------------------------------------

    def accept(self, frame: bytes | FrameFault) -> None:
        """Take one frame. Never waits, never raises."""
        if isinstance(frame, FrameFault):
            self._refuse_frame(frame)
            return
        self._frame_bytes = len(frame)
        message = rpc.decode(frame)
        if isinstance(message, rpc.Batch):
            self._accept_batch(message)
        else:
            self._accept_entry(message, self.outlet.send)

    def _refuse_frame(self, fault: FrameFault) -> None:
        self.outlet.send(rpc.encode_error(None, fault.code, fault.message, data=fault.data))

    def _accept_entry(self, entry: rpc.Entry, answer: Callable[[bytes], None], *, batched: bool = False) -> None:
        match entry:
            case rpc.Request():
                self._accept_request(entry, answer, batched=batched)
            case rpc.Notification():
                self._accept_notification(entry)
            case rpc.Malformed(answered=True):
                answer(rpc.encode_error(entry.id, entry.code, entry.message))
            case _:
                return

    def _accept_batch(self, batch: rpc.Batch) -> None:
        answers: list[bytes] = []
        owed = sum(
            isinstance(entry, rpc.Request) or (isinstance(entry, rpc.Malformed) and entry.answered)
            for entry in batch.entries
        )

        sent = anyio.Event()
        named = [entry.params.get("sessionId") for entry in batch.entries if isinstance(entry, rpc.Request)]
        sessions = {session_id for session_id in named if isinstance(session_id, str)}
        for session_id in sessions:
            self._batches.setdefault(session_id, []).append(sent)

        def collect(payload: bytes) -> None:
            answers.append(payload)
            if len(answers) < owed:
                return
            self.outlet.send(rpc.encode_batch(answers))
            sent.set()
            for session_id in sessions:
                self._batches[session_id].remove(sent)
                if not self._batches[session_id]:
                    del self._batches[session_id]

        self._frame_bytes //= len(batch.entries)
        for entry in batch.entries:
            self._accept_entry(entry, collect, batched=True)

    def _accept_notification(self, notification: rpc.Notification) -> None:
        if notification.method not in CLIENT_NOTIFICATIONS:
            return
        identifier = notification.params.get("id")
        if isinstance(identifier, str | int) and not isinstance(identifier, bool) and identifier in self._askers:
            self._askers[identifier].leave()

    def _accept_request(self, request: rpc.Request, answer: Callable[[bytes], None], *, batched: bool) -> None:
        method = METHODS.get(request.method)
        if method is None:
            message = f"there is no method {request.method[:80]!r}; rpc.discover lists them"
            answer(rpc.encode_error(request.id, METHOD_NOT_FOUND, message))
            return
        if batched and (method.waits or "subscribe" in request.params):
            message = f"{method.name} waits or subscribes, so it may not stand in a batch; send it by itself"
            answer(rpc.encode_error(request.id, INVALID_REQUEST, message))
            return
        if method.waits and self._waiting >= self.host.limits["waitingRequests"]:
            answer(self._too_many_waiting(request))
            return
        lane = self._take_lane(method, request.params)
        before, done = self._handshake, anyio.Event()
        if method.name == "initialize":
            self._handshake = done
        weight = 0 if method.waits else self._frame_bytes
        self._short += not method.waits
        self._short_bytes += weight
        # Made here and not in the task: a cancel may stand in the very next frame.
        scope = anyio.CancelScope()
        self._serving.add(scope)
        self._waiting += method.waits
        self._askers[request.id] = asker = Asker(scope, waits=method.waits)
        self.tasks.start_soon(self._serve, request, method, lane, (before, done), (scope, asker), answer, weight)

    def _too_many_waiting(self, request: rpc.Request) -> bytes:
        allowed = self.host.limits["waitingRequests"]
        refused = Refused(
            "limit_exceeded",
            f"{self._waiting} requests of this connection wait; {allowed} may. Cancel some, or follow the events.",
            limit="waitingRequests",
            configured=allowed,
            observed=self._waiting,
        )
        return rpc.encode_error(request.id, HAMES_ERROR, refused.message, data=refused.data())

    def _refusal(self, request: rpc.Request, method: Method) -> bytes | None:
        if method.name == "initialize" and self.initialized:
            return rpc.encode_error(request.id, INVALID_REQUEST, "this connection is initialized already")
        if not self.initialized and not method.early:
            refused = Refused("not_initialized", f"{method.name} needs `initialize` first.")
            return rpc.encode_error(request.id, HAMES_ERROR, refused.message, data=refused.data())
        return None

    # --- order --------------------------------------------------------------------------------------------

    def _take_lane(self, method: Method, params: dict[str, Any]) -> tuple[anyio.Event | None, anyio.Event | None]:
        session_id = params.get("sessionId")
        if not isinstance(session_id, str):
            return None, None
        before = self._lanes.get(session_id)
        if not method.ordered:
            # It comes after what was asked before it, and holds up nothing that is asked later.
            return before, None
        mine = anyio.Event()
        self._lanes[session_id] = mine
        return before, mine

    def _leave_lane(self, session_id: object, mine: anyio.Event | None) -> None:
        if mine is None:
            return
        mine.set()
        if isinstance(session_id, str) and self._lanes.get(session_id) is mine:
            del self._lanes[session_id]

    @asynccontextmanager
    async def room_for_page(self, slots: anyio.Semaphore, room_bytes: int = PAGE_ROOM_BYTES) -> AsyncIterator[None]:
        """A place to hold a page of the store, once the client has taken most of what it was sent: however much is
        asked for, a few pages are in memory at a time."""
        async with slots:
            await self.outlet.room(room_bytes)
            yield

    async def answered(self, session_id: str) -> None:
        """Until the requests on the session that are being served now have their answers queued.

        Called with events in hand, before they are sent: what they follow from was asked before, so its answer
        goes first. Later requests are not waited for.
        """
        last = self._lanes.get(session_id)
        if last is not None:
            await last.wait()
        for batch in tuple(self._batches.get(session_id, ())):
            await batch.wait()

    async def quiet(self, at_most: int = 0, bytes_at_most: int = 0) -> None:
        """Until no more than that is being served, of the requests that do not wait for something else."""
        while self._short > at_most or self._short_bytes > bytes_at_most:
            self._one_less = anyio.Event()
            await self._one_less.wait()

    async def all_answered(self) -> None:
        """Until nothing is being served, also of what waits for something else."""
        while self._serving:
            self._one_less = anyio.Event()
            await self._one_less.wait()

    def give_up(self) -> None:
        """Answer what is still being served with `shutting_down`: the process is about to end."""
        self._leaving = True
        for scope in tuple(self._serving):
            scope.cancel()

    # --- serving ------------------------------------------------------------------------------------------

    async def _serve(
        self,
        request: rpc.Request,
        method: Method,
        lane: tuple[anyio.Event | None, anyio.Event | None],
        handshake: tuple[anyio.Event | None, anyio.Event],
        asked: tuple[anyio.CancelScope, Asker],
        answer: Callable[[bytes], None],
        weight: int,
    ) -> None:
        before, mine = lane
        session_id = request.params.get("sessionId")
        call = Call(self, request.params, lambda: self._leave_lane(session_id, mine), request.repaired)
        shaken, done = handshake
        scope, asker = asked
        ASKER.set(asker)
        try:
            with scope:
                if shaken is not None:
                    # What stands behind `initialize` is judged by what came of it, though it came in one write.
                    await shaken.wait()
                if before is not None:
                    await before.wait()
                payload = await self._payload(request, method, call)
            if scope.cancelled_caught:
                payload = self._cut_short(request)
            answer(payload)
            for step in call.after:
                step()
        finally:
            done.set()
            if self._askers.get(request.id) is asker:
                del self._askers[request.id]
            if method.waits:
                self._waiting -= 1
            else:
                self._short -= 1
                self._short_bytes -= weight
                self._one_less.set()
            self._serving.discard(scope)
            self._one_less.set()
            self._leave_lane(session_id, mine)

    def _cut_short(self, request: rpc.Request) -> bytes:
        if not self._leaving:
            return rpc.encode_error(request.id, REQUEST_CANCELLED, "the request was cancelled by its client")
        refused = Refused("shutting_down")
        return rpc.encode_error(request.id, HAMES_ERROR, refused.message, data=refused.data())

    async def _payload(self, request: rpc.Request, method: Method, call: Call) -> bytes:
        refusal = self._refusal(request, method)
        if refusal is not None:
            return refusal
        try:
            handler: Callable[[Call], Awaitable[Any]] = handler_of(method.name)
            call.params = self._checked(method, request.params)
            payload = rpc.encode_result(request.id, await handler(call))
        except InvalidParams as invalid:
            where = f"params.{invalid.path}" if invalid.path else "params"
            data = {"path": invalid.path}
            return rpc.encode_error(request.id, INVALID_PARAMS, f"{where} {invalid.message}", data=data)
        except HamesError as error:
            return rpc.encode_error(request.id, HAMES_ERROR, error.message, data=error.data())
        except Exception as error:
            # A top border: a defect answers this request, typed, and harms no other.
            self.host.report(f"{method.name} failed", error)
            return rpc.encode_error(request.id, INTERNAL_ERROR, f"{method.name} failed inside the server")
        allowed = self.host.limits["frameOutBytes"]
        if len(payload) > allowed:
            too_large = Refused(
                "frame_too_large",
                f"The answer has {len(payload)} bytes; ask for less (limit, before, after).",
                actualBytes=len(payload),
                allowedBytes=allowed,
            )
            return rpc.encode_error(request.id, HAMES_ERROR, too_large.message, data=too_large.data())
        return payload

    def _checked(self, method: Method, params: dict[str, Any]) -> dict[str, Any]:
        if method.name == "initialize" or (method.early and not params):
            # Answered before the checks are loaded: start-up is a feature. `initialize` checks its few members itself.
            return params
        from hames.protocol.validate import check_params

        return check_params(method.params, params)

    # --- out ----------------------------------------------------------------------------------------------

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        self.outlet.send(rpc.encode_notification(method, params))

    def close_subscriptions(self) -> None:
        """The client is gone."""
        for subscription in list(self.subscriptions.values()):
            subscription.stop(None)
