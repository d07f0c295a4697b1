"""The fakes behind the engine's ports: a scripted model, tools, a world, and a store that can be made to fail."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import anyio
import anyio.lowlevel

from hames.core.catalog import ModelFacts
from hames.core.commands import Command
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
from hames.core.cost import Money, Prices
from hames.core.limits import TURN_LIMITS
from hames.ports import (
    Committed,
    Effect,
    Equipment,
    Mismatch,
    ModelLimits,
    Pending,
    ProcessResult,
    ProviderFailed,
    ReaperRecord,
    Spool,
    Tool,
    ToolContext,
    ToolOutcome,
)
from hames.protocol.errors import HarnessFault, ToolFailed
from hames.store import MemoryStore
from hames.store.ticket import Ticket

WAIT_S = 5.0
"""No wait of a test is longer."""


# --- the model ----------------------------------------------------------------------------------------------


class Gate:
    """A place where a fake waits until the test opens it, or has failed."""

    made: ClassVar[list[Gate]] = []

    def __init__(self, *, deaf: bool = False) -> None:
        self.deaf = deaf
        self.reached = anyio.Event()
        self.opened = anyio.Event()
        self.made.append(self)

    async def pass_through(self) -> None:
        self.reached.set()
        with anyio.CancelScope(shield=self.deaf):
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

    name = signs_as = "fake"
    route: Mapping[str, Any] = {"provider": "fake"}

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.otherwise: Callable[[ModelRequest], Answer] = lambda _request: ["ok"]
        self.requests: list[ModelRequest] = []
        self.faults: list[str] = []
        self.usage: Mapping[str, int] | None = {"total_tokens": 3}
        self.cost: Money | None = None
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
        return Reply(text, reasoning, tuple(calls), reason, reason, self.usage, "fake-1", None, cost=self.cost)

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


class FakeFile:
    """A file of a `FakeSandbox`."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path = path
        self.size = len(content)
        self._content = content

    def read(self, offset: int, length: int) -> bytes:
        return self._content[offset : offset + length]

    def close(self) -> None:
        return


class FakeCommand:
    """A command that runs until it is ended, or asked to."""

    def __init__(self, says: bytes = b"on\n", *, fault: HarnessFault | None = None) -> None:
        self.says = says
        self.fault = fault
        self.code = 0
        self.gone = False
        self.ended = anyio.Event()
        self.graces: list[int] = []

    def end(self, grace_ms: int) -> None:
        self.graces.append(grace_ms)
        self.code = -15
        self.ended.set()


class FakeSandbox:
    """A sandbox without commands but one. It has these `files`, by absolute path; one that is a text is a failure of
    this kind."""

    name = signs_as = "none"
    guarantees: Mapping[str, str] = {}
    resolve = replace = None

    def __init__(self, files: Mapping[str, bytes | str]) -> None:
        self.files = files
        self.command: FakeCommand | None = None

    async def run(
        self,
        argv: Sequence[str],
        *,
        on_output: Callable[[bytes], None],
        on_start: Callable[[Callable[[int], None]], None],
        **_options: Any,
    ) -> ProcessResult:
        """What `command` does, which a test has put here."""
        command = self.command
        if command is None:
            raise ToolFailed("command_not_found", f"{argv[0]} is not there")
        on_output(command.says)
        on_start(command.end)
        try:
            await command.ended.wait()
        finally:
            command.gone = True
        if command.fault is not None:
            raise command.fault
        return ProcessResult(command.code, False, b"", len(command.says), 0, ())

    def open(self, path: str) -> FakeFile:
        content = self.files.get(path, "not_found")
        if isinstance(content, str):
            raise ToolFailed(content, f"{path}: {content}")
        return FakeFile(path, content)

    def directory(self, path: str | None) -> str:
        if not any(name.startswith(f"{path}/") for name in self.files):
            raise ToolFailed("not_found", f"{path} is no directory")
        return str(path)

    async def aclose(self) -> None:
        return


class FakeOutput:
    """What a background process wrote, in memory."""

    def __init__(self, place: dict[tuple[str, str], FakeOutput], name: tuple[str, str]) -> None:
        self.data = b""
        self._place = place
        self._name = name
        place[name] = self

    @property
    def total_bytes(self) -> int:
        return len(self.data)

    def write(self, data: bytes) -> None:
        self.data += data

    def read(self, offset: int, length: int) -> tuple[int, bytes]:
        return offset, self.data[offset : offset + length]

    def copy_to(self, spool: Spool) -> None:
        spool.write(self.data)

    def discard(self) -> None:
        self._place.pop(self._name, None)


class FakeOutputs:
    """Where background processes write; `full` when there is no room."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, str], FakeOutput] = {}
        self.full = False

    def make(self, session_id: str, process_id: str) -> FakeOutput:
        if self.full:
            raise HarnessFault("store_unavailable", boundary="artifact_store")
        return FakeOutput(self.made, (session_id, process_id))

    def find(self, session_id: str, process_id: str) -> FakeOutput | None:
        return self.made.get((session_id, process_id))

    def forget(self, session_id: str) -> None:
        for name in [name for name in self.made if name[0] == session_id]:
            del self.made[name]


class FakeProcesses:
    """`foreign` lists the sessions whose foreign commands were ended; `alive` answers for them."""

    def __init__(self) -> None:
        self.foreign: list[str] = []
        self.alive: tuple[int, ...] = ()

    record: ReaperRecord | None = None

    async def start(self) -> ReaperRecord | None:
        return None

    async def stop_foreign(self, record: ReaperRecord, session_id: str) -> tuple[int, ...]:
        await anyio.lowlevel.checkpoint()
        self.foreign.append(session_id)
        return self.alive

    def hurry(self) -> None:
        return

    async def aclose(self) -> None:
        return


class FakeWorld:
    """Snapshots that hold what was wished, and equipment of fakes."""

    def __init__(self, provider: FakeProvider, tools: Sequence[FakeTool], limits: Mapping[str, int]) -> None:
        self.limits = limits
        self.processes = FakeProcesses()
        self.outputs = FakeOutputs()
        self.fake = provider
        self.tools = tools
        self.broken: HarnessFault | None = None
        self.window_tokens: int | None = None
        self.prices: dict[str, Prices] = {}
        self.answer_tokens: int | None = None
        self.files: Mapping[str, bytes | str] = {}
        self.cwd = "/work"
        self.command: FakeCommand | None = None

    async def unlock(self, model: str | None) -> None:
        return

    async def prove(self, backend: str | None) -> None:
        return

    def snapshot(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        limits = {name: self.limits[name] for name in TURN_LIMITS} | {"fallback": True} | wish.get("limits", {})
        told = {"instructions": wish["instructions"]} if "instructions" in wish else {}
        return told | {
            "version": 1,
            "workspace": {"path": "/work", "device": 1, "inode": 2},
            "cwd": self.cwd,
            "mode": wish.get("mode", "default"),
            "model": self.route("fake"),
            "sandbox": {"backend": "none"},
            "limits": limits,
        }

    def route(self, model: str) -> dict[str, Any]:
        return {"provider": "fake", "model": model}

    def mismatches(self, snapshot: Mapping[str, Any]) -> list[Mismatch]:
        return []

    def facts(self, provider: str, model: str) -> ModelFacts | None:
        return ModelFacts(prices=self.prices.get(model))

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
        sandbox: Any = FakeSandbox(self.files)
        sandbox.command = self.command
        model = snapshot["model"]["model"]
        return Equipment(
            self.fake,
            model,
            sandbox,
            tools,
            {"network": "full"},
            self.window_tokens,
            answer_tokens=self.answer_tokens,
            prices=self.prices.get(model),
        )

    async def aclose(self) -> None:
        return


class _Late:
    """A command whose answer is on its way."""

    def __init__(self, pending: Pending, rounds: int) -> None:
        self._pending = pending
        self._rounds = rounds
        self.settled = pending.settled
        self.failure = pending.failure

    async def wait(self) -> Committed:
        for _ in range(self._rounds):
            await anyio.lowlevel.checkpoint()
        return await self._pending.wait()


class FaultyStore(MemoryStore):
    """A store that has no room for the commands that `refuses` fits; `after` is told of the others once they stand.
    Answers come `late` rounds of the loop after the commit, as from a disk."""

    refuses: Callable[[Command], bool] | None = None
    after: Callable[[Command], object] | None = None
    late: int = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.refused = anyio.Event()

    def commit(self, session_id: str, command: Command) -> Pending:
        if self.refuses is None or not self.refuses(command):
            pending = super().commit(session_id, command)
            if self.after is not None:
                self.after(command)
            return _Late(pending, self.late) if self.late else pending
        self.refused.set()
        ticket: Ticket[Committed] = Ticket()
        ticket.settle(HarnessFault("store_full", boundary="artifact_store"))
        return ticket
