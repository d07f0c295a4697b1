from __future__ import annotations

from typing import Any

import anyio
import pytest

from engine.kit import SID, Call, FakeTool, Gate, Stop, Think, bench, failed
from hames.core.conversation import AssistantMessage
from hames.engine.live import Listener, LiveItem
from hames.ports import ProviderFailed
from hames.protocol.errors import HarnessFault

pytestmark = pytest.mark.anyio


class Heard(Listener):
    """A listener that keeps what it hears, in order."""

    def __init__(self) -> None:
        self.deltas: list[tuple[str, str, int, str]] = []
        self.phases: list[str] = []
        self.beats = anyio.Event()

    def delta(self, item: LiveItem, offset: int, text: str) -> None:
        self.deltas.append((item.item_id, item.kind, offset, text))

    def heartbeat(self, turn_id: str, phase: str, since_ms: int) -> None:
        assert since_ms >= 0
        self.phases.append(phase)
        self.beats.set()


# --- tries ---------------------------------------------------------------------------------------------------


async def test_a_repeat_is_in_the_log_with_its_cause_and_delay() -> None:
    async with bench() as (c, p):
        c.provider.script(failed(), failed("model_gateway"), ["at last"])
        await p.submit()
        assert (await p.finish()).status == "completed"
        tries = [e["data"]["tryNumber"] for e in c.of("model.requested")]
        assert tries == [1, 2, 3]
        assert len({e["data"]["modelRequestId"] for e in c.of("model.requested")}) == 1
        assert len({e["data"]["requestDigest"] for e in c.of("model.requested")}) == 1
        retried = [(e["data"]["tryNumber"], e["data"]["error"]["kind"]) for e in c.of("model.retried")]
        assert retried == [(1, "model_unavailable"), (2, "model_gateway")]


async def test_repeats_are_bounded() -> None:
    async with bench(retries=3) as (c, p):
        c.provider.otherwise = lambda _request: failed()
        await p.submit()
        await p.finish()
        assert len(c.provider.requests) == 4
        error = c.terminal()["data"]["error"]
        assert (error["kind"], error["boundary"], error["retryable"]) == ("model_unavailable", "model_gateway", True)


async def test_what_the_provider_asked_for_is_the_least_wait() -> None:
    async with bench() as (c, p):
        c.provider.script(failed(retry_after_ms=70), ["ok"])
        await p.submit()
        await p.finish()
        assert c.of("model.retried")[0]["data"]["delayMs"] >= 70


async def test_a_wait_beyond_the_budget_is_a_failure_at_once() -> None:
    async with bench(retryWaitMs=1_000) as (c, p):
        c.provider.script(failed("model_gateway", retry_after_ms=1_001))
        await p.submit()
        assert (await p.finish()).status == "failed"
        assert c.of("model.retried") == []


async def test_a_deterministic_error_is_sent_once() -> None:
    async with bench() as (c, p):
        c.provider.script(failed("credential_rejected", retryable=False))
        await p.submit()
        await p.finish()
        assert len(c.provider.requests) == 1
        assert c.terminal()["data"]["error"]["kind"] == "credential_rejected"


async def test_text_of_a_try_that_broke_is_withdrawn() -> None:
    async with bench() as (c, p):
        gate = Gate()
        broke = ProviderFailed("model_gateway", boundary="model_gateway", retryable=True)
        c.provider.script(["x" * 70, gate, broke], ["whole"])
        await p.submit()
        await gate.come()
        await c.event("message.chunk")
        gate.open()
        await p.finish()
        assert c.terminal()["data"]["text"] == "whole"
        cut, whole = (e["data"] for e in c.of("message.completed"))
        assert (cut["inContext"], cut["cause"]) == (False, "model_failed")
        assert cut["itemId"] != whole["itemId"], "each try has items of its own"
        assert c.of("model.discarded")[0]["data"]["itemIds"] == [cut["itemId"]]
        await p.submit("t-2")
        await p.finish("t-2")
        assert AssistantMessage("whole") in c.provider.requests[-1].messages
        assert not any("x" * 70 in str(message) for message in c.provider.requests[-1].messages)


async def test_usage_of_a_try_that_failed_counts() -> None:
    async with bench() as (c, p):
        failure = ProviderFailed("model_gateway", boundary="model_gateway", retryable=True)
        failure.usage = {"total_tokens": 40}
        c.provider.script([failure], ["ok"])
        await p.submit()
        await p.finish()
        assert c.terminal()["data"]["usage"]["direct"]["counters"] == {"total_tokens": 43}


async def test_an_answer_that_nothing_says_to_be_whole_is_as_if_its_stream_were_cut() -> None:
    tool = FakeTool("look")
    async with bench(tool, chunkBytes=64) as (c, p):
        c.provider.script(["x" * 70, Call("look"), Stop("other")])
        await p.submit()
        assert (await p.finish()).status == "failed"
        error = c.terminal()["data"]["error"]
        assert (error["kind"], error["retryable"], error["details"]["stopReason"]) == ("model_gateway", False, "other")
        assert c.terminal()["data"]["usage"]["direct"]["counters"] == {"total_tokens": 3}
        assert (tool.started, c.of("tool.requested"), len(c.provider.requests)) == ([], [], 1)
        (cut,) = (e["data"] for e in c.of("message.completed"))
        assert (cut["inContext"], cut["cause"]) == (False, "model_failed")
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"


async def test_an_answer_that_its_provider_broke_off_is_asked_for_again() -> None:
    tool = FakeTool("look")
    async with bench(tool) as (c, p):
        c.provider.script(["half", Call("look"), Stop("interrupted")], ["whole"])
        await p.submit()
        assert (await p.finish()).status == "completed"
        assert c.terminal()["data"]["text"] == "whole"
        assert c.of("model.retried")[0]["data"]["error"]["details"]["stopReason"] == "interrupted"
        assert c.terminal()["data"]["usage"]["direct"]["counters"] == {"total_tokens": 6}
        assert tool.started == []


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ([], "empty_response"),
        (["  \n"], "empty_response"),
        ([Think("only thoughts")], "empty_response"),
        (["cut off", Stop("length")], "output_truncated"),
        ([Call("look"), Stop("length")], "output_truncated"),
        ([Stop("content_filter")], "refused"),
    ],
)
async def test_an_answer_that_is_none_fails_the_turn_typed(answer: Any, kind: str) -> None:
    tool = FakeTool("look")
    async with bench(tool) as (c, p):
        c.provider.script(answer)
        await p.submit()
        assert (await p.finish()).status == "failed"
        assert c.terminal()["data"]["error"]["kind"] == kind
        assert len(c.provider.requests) == 1
        assert tool.started == []
        if answer and isinstance(answer[0], str) and answer[0].strip():
            assert c.terminal()["data"]["text"] == answer[0]
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"


@pytest.mark.parametrize(
    "defect",
    [RuntimeError("secret detail"), HarnessFault("internal", "an invariant"), ExceptionGroup("g", [ValueError("x")])],
    ids=lambda defect: type(defect).__name__,
)
async def test_a_defect_in_a_provider_fails_the_turn_and_nothing_else(defect: BaseException) -> None:
    async with bench() as (c, p):
        c.provider.script(["x" * 70, defect])
        await p.submit()
        assert (await p.finish()).status == "failed"
        assert c.terminal()["data"]["error"]["kind"] == "internal"
        assert "secret" not in str(c.terminal())
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"


async def test_equipment_that_cannot_be_had_fails_the_turn() -> None:
    async with bench() as (c, p):
        p.world.broken = HarnessFault("credential_missing", boundary="configuration")
        await p.submit()
        assert (await p.finish()).status == "failed"
        assert c.terminal()["data"]["error"]["kind"] == "credential_missing"
        p.world.broken = None
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"


async def test_repeated_or_empty_call_ids_of_a_provider_are_replaced() -> None:
    async with bench(FakeTool("look")) as (c, p):
        c.provider.script([Call("look", {"n": n}, given) for n, given in enumerate(("a", "a", ""))])
        await p.submit()
        assert (await p.finish()).status == "completed"
        ids = [e["data"]["providerCallId"] for e in c.of("tool.requested")]
        assert len(set(ids)) == 3
        assert ids[0] == "a"
        assert all(ids)


async def test_the_same_prefix_is_sent_again_byte_for_byte() -> None:
    async with bench(FakeTool("look")) as (c, p):
        c.provider.script(["I look", Call("look")], ["one"], ["two"])
        await p.submit("t-1")
        await p.finish("t-1")
        await p.submit("t-2")
        await p.finish("t-2")
        first, second, third = c.provider.requests
        assert second.messages[: len(first.messages)] == first.messages
        assert third.messages[: len(second.messages)] == second.messages
        assert first.tools == second.tools == third.tools


# --- what is shown while it comes --------------------------------------------------------------------------------


async def test_chunks_are_durable_while_the_answer_comes() -> None:
    async with bench() as (c, p):
        gate, later = Gate(), Gate()
        c.provider.script([Think("let me see"), "é" * 40, gate, "ü", later, " end"])
        await p.submit()
        await c.event("reasoning.chunk")
        first = await c.event("message.chunk")
        assert first["data"]["text"] == "é" * 40
        gate.open()
        second = await c.event("message.chunk", count=2)
        assert second["data"]["offset"] == 80
        later.open()
        await p.finish()
        assert c.terminal()["data"]["text"] == "é" * 40 + "ü end"
        terminal_at = c.types().index("turn.completed")
        assert c.types()[terminal_at - 1] == "step.completed"


async def test_the_whole_answer_and_the_terminal_are_one_commit() -> None:
    async with bench() as (c, p):
        heads: list[int] = []

        async def watch() -> None:
            seq = 0
            while True:
                seq = await p.store.changed(SID, seq)
                heads.append(seq)

        async with anyio.create_task_group() as beside:
            beside.start_soon(watch)
            c.provider.script(["all"])
            await p.submit()
            await p.finish()
            beside.cancel_scope.cancel()
        whole = c.of("message.completed")[0]["seq"]
        assert not any(whole <= head < c.terminal()["seq"] for head in heads)


async def test_deltas_are_in_bytes_and_end_before_the_whole_item() -> None:
    async with bench(FakeTool("look")) as (c, p):
        heard = Heard()
        p.service.live(SID).listeners.add(heard)
        c.provider.script([Think("hm"), "aé", "😀", "z", Call("look", {"n": 1})], ["done"])
        await p.submit()
        await p.finish()
        message = [(offset, text) for _, kind, offset, text in heard.deltas if kind == "message"]
        assert message == [(0, "aé"), (3, "😀"), (7, "z"), (0, "done")]
        assert [text for _, kind, _, text in heard.deltas if kind == "toolArguments"] == ['{"n": 1}']
        assert [text for _, kind, _, text in heard.deltas if kind == "reasoning"] == ["hm"]
        assert p.service.live(SID).items == {}


async def test_a_late_listener_can_catch_up_from_the_start_of_an_item() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script(["aé", "b", gate, "c"])
        await p.submit()
        await gate.come()
        (item,) = p.service.live(SID).items.values()
        assert (item.kind, item.text(), item.size, item.turn_id) == ("message", "aéb", 4, "t-1")
        heard = Heard()
        p.service.live(SID).listeners.add(heard)
        gate.open()
        await p.finish()
        assert heard.deltas == [(item.item_id, "message", 4, "c")]


async def test_who_waits_hears_that_the_turn_lives() -> None:
    gate, tool_gate = Gate(), Gate()

    async def body(arguments: Any, context: Any) -> Any:
        await tool_gate.pass_through()
        raise HarnessFault("internal", "over")

    async with bench(FakeTool("look", body=body)) as (c, p):
        heard = Heard()
        p.service.live(SID).listeners.add(heard)
        c.provider.script([gate, Call("look")])
        await p.submit()
        await heard.beats.wait()
        assert heard.phases[-1] == "model_waiting"
        gate.open()
        await tool_gate.come()
        heard.beats = anyio.Event()
        await heard.beats.wait()
        assert heard.phases[-1] == "tools"
        tool_gate.open()
        await p.finish()
        before = len(heard.phases)
        await anyio.sleep(0.12)  # more than two heartbeats
        assert len(heard.phases) == before, "nothing is heard of a turn that has ended"
