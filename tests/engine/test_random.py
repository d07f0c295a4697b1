"""Random lives of a session: whatever model, tools, client and processes do, the log keeps its rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.kit import SID, Answer, Call, Cluster, FakeTool, Gate, Process, Stop, Think, cluster, failed
from engine.rules import TERMINALS
from hames.ports import ProviderFailed, ToolContext, ToolOutcome
from hames.protocol.errors import HamesError, HarnessFault, ToolFailed

BROKEN = ProviderFailed("model_gateway", boundary="model_gateway", retryable=True)
PIECES = ("word ", "é" * 50, "gate", "think", "look", "act", "write", "bad call", "break", "length", "raise")
TOOLS = ("ok", "ok", "gate", "fail", "fault", "flood")
ACTIONS = (
    "submit",
    "submit",
    "join",
    "other joins",
    "steer",
    "update",
    "cancel hold",
    "cancel continue",
    "cancel drop",
    "cancel queued",
    "resume queue",
    "open a gate",
    "open a gate",
    "settle",
    "settle",
    "crash",
    "takeover",
    "refuse one",
    "close",
)


def answer_of(pieces: Sequence[str]) -> Answer:
    steps: list[Any] = []
    for piece in pieces:
        match piece:
            case "gate":
                steps.append(Gate())
            case "think":
                steps.append(Think("hm" * 40))
            case "look" | "act":
                steps.append(Call(piece, {"n": len(steps)}))
            case "write":
                steps.append(Call(piece, {"n": len(steps), "path": "a"}))
            case "bad call":
                steps.append(Call("look", "{", "same id"))
            case "break":
                steps.append(BROKEN)
            case "raise":
                steps.append(RuntimeError("a defect"))
            case "length":
                steps.append(Stop("length"))
            case _:
                steps.append(piece)
    return steps


class Life:
    """One random life. `play` ends with every turn ended, or fails."""

    def __init__(self, c: Cluster, first: Process, tools: list[str]) -> None:
        self.c = c
        self.process = first
        self.tools = tools
        self.serial = 0
        self.over = False

    async def body(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        kind = self.tools.pop(0) if self.tools else "ok"
        await anyio.lowlevel.checkpoint()
        match kind:
            case "gate" if not self.over:
                await Gate().pass_through()
            case "fail":
                raise ToolFailed("broken", "it did not work")
            case "fault":
                raise HarnessFault("containment_unavailable", boundary="sandbox")
            case "flood":
                context.emit("ü".encode() * 500)
                await anyio.lowlevel.checkpoint()
                context.emit(b"x" * 500)
        return ToolOutcome("done")

    async def act(self, action: str) -> None:
        """Do it; what is refused is no matter here."""
        if action in ("settle", "open a gate", "crash", "takeover", "refuse one"):
            await self._befall(action)
            return
        try:
            await self._ask(action)
        except HamesError as failure:
            if failure.kind == "internal":
                raise

    async def _ask(self, action: str) -> None:
        process = self.process
        match action:
            case "submit" | "join" | "other joins":
                self.serial += 1
                await process.submit(
                    f"t-{self.serial}",
                    delivery="queue" if action == "submit" else "join",
                    principal="other" if action == "other joins" else "user",
                )
            case "steer":
                await process.steer("turn left")
            case "update":
                await process.update(f"t-{self.serial}", "changed")
            case "cancel hold" | "cancel continue" | "cancel drop":
                await process.cancel(queue=action.split()[1])  # type: ignore[arg-type]
            case "cancel queued":
                await process.cancel(f"t-{self.serial}")
            case "resume queue":
                await process.service.resume_queue(SID, {"principal": "user"})
            case "close":
                await process.service.close(SID, {"principal": "user"})
                await process.resume()

    async def _befall(self, action: str) -> None:
        process = self.process
        match action:
            case "open a gate":
                closed = [gate for gate in Gate.made if gate.reached.is_set() and not gate.opened.is_set()]
                if closed:
                    closed[0].open()
            case "settle":
                await anyio.wait_all_tasks_blocked()
            case "crash":
                await process.die()
                self.process = await self.c.start()
                await self.process.resume()
            case "takeover":
                self.process = await self.c.start()
                await self.process.resume()
                await process.die()
            case "refuse one":
                self.refuse_one()

    def refuse_one(self) -> None:
        store = self.process.store

        def once(_command: Any) -> bool:
            store.refuses = None
            return True

        store.refuses = once

    async def end(self) -> None:
        """Open every gate and let everything come to its end."""
        self.over = True
        self.process.store.refuses = None
        self.c.provider.answers.clear()
        assert self.process.service.failure(SID) is None, "a worker ends by itself only where nothing can be done"
        await self.process.resume()
        while True:
            for gate in Gate.made:
                gate.open()
            await self.process.service.resume_queue(SID, {"principal": "user"})
            state = await self.process.service.state(SID)
            if not state.turns:
                break
            await self.process.finish(next(iter(state.turns)))
        await self.process.submit("last", "still there?")
        turn = await self.process.finish("last")
        assert turn.status == "completed", turn.outcome


async def live(answers: list[list[str]], tools: list[str], actions: list[str]) -> None:
    life: Life | None = None

    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        assert life is not None
        return await life.body(arguments, context)

    fakes = [FakeTool("look", "read", body), FakeTool("write", "write", body), FakeTool("act", "execute", body)]
    async with cluster(*fakes, retryBaseMs=0, retries=2, chunkMs=1) as c:
        first = await c.start()
        await first.create(limits={"steps": 6, "toolCalls": 8, "outputBytes": 3_000})
        life = Life(c, first, tools)
        c.provider.script(*(failed() if pieces == ["fail"] else answer_of(pieces) for pieces in answers))
        for action in actions:
            await life.act(action)
        await life.end()
        log = c.log()
        admitted = {event["turnId"] for event in log if event["type"] == "turn.queued"}
        ended = [event["turnId"] for event in log if event["type"] in TERMINALS]
        assert sorted(admitted) == sorted(ended), "every admitted turn has exactly one terminal"
        asked = sum(event["type"] == "model.requested" for event in log)
        assert len(c.provider.requests) <= asked, "no request is sent that is not in the log"
        c.check()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(
    answers=st.lists(st.one_of(st.just(["fail"]), st.lists(st.sampled_from(PIECES), max_size=5)), max_size=10),
    tools=st.lists(st.sampled_from(TOOLS), max_size=10),
    actions=st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=25),
)
@example(answers=[["word ", "gate"]], tools=[], actions=["submit", "settle", "steer", "open a gate", "settle"])
@example(answers=[["act"]], tools=["gate"], actions=["submit", "settle", "crash", "submit"])
def test_a_log_keeps_its_rules_whatever_happens(
    backend: str, answers: list[list[str]], tools: list[str], actions: list[str]
) -> None:
    anyio.run(live, answers, list(tools), actions, backend=backend)
