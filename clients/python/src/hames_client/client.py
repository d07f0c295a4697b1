"""The client: it starts a server, speaks to it, and starts it again when it dies.

Rule 1: a request is sent again after a restart only if doing it twice is the same as doing it once.
Rule 2: after a restart the sessions that this client runs are resumed before anything else is sent, so that their
turns go on.
Rule 3: restarts are bounded; a server that keeps dying ends in `ConnectionLost` with its last words.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, Final, Literal

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hames_client import messages as m
from hames_client.connection import Connection
from hames_client.errors import ConnectionLost, HamesError
from hames_client.events import Events
from hames_client.process import ServerProcess
from hames_client.repeating import is_repeatable, resume
from hames_client.session import Json, Result, Session, given, new_key
from hames_client.transport import Opener

DEFAULT_COMMAND: Final = (sys.executable, "-m", "hames", "serve")
PROTOCOL_VERSIONS: Final = ("1",)
VERSION: Final = "0.1.0"

MAX_RESTARTS: Final = 5
"""Restarts in a row; the count begins anew once a server has lived for `STEADY_S`."""

STEADY_S: Final = 30.0
BACKOFF_S: Final = (0.0, 0.1, 0.5, 2.0, 5.0)
"""Before the first restart, the second, …; the last one also stands for all further ones."""

CLOSE_S: Final = 10.0
"""How long the server may take to settle what runs: to answer `shutdown`, and then again to end."""

Ending = Literal["cancel", "drain"]
"""What turns that run do at the end of the block: they are cancelled, or waited for."""

OnNotification = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class _Launch:
    """How to start a server, and how often."""

    open: Opener
    info: Json
    restarts: int


class HamesClient:
    """A connection that outlives its servers; made by `spawn`, or by `over` where they are no processes.

    `server` is the newest answer to `initialize`: `serverInfo`, `capabilities`, `limits`.
    """

    def __init__(self, launch: _Launch, group: TaskGroup, on_notification: OnNotification | None) -> None:
        self.server: Json = {}
        self._launch = launch
        self._group = group
        self._on_notification = on_notification
        self._scope = anyio.CancelScope()
        self._connection: Connection | None = None
        self._dead: ConnectionLost | None = None
        self._leaving = False
        self._changed = anyio.Event()
        self._followed: dict[str, str] = {}
        self._subscriptions: dict[str, Events] = {}

    @classmethod
    def spawn(
        cls,
        command: Sequence[str] = DEFAULT_COMMAND,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        restart: bool = True,
        max_restarts: int = MAX_RESTARTS,
        on_close: Ending = "cancel",
        name: str = "hames-client",
        version: str = VERSION,
        on_notification: OnNotification | None = None,
    ) -> AbstractAsyncContextManager[HamesClient]:
        """Start a server and initialize it; at the end shut it down and see that it is gone.

        `env` replaces the environment of the server. The rest is as in `over`.

        Raises:
            ConnectionLost: the command cannot be started, or the server ended before it was initialized.
            HamesError: no common protocol version.
        """
        return cls.over(
            partial(ServerProcess.open, command, env=env, cwd=cwd),
            max_restarts=max_restarts if restart else 0,
            on_close=on_close,
            name=name,
            version=version,
            on_notification=on_notification,
        )

    @classmethod
    @asynccontextmanager
    async def over(
        cls,
        open_server: Opener,
        *,
        max_restarts: int = MAX_RESTARTS,
        on_close: Ending = "cancel",
        name: str = "hames-client",
        version: str = VERSION,
        on_notification: OnNotification | None = None,
    ) -> AsyncIterator[HamesClient]:
        """A client of the server that `open_server` starts, and of those it starts after that one died.

        `on_close`: what turns that run do at the end of the block; `drain` waits for them, as long as they take, unless
        the block ends with an exception or is cancelled. `name` and `version` say who connects, in the log too.
        `on_notification(method, params)` gets what no iteration takes: `ownership`, `heartbeat`, and what is new; it
        must neither raise nor block.

        Raises:
            ConnectionLost: the server cannot be started, or ended before it was initialized.
            HamesError: no common protocol version.
        """
        launch = _Launch(open_server, {"name": name, "version": version}, max_restarts)
        failed: BaseException | None = None
        async with anyio.create_task_group() as group:
            client = cls(launch, group, on_notification)
            try:
                await group.start(client._supervise)
                yield client
                if on_close == "drain":
                    await client._drain()
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                # Raised below: the task group would wrap it in an ExceptionGroup.
                failed = error
            finally:
                await client._close()
        if failed is not None:
            raise failed

    @property
    def pid(self) -> int | None:
        """The server's process; None while there is none, or where it is no process of its own."""
        return self._connection.pid if self._connection is not None else None

    # --- methods ---------------------------------------------------------------------------------------------

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Send a request and wait for its result, over a restart if it may be sent twice.

        Raises:
            HamesError: the server refused or failed it.
            ConnectionLost: the server ended, and it may have been done or not; or there is no server any more.
        """
        return await self._request(method, dict(params or {}), None)

    async def create_session(
        self,
        workspace: str | PathLike[str],
        *,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        cwd: str | None = None,
        model: str | None = None,
        mode: Literal["default", "strict"] | None = None,
        sandbox: str | None = None,
        network: Literal["general", "disabled"] | None = None,
        tools: Sequence[str] | None = None,
        limits: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
        instructions: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        attribution: Mapping[str, str] | None = None,
    ) -> Session:
        """Make a session bound to a directory, given by its absolute path; the rest is as in `session/create`."""
        params = given(
            workspace=str(workspace),
            sessionId=session_id,
            idempotencyKey=idempotency_key or new_key(),
            cwd=cwd,
            model=model,
            mode=mode,
            sandbox=sandbox,
            network=network,
            tools=None if tools is None else list(tools),
            limits=limits,
            context=context,
            instructions=instructions,
            title=title,
            metadata=metadata,
            attribution=attribution,
        )
        return self._attached(await self.request("session/create", params), "prefer")

    async def resume_session(
        self,
        session_id: str,
        *,
        own: Literal["prefer", "require", "observe"] = "prefer",
        recover: Literal["continue", "fail"] | None = None,
        expect: Mapping[str, str] | None = None,
    ) -> Session:
        """Attach to a session; unless `own` is `observe`, what was left of a turn goes on."""
        params = given(sessionId=session_id, own=own, recover=recover, expect=expect)
        return self._attached(await self.request("session/resume", params), own)

    def session(self, session_id: str) -> Session:
        """A session by its id, without asking the server: to read, steer, cancel, or submit to it."""
        return Session(self, session_id)

    async def list_sessions(
        self,
        *,
        workspace: str | PathLike[str] | None = None,
        query: str | None = None,
        page: str | None = None,
        limit: int | None = None,
    ) -> m.SessionListResult:
        """A page of sessions, newest first: `{sessions, nextPage?}`."""
        where = None if workspace is None else str(workspace)
        return await self._call(
            m.SessionListResult, "session/list", workspace=where, query=query, page=page, limit=limit
        )

    async def ping(self) -> None:
        """Return when the server answers."""
        await self.request("ping")

    async def describe(self) -> m.CapabilitiesResult:
        """What this build of the server can do."""
        return await self._call(m.CapabilitiesResult, "capabilities/describe")

    async def discover(self) -> m.DiscoverResult:
        """The OpenRPC document."""
        return await self._call(m.DiscoverResult, "rpc.discover")

    async def health(
        self, *, session_id: str | None = None, dependencies: Sequence[str] | None = None
    ) -> m.HealthResult:
        """Each dependency with `ok`, `degraded` or `unavailable`, and why."""
        return await self._call(m.HealthResult, "health/check", sessionId=session_id, dependencies=dependencies)

    async def list_models(self, provider: str | None = None) -> m.ModelsResult:
        """`{provider, models}`."""
        return await self._call(m.ModelsResult, "models/list", provider=provider)

    async def list_tools(self) -> m.ToolsResult:
        """The tools that a session gets."""
        return await self._call(m.ToolsResult, "tools/list")

    async def _call(self, _: type[Result], method: str, **params: Any) -> Result:
        result: Result = await self.request(method, given(**params))
        return result

    def _attached(self, answer: m.SessionResult | m.SessionCreateResult, own: str) -> Session:
        session_id = answer["session"]["sessionId"]
        self.follow(session_id, None if own == "observe" else own)
        return Session(self, session_id, answer)

    # --- for sessions and iterations -------------------------------------------------------------------------

    def follow(self, session_id: str, own: str | None) -> None:
        """After a restart, resume this session with `own`; None: do not."""
        if own is None:
            self._followed.pop(session_id, None)
        else:
            self._followed.setdefault(session_id, own)

    async def subscribe(self, events: Events, params: Mapping[str, Any]) -> None:
        """Ask for events; they are routed before any of them comes."""

        def route(result: Any) -> None:
            self._subscriptions[result["subscriptionId"]] = events
            events.attached(result["subscriptionId"])

        await self._request("events/subscribe", params, route)

    def unsubscribe(self, subscription_id: str) -> None:
        """Route nothing more of it, and tell the server."""
        if self._subscriptions.pop(subscription_id, None) is not None and self._connection is not None:
            self._group.start_soon(self._unsubscribe, self._connection, subscription_id)

    async def _unsubscribe(self, connection: Connection, subscription_id: str) -> None:
        with suppress(HamesError, ConnectionLost):
            await connection.request("events/unsubscribe", {"subscriptionId": subscription_id})

    async def _request(self, method: str, params: Mapping[str, Any], on_result: Callable[[Any], None] | None) -> Any:
        tries = 1 + self._launch.restarts if is_repeatable(method, params) else 1
        while True:
            connection = await self._ready()
            try:
                return await connection.request(method, params, on_result=on_result)
            except ConnectionLost:
                tries -= 1
                if not tries:
                    raise

    async def _ready(self) -> Connection:
        while True:
            if self._dead is not None:
                raise self._dead
            if self._connection is not None and not self._connection.lost.is_set():
                return self._connection
            await self._changed.wait()

    # --- the life of servers ---------------------------------------------------------------------------------

    async def _supervise(self, *, task_status: TaskStatus[None]) -> None:
        """Keep a server running until `_close`, or until it has died too often."""
        deaths = 0
        first = True
        with self._scope:
            while True:
                born = anyio.current_time()
                try:
                    reason = await self._live(task_status if first else None)
                except (HamesError, ConnectionLost) as error:
                    if first:
                        raise
                    reason = error
                first = False
                if self._leaving:
                    self._die(ConnectionLost("the client is closed"))
                    return
                deaths = 1 if anyio.current_time() - born > STEADY_S else deaths + 1
                if deaths > self._launch.restarts:
                    self._die(reason)
                    return
                await anyio.sleep(BACKOFF_S[min(deaths, len(BACKOFF_S)) - 1])

    async def _live(self, task_status: TaskStatus[None] | None) -> Exception:
        """One server from start to end; why it ended."""
        launch = self._launch
        connection = Connection(await launch.open(), self._notified)
        try:
            self._group.start_soon(connection.run)
            await self._initialize(connection)
            for session_id, own in list(self._followed.items()):
                await resume(connection, session_id, own)
            self._connection = connection
            self._wake()
            if task_status is not None:
                task_status.started()
            await connection.lost.wait()
            return connection.reason
        finally:
            self._connection = None
            subscriptions, self._subscriptions = self._subscriptions, {}
            for events in subscriptions.values():
                events.detached()
            await connection.end(CLOSE_S)

    async def _initialize(self, connection: Connection) -> None:
        params = {"protocolVersions": list(PROTOCOL_VERSIONS), "clientInfo": self._launch.info}
        self.server = await connection.request("initialize", params)
        with suppress(KeyError, TypeError):
            connection.frame_in_bytes = self.server["limits"]["frameInBytes"]["default"]

    def _notified(self, method: str, params: dict[str, Any]) -> None:
        events = self._subscriptions.get(str(params.get("subscriptionId")))
        match method:
            case "event":
                if events is not None and isinstance(params.get("event"), dict):
                    events.received(str(params.get("cursor")), params["event"])
            case "delta":
                if events is not None:
                    events.delta(params)
            case "subscription/closed":
                if events is not None:
                    del self._subscriptions[params["subscriptionId"]]
                    events.ended(str(params.get("reason")))
            case _:
                if self._on_notification is not None:
                    self._on_notification(method, params)

    async def _drain(self) -> None:
        """Wait for every turn that runs, also in a server that has to take the place of one that dies meanwhile."""
        while not self._leaving and self._dead is None:
            with suppress(ConnectionLost):
                await self.request("shutdown", {"mode": "drain"})
                self._leaving = True

    async def _close(self) -> None:
        """Shut the server down; what still waits for it gets `ConnectionLost`."""
        with anyio.CancelScope(shield=True):
            if self._connection is not None and not self._leaving:
                with anyio.move_on_after(CLOSE_S), suppress(HamesError, ConnectionLost):
                    await self._connection.request("shutdown", {"mode": "cancel"})
            self._die(ConnectionLost("the client is closed"))
        self._scope.cancel()

    def _die(self, reason: Exception) -> None:
        if self._dead is None:
            self._dead = reason if isinstance(reason, ConnectionLost) else ConnectionLost(f"no server: {reason}")
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
