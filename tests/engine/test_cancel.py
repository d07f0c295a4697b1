from __future__ import annotations

from typing import Any

import anyio
import pytest

from engine.kit import SID, Call, Cluster, FakeTool, Gate, Process, Think, bench, cluster, failed, said, waiting
from hames.core.commands import CancelTurn, Command, Record
from hames.core.conversation import AssistantMessage, ToolResult
from hames.engine.live import Listener, LiveItem
from hames.protocol.errors import Refused

pytestmark = pytest.mark.anyio


async def settled_and_usable(c: Cluster, p: Process) -> None:
    """One `cancelled`, and the next turn works on a history that can be sent."""
    assert (await p.finish("t-1")).status == "cancelled"
    assert c.terminal("t-1")["type"] == "turn.cancelled"
    await p.submit("after", "go on", resume_queue=True)
    assert (await p.finish("after")).status == "completed"
    assert said(c.provider.requests[-1]).endswith("go on")


async def test_cancelling_a_queued_turn_ends_it_at_once() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate, "first"])
        await p.submit("t-0")
        await gate.come()
        await p.submit("t-1")
        committed = await p.cancel("t-1")
        assert "t-1" not in committed.state.turns
        assert c.of("queue.held") == []
        gate.open()
        assert (await p.finish("t-0")).status == "completed"
        await settled_and_usable(c, p)
        assert not any("do t-1" in str(message) for message in c.provider.requests[-1].messages)


async def test_cancelling_before_the_first_byte() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate])
        await p.submit()
        await gate.come()
        await p.cancel("t-1")
        await settled_and_usable(c, p)
        assert c.provider.cancelled == 1


@pytest.mark.parametrize("text", ["half a sen", "é" * 100])
async def test_cancelling_in_mid_text_keeps_what_was_said(text: str) -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([Think("hm"), text, gate, "tence"])
        await p.submit()
        await gate.come()
        await p.cancel("t-1")
        await settled_and_usable(c, p)
        whole = c.of("message.completed")[0]["data"]
        assert (whole["text"], whole["inContext"], whole["cause"]) == (text, True, "cancelled")
        assert AssistantMessage(text) in c.provider.requests[-1].messages


async def test_cancelling_in_mid_arguments_runs_no_tool() -> None:
    tool = FakeTool("look")
    async with bench(tool) as (c, p):
        gate = Gate()
        c.provider.script(["I look", Call("look", {"n": 1}), gate])
        await p.submit()
        await gate.come()
        await p.cancel("t-1")
        await settled_and_usable(c, p)
        assert tool.started == []
        assert "tool.requested" not in c.types()


async def test_cancelling_while_tools_run_gives_every_call_a_result() -> None:
    gate = Gate()
    tool = FakeTool("look", body=waiting(gate))
    async with bench(tool) as (c, p):
        c.provider.script([Call("look", {"n": 1}), Call("look", {"n": 2, "path": "a"}), Call("look", {"path": "a"})])
        await p.submit()
        await gate.come()
        await p.cancel("t-1")
        await settled_and_usable(c, p)
        assert [e["data"]["outcome"] for e in c.of("tool.completed")] == ["cancelled"] * 3
        assert sum(isinstance(m, ToolResult) for m in c.provider.requests[-1].messages) == 3


async def test_cancelling_a_deaf_tool_abandons_it_and_says_so() -> None:
    gate = Gate()
    tool = FakeTool("look", "execute", body=waiting(gate, deaf=True))
    async with bench(tool) as (c, p):
        c.provider.script([Call("look", {"n": 1})])
        await p.submit()
        await gate.come()
        await p.cancel("t-1")
        await settled_and_usable(c, p)
        call_id = c.of("tool.requested")[0]["data"]["callId"]
        assert c.of("tool.completed")[0]["data"]["outcome"] == "unknown"
        end = c.terminal()["data"]
        assert (end["forced"], end["mayStillRun"]) == (True, [{"callId": call_id, "tool": "look"}])
        before = c.log()
        gate.open()
        await anyio.wait_all_tasks_blocked()
        assert tool.ended == [1], "it ran to its end"
        assert c.log() == before, "what it said later is dropped"


async def test_an_abandoned_tool_shows_no_more_output() -> None:
    gate = Gate()

    async def body(arguments: Any, context: Any) -> Any:
        context.emit(b"early")
        with anyio.CancelScope(shield=True):
            await gate.pass_through()
        context.emit(b"late" * 100)
        return None

    async with bench(FakeTool("look", body=body)) as (c, p):
        shown = Shown()
        p.service.live(SID).listeners.add(shown)
        c.provider.script([Call("look")])
        await p.submit()
        await gate.come()
        await p.cancel("t-1")
        await p.finish()
        before = (c.log(), list(shown.texts))
        assert p.service.live(SID).items == {}
        gate.open()
        await anyio.wait_all_tasks_blocked()
        assert (c.log(), shown.texts) == before


class Shown(Listener):
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def delta(self, item: LiveItem, offset: int, text: str) -> None:
        self.texts.append(text)

    def heartbeat(self, turn_id: str, phase: str, since_ms: int) -> None:
        return


async def test_cancelling_in_a_retry_wait() -> None:
    async with bench(retryBaseMs=60_000) as (c, p):
        c.provider.script(failed())
        await p.submit()
        await c.event("model.retried")
        await p.cancel("t-1")
        await settled_and_usable(c, p)


async def test_cancelling_after_a_result_and_before_the_next_request() -> None:
    async with bench(FakeTool("look")) as (c, p):

        def cancel_at_the_result(command: Command) -> None:
            if isinstance(command, Record) and command.drafts[0].type == "tool.completed":
                p.store.after = None
                p.store.commit(SID, CancelTurn({"principal": "user"}, "t-1"))

        p.store.after = cancel_at_the_result
        c.provider.script([Call("look", {"n": 1})])
        await p.submit()
        assert (await p.finish("t-1")).status == "cancelled"
        assert c.of("tool.completed")[0]["data"]["outcome"] == "ok"
        await settled_and_usable(c, p)


async def test_a_cancel_that_is_repeated_ends_the_turn_once() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate])
        await p.submit()
        await gate.come()
        async with anyio.create_task_group() as together:
            for _ in range(5):
                together.start_soon(p.cancel, "t-1")
        await p.cancel("t-1")  # of an ended turn: nothing
        await settled_and_usable(c, p)
        assert len(c.of("turn.cancel_requested")) == 1


async def test_a_cancel_without_a_running_turn_is_refused() -> None:
    async with bench() as (_, p):
        with pytest.raises(Refused, match="no_active_turn"):
            await p.cancel()


async def test_cancelling_holds_those_behind_until_they_are_let_go() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate])
        for n in (1, 2, 3):
            await p.submit(f"t-{n}")
        await gate.come()
        await p.cancel("t-1", queue="hold")
        await p.finish("t-1")
        _, _, why = await p.service.wait(SID, "t-2")
        assert why == "held"
        await anyio.wait_all_tasks_blocked()
        assert len(c.provider.requests) == 1
        await p.service.resume_queue(SID, {"principal": "user"})
        assert (await p.finish("t-3")).status == "completed"


async def test_cancelling_with_continue_lets_those_behind_go_on() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate])
        await p.submit("t-1")
        await p.submit("t-2")
        await gate.come()
        await p.cancel("t-1", queue="continue")
        assert (await p.finish("t-2")).status == "completed"
        assert c.of("queue.held") == []


async def test_cancelling_with_drop_ends_those_behind() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate])
        for n in (1, 2, 3):
            await p.submit(f"t-{n}")
        await gate.come()
        await p.cancel("t-1", queue="drop")
        for n in (1, 2, 3):
            assert (await p.finish(f"t-{n}")).status == "cancelled"
        await p.submit("t-4")
        assert (await p.finish("t-4")).status == "completed"
        assert len(c.provider.requests) == 2


async def test_a_joined_turn_is_cancelled_with_its_host_and_not_alone() -> None:
    gate = Gate()
    async with bench(FakeTool("look")) as (c, p):
        before = Gate()
        c.provider.script([before, Call("look")], [gate])
        await p.submit("t-1")
        await before.come()
        await p.submit("t-2", delivery="join")
        before.open()
        await gate.come()
        with pytest.raises(Refused, match="turn_joined"):
            await p.cancel("t-2")
        await p.cancel("t-1")
        await p.finish("t-1")
        assert c.terminal("t-2")["data"]["cause"] == "host"


async def test_a_cancel_from_another_process_stops_the_owner() -> None:
    async with bench() as (c, owner):
        other = await c.start()
        gate = Gate()
        c.provider.script([gate])
        await owner.submit()
        await gate.come()
        await other.cancel("t-1")
        assert (await other.finish("t-1")).status == "cancelled"
        await settled_and_usable(c, owner)


async def test_cancelling_a_turn_whose_process_died_settles_it_without_a_model() -> None:
    async with cluster(FakeTool("act", "execute")) as c:
        first = await c.start()
        gate = Gate()
        c.provider.script([gate])
        await first.create()
        await first.submit("t-1")
        await gate.come()
        await first.submit("t-2")
        await first.die()
        second = await c.start()
        await second.cancel("t-1")
        assert (await second.finish("t-1")).status == "cancelled"
        await anyio.wait_all_tasks_blocked()
        assert len(c.provider.requests) == 1
        await settled_and_usable(c, second)


async def test_closing_ends_what_runs_and_what_waits_and_opening_works_again() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate])
        await p.submit("t-1")
        await p.submit("t-2")
        await gate.come()
        loaded = await p.service.close(SID, {"principal": "user"})
        assert (loaded.state.status, loaded.owner) == ("closed", None)
        for turn_id in ("t-1", "t-2"):
            assert c.terminal(turn_id)["data"]["cause"] == "session_closed"
        with pytest.raises(Refused, match="session_closed"):
            await p.submit("t-3")
        await p.resume()
        await p.submit("t-4")
        assert (await p.finish("t-4")).status == "completed"


@pytest.mark.parametrize("mode", ["cancel", "drain"])
async def test_shutting_down_ends_or_awaits_what_runs_and_admits_nothing(mode: Any) -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate, "ok"])
        await p.submit("t-1")
        await gate.come()
        async with anyio.create_task_group() as beside:

            async def down() -> None:
                await p.service.shutdown(mode, by={"principal": "user"}, cause="shutdown")

            beside.start_soon(down)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(Refused, match="shutting_down"):
                await p.submit("t-2")
            gate.open()
        assert c.terminal("t-1")["type"] == ("turn.cancelled" if mode == "cancel" else "turn.completed")
        loaded = await p.service.load(SID)
        assert loaded.owner is None


@pytest.mark.parametrize("mode", ["cancel", "drain"])
@pytest.mark.parametrize("rounds", range(0, 24, 2))
async def test_shutting_down_while_a_turn_starts_leaves_it_queued_or_ended(mode: Any, rounds: int) -> None:
    """In whichever round of the loop after the submit, its start may be on its way to the log."""
    async with bench() as (c, p):
        c.provider.script(["ok"])
        p.store.late = 4
        submitted = c.log()
        async with anyio.create_task_group() as beside:
            beside.start_soon(p.submit)
            while c.log() == submitted:
                await anyio.lowlevel.checkpoint()
            for _ in range(rounds):
                await anyio.lowlevel.checkpoint()

            await p.service.shutdown(mode, by={"principal": "user"}, cause="shutdown")

        loaded = await p.service.load(SID)
        assert (loaded.state.running, loaded.owner) == (None, None)


async def test_an_attempt_that_does_not_end_is_settled_from_the_log() -> None:
    async with bench(settleMs=100) as (c, p):
        gate = Gate(deaf=True)
        c.provider.script([gate, "too late"])
        await p.submit()
        await gate.come()
        await p.cancel("t-1")

        await c.event("turn.cancelled")
        gate.open()

        terminal = c.terminal()["data"]
        assert (terminal["forced"], terminal["mayStillRun"]) == (True, [{"turnId": "t-1"}])
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"
        assert "too late" not in str(c.log())
