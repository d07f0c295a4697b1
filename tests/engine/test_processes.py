"""Background processes on a store in memory: who ends them, who says so, and what a store that fails changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from engine.fakes import FakeCommand
from engine.kit import SID, Call, Cluster, FakeTool, Gate, Process, bench, by, cluster, eventually, waiting
from hames.core.commands import ExitProcess, StartProcess
from hames.ports import ToolContext, ToolOutcome, Wish
from hames.protocol.errors import HarnessFault

pytestmark = pytest.mark.anyio


async def begin(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
    """The body of a tool that starts the sandbox's command in the background."""
    assert context.background is not None
    process = await context.background.start(Wish((("sh",),), "sh", name=arguments.get("path")))
    return ToolOutcome(process.process_id)


def tools() -> tuple[FakeTool, FakeTool]:
    """One that starts, and the one without which nothing is started."""
    return FakeTool("start", "execute", begin), FakeTool("process", "execute")


async def started(made: Cluster, process: Process, turn_id: str = "t-1") -> FakeCommand:
    """Have a turn start the command."""
    command = process.world.command = FakeCommand()
    made.provider.script([Call("start")])
    await process.submit(turn_id)
    await process.finish(turn_id)
    return command


def why(made: Cluster) -> list[str]:
    return [event["data"]["why"] for event in made.of("process.exited")]


async def test_a_close_waits_for_its_end_and_the_log_has_it_first() -> None:
    async with bench(*tools(), processStartMs=0) as (made, process):
        command = await started(made, process)

        await process.service.close(SID, by("user"))

        assert command.gone
        assert made.types()[-3:] == ["process.stop_requested", "process.exited", "session.closed"]
        assert why(made) == ["session_closed"]
        assert made.of("process.exited")[0]["data"]["signal"] == 15
        assert process.world.outputs.made == {}


async def test_without_the_tool_that_looks_after_it_there_is_no_background() -> None:
    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return ToolOutcome(str(context.background))

    async with bench(FakeTool("start", "execute", body)) as (made, process):
        made.provider.script([Call("start")])
        await process.submit()
        await process.finish()

        assert made.of("tool.completed")[0]["data"]["text"] == "None"


async def test_a_start_that_is_not_kept_starts_nothing() -> None:
    async with bench(*tools()) as (made, process):
        command = process.world.command = FakeCommand()
        process.store.refuses = lambda one: isinstance(one, StartProcess)
        made.provider.script([Call("start")])
        await process.submit()

        turn = await process.finish()

        assert turn.outcome is not None
        assert turn.outcome["error"]["kind"] == "store_full"
        assert not command.graces
        assert process.world.outputs.made == {}
        assert made.of("process.started") == []


async def test_an_output_without_a_place_ends_the_turn_typed() -> None:
    async with bench(*tools()) as (made, process):
        process.world.outputs.full = True
        made.provider.script([Call("start")])
        await process.submit()

        turn = await process.finish()

        assert turn.outcome is not None
        assert turn.outcome["error"]["kind"] == "store_unavailable"
        assert made.of("process.started") == []


async def test_an_end_that_the_store_does_not_take_is_said_once_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hames.engine.processes.RETRY_S", 0.01)
    async with bench(*tools(), processStartMs=0) as (made, process):
        command = await started(made, process)
        process.store.refuses = lambda one: isinstance(one, ExitProcess)

        command.ended.set()
        await process.store.refused.wait()
        assert made.of("process.exited") == []
        process.store.refuses = None

        await made.event("process.exited", why="exited", exitCode=0)


async def test_who_leaves_does_not_wait_for_a_store_that_fails() -> None:
    async with cluster(*tools(), processStartMs=0) as made:
        first, second = await made.start(), await made.start()
        await first.create()
        command = await started(made, first)
        first.store.refuses = lambda one: isinstance(one, ExitProcess)

        await first.service.shutdown("cancel", by=by("user"), cause="shutdown")

        assert command.gone
        await second.resume()
        await made.event("process.exited", why="owner_died")


async def test_a_fault_of_the_sandbox_is_told_with_the_end() -> None:
    async with bench(*tools(), processStartMs=0) as (made, process):
        command = await started(made, process)
        command.fault = HarnessFault("internal", "It would not die.", boundary="sandbox", mayStillRun=[7])

        command.ended.set()

        exited = (await made.event("process.exited"))["data"]
        assert (exited["why"], exited["error"]["kind"], exited["mayStillRun"]) == ("exited", "internal", [7])


async def test_a_fault_at_the_start_ends_the_turn() -> None:
    async with bench(*tools(), processStartMs=4_000) as (made, process):
        command = process.world.command = FakeCommand(fault=HarnessFault("containment_unavailable"))
        command.ended.set()
        made.provider.script([Call("start")])
        await process.submit()

        turn = await process.finish()

        assert turn.outcome is not None
        assert turn.outcome["error"]["kind"] == "containment_unavailable"


async def test_a_program_that_is_not_there_is_an_error_of_the_call() -> None:
    async with bench(*tools(), processStartMs=4_000) as (made, process):
        made.provider.script([Call("start")])
        await process.submit()
        await process.finish()

        assert made.of("tool.completed")[0]["data"]["error"]["kind"] == "command_not_found"
        assert why(made) == ["not_started"]


async def test_a_cancel_before_the_answer_ends_it_before_the_terminal() -> None:
    async with bench(*tools(), processStartMs=4_000) as (made, process):
        process.world.command = FakeCommand()
        made.provider.script([Call("start")])
        await process.submit()
        await made.event("process.started")

        await process.cancel("t-1")
        await process.finish()

        assert why(made) == ["cancelled"]
        types = made.types()
        assert types.index("process.exited") < types.index("turn.cancelled")


async def test_a_cancel_that_is_durable_first_starts_nothing() -> None:
    gate = Gate()

    async def late(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        with anyio.CancelScope(shield=True):
            await gate.pass_through()
            outcome = await begin(arguments, context)
        return outcome

    async with bench(FakeTool("start", "execute", late), FakeTool("process", "execute")) as (made, process):
        command = process.world.command = FakeCommand()
        made.provider.script([Call("start")])
        await process.submit()
        await gate.come()
        await process.cancel("t-1")
        gate.open()
        await process.finish()

        assert made.of("process.started") == []
        assert not command.graces
        assert process.world.outputs.made == {}


async def test_a_killed_process_is_settled_by_the_next_owner_after_its_commands_were_ended() -> None:
    async with cluster(*tools(), processStartMs=0) as made:
        first, second = await made.start(), await made.start()
        await first.create()
        await started(made, first)
        second.world.outputs = first.world.outputs
        await first.die()

        await second.resume()

        exited = (await made.event("process.exited"))["data"]
        assert (exited["why"], exited["outputBytes"]) == ("owner_died", 3)
        assert exited["artifact"]["sizeBytes"] == 3
        assert second.world.processes.foreign == [SID]
        assert second.world.outputs.made == {}


async def test_what_cannot_be_ended_is_named_with_the_end() -> None:
    async with cluster(*tools(), processStartMs=0) as made:
        first, second = await made.start(), await made.start()
        await first.create()
        await started(made, first)
        second.world.processes.alive = (11, 7)
        await first.die()

        await second.resume()

        assert (await made.event("process.exited"))["data"]["mayStillRun"] == [7, 11]


async def test_an_owner_that_is_taken_over_ends_it_and_says_nothing() -> None:
    gate = Gate()
    async with cluster(*tools(), processStartMs=0) as made:
        first, second = await made.start(), await made.start()
        await first.create()
        command = await started(made, first)
        made.provider.script([gate], ["whole"])
        await first.submit("t-2")
        await gate.come()
        await second.resume()
        first.fall_silent()

        assert (await second.finish("t-2")).status == "completed"

        await eventually(lambda: command.gone)
        assert why(made) == ["owner_died"]
        assert second.world.processes.foreign == [SID, SID], "at the takeover, and for what was in the log"


async def test_another_process_has_one_stopped_by_a_word_in_the_log() -> None:
    async with cluster(*tools(), processStartMs=0) as made:
        first, second = await made.start(), await made.start()
        await first.create()
        command = await started(made, first)

        await second.service.close(SID, by("other"))

        assert command.gone
        assert why(made) == ["session_closed"]


async def test_a_turn_that_runs_is_not_held_up_by_what_runs_beside_it() -> None:
    gate = Gate()
    extra = FakeTool("wait", body=waiting(gate))
    async with bench(*tools(), extra, processStartMs=0) as (made, process):
        command = await started(made, process)
        made.provider.script([Call("wait")])
        await process.submit("t-2")
        await gate.come()
        command.ended.set()
        await made.event("process.exited", why="exited")
        gate.open()

        assert (await process.finish("t-2")).status == "completed"


async def test_a_name_can_be_used_again_once_its_process_has_ended() -> None:
    async with bench(*tools(), processStartMs=0) as (made, process):
        command = process.world.command = FakeCommand()
        made.provider.script([Call("start", {"path": "web"})], [Call("start", {"path": "web"})])
        await process.submit("t-1")
        await process.finish("t-1")
        assert made.of("tool.completed")[-1]["data"]["error"]["kind"] == "name_taken"

        command.ended.set()
        await made.event("process.exited")
        made.provider.script([Call("start", {"path": "web"})])
        await process.submit("t-2")
        await process.finish("t-2")

        assert made.of("tool.completed")[-1]["data"]["outcome"] == "ok"
