"""The engine on a store in memory and a scripted world: processes that start, die and take over in one test.

Rule 1: only ports are faked (`engine.fakes`, whose names are given out again here); what runs is the engine.
Rule 2: a test waits for an event of the log or for a gate, never for time.
Rule 3: leaving a `Cluster` checks every log against `engine.rules`, and every request that a model was sent.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
from anyio.abc import TaskGroup, TaskStatus

from engine.fakes import (
    WAIT_S,
    Answer,
    Body,
    Call,
    FakeProvider,
    FakeTool,
    FakeWorld,
    FaultyStore,
    Gate,
    Stop,
    Think,
    failed,
    said,
    say,
    waiting,
)
from engine.rules import TERMINALS, Log, check_log
from hames.core.commands import CancelTurn, SteerTurn, SubmitTurn, UpdateTurn
from hames.core.limits import DEFAULTS
from hames.core.state import Turn
from hames.engine.service import Service
from hames.ports import Committed, ReaperRecord
from hames.store import MemoryDisk, MemoryStore

__all__ = [
    "LIMITS",
    "SID",
    "Answer",
    "Body",
    "Call",
    "Cluster",
    "FakeProvider",
    "FakeTool",
    "Gate",
    "Process",
    "Stop",
    "Think",
    "bench",
    "cluster",
    "eventually",
    "failed",
    "said",
    "say",
    "waiting",
]

LIMITS: Mapping[str, int] = {
    **DEFAULTS,
    "retryBaseMs": 1,
    "termGraceMs": 0,
    "reapMs": 1,
    "heartbeatMs": 50,
    "chunkMs": 20,
    "chunkBytes": 64,
    "leaseMs": 200,
}
SID = "s-1"


class Process:
    """One process: a service on its own handle of the store."""

    def __init__(self, store: FaultyStore, world: FakeWorld, tasks: TaskGroup) -> None:
        self.store = store
        self.world = world
        self.service = Service(store, world, tasks)
        self._tasks = tasks
        self._gone = anyio.Event()
        self._leave = anyio.Event()
        self._serial = 0

    async def create(self, session_id: str = SID, **wish: Any) -> None:
        await self.service.create(wish, session_id=session_id, digest="d", by=by("user"), turn=None)

    async def submit(
        self,
        turn_id: str = "t-1",
        text: str = "",
        *,
        session_id: str = SID,
        delivery: Literal["queue", "join", "reject"] = "queue",
        principal: str = "user",
        **more: Any,
    ) -> Committed:
        slots = ({"role": "command", "type": "text", "text": text or f"do {turn_id}"},)
        command = SubmitTurn(turn_id, slots, "d", by(principal), delivery, **more)
        return await self.service.submit(session_id, command)

    async def steer(self, text: str, *, session_id: str = SID) -> str:
        self._serial += 1
        steer_id = f"r-{self.store.owner_id[:4]}-{self._serial}"
        slots = ({"role": "command", "type": "text", "text": text},)
        await self.service.commit(session_id, SteerTurn(steer_id, slots, "d", by("user")))
        return steer_id

    async def update(self, turn_id: str, text: str, *, session_id: str = SID) -> None:
        slots = ({"role": "command", "type": "text", "text": text},)
        await self.service.commit(session_id, UpdateTurn(turn_id, by("user"), slots))

    async def cancel(
        self,
        turn_id: str | None = None,
        *,
        session_id: str = SID,
        queue: Literal["hold", "continue", "drop"] = "hold",
    ) -> Committed:
        return await self.service.cancel(session_id, CancelTurn(by("user"), turn_id, queue))

    async def finish(self, turn_id: str = "t-1", *, session_id: str = SID) -> Turn:
        """The turn, once it has its terminal."""
        with anyio.fail_after(WAIT_S):
            turn, _, why = await self.service.wait(session_id, turn_id)
        assert why == "ended", (why, self.service.failure(session_id))
        return turn

    async def resume(
        self, *, session_id: str = SID, recover: Literal["continue", "fail"] = "continue", own: Any = "prefer"
    ) -> None:
        await self.service.resume(session_id, expect={}, own=own, recover=recover, by=by("user"))

    async def die(self) -> None:
        """As after SIGKILL: nothing more is written, nothing is tidied, the lease stays."""
        self.store.die()
        self._tasks.cancel_scope.cancel()
        with anyio.fail_after(WAIT_S):
            await self._gone.wait()

    def fall_silent(self) -> None:
        """As after SIGSTOP, seen from others: its beats stop for good."""
        self.store.beat = lambda: None  # type: ignore[method-assign]


async def eventually(condition: Callable[[], object]) -> None:
    """Until a condition that rings no bell."""
    with anyio.fail_after(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.001)


def by(principal: str) -> dict[str, str]:
    return {"principal": principal, "client": "test", "connectionId": "c-1"}


class Cluster:
    """Processes on one store in memory, with one model and one set of tools."""

    def __init__(self, tools: Sequence[FakeTool], limits: Mapping[str, int], tasks: TaskGroup) -> None:
        self.disk = MemoryDisk()
        self.provider = FakeProvider()
        self.tools = tools
        self.limits = limits
        self.files: dict[str, bytes | str] = {}
        """Of the workspace `/work`, which all share: see `FakeSandbox`."""
        self.processes: list[Process] = []
        self._tasks = tasks
        self._eye = MemoryStore(self.disk)

    async def start(self) -> Process:
        """One more process."""
        await self._eye.open()
        process: Process = await self._tasks.start(self._run_process)
        self.processes.append(process)
        return process

    async def _run_process(self, *, task_status: TaskStatus[Process]) -> None:
        store = FaultyStore(self.disk, limits=self.limits, reaper=lambda: ReaperRecord(1, 1, "/socket"))
        world = FakeWorld(self.provider, self.tools, self.limits)
        world.files = self.files
        process: Process | None = None
        try:
            async with anyio.create_task_group() as tasks:
                process = Process(store, world, tasks)
                task_status.started(process)
                await process._leave.wait()
                await process.service.aclose()
                tasks.cancel_scope.cancel()
        finally:
            if process is not None:
                process._gone.set()

    def log(self, session_id: str = SID) -> Log:
        """The whole log as it stands."""
        session = self.disk.sessions.get(session_id)
        return [json.loads(line)["event"] for line in _lines(session)]

    def types(self, session_id: str = SID) -> list[str]:
        return [event["type"] for event in self.log(session_id)]

    def of(self, type_: str, session_id: str = SID, **data: Any) -> Log:
        """The events of a type, with these members in their data."""
        return [
            event
            for event in self.log(session_id)
            if event["type"] == type_ and all(event["data"].get(name) == value for name, value in data.items())
        ]

    def terminal(self, turn_id: str = "t-1", session_id: str = SID) -> dict[str, Any]:
        """The one terminal of a turn."""
        ends = [e for e in self.log(session_id) if e.get("turnId") == turn_id and e["type"] in TERMINALS]
        assert len(ends) == 1, ends
        return ends[0]

    async def event(self, type_: str, session_id: str = SID, *, count: int = 1, **data: Any) -> dict[str, Any]:
        """The `count`-th event of a type, with these members in its data, waited for."""
        with anyio.fail_after(WAIT_S):
            while True:
                found = self.of(type_, session_id, **data)
                if len(found) >= count:
                    return found[count - 1]
                await self._eye.changed(session_id, self._eye.head(session_id))

    def check(self) -> None:
        assert self.provider.faults == []
        for session_id in self.disk.sessions:
            check_log(self.log(session_id))

    async def aclose(self) -> None:
        for process in self.processes:
            process._leave.set()
        for process in self.processes:
            await process._gone.wait()


def _lines(session: Any) -> list[bytes]:
    return [] if session is None else [b"{" + line + b"}" for line in session.lines]


@asynccontextmanager
async def cluster(*tools: FakeTool, **limits: int) -> AsyncIterator[Cluster]:
    """A cluster without processes yet; leaving it ends them all and checks what they wrote."""
    with anyio.fail_after(WAIT_S * 2):
        async with anyio.create_task_group() as tasks:
            made = Cluster(tools, {**LIMITS, **limits}, tasks)
            try:
                yield made
            finally:
                for gate in Gate.made:
                    gate.open()  # a deaf tool would keep a failed test from ending
                Gate.made.clear()
            with anyio.fail_after(WAIT_S):
                await made.aclose()
            made.check()
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def bench(*tools: FakeTool, **limits: int) -> AsyncIterator[tuple[Cluster, Process]]:
    """A cluster of one process, with the session `SID`."""
    async with cluster(*tools, **limits) as made:
        process = await made.start()
        await process.create()
        yield made, process
