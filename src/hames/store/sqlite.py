"""`ports.Store` on SQLite: one directory, any number of processes, one writing and one reading thread in each.

Rule 1: this module runs in the event loop and touches no file save the beat; SQLite is loaded at `open`.
Rule 2: threads answer by posting to the loop, once for a batch; what the loop learns of a head it learns after COMMIT.
Rule 3: a store that was not opened answers with a fault, never by opening itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from hames.core.commands import CloseSession, Command, Record
from hames.core.state import State, Turn
from hames.ports import (
    COLLECT_GRACE_MS,
    Artifact,
    Committed,
    Lease,
    Loaded,
    Owner,
    Page,
    Pending,
    ReaperRecord,
    Spool,
)
from hames.protocol.errors import HamesError, HarnessFault
from hames.store.hub import Hub
from hames.store.log import weigh
from hames.store.pages import Bounds
from hames.store.snapshots import keyed_digest
from hames.store.tail import Tail
from hames.store.ticket import Job, Ticket
from hames.threads import LoopPort

if TYPE_CHECKING:
    from hames.store.running import Running
    from hames.store.writer import Batch

ROOM_JOBS: Final = 4096
ROOM_BYTES: Final = 8 * 2**20
"""What may wait to be written: beyond, `room` holds callers back, and a model's stream with them."""

REMOVE_S: Final = 1.0
"""For the rows of a deleted session to go before that is answered: those of some 100,000 events. The session is gone
already."""

CLOSE_S: Final = 30
"""For what was given to be written and the threads to end, whatever the disk does."""


class SqliteStore:
    """The store in `directory`, which is made at `open`. `limits`: `gateMs`, `leaseMs`."""

    def __init__(
        self, directory: Path, *, limits: Mapping[str, int], reaper: Callable[[], ReaperRecord | None]
    ) -> None:
        self._directory = Path(directory).absolute()
        self._limits = limits
        self._reaper = reaper
        self._hub = Hub()
        self._running: Running | None = None
        self._opening = anyio.Lock()
        self._port: LoopPort | None = None
        self._outbox: list[Job] = []
        self._jobs = 0
        self._job_bytes = 0
        self._roomy: anyio.Event | None = None
        self._tail = Tail()
        self._was_closed = False

    async def open(self) -> None:
        async with self._opening:
            if self._running is not None:
                return
            # Others may have written since it was closed: what was known then is forgotten.
            self._hub, self._tail = Hub(), Tail()
            self._port = port = LoopPort()
            ticket: Ticket[Running] = Ticket()
            threading.Thread(target=self._open, args=(port, ticket), name="hames-open", daemon=True).start()
            self._running = await ticket.wait()
            self._was_closed = False

    def _open(self, port: LoopPort, ticket: Ticket[Running]) -> None:
        def report(batch: Batch) -> None:
            port.post(self._settle, batch)

        def answer(asked: Ticket[Any], outcome: Any) -> None:
            port.post(asked.settle, outcome)

        def moved(heads: Mapping[str, int]) -> None:
            port.post(self._moved, heads)

        outcome: Running | HarnessFault
        try:
            # In a thread: SQLite's library is loaded here, and the disk may be slow.
            from hames.store.running import open_store

            outcome = open_store(
                self._directory, self._hub, limits=self._limits, reaper=self._reaper, calls=(report, answer, moved)
            )
        # The border of this thread: whoever waits for it must hear of anything that ends it.
        except Exception as error:
            outcome = HarnessFault("internal", f"The store failed to open at {type(error).__name__}.")
            outcome.__cause__ = error
        port.post(ticket.settle, outcome)

    async def aclose(self) -> None:
        async with self._opening:
            self._hand_over()
            running, self._running = self._running, None
            if running is None:
                return
            self._was_closed = True
            self._hub.end()
            port, closed = LoopPort(), anyio.Event()

            def close() -> None:
                running.close(CLOSE_S)
                port.post(closed.set)

            closing = threading.Thread(target=close, name="hames-close", daemon=True)
            closing.start()
            # Shielded, since leases must be given back though the caller is cancelled; bounded by the thread.
            with anyio.move_on_after(CLOSE_S, shield=True):
                await closed.wait()
                closing.join()  # it has nothing left to do: whoever closed finds no thread of ours

    # --- writing --------------------------------------------------------------------------------------------

    def commit(self, session_id: str, command: Command) -> Pending:
        weight_bytes = weigh(command)
        facts_of = (session_id, command.fence) if isinstance(command, Record) else None
        closes = isinstance(command, CloseSession)  # who closes a session, may be about to delete it
        return self._give(
            lambda transaction: transaction.commit(session_id, command), weight_bytes, facts_of, frees=closes
        )

    def _give(
        self,
        work: Callable[[Any], Any],
        weight_bytes: int = 512,
        facts_of: tuple[str, int] | None = None,
        *,
        frees: bool = False,
    ) -> Ticket[Any]:
        ticket: Ticket[Any] = Ticket()
        if self._running is None:
            ticket.settle(self._not_open())
        else:
            self._jobs += 1
            self._job_bytes += weight_bytes
            if not self._outbox and self._port is not None:
                self._port.later(self._hand_over)
            self._outbox.append(Job(ticket, work, weight_bytes, facts_of, frees))
        return ticket

    def _hand_over(self) -> None:
        """Give the writer what the loop's tasks gave in this round of theirs: one batch, and one change of threads."""
        outbox, self._outbox = self._outbox, []
        if self._running is not None:
            self._running.write(outbox)

    def _settle(self, batch: Batch) -> None:
        for job, outcome in batch.outcomes:
            self._jobs -= 1
            self._job_bytes -= job.weight_bytes
            if isinstance(outcome, Committed):
                self._hub.know(outcome.state, outcome.cursor)
            job.ticket.settle(outcome)
        for session_id, first_seq, lines in batch.lines:
            self._tail.add(session_id, first_seq, lines)
        if self._roomy is not None and self._has_room():
            self._roomy.set()
            self._roomy = None

    def _moved(self, heads: Mapping[str, int]) -> None:
        for session_id, seq in heads.items():
            if seq < 0:
                self._forget(session_id)
            else:
                self._hub.advance(session_id, seq)

    def _forget(self, session_id: str) -> None:
        self._hub.forget(session_id)
        self._tail.forget(session_id)

    def _has_room(self) -> bool:
        return self._jobs < ROOM_JOBS and self._job_bytes < ROOM_BYTES

    async def room(self) -> None:
        while not self._has_room():
            if self._roomy is None:
                self._roomy = anyio.Event()
            await self._roomy.wait()

    async def delete(self, session_id: str, *, by: str | None = None) -> str | Owner:
        job = self._give(lambda transaction: transaction.delete(session_id, by), frees=True)
        outcome: str | Owner = await job.wait()
        if isinstance(outcome, Owner):
            return outcome
        self._forget(session_id)
        with anyio.move_on_after(REMOVE_S), suppress(HamesError):
            # What is left then, and after a failure, is removed by whoever has time.
            while await self._give(lambda transaction: transaction.remove_some(), frees=True).wait():
                pass
        return outcome

    # --- reading --------------------------------------------------------------------------------------------

    async def load(self, session_id: str) -> Loaded:
        loaded = await self._ready().reader.ask(lambda lookup: lookup.load(session_id))
        self._hub.know(loaded.state, loaded.cursor)
        return loaded

    async def turn(self, session_id: str, turn_id: str) -> tuple[Turn, str]:
        return await self._ready().reader.ask(lambda lookup: lookup.turn(session_id, turn_id))

    async def turns(
        self, session_id: str, *, before: int | None, limit: int, status: str | None
    ) -> tuple[list[Turn], str]:
        return await self._ready().reader.ask(lambda lookup: lookup.turns(session_id, before, limit, status))

    async def sessions(
        self, *, workspace: str | None, query: str | None, before: int | None, limit: int
    ) -> list[tuple[int, Loaded]]:
        return await self._ready().reader.ask(lambda lookup: lookup.sessions(workspace, query, before, limit))

    async def read(
        self,
        session_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int,
        max_bytes: int,
        types: Sequence[str] | None = None,
    ) -> Page:
        bounds = Bounds.of(limit, max_bytes, types)
        running = self._ready()
        # With other processes about, the log may have grown since this one wrote to it.
        if before is None and running.owners.alone():
            newest = self._tail.read(session_id, after, bounds, head=self._hub.head(session_id))
            if newest is not None:
                return newest
        page = await running.reader.ask(lambda lookup: lookup.read(session_id, after, before, bounds))
        self._hub.advance(session_id, page.head_seq)
        return page

    async def place(self, session_id: str, seq: int) -> str:
        return await self._ready().reader.ask(lambda lookup: lookup.place(session_id, seq))

    # --- artifacts ------------------------------------------------------------------------------------------

    async def contents(self, session_id: str, artifacts: Collection[str]) -> Mapping[str, bytes]:
        return await self._ready().shelf.contents(session_id, artifacts)

    async def artifact(self, session_id: str, artifact: str) -> Artifact:
        return await self._ready().shelf.artifact(session_id, artifact)

    async def artifacts(self, session_id: str, *, after: str | None, limit: int) -> list[Artifact]:
        return await self._ready().shelf.artifacts(session_id, after=after, limit=limit)

    async def read_artifact(self, session_id: str, artifact: str, *, offset: int, length: int) -> bytes:
        shelf = self._ready().shelf
        return await shelf.read(session_id, artifact, offset=offset, length=length, give=self._give)

    async def keep(self, session_id: str, spool: Spool, *, media_type: str, name: str) -> Artifact:
        shelf = self._ready().shelf
        return await shelf.keep(session_id, spool, media_type=media_type, name=name, give=self._give)

    def spool(self) -> Spool:
        return self._ready().shelf.spool()

    async def collect(self, *, grace_ms: int = COLLECT_GRACE_MS) -> int:
        return await self._ready().shelf.collect(grace_ms, self._give)

    # --- heads ----------------------------------------------------------------------------------------------

    def head(self, session_id: str) -> int:
        return self._hub.head(session_id)

    def latest(self, session_id: str) -> tuple[State, str] | None:
        return self._hub.latest(session_id)

    async def changed(self, session_id: str, after_seq: int) -> int:
        while self._hub.head(session_id) <= after_seq:
            waiter = self._hub.enter(session_id)
            try:
                running = self._ready()
                if not (self._hub.head(session_id) and running.owners.alone()):
                    # Another process may have moved the head before anybody watched it.
                    try:
                        head = await running.reader.ask(lambda lookup: lookup.head(session_id))
                    except HarnessFault:
                        if self._running is running:
                            raise
                        raise self._not_open() from None
                    self._hub.advance(session_id, head)
                if self._hub.head(session_id) <= after_seq:
                    await waiter.wait()
            finally:
                self._hub.leave(session_id, waiter)
        return self._hub.head(session_id)

    # --- leases ---------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, *, force: bool = False) -> Lease | Owner:
        claimed: Lease | Owner = await self._give(lambda transaction: transaction.claim(session_id, force=force)).wait()
        return claimed

    async def release(self, session_id: str) -> None:
        await self._give(lambda transaction: transaction.release(session_id)).wait()

    async def release_all(self) -> None:
        if self._running is not None:
            await self._give(lambda transaction: transaction.release_all()).wait()

    async def owner(self, session_id: str) -> Owner | None:
        return await self._ready().reader.ask(lambda lookup: lookup.owner(session_id))

    def stand_by(self, session_id: str, waiting: bool) -> None:
        if self._running is not None:
            self._running.owners.stand_by(session_id, waiting)

    async def heir(self, session_id: str) -> Owner | None:
        return self._ready().owners.heir(session_id)

    def beat(self) -> None:
        if self._running is not None:
            self._running.owners.beat()

    # --- itself ---------------------------------------------------------------------------------------------

    def keyed(self, digest: str) -> str:
        return keyed_digest(self._ready().key, digest)

    def describe(self) -> Mapping[str, Any]:
        described: dict[str, Any] = {"kind": "sqlite", "path": str(self._directory), "durable": True}
        if self._running is not None:
            described |= self._running.identity
        return described

    async def check(self) -> Mapping[str, Any]:
        try:
            await self._give(lambda transaction: transaction.touch()).wait()
        except HarnessFault as fault:
            return {"status": "unavailable", "why": fault.message, "details": {"kind": fault.kind, **fault.details}}
        return {"status": "ok"}

    def _ready(self) -> Running:
        if self._running is None:
            raise self._not_open()
        return self._running

    def _not_open(self) -> HarnessFault:
        why = "closed" if self._was_closed else "not open"
        return HarnessFault("store_unavailable", f"The store is {why}.", boundary="artifact_store", why=why)
