from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from engine.kit import SID, Call, Cluster, FakeTool, Gate, Process, bench, cluster, eventually, said, waiting
from hames.core.commands import CancelTurn, Command, Draft, Ending, EndTurn, Record, StartTurn
from hames.core.conversation import ToolResult
from hames.ports import ToolContext, ToolOutcome
from hames.protocol.errors import Refused

pytestmark = pytest.mark.anyio


async def running(c: Cluster) -> Process:
    """A process with the session and a turn."""
    process = await c.start()
    await process.create()
    await process.submit()
    return process


async def test_a_turn_goes_on_as_the_next_attempt_when_its_process_is_dead() -> None:
    async with cluster(FakeTool("look")) as c:
        gate = Gate()
        c.provider.script(["I look", Call("look", {"n": 1})], ["par", gate], ["whole"])
        first = await running(c)
        await gate.come()
        await c.event("message.chunk", text="par")
        await first.die()
        second = await c.start()
        await second.resume()
        assert (await second.finish()).status == "completed"
        starts = c.of("turn.started")
        assert [e["data"]["attempt"] for e in starts] == [1, 2]
        assert starts[1]["data"]["previous"] == {"attempt": 1, "reason": "owner_lost"}
        assert c.terminal()["data"]["text"] == "whole"
        # Step 1 was in the log, so only step 2 is asked again; its first half does not count.
        assert len(c.provider.requests) == 3
        assert c.provider.requests[2].messages == c.provider.requests[1].messages
        cut = c.of("message.completed", cause="interrupted")[0]["data"]
        assert (cut["text"], cut["inContext"]) == ("par", False)


async def test_another_attached_process_takes_over_by_itself() -> None:
    async with cluster() as c:
        gate = Gate()
        c.provider.script([gate], ["whole"])
        first = await running(c)
        second = await c.start()
        await second.resume()
        await gate.come()
        await first.die()
        assert (await second.finish()).status == "completed"
        assert c.of("log.recovered")[0]["data"]["action"] == "continued"


@pytest.mark.parametrize("effect", ["write", "execute"])
async def test_a_call_that_may_have_had_its_effect_is_unknown_and_fails_the_turn(effect: Any) -> None:
    gate = Gate()
    tool = FakeTool("act", effect, body=waiting(gate))
    async with cluster(tool, FakeTool("look")) as c:
        c.provider.script([Call("act", {"n": 1})])
        first = await running(c)
        await gate.come()
        await first.die()
        second = await c.start()
        await second.resume()
        assert (await second.finish()).status == "failed"
        (call,) = c.of("tool.completed")
        assert call["data"]["outcome"] == "unknown"
        error = c.terminal()["data"]["error"]
        assert (error["kind"], error["details"]["unknownCalls"]) == ("lease_lost", [call["data"]["callId"]])
        assert tool.started == [1]
        assert len(c.provider.requests) == 1
        await second.submit("t-2")
        assert (await second.finish("t-2")).status == "completed"
        assert any(isinstance(m, ToolResult) and m.is_error for m in c.provider.requests[-1].messages)


async def test_a_call_that_only_reads_is_run_again() -> None:
    gate = Gate()
    tool = FakeTool("look", "read", body=waiting(gate))
    async with cluster(tool) as c:
        c.provider.script([Call("look", {"n": 1}), Call("look", {"n": 2})], ["seen"])
        first = await running(c)
        await gate.come()
        await first.die()
        gate.open()
        second = await c.start()
        await second.resume()
        assert (await second.finish()).status == "completed"
        assert sorted(tool.started) == [1, 1, 2, 2]
        assert len(c.of("tool.completed", outcome="ok")) == 2
        assert len(c.provider.requests) == 2


async def test_calls_that_were_asked_for_and_not_begun_are_run() -> None:
    tool = FakeTool("act", "execute")
    async with cluster(tool) as c:
        c.provider.script([Call("act", {"n": 1})], ["done"])
        first = await c.start()
        await first.create()
        # The process dies before the start of the call is durable.
        first.store.refuses = lambda command: (
            isinstance(command, Record) and any(draft.type == "tool.started" for draft in command.drafts)
        )
        await first.submit()
        await c.event("tool.requested")
        await first.die()
        assert tool.started == []
        second = await c.start()
        await second.resume()
        assert (await second.finish()).status == "completed"
        assert tool.started == [1]
        assert len(c.provider.requests) == 2


async def test_some_results_in_the_log_are_kept_and_the_rest_is_run() -> None:
    gate = Gate()

    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        if arguments["n"] == 2:
            await gate.pass_through()
        return ToolOutcome(f"saw {arguments['n']}")

    tool = FakeTool("look", "read", body)
    async with cluster(tool) as c:
        c.provider.script([Call("look", {"n": 1}), Call("look", {"n": 2})], ["seen"])
        first = await running(c)
        await gate.come()
        await c.event("tool.completed", text="saw 1")
        await first.die()
        gate.open()
        second = await c.start()
        await second.resume()
        await second.finish()
        assert sorted(tool.started) == [1, 2, 2]
        texts = [m.text for m in c.provider.requests[-1].messages if isinstance(m, ToolResult)]
        assert texts == ["saw 1", "saw 2"]


async def test_recovery_can_be_told_to_fail_the_turn() -> None:
    async with cluster() as c:
        gate = Gate()
        c.provider.script([gate])
        first = await running(c)
        await gate.come()
        await first.die()
        second = await c.start()
        await second.resume(recover="fail")
        assert (await second.finish()).status == "failed"
        assert c.terminal()["data"]["error"]["kind"] == "lease_lost"
        assert len(c.provider.requests) == 1
        await second.submit("t-2")
        assert (await second.finish("t-2")).status == "completed"


async def test_a_cancel_that_was_durable_is_settled_by_recovery() -> None:
    async with cluster(FakeTool("act", "execute", body=waiting(Gate(), deaf=True))) as c:
        c.provider.script(["text " * 20, Gate()])
        first = await running(c)
        await c.event("message.chunk")
        second = await c.start()
        await first.store.commit(SID, cancel_command()).wait()
        await first.die()
        await second.resume()
        assert (await second.finish()).status == "cancelled"
        assert len(c.provider.requests) == 1
        whole = c.of("message.completed")[0]["data"]
        assert (whole["inContext"], whole["cause"]) == (True, "interrupted")


async def test_a_cancel_in_the_midst_of_recovery_keeps_the_turn_from_starting_again() -> None:
    async with cluster() as c:
        gate = Gate()
        c.provider.script([gate])
        first = await running(c)
        await gate.come()
        await first.die()
        second = await c.start()

        def cancel_first(command: Command) -> bool:
            if isinstance(command, StartTurn):
                second.store.refuses = None
                second.store.commit(SID, cancel_command())
            return False

        second.store.refuses = cancel_first
        await second.resume()
        assert (await second.finish()).status == "cancelled"
        assert len(c.of("turn.started")) == 1
        assert len(c.provider.requests) == 1


def cancel_command() -> CancelTurn:
    return CancelTurn({"principal": "user"}, "t-1")


async def test_queued_turns_of_a_dead_process_run_in_their_order() -> None:
    async with cluster() as c:
        gate = Gate()
        c.provider.script([gate], ["one"])
        first = await running(c)
        for n in (2, 3):
            await first.submit(f"t-{n}")
        await gate.come()
        await first.die()
        second = await c.start()
        await second.resume()
        await second.finish("t-3")
        assert [e["turnId"] for e in c.of("turn.started")] == ["t-1", "t-1", "t-2", "t-3"]


async def test_joined_turns_and_steers_survive_the_death_of_their_process() -> None:
    gate, before, late = Gate(), Gate(), Gate()
    async with cluster(FakeTool("look", body=waiting(before))) as c:
        c.provider.script([Call("look")], [gate], ["all"])
        first = await running(c)
        await before.come()
        await first.submit("t-2", "joined", delivery="join")
        await first.steer("first steer")
        before.open()
        await gate.come()
        await first.steer("second steer")
        await first.die()
        late.open()
        second = await c.start()
        await second.resume()
        await second.finish("t-2")
        assert c.terminal("t-2")["data"]["hostTurnId"] == "t-1"
        assert said(c.provider.requests[-1]).split("\n\n") == ["joined", "first steer", "second steer"]


async def test_a_silent_owner_is_taken_over_after_its_commands_were_ended() -> None:
    async with cluster() as c:
        gate = Gate()
        c.provider.script([gate, "too late"], ["whole"])
        first = await running(c)
        second = await c.start()
        await second.resume()
        await gate.come()
        first.fall_silent()
        await c.event("turn.started", attempt=2)
        assert second.world.processes.foreign == [SID]
        gate.open()  # the first wakes up, and finds that it has lost
        assert (await second.finish()).status == "completed"
        assert {e["attempt"] for e in c.log() if e["type"] == "message.completed"} == {2}
        await first.create("s-2")
        await first.submit("t", session_id="s-2")
        assert (await first.finish("t", session_id="s-2")).status == "completed", "it goes on serving"


async def test_a_silent_owner_keeps_an_idle_session() -> None:
    async with bench() as (c, first):
        second = await c.start()
        await second.resume()
        first.fall_silent()
        await anyio.sleep(0.6)  # beyond the lease and two looks at it
        owner = await second.service.store.owner(SID)
        assert owner is not None
        assert owner.stale
        assert not owner.mine
        await second.submit()
        assert (await second.finish()).status == "completed"


async def test_a_session_whose_commands_cannot_be_ended_is_not_taken() -> None:
    async with cluster() as c:
        gate = Gate()
        c.provider.script([gate])
        first = await running(c)
        second = await c.start()
        second.world.processes.alive = (4711,)
        await gate.come()
        first.fall_silent()
        await second.resume()
        await eventually(lambda: second.service.failure(SID))
        failure = second.service.failure(SID)
        assert failure is not None
        assert failure.details["mayStillRun"] == [4711]
        assert len(c.of("turn.started")) == 1


async def test_a_live_owner_keeps_its_session() -> None:
    async with cluster() as c:
        gate = Gate()
        c.provider.script([gate, "mine"])
        first = await running(c)
        second = await c.start()
        await gate.come()
        with pytest.raises(Refused, match="session_owned"):
            await second.resume(own="require")
        await second.resume()
        await anyio.sleep(0.6)  # two looks at the lease
        gate.open()
        await second.finish()
        assert len(c.of("turn.started")) == 1
        assert len(c.provider.requests) == 1
        owner = await first.service.store.owner(SID)
        assert owner is not None
        assert owner.mine


async def test_what_a_stale_attempt_says_is_refused() -> None:
    async with cluster() as c:
        gate = Gate()
        c.provider.script([gate], [Gate()])
        first = await running(c)
        second = await c.start()
        await gate.come()
        fence = c.of("turn.started")[0]["data"]["fence"]
        first.fall_silent()
        await second.resume()
        await c.event("turn.started", attempt=2)
        head = len(c.log())
        for command in (
            Record(fence, "t-1", (Draft("message.chunk", {"itemId": "i", "offset": 0, "text": "late"}),)),
            EndTurn(fence, "t-1", Ending("completed", "late")),
        ):
            for process in (first, second):
                with pytest.raises(Refused, match="lease_lost"):
                    await process.store.commit(SID, command).wait()
        assert len(c.log()) == head


async def test_a_turn_can_be_taken_over_again_and_again() -> None:
    async with cluster() as c:
        c.provider.otherwise = lambda _request: ["x" * 70, Gate()]
        process = await running(c)
        for attempt in range(1, 6):
            await c.event("message.chunk", count=attempt)
            await process.die()
            process = await c.start()
            await process.resume()
        await c.event("message.chunk", count=6)
        c.provider.otherwise = lambda _request: ["at last"]
        await process.die()
        last = await c.start()
        await last.resume()
        await last.finish()
        assert c.terminal()["attempt"] == 7
        assert len(c.provider.requests) == 7


async def test_a_closed_session_is_open_to_another_process_at_once() -> None:
    async with cluster() as c:
        a = await c.start()
        b = await c.start()
        await a.create()
        for n in range(5):
            await a.submit(f"a-{n}")
            await a.finish(f"a-{n}")
            await a.service.close(SID, {"principal": "user"})
            assert (await b.service.load(SID)).owner is None
            await b.resume(own="require")
            await b.submit(f"b-{n}")
            await b.finish(f"b-{n}")
            await b.service.close(SID, {"principal": "user"})
            await a.resume()


async def test_the_same_submit_before_and_after_a_death_is_one_turn() -> None:
    async with cluster() as c:
        gate = Gate()
        c.provider.script([gate], ["once"])
        first = await c.start()
        second = await c.start()
        await first.create()
        for process in (first, second, first):
            again = await process.submit("t-1", key="k")
            assert again.reply.turn_id == "t-1"
        await gate.come()
        await first.die()
        assert (await second.submit("t-9", key="k", text="do t-1")).reply.turn_id == "t-1"
        await second.finish("t-1")
        await second.submit("t-1", key="k")
        assert c.types().count("turn.queued") == 1
        assert len(c.provider.requests) == 2
