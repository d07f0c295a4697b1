from __future__ import annotations

import anyio
import pytest

from engine.kit import SID, Call, FakeTool, Gate, bench, cluster, eventually, said, waiting
from hames.core.conversation import ToolResult, UserMessage
from hames.protocol.errors import HarnessFault, Refused

pytestmark = pytest.mark.anyio


async def test_turns_of_a_session_run_one_after_the_other_in_order_of_admission() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate, "first"])
        for n in range(5):
            await p.submit(f"t-{n}")
        await gate.come()
        assert c.types().count("turn.started") == 1
        gate.open()
        for n in range(5):
            assert (await p.finish(f"t-{n}")).status == "completed"
        assert [e["turnId"] for e in c.of("turn.started")] == [f"t-{n}" for n in range(5)]
        assert [said(request) for request in c.provider.requests] == [f"do t-{n}" for n in range(5)]


async def test_sessions_run_beside_one_another() -> None:
    async with cluster() as c:
        p = await c.start()
        gates = [Gate() for _ in range(8)]
        by_text = {f"in {n}": gate for n, gate in enumerate(gates)}
        c.provider.otherwise = lambda request: [by_text[said(request)], "ok"]
        for n in range(8):
            await p.create(f"s-{n}")
            await p.submit("t", f"in {n}", session_id=f"s-{n}")
        for gate in gates:
            await gate.come()  # all wait at once
        for n in reversed(range(8)):
            gates[n].open()
            assert (await p.finish("t", session_id=f"s-{n}")).status == "completed"


async def test_a_turn_that_joins_enters_after_the_whole_batch_of_results() -> None:
    gate = Gate()
    tool = FakeTool("look", body=waiting(gate))
    async with bench(tool) as (c, p):
        c.provider.script([Call("look", {"n": 1}), Call("look", {"n": 2})], ["both heard"])
        await p.submit("t-1")
        await gate.come()
        await p.submit("t-2", "and this", delivery="join")
        await p.submit("t-3", "and that", delivery="join")
        gate.open()
        host = await p.finish("t-1")
        assert host.status == "completed"
        last = c.provider.requests[1].messages
        assert [type(message) for message in last[-3:]] == [ToolResult, ToolResult, UserMessage]
        assert said(c.provider.requests[1]) == "and this\n\nand that"
        for turn_id in ("t-2", "t-3"):
            ended = c.terminal(turn_id)
            assert (ended["type"], ended["data"]["hostTurnId"], ended["data"]["text"]) == (
                "turn.completed",
                "t-1",
                "both heard",
            )
            assert ended["data"]["usage"]["direct"]["requests"] == 0
        assert len(c.provider.requests) == 2


async def test_a_turn_of_another_principal_does_not_join_and_runs_by_itself() -> None:
    gate = Gate()
    async with bench(FakeTool("look", body=waiting(gate))) as (c, p):
        c.provider.script([Call("look")], ["one"], ["two"])
        await p.submit("t-1")
        await gate.come()
        await p.submit("t-2", "mine", delivery="join", principal="somebody")
        gate.open()
        await p.finish("t-2")
        assert c.of("turn.joined") == []
        assert c.terminal("t-2")["data"]["text"] == "two"


async def test_a_join_to_an_idle_session_runs_by_itself() -> None:
    async with bench() as (c, p):
        await p.submit("t-1", delivery="join")
        await p.finish("t-1")
        assert "turn.joined" not in c.types()


async def test_a_joined_turn_shares_the_failure_of_its_host() -> None:
    gate = Gate()
    async with bench(FakeTool("look", body=waiting(gate))) as (c, p):
        c.provider.script([Call("look")], [" "])
        await p.submit("t-1")
        await gate.come()
        await p.submit("t-2", delivery="join")
        gate.open()
        await p.finish("t-1")
        assert c.terminal("t-1")["data"]["error"]["kind"] == "empty_response"
        assert c.terminal("t-2")["data"]["error"]["kind"] == "host_failed"


@pytest.mark.parametrize("when", ["before the first byte", "in mid-text"])
async def test_a_steer_while_the_last_answer_comes_forces_one_more_step(when: str) -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate, "an answer"] if when == "before the first byte" else ["an ", gate, "answer"], ["new"])
        await p.submit()
        await gate.come()
        steer_id = await p.steer("no, differently")
        gate.open()
        await p.finish()
        assert c.terminal()["data"]["text"] == "new"
        assert said(c.provider.requests[1]) == "no, differently"
        assert c.of("steer.delivered")[0]["data"] == {"steerIds": [steer_id], "step": 2}
        assert len(c.provider.requests) == 2


async def test_a_steer_while_a_tool_runs_is_in_the_next_request_behind_the_results() -> None:
    gate = Gate()
    async with bench(FakeTool("look", body=waiting(gate))) as (c, p):
        c.provider.script([Call("look")], ["ok"])
        await p.submit()
        await gate.come()
        await p.steer("look closer")
        gate.open()
        await p.finish()
        assert [type(m) for m in c.provider.requests[1].messages[-2:]] == [ToolResult, UserMessage]
        assert said(c.provider.requests[1]) == "look closer"
        assert len(c.provider.requests) == 2


async def test_steers_that_never_reached_the_model_are_named_at_a_cancel() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate])
        await p.submit()
        await gate.come()
        steers = [await p.steer("a"), await p.steer("b")]
        await p.cancel("t-1")
        assert (await p.finish()).status == "cancelled"
        assert c.terminal()["data"]["undelivered"] == steers


async def test_steers_that_never_reached_the_model_are_named_at_a_failure() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate, "  "])
        await p.submit()
        await gate.come()
        steer = await p.steer("a")
        gate.open()
        assert (await p.finish()).status == "failed"
        assert c.terminal()["data"]["undelivered"] == [steer]


async def test_steers_that_never_reached_the_model_are_named_at_a_limit() -> None:
    gate = Gate()
    async with bench(FakeTool("look")) as (c, p):
        c.provider.script([Call("look")], [gate, "the end"])
        await p.submit(limits={"steps": 1})
        await gate.come()
        steer = await p.steer("a")
        gate.open()
        await p.finish()
        end = c.terminal()["data"]
        assert (end["error"]["kind"], end["undelivered"], end["text"]) == ("limit_exceeded", [steer], "the end")


async def test_an_undelivered_steer_does_not_reach_the_next_turn() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate])
        await p.submit()
        await gate.come()
        await p.steer("forget me")
        await p.cancel("t-1")
        await p.submit("t-2")
        await p.finish("t-2")
        assert not any("forget me" in str(message) for message in c.provider.requests[-1].messages)


async def test_a_queued_turn_keeps_its_place_when_it_is_changed() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate, "ok"])
        for n in (1, 2, 3):
            await p.submit(f"t-{n}")
        await gate.come()
        await p.update("t-2", "something else")
        with pytest.raises(Refused, match="turn_started"):
            await p.update("t-1", "too late")
        gate.open()
        await p.finish("t-3")
        assert [said(request) for request in c.provider.requests] == ["do t-1", "something else", "do t-3"]


async def test_a_failed_turn_holds_nothing() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate, " "], ["fine"])
        await p.submit("t-1")
        await gate.come()
        await p.submit("t-2")
        gate.open()
        assert (await p.finish("t-1")).status == "failed"
        assert (await p.finish("t-2")).status == "completed"


async def test_a_session_that_nobody_attached_runs_nothing_for_readers() -> None:
    async with cluster() as c:
        first = await c.start()
        gate = Gate()
        c.provider.script([gate])
        await first.create()
        await first.submit()
        await gate.come()
        await first.die()
        second = await c.start()
        head = len(c.log())
        await second.service.load(SID)
        await second.service.store.sessions(workspace=None, query=None, before=None, limit=10)
        await second.service.store.read(SID, limit=100, max_bytes=10_000)
        await second.resume(own="observe")
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(10):
            _, _, why = await second.service.wait(SID, "t-1")
        assert why == "unowned"
        assert len(c.log()) == head
        assert len(c.provider.requests) == 1


async def test_usage_is_summed_over_the_requests_of_a_turn() -> None:
    async with bench(FakeTool("look")) as (c, p):
        c.provider.script([Call("look")], [Call("look")], ["ok"])
        await p.submit()
        await p.finish()
        total = c.terminal()["data"]["usage"]["direct"]
        assert (total["requests"], total["reported"], total["counters"]) == (3, 3, {"total_tokens": 9})


async def test_who_waits_is_told_when_the_worker_of_the_session_breaks() -> None:
    async with cluster() as c:
        first = await c.start()
        gate = Gate()
        c.provider.script([gate])
        await first.create()
        await first.submit()
        await gate.come()
        second = await c.start()
        second.world.processes.alive = (4711,)
        await second.resume()
        failures: list[HarnessFault] = []

        async def wait() -> None:
            try:
                await second.service.wait(SID, "t-1")
            except HarnessFault as failure:
                failures.append(failure)

        async with anyio.create_task_group() as beside:
            beside.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            first.fall_silent()
            await eventually(lambda: failures)
            beside.cancel_scope.cancel()
        assert failures[0].details["mayStillRun"] == [4711]
