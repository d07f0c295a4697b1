from __future__ import annotations

from typing import Any

import anyio
import pytest

from engine.kit import Call, FakeTool, Gate, Think, bench, cluster, failed, waiting
from hames.ports import ToolOutcome

pytestmark = pytest.mark.anyio


def limit_of(end: dict[str, Any]) -> tuple[str, str]:
    assert end["type"] == "turn.failed", end
    error = end["data"]["error"]
    return error["kind"], error["details"].get("limit")


@pytest.mark.parametrize("phase", ["model", "mid-text", "tool", "deaf tool", "retry"])
async def test_the_deadline_ends_whatever_stalls(phase: str) -> None:
    gate = Gate()
    tool = FakeTool("look", body=waiting(gate, deaf=phase == "deaf tool"))
    async with bench(tool, retryBaseMs=60_000) as (c, p):
        answers: dict[str, Any] = {
            "model": [gate],
            "mid-text": ["some text", gate],
            "tool": [Call("look")],
            "deaf tool": [Call("look")],
            "retry": failed(),
        }
        c.provider.script(answers[phase])
        await p.submit(limits={"wallTimeMs": 60})
        turn = await p.finish()
        assert turn.status == "failed"
        end = c.terminal()
        assert limit_of(end) == ("limit_exceeded", "wallTimeMs")
        assert end["data"]["error"]["details"]["configured"] == 60
        assert end["data"].get("forced", False) == (phase == "deaf tool")
        if phase == "mid-text":
            assert end["data"]["text"] == "some text"
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"


async def test_a_turn_that_ends_in_time_is_not_touched_by_its_deadline() -> None:
    async with bench() as (_, p):
        await p.submit(limits={"wallTimeMs": 5_000})
        assert (await p.finish()).status == "completed"


async def test_the_deadline_runs_on_while_no_process_runs_the_turn() -> None:
    async with cluster() as c:
        first = await c.start()
        gate = Gate()
        c.provider.script(["said", gate])
        await first.create()
        await first.submit(limits={"wallTimeMs": 200})
        await c.event("message.chunk")
        await first.die()
        await anyio.sleep(0.21)  # the deadline is what is waited for
        second = await c.start()
        await second.resume()
        await second.finish()
        assert limit_of(c.terminal()) == ("limit_exceeded", "wallTimeMs")
        assert len(c.provider.requests) == 1


async def test_at_the_step_limit_a_last_request_without_tools_gets_the_text() -> None:
    async with bench(FakeTool("look")) as (c, p):
        c.provider.otherwise = lambda request: ["so far so good"] if request.tool_choice == "none" else [Call("look")]
        await p.submit(limits={"steps": 3})
        await p.finish()
        end = c.terminal()
        assert limit_of(end) == ("limit_exceeded", "steps")
        assert end["data"]["error"]["details"]["configured"] == 3
        assert end["data"]["text"] == "so far so good"
        assert [request.tool_choice for request in c.provider.requests] == ["auto"] * 3 + ["none"]
        assert c.of("step.started")[-1]["data"] == {"step": 4, "fallback": True}


async def test_calls_in_the_answer_at_the_limit_are_left_out() -> None:
    tool = FakeTool("look")
    async with bench(tool) as (c, p):
        c.provider.otherwise = lambda _request: ["still at it", Call("look")]
        await p.submit(limits={"steps": 1})
        await p.finish()
        assert limit_of(c.terminal()) == ("limit_exceeded", "steps")
        assert len(tool.started) == 1
        await p.submit("t-2", limits={"steps": 1})
        await p.finish("t-2")


async def test_without_fallback_the_step_limit_ends_the_turn_at_once() -> None:
    async with bench(FakeTool("look")) as (c, p):
        c.provider.otherwise = lambda _request: ["looking", Call("look")]
        await p.submit(limits={"steps": 2, "fallback": False})
        await p.finish()
        assert limit_of(c.terminal()) == ("limit_exceeded", "steps")
        assert c.terminal()["data"]["text"] == "looking"
        assert len(c.provider.requests) == 2


async def test_an_answer_at_exactly_the_step_limit_completes() -> None:
    async with bench(FakeTool("look")) as (c, p):
        c.provider.script([Call("look")], ["done"])
        await p.submit(limits={"steps": 2})
        assert (await p.finish()).status == "completed"


@pytest.mark.parametrize("allowed", [0, 2])
async def test_calls_beyond_the_limit_are_not_run_and_the_turn_ends(allowed: int) -> None:
    tool = FakeTool("look")
    async with bench(tool) as (c, p):
        c.provider.script([Call("look", {"n": n}) for n in range(4)])
        await p.submit(limits={"toolCalls": allowed})
        await p.finish()
        assert limit_of(c.terminal()) == ("limit_exceeded", "toolCalls")
        assert sorted(tool.started) == list(range(allowed))
        outcomes = {e["data"]["callId"]: e["data"]["outcome"] for e in c.of("tool.completed")}
        order = [e["data"]["callId"] for e in c.of("tool.requested")]
        assert [outcomes[call] for call in order] == ["ok"] * allowed + ["not_run"] * (4 - allowed)
        assert len(c.provider.requests) == 1


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(["x" * 10] * 50, id="small parts"),
        pytest.param(["x" * 500], id="one part"),
        pytest.param(["é" * 60] * 5, id="more bytes than characters"),
        pytest.param([Think("y" * 10)] * 50, id="reasoning"),
        pytest.param([Call("look", '{"path": "' + "z" * 400 + '"}')], id="arguments"),
    ],
)
@pytest.mark.parametrize("limit", [10, 100])
async def test_output_beyond_the_limit_is_cut_off_while_it_comes(flood: Any, limit: int) -> None:
    tool = FakeTool("look")
    async with bench(tool) as (c, p):
        gate = Gate()
        c.provider.script([*flood, gate])
        await p.submit(limits={"outputBytes": limit})
        await p.finish()
        assert limit_of(c.terminal()) == ("limit_exceeded", "outputBytes")
        assert c.terminal()["data"]["error"]["details"]["observed"] > limit
        assert len(c.provider.requests) == 1, "a turn that is over its limit asks no more"
        assert tool.started == []
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"


@pytest.mark.parametrize("unit", ["x", "é", "😀"])
async def test_an_answer_that_comes_whole_is_held_to_the_output_limit_in_bytes(unit: str) -> None:
    size = len(unit.encode())
    async with bench() as (c, p):
        c.provider.script([unit * (100 // size)], [unit * (100 // size + 1)])
        await p.submit("t-1", limits={"outputBytes": 100})
        assert (await p.finish("t-1")).status == "completed"
        await p.submit("t-2", limits={"outputBytes": 100})
        await p.finish("t-2")
        assert limit_of(c.terminal("t-2")) == ("limit_exceeded", "outputBytes")


async def test_tool_output_counts_and_the_batch_gets_its_results_first() -> None:
    async def flood(arguments: Any, context: Any) -> ToolOutcome:
        await anyio.lowlevel.checkpoint()
        return ToolOutcome("x" * 80)

    async with bench(FakeTool("look", body=flood)) as (c, p):
        c.provider.script([Call("look", {"n": 1}), Call("look", {"n": 2})])
        await p.submit(limits={"outputBytes": 100})
        await p.finish()
        assert limit_of(c.terminal()) == ("limit_exceeded", "outputBytes")
        assert len(c.of("tool.completed", outcome="ok")) == 2
        assert len(c.provider.requests) == 1


async def test_a_limit_of_the_session_holds_for_its_turns_and_a_turn_only_lowers_it() -> None:
    async with cluster(FakeTool("look")) as c:
        p = await c.start()
        await p.create(limits={"steps": 2})
        c.provider.otherwise = lambda _request: [Call("look")]
        await p.submit("t-1")
        await p.submit("t-2", limits={"steps": 1})
        await p.submit("t-3", limits={"steps": 50})
        await p.finish("t-3")
        asked = [len([e for e in c.of("model.requested") if e["turnId"] == t]) for t in ("t-1", "t-2", "t-3")]
        assert asked == [3, 2, 3]


async def test_the_deadline_also_ends_joined_turns() -> None:
    gate = Gate()
    late = Gate()
    async with bench(FakeTool("look", body=waiting(gate))) as (c, p):
        c.provider.script([Call("look")], [late])
        await p.submit("t-1", limits={"wallTimeMs": 300})
        await gate.come()
        await p.submit("t-2", delivery="join")
        gate.open()
        await p.finish("t-2")
        assert c.terminal("t-2")["data"]["error"]["kind"] == "host_failed"
        assert limit_of(c.terminal("t-1")) == ("limit_exceeded", "wallTimeMs")


async def test_an_answer_with_very_many_calls_is_cut() -> None:
    async with bench(FakeTool("look"), toolCalls=3) as (c, p):
        c.provider.script([Call("look", {"n": n}) for n in range(5_000)])
        await p.submit()

        turn = await p.finish("t-1")

        assert turn.status == "failed"
        assert turn.outcome is not None
        assert turn.outcome["error"]["details"]["limit"] == "toolCalls"
        assert len(c.provider.requests) == 1
        assert c.of("tool.requested") == []
