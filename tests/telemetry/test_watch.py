"""The sessions of a process, as a collector is told of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from engine.kit import SID, Call, Cluster, FakeTool, Gate, Process, by, cluster, eventually
from fake.collector import Collector, attributes
from hames.core.times import epoch_ms
from hames.telemetry import otlp, watch
from hames.telemetry.settings import traces_url
from hames.telemetry.watch import Telemetry

pytestmark = pytest.mark.anyio


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "BATCH_S", 0.01)
    monkeypatch.setattr(watch, "LAG_S", 0.01)


@asynccontextmanager
async def observed(
    process: Process, url: str, *, content: Callable[[str], str] | None = None, told: list[str] | None = None
) -> AsyncIterator[Telemetry]:
    """A process with telemetry; what is left is flushed at the end of the block."""

    def report(what: str, error: BaseException) -> None:
        if told is None:
            raise AssertionError(what) from error
        told.append(what)

    async with anyio.create_task_group() as tasks:
        telemetry = Telemetry(process.store, tasks, url=traces_url(url), headers={}, content=content, report=report)
        process.service.owner_listeners.add(telemetry.owned)
        yield telemetry
        await telemetry.aclose()
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def observing(collector: Collector, *tools: FakeTool, **options: Any) -> AsyncIterator[tuple[Cluster, Process]]:
    async with cluster(*tools) as c:
        process = await c.start()
        async with observed(process, collector.url, **options):
            await process.create()
            yield c, process


async def named(collector: Collector, name: str, count: int = 1) -> list[dict[str, Any]]:
    return await anyio.to_thread.run_sync(collector.wait, name, count)


async def test_a_turn_is_told_while_the_process_goes_on(collector: Collector) -> None:
    async with observing(collector, FakeTool("look")) as (c, p):
        c.provider.script([Call("look")], ["ok"])
        await p.submit()
        await p.finish()

        (turn,) = await named(collector, "turn")

        assert attributes(turn)["hames.turn.id"] == "t-1"
        queued = c.of("turn.queued")[0]["time"]
        assert int(turn["startTimeUnixNano"]) == epoch_ms(queued) * 10**6
        assert collector.named("session") == []
    (session,) = collector.named("session")
    assert turn["parentSpanId"] == session["spanId"]
    assert {span["traceId"] for span in collector.spans} == {session["traceId"]}
    assert len(collector.named("chat fake")) == 2


async def test_what_stands_at_the_end_of_the_process_is_flushed(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "BATCH_S", 600)
    monkeypatch.setattr(watch, "LAG_S", 600)
    async with observing(collector) as (_, p):
        await p.submit()
        await p.finish()

    assert sorted(span["name"] for span in collector.spans) == ["attempt", "chat fake", "session", "turn"]


async def test_content_of_a_turn_that_waited_before_is_told_where_it_is_wanted(collector: Collector) -> None:
    async with cluster() as c:
        first = await c.start()
        await first.create()
        gate = Gate()
        c.provider.script([gate], ["done"])
        await first.submit(text="the first prompt")
        await gate.come()
        await first.submit("t-2", text="the second prompt")
        await first.die()
        second = await c.start()
        async with observed(second, collector.url, content=lambda text: text.upper()):
            await second.resume()
            await second.finish("t-2")

    told = {attributes(span)["hames.turn.id"]: attributes(span) for span in collector.named("turn")}
    assert told["t-1"]["hames.content.prompt"] == "THE FIRST PROMPT"
    assert told["t-2"]["hames.content.prompt"] == "THE SECOND PROMPT"
    # The attempt of the process that died is not told by the one that took over: it is not known here.
    assert [attributes(span)["hames.attempt"] for span in collector.named("attempt")] == [2, 1]


async def test_a_process_that_loses_a_session_ends_what_it_ran_of_it(collector: Collector) -> None:
    async with cluster() as c:
        first = await c.start()
        async with observed(first, collector.url):
            await first.create()
            gate = Gate()
            c.provider.script([gate], ["done"])
            await first.submit()
            await gate.come()
            first.fall_silent()
            second = await c.start()
            await second.resume()
            await second.finish()

            (session,) = await named(collector, "session")

    assert attributes(collector.named("attempt")[0])["hames.outcome"] in ("left", "owner_lost")
    assert "parentSpanId" not in session


async def test_a_session_that_is_closed_is_told_and_again_when_it_is_opened(collector: Collector) -> None:
    async with observing(collector) as (_, p):
        await p.submit()
        await p.finish()
        await p.service.close(SID, by("user"))
        await named(collector, "session")
        await p.resume()
        await p.submit("t-2")
        await p.finish("t-2")
        await named(collector, "turn", 2)

    assert len(collector.named("session")) == 2
    parents = [span["parentSpanId"] for span in collector.named("turn")]
    assert parents == [span["spanId"] for span in collector.named("session")]


async def test_a_session_that_is_deleted_ends_its_telemetry_in_silence(collector: Collector) -> None:
    async with observing(collector) as (_, p):
        await p.submit()
        await p.finish()
        await named(collector, "turn")
        await p.service.settle(SID, by("user"))
        await p.store.delete(SID)
        await p.service.forget(SID)
        await named(collector, "session")


async def test_a_collector_that_hangs_holds_up_no_turn_and_no_end(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FLUSH_S", 0.1)
    collector.hold.clear()
    async with observing(collector) as (_, p):
        for number in range(5):
            await p.submit(f"t-{number}")
            await p.finish(f"t-{number}")


async def test_a_defect_in_it_is_told_and_ends_no_session(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(watch, "_events", broken)
    told: list[str] = []
    async with observing(collector, told=told) as (_, p):
        await p.submit()
        assert (await p.finish()).status == "completed"
        await eventually(lambda: told)
        await p.submit("t-2")
        assert (await p.finish("t-2")).status == "completed"

    assert told == ["session s-1 is not in telemetry any more"]
