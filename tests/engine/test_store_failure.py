from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from engine.kit import SID, Answer, Call, FakeTool, Gate, bench, cluster, failed, waiting
from hames.core.commands import Boundary, Command, EndTurn, Record, StartTurn, SubmitTurn
from hames.protocol.errors import HarnessFault

pytestmark = pytest.mark.anyio

Refuses = Callable[[Command], bool]


def recording(type_: str) -> Refuses:
    return lambda command: isinstance(command, Record | EndTurn) and any(d.type == type_ for d in command.drafts)


async def test_no_tool_runs_behind_a_start_that_is_not_durable() -> None:
    tool = FakeTool("act", "execute")
    async with bench(tool) as (c, p):
        p.store.refuses = recording("tool.started")
        c.provider.script([Call("act")])
        await p.submit()
        assert (await p.finish()).status == "failed"
        assert tool.started == []
        assert c.terminal()["data"]["error"]["kind"] == "store_full"
        p.store.refuses = None
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"


async def test_no_request_is_sent_that_is_not_durable() -> None:
    async with bench() as (c, p):
        p.store.refuses = recording("model.requested")
        await p.submit()
        assert (await p.finish()).status == "failed"
        assert c.provider.requests == []


async def test_an_admission_that_is_not_durable_is_not_answered() -> None:
    async with bench() as (c, p):
        p.store.refuses = lambda command: isinstance(command, SubmitTurn)
        with pytest.raises(HarnessFault, match="store_full"):
            await p.submit()
        p.store.refuses = None
        assert "turn.queued" not in c.types()
        await p.submit()
        assert (await p.finish()).status == "completed"


@pytest.mark.parametrize("phase", ["model", "tool", "retry"])
async def test_a_turn_is_settled_when_a_full_store_has_room_again(phase: str) -> None:
    gate = Gate()
    async with bench(FakeTool("act", "execute", body=waiting(gate))) as (c, p):
        answers: dict[str, Answer] = {"model": ["x" * 70, gate, "y"], "tool": [Call("act")], "retry": [gate, *failed()]}
        c.provider.script(answers[phase])
        await p.submit()
        await gate.come()
        p.store.refuses = lambda _command: True
        gate.open()
        await p.store.refused.wait()
        await anyio.wait_all_tasks_blocked()
        asked = len(c.provider.requests)
        p.store.refuses = None
        assert (await p.finish()).status == "failed"
        assert c.terminal()["data"]["error"]["kind"] == "store_full"
        assert len(c.provider.requests) == asked
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"


@pytest.mark.parametrize(
    "lost", ["message.chunk", "message.completed", "tool.requested", "tool.completed", "model.retried", "step.started"]
)
async def test_one_commit_that_is_lost_leaves_no_gap_and_no_open_end(lost: str) -> None:
    gate = Gate()
    async with bench(FakeTool("look", body=waiting(gate))) as (c, p):
        first = Gate()
        c.provider.script(["a" * 70, "b" * 70, first, "c" * 70, "d" * 70, *failed()], ["then", Call("look")])

        def once(command: Command) -> bool:
            fits = recording(lost)(command)
            if fits:
                p.store.refuses = None
            return fits

        await p.submit()
        await first.come()
        p.store.refuses = once
        first.open()
        gate.open()
        await p.finish()
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"


@pytest.mark.parametrize("fits", [StartTurn, Boundary, EndTurn])
async def test_a_store_that_fails_for_a_moment_does_not_strand_the_queue(fits: type[Command]) -> None:
    gate = Gate()
    async with bench(FakeTool("look", body=waiting(gate))) as (c, p):
        c.provider.script([Call("look")])
        if fits is StartTurn:
            p.store.refuses = lambda command: isinstance(command, fits)
        await p.submit("t-1")
        await p.submit("t-2")
        if fits is not StartTurn:
            await gate.come()
            await p.steer("on")
            p.store.refuses = lambda command: isinstance(command, fits)
        gate.open()
        await p.store.refused.wait()
        await anyio.wait_all_tasks_blocked()
        p.store.refuses = None
        assert (await p.finish("t-1")).ended
        assert (await p.finish("t-2")).status == "completed"


async def test_a_cancel_during_a_failing_store_wins() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate])
        await p.submit()
        await gate.come()
        p.store.refuses = lambda command: isinstance(command, EndTurn)
        await p.cancel("t-1")
        await p.store.refused.wait()
        p.store.refuses = None
        assert (await p.finish()).status == "cancelled"


async def test_a_full_store_in_one_process_does_not_keep_another_from_taking_over() -> None:
    async with cluster() as c:
        first = await c.start()
        gate = Gate()
        c.provider.script([gate, "said"], ["again"])
        await first.create()
        await first.submit()
        await gate.come()
        second = await c.start()
        await second.resume()
        first.store.refuses = lambda _command: True
        gate.open()
        await first.store.refused.wait()
        await first.die()
        assert (await second.finish()).status == "completed"
        assert (await second.service.load(SID)).state.running is None
