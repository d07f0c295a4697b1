"""The engine on a store in memory and a scripted world: processes that start, die and take over in one test.

Rule 1: only ports are faked (`Provider`, `Tool`, `Sandbox`, `Processes`, `World`); what runs is the engine.
Rule 2: a test waits for an event of the log or for a gate, never for time.
Rule 3: leaving a `Cluster` checks every log against `engine.rules`, and every request that a model was sent.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import anyio
from anyio.abc import TaskGroup, TaskStatus

from engine.rules import Log, check_log
from hames.core.commands import CancelTurn, Command, SteerTurn, SubmitTurn, UpdateTurn
from hames.core.conversation import (
    CallDelta,
    ModelRequest,
    Part,
    ReasoningDelta,
    Reply,
    StopReason,
    TextDelta,
    ToolCall,
    ToolSpec,
    UserMessage,
    history_faults,
)
from hames.core.limits import DEFAULTS, TURN_LIMITS
from hames.core.state import Turn
from hames.engine.service import Service
from hames.ports import (
    Committed,
    Effect,
    Equipment,
    Mismatch,
    ModelLimits,
    Pending,
    ProviderFailed,
    ReaperRecord,
    Tool,
    ToolContext,
    ToolOutcome,
)
from hames.protocol.errors import HarnessFault
from hames.store import MemoryDisk, MemoryStore
from hames.store.ticket import Ticket

WAIT_S = 5.0
"""No wait of a test is longer."""

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


# --- the model ----------------------------------------------------------------------------------------------


class Gate:
    """A place where a fake waits until the test opens it, or has failed."""

    made: ClassVar[list[Gate]] = []

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.opened = anyio.Event()
        self.made.append(self)

    async def pass_through(self) -> None:
        self.reached.set()
        await self.opened.wait()

    async def come(self) -> None:
        """Until somebody waits here, or has passed."""
        with anyio.fail_after(WAIT_S):
            await self.reached.wait()

    def open(self) -> None:
        self.opened.set()


@dataclass(frozen=True)
class Call:
    """A tool call that the model makes; `arguments` that are text go out as they are."""

    tool: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    provider_id: str | None = None


@dataclass(frozen=True)
class Think:
    text: str


@dataclass(frozen=True)
class Stop:
    """The answer ends for this reason; without one it is `stop`, or `tool_calls` after a call."""

    reason: StopReason


Step = str | Think | Call | Gate | Stop | BaseException
Answer = Sequence[Step]


def failed(kind: Any = "model_unavailable", *, retryable: bool = True, retry_after_ms: int | None = None) -> Answer:
    """A try that fails before anything came."""
    failure = ProviderFailed(kind, boundary="model_gateway", retryable=retryable)
    failure.retry_after_ms = retry_after_ms
    return [failure]


class FakeProvider:
    """Answers from `answers`, one each, then from `otherwise`; `faults` says which request was not sendable."""

    name = "fake"
    route: Mapping[str, Any] = {"provider": "fake"}

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.otherwise: Callable[[ModelRequest], Answer] = lambda _request: ["ok"]
        self.requests: list[ModelRequest] = []
        self.faults: list[str] = []
        self.usage: Mapping[str, int] | None = {"total_tokens": 3}
        self.cancelled = 0
        self._serial = 0

    def script(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    async def stream(self, request: ModelRequest, on_part: Callable[[Part], None], limits: ModelLimits) -> Reply:
        self.requests.append(request)
        self.faults += history_faults(request.messages)
        answer = self.answers.pop(0) if self.answers else self.otherwise(request)
        try:
            await anyio.lowlevel.checkpoint()
            return await self._play(answer, on_part)
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise

    async def _play(self, answer: Answer, on_part: Callable[[Part], None]) -> Reply:
        text, reasoning = "", ""
        calls: list[ToolCall] = []
        stop: StopReason | None = None
        for step in answer:
            match step:
                case str():
                    text += step
                    on_part(TextDelta(step))
                case Think():
                    reasoning += step.text
                    on_part(ReasoningDelta(step.text))
                case Call():
                    raw = step.arguments if isinstance(step.arguments, str) else json.dumps(step.arguments)
                    self._serial += 1
                    given = f"p-{self._serial}" if step.provider_id is None else step.provider_id
                    on_part(CallDelta(len(calls), step.tool, ""))
                    on_part(CallDelta(len(calls), step.tool, raw))
                    calls.append(ToolCall("", given, step.tool, raw))
                case Gate():
                    await step.pass_through()
                case Stop():
                    stop = step.reason
                case BaseException():
                    raise step
        reason = stop or ("tool_calls" if calls else "stop")
        return Reply(text, reasoning, tuple(calls), reason, reason, self.usage, "fake-1", None)

    async def models(self) -> Sequence[str]:
        return ["fake"]

    async def aclose(self) -> None:
        return


def said(request: ModelRequest) -> str:
    """The last thing a user said in it."""
    return next(m.text for m in reversed(request.messages) if isinstance(m, UserMessage))


# --- tools --------------------------------------------------------------------------------------------------

Body = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolOutcome]]


async def say(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
    """The body of a tool that does nothing but answer."""
    await anyio.lowlevel.checkpoint()
    return ToolOutcome(f"did {arguments.get('n', 0)}")


class FakeTool:
    """A tool that runs `body`. `started` and `ended` list the argument `n` of its calls, in order."""

    def __init__(self, name: str, effect: Effect = "read", body: Body = say) -> None:
        parameters = {
            "type": "object",
            "properties": {"n": {"type": "integer"}, "path": {"type": "string"}},
            "additionalProperties": False,
        }
        self.spec = ToolSpec(name, f"Does {name}.", parameters)
        self.effect: Effect = effect
        self.body = body
        self.started: list[int] = []
        self.ended: list[int] = []

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        path: str | None = arguments.get("path")
        return path

    def summary(self, arguments: Mapping[str, Any]) -> str:
        return f"{self.spec.name} {arguments.get('n', '')}"

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        self.started.append(arguments.get("n", 0))
        outcome = await self.body(arguments, context)
        self.ended.append(arguments.get("n", 0))
        return outcome


def waiting(gate: Gate, *, deaf: bool = False) -> Body:
    """A body that waits at `gate`; a deaf one also when it is cancelled."""

    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        with anyio.CancelScope(shield=deaf):
            await gate.pass_through()
        return ToolOutcome("late" if deaf else "passed")

    return body


# --- the world ----------------------------------------------------------------------------------------------


class FakeSandbox:
    """A sandbox that no fake tool uses."""

    name = "none"
    guarantees: Mapping[str, str] = {}
    open = resolve = replace = directory = None

    async def aclose(self) -> None:
        return


class FakeProcesses:
    """`foreign` lists the sessions whose foreign commands were ended; `alive` answers for them."""

    def __init__(self) -> None:
        self.foreign: list[str] = []
        self.alive: tuple[int, ...] = ()

    async def start(self) -> ReaperRecord | None:
        return None

    async def stop_foreign(self, record: ReaperRecord, session_id: str) -> tuple[int, ...]:
        await anyio.lowlevel.checkpoint()
        self.foreign.append(session_id)
        return self.alive

    async def aclose(self) -> None:
        return


class FakeWorld:
    """Snapshots that hold what was wished, and equipment of fakes."""

    def __init__(self, provider: FakeProvider, tools: Sequence[FakeTool], limits: Mapping[str, int]) -> None:
        self.limits = limits
        self.processes = FakeProcesses()
        self.fake = provider
        self.tools = tools
        self.broken: HarnessFault | None = None

    def snapshot(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        limits = {name: self.limits[name] for name in TURN_LIMITS} | {"fallback": True} | wish.get("limits", {})
        return {
            "version": 1,
            "workspace": {"path": "/work", "device": 1, "inode": 2},
            "cwd": "/work",
            "model": "fake/fake",
            "limits": limits,
        }

    def mismatches(self, snapshot: Mapping[str, Any]) -> list[Mismatch]:
        return []

    def provider(self, name: str | None) -> FakeProvider:
        return self.fake

    async def prepare(self) -> None:
        return

    async def check(self, dependency: str, snapshot: Mapping[str, Any] | None) -> Mapping[str, Any]:
        return {"status": "ok"}

    def equip(self, session_id: str, snapshot: Mapping[str, Any]) -> Equipment:
        if self.broken is not None:
            raise self.broken
        tools: list[Tool] = [*self.tools]
        sandbox: Any = FakeSandbox()
        return Equipment(self.fake, "fake", sandbox, tools, {"network": "full"})

    async def aclose(self) -> None:
        return


class FaultyStore(MemoryStore):
    """A store that has no room for the commands that `refuses` fits; `after` is told of the others once they stand."""

    refuses: Callable[[Command], bool] | None = None
    after: Callable[[Command], object] | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.refused = anyio.Event()

    def commit(self, session_id: str, command: Command) -> Pending:
        if self.refuses is None or not self.refuses(command):
            pending = super().commit(session_id, command)
            if self.after is not None:
                self.after(command)
            return pending
        self.refused.set()
        ticket: Ticket[Committed] = Ticket()
        ticket.settle(HarnessFault("store_full", boundary="artifact_store"))
        return ticket


# --- processes ----------------------------------------------------------------------------------------------


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


TERMINALS = ("turn.completed", "turn.failed", "turn.cancelled")


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
