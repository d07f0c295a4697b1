from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.to_thread
import pytest

from engine.kit import SID, Call, FakeTool, Gate, bench, waiting
from hames.core.conversation import ToolResult
from hames.engine.calls import LARGE_ARGUMENTS
from hames.ports import FileChange, ToolContext, ToolOutcome
from hames.protocol.errors import HarnessFault, Refused, ToolFailed

pytestmark = pytest.mark.anyio


def results(request: Any) -> list[ToolResult]:
    return [message for message in request.messages if isinstance(message, ToolResult)]


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (Call("no_such", {}), "unknown_tool", "look"),
        (Call("look", "{not json"), "invalid_arguments", "not valid JSON"),
        (Call("look", "[1]"), "invalid_arguments", "object"),
        (Call("look", '"text"'), "invalid_arguments", "object"),
        (Call("look", {"n": "one"}), "invalid_arguments", "n"),
        (Call("look", {"m": 1}), "invalid_arguments", "m"),
        (Call("look", '{"n": 1, "n": '), "invalid_arguments", "not valid JSON"),
    ],
)
async def test_what_the_model_can_mend_goes_back_to_it_typed(call: Call, kind: str, says: str) -> None:
    tool = FakeTool("look")
    async with bench(tool) as (c, p):
        c.provider.script([call], ["I see"])
        await p.submit()
        assert (await p.finish()).status == "completed"
        data = c.of("tool.completed")[0]["data"]
        assert (data["outcome"], data["error"]["kind"]) == ("error", kind)
        (result,) = results(c.provider.requests[1])
        assert result.is_error
        assert says in result.text
        assert tool.started == []
        assert "tool.started" not in c.types()


async def test_empty_arguments_are_no_arguments() -> None:
    tool = FakeTool("look")
    async with bench(tool) as (c, p):
        c.provider.script([Call("look", "")])
        await p.submit()
        assert (await p.finish()).status == "completed"
        assert tool.started == [0]


async def test_a_bad_call_does_not_keep_the_others_of_its_batch_from_running() -> None:
    tool = FakeTool("look")
    async with bench(tool) as (c, p):
        c.provider.script([Call("look", {"n": 1}), Call("nothing"), Call("look", {"n": 3})])
        await p.submit()
        await p.finish()
        assert sorted(tool.started) == [1, 3]
        order = [result.call_id for result in results(c.provider.requests[1])]
        assert order == [e["data"]["callId"] for e in c.of("tool.requested")], "results stand in the order of the calls"


def raising(error: BaseException) -> Any:
    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        await anyio.lowlevel.checkpoint()
        raise error

    return body


async def test_a_failed_call_goes_back_to_the_model() -> None:
    async with bench(FakeTool("look", body=raising(ToolFailed("not_found", "no such file", path="a")))) as (c, p):
        c.provider.script([Call("look")], ["then not"])
        await p.submit()
        assert (await p.finish()).status == "completed"
        assert "no such file" in results(c.provider.requests[1])[0].text
        assert c.of("tool.completed")[0]["data"]["error"] == {
            "kind": "not_found",
            "message": "no such file",
            "path": "a",
        }


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HarnessFault("containment_unavailable", "the reaper at /run/secret is gone", boundary="sandbox"), None),
        (Refused("path_outside_mounts", "operator detail secret"), None),
        (RuntimeError("secret"), "internal"),
        (ExceptionGroup("group", [ValueError("secret")]), "internal"),
    ],
    ids=["HarnessFault", "Refused", "RuntimeError", "ExceptionGroup"],
)
async def test_what_the_model_cannot_mend_ends_the_turn_and_stays_from_the_model(error: Any, kind: str | None) -> None:
    other = FakeTool("look")
    async with bench(FakeTool("act", "execute", body=raising(error)), other) as (c, p):
        c.provider.script([Call("act"), Call("look", {"n": 7})])
        await p.submit()
        assert (await p.finish()).status == "failed"
        assert c.terminal()["data"]["error"]["kind"] == (kind or error.kind)
        assert other.ended == [7], "the others of the batch have their results"
        await p.submit("t-2")
        await p.finish("t-2")
        assert "secret" not in str(c.provider.requests[-1].messages)
        assert len(results(c.provider.requests[-1])) == 2


class BrokenSummary(FakeTool):
    def summary(self, arguments: Mapping[str, Any]) -> str:
        raise KeyError("secret")


class BrokenKey(FakeTool):
    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        raise KeyError("secret")


@pytest.mark.parametrize("kind", [BrokenSummary, BrokenKey])
async def test_a_defect_around_a_tool_ends_the_turn_too(kind: type[FakeTool]) -> None:
    async with bench(kind("act"), FakeTool("look")) as (c, p):
        c.provider.script([Call("look"), Call("act")])
        await p.submit()
        assert (await p.finish()).status == "failed"
        assert c.terminal()["data"]["error"]["kind"] == "internal"
        assert "secret" not in str(c.terminal())
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"


async def test_a_path_that_is_not_allowed_is_an_error_result() -> None:
    class Outside(FakeTool):
        def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
            raise ToolFailed("outside_workspace", "That leaves the workspace.")

    async with bench(Outside("write", "write")) as (c, p):
        c.provider.script([Call("write")])
        await p.submit()
        assert (await p.finish()).status == "completed"
        assert c.of("tool.completed")[0]["data"]["error"]["kind"] == "outside_workspace"


async def test_the_event_loop_goes_on_while_large_arguments_are_looked_at() -> None:
    asked, released = threading.Event(), threading.Event()

    class Slow(FakeTool):
        def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
            asked.set()
            assert released.wait(30), "the event loop does not go on"
            return None

    async with bench(Slow("write", "write")) as (c, p):
        c.provider.script([Call("write", {"path": "a" * LARGE_ARGUMENTS})])
        await p.submit()
        await anyio.to_thread.run_sync(asked.wait, 30)
        released.set()
        assert (await p.finish()).status == "completed"
        assert c.of("tool.completed")[0]["data"]["outcome"] == "ok"


async def test_calls_on_one_path_run_in_order_and_others_at_once() -> None:
    order: list[str] = []
    gates = {n: Gate() for n in range(5)}

    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        n = arguments["n"]
        order.append(f"start {n}")
        await gates[n].pass_through()
        order.append(f"end {n}")
        return ToolOutcome("ok")

    async with bench(FakeTool("write", "write", body)) as (c, p):
        c.provider.script([Call("write", {"n": n, "path": "b" if n == 3 else "a"}) for n in range(4)])
        await p.submit()
        await gates[0].come()
        await gates[3].come()
        assert set(order) == {"start 0", "start 3"}
        gates[3].open()
        for n in range(3):
            gates[n].open()
            if n < 2:
                await gates[n + 1].come()
        await p.finish()
        on_a = [step for step in order if not step.endswith("3")]
        assert on_a == ["start 0", "end 0", "start 1", "end 1", "start 2", "end 2"]


async def test_a_call_on_several_paths_waits_for_each_and_is_waited_for_on_each() -> None:
    class Split(FakeTool):
        def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
            return tuple(arguments["path"].split())

    gates = {n: Gate() for n in range(4)}

    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        await gates[arguments["n"]].pass_through()
        return ToolOutcome("ok")

    tool = Split("patch", "write", body)
    async with bench(tool) as (c, p):
        c.provider.script([Call("patch", {"n": n, "path": path}) for n, path in enumerate(["a", "b", "a b", "b"])])
        await p.submit()
        await gates[0].come()
        await gates[1].come()
        for n in range(4):
            # Each but the first two has to wait for all before it.
            assert sorted(tool.started) == [0, 1, 2, 3][: max(2, n + 1)]
            gates[n].open()
            if 0 < n < 3:
                await gates[n + 1].come()
        assert (await p.finish()).status == "completed"
        assert (sorted(tool.ended[:2]), tool.ended[2:]) == ([0, 1], [2, 3])


async def test_the_next_call_on_a_path_runs_also_after_a_failure() -> None:
    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        if arguments["n"] == 0:
            raise ToolFailed("broken", "no")
        return ToolOutcome("ok")

    tool = FakeTool("write", "write", body)
    async with bench(tool) as (c, p):
        c.provider.script([Call("write", {"n": n, "path": "a"}) for n in range(3)])
        await p.submit()
        assert (await p.finish()).status == "completed"
        assert tool.ended == [1, 2]


async def test_a_call_is_durable_before_it_has_an_effect() -> None:
    seen: list[list[str]] = []

    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        seen.append([e["data"]["callId"] for e in made.of("tool.started")])
        return ToolOutcome("ok")

    async with bench(FakeTool("act", "execute", body)) as (made, p):
        made.provider.script([Call("act"), Call("act")])
        await p.submit()
        await p.finish()
        requested = [e["data"]["callId"] for e in made.of("tool.requested")]
        assert seen == [requested, requested]


async def test_changes_of_files_are_facts_of_the_log_and_of_the_terminal() -> None:
    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        change = FileChange("a.txt", "modified", "0" * 64, "1" * 64, "- a\n+ b")
        return ToolOutcome("wrote", {"lines": 1}, {"mode": "head", "totalLines": 9}, (change,))

    async with bench(FakeTool("write", "write", body)) as (c, p):
        c.provider.script([Call("write")])
        await p.submit()
        await p.finish()
        assert c.of("file.changed")[0]["data"]["path"] == "a.txt"
        assert c.terminal()["data"]["evidence"]["files"] == ["a.txt"]
        data = c.of("tool.completed")[0]["data"]
        assert (data["details"], data["truncation"]["totalLines"]) == ({"lines": 1}, 9)


async def test_text_of_a_tool_that_is_not_unicode_does_not_break_the_history() -> None:
    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return ToolOutcome("a\ud800b")

    async with bench(FakeTool("look", body=body)) as (c, p):
        c.provider.script([Call("look")])
        await p.submit()
        assert (await p.finish()).status == "completed"


async def test_live_output_is_shown_at_once_and_durable_now_and_then() -> None:
    gate, later = Gate(), Gate()

    async def body(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        context.emit("é".encode()[:1])
        context.emit("é".encode()[1:] + b"x" * 200)
        await gate.pass_through()
        context.emit(b"y" * 300)
        await later.pass_through()
        return ToolOutcome("all")

    async with bench(FakeTool("bash", "execute", body), chunkMs=1) as (c, p):
        c.provider.script([Call("bash")])
        await p.submit()
        await gate.come()
        (item,) = p.service.live(SID).items.values()
        assert (item.kind, item.text(), item.size) == ("toolOutput", "é" + "x" * 200, 202)
        chunk = (await c.event("tool.chunk"))["data"]
        assert chunk["text"] == "x" * 64, "though nothing follows"
        assert (chunk["offset"], chunk["skippedBytes"]) == (202 - 64, 202 - 64)
        gate.open()
        chunk = (await c.event("tool.chunk", count=2))["data"]
        assert chunk["text"] == "y" * 64, "the newest bytes"
        assert (chunk["offset"], chunk["skippedBytes"]) == (502 - 64, 300 - 64)
        later.open()
        await p.finish()
        assert p.service.live(SID).items == {}


async def test_a_deaf_tool_on_a_path_keeps_its_followers_from_running_after_a_cancel() -> None:
    gate = Gate()
    tool = FakeTool("write", "write", body=waiting(gate, deaf=True))
    async with bench(tool) as (c, p):
        c.provider.script([Call("write", {"n": 1, "path": "a"}), Call("write", {"n": 2, "path": "a"})])
        await p.submit()
        await gate.come()
        await p.cancel("t-1")
        await p.finish()
        gate.open()
        await anyio.wait_all_tasks_blocked()
        assert tool.started == [1]
        assert [e["data"]["outcome"] for e in c.of("tool.completed")] == ["unknown", "cancelled"]
