"""What a process serves with: made by the composition root, shared by its connections, loaded by need.

The store and the world are made when a session is first asked for: `initialize`, `ping` and
`capabilities/describe` start nothing, open nothing and import little.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import anyio
from anyio.abc import TaskGroup

from hames.protocol.errors import HamesError

if TYPE_CHECKING:
    from hames.engine.service import Service
    from hames.ports import Observer, Owner, Store, World
    from hames.server.connection import Connection


class Host:
    """The parts behind a connection.

    `make` gives the store and the world, `preload` and `preload_turns` load what they need; `about_store` and
    `about_parts` describe them without making them. `observe` gives who is told of the sessions that run here.
    """

    def __init__(
        self,
        *,
        principal: str,
        limits: Mapping[str, int],
        make: Callable[[], tuple[Store, World]],
        about_store: Callable[[], Mapping[str, Any]],
        about_parts: Callable[[], Mapping[str, Any]],
        preload: Callable[[], None],
        preload_turns: Callable[[str], None],
        transport: Mapping[str, Any],
        tasks: TaskGroup,
        observe: Callable[[Store, Host], Observer] | None = None,
        guest: bool = False,
    ) -> None:
        self.principal = principal
        self.limits = limits
        self.about_store = about_store
        self.about_parts = about_parts
        self.transport = transport
        self.connections: set[Connection] = set()
        self.leaving = anyio.Event()
        self._make = make
        self._preload = preload
        self._preload_turns = preload_turns
        self._turns_loaded = False
        self.tasks = tasks
        self._service: Service | None = None
        self._observe = observe
        self._guest = guest
        self._observer: Observer | None = None

    def warm_up(self) -> None:
        """Load what sessions will need in a thread, once the handshake is answered."""

        async def load() -> None:
            await anyio.to_thread.run_sync(self._preload, abandon_on_cancel=True)

        self.tasks.start_soon(load)

    def warm_up_turns(self, provider: str) -> None:
        """Load what the first turn of a session with this provider will need, once the session is answered."""
        if self._turns_loaded:
            return
        self._turns_loaded = True

        async def load() -> None:
            await anyio.to_thread.run_sync(self._preload_turns, provider, abandon_on_cancel=True)

        self.tasks.start_soon(load)

    async def service(self) -> Service:
        """The sessions of this process; made at the first call."""
        if self._service is None:
            from hames.engine.service import Service

            store, world = self._make()
            self._service = Service(store, world, self.tasks, self.report, guest=self._guest)
            self._service.owner_listeners.add(self._tell_owner)
            if self._observe is not None:
                self._observer = self._observe(store, self)
                self._service.owner_listeners.add(self._observer.owned)
        return self._service

    def _tell_owner(self, session_id: str, owner: Owner | None) -> None:
        from hames.engine.service import owner_view

        view = None if owner is None or not owner.alive else owner_view(owner)
        params = {"sessionId": session_id, "owner": view, "mine": owner is not None and owner.mine}
        for connection in self.connections:
            if session_id in connection.sessions:
                connection.notify("ownership", params)

    async def shut_down(self, mode: Literal["cancel", "drain"], *, cause: Literal["disconnect", "shutdown"]) -> None:
        """Admit nothing more; cancel or wait for what runs; free the leases."""
        if self._service is not None:
            await self._service.shutdown(mode, by={"principal": self.principal}, cause=cause)

    async def flush(self) -> None:
        """Once nothing runs any more: let the observer hand over what it saw, which is bounded."""
        if self._observer is not None:
            await self._observer.aclose()

    async def aclose(self) -> None:
        """Close what was opened."""
        if self._service is not None:
            await self._service.aclose()

    def report(self, what: str, error: BaseException) -> None:
        """One line for the operator: of a defect its type and place, no content; a fault of a kind tells what to do."""
        if isinstance(error, HamesError) and error.kind != "internal":
            sys.stderr.write(f"hames: {what}: {str(error)[:300]}\n")
            return
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = "" if place is None else f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
        sys.stderr.write(f"hames: {what}: {type(error).__name__}{where}: {str(error)[:300]}\n")
