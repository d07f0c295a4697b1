"""Spans of logs that the engine wrote."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kit import Call, Cluster, FakeTool, Gate, bench, cluster, failed, waiting
from hames.core.session import TERMINAL_EVENTS, Event
from hames.core.times import epoch_ms
from hames.ports import ToolOutcome
from hames.telemetry.spans import FORCED_CLOSE, Redact, SessionSpans, Span

pytestmark = pytest.mark.anyio

CANARY = "canary-of-content"
KEY = "sk-canary-of-a-key"


def spans_of(log: list[dict[str, Any]], content: Redact | None = None, pid: int | None = None) -> list[Span]:
    """The spans of a whole log, in the order they ended."""
    begun = epoch_ms(log[0]["time"])
    session = SessionSpans("s-1", "ab" * 16, begun, attributes={}, content=content, pid=pid)
    found = [span for event in log for span in session.take(Event.of(event))]
    return [*found, *session.leave(epoch_ms(log[-1]["time"]))]


def forced(spans: list[Span]) -> list[str]:
    return [span.name for span in spans if FORCED_CLOSE in span.attributes]


def tree(spans: list[Span]) -> dict[str, list[str]]:
    """The names of the spans in each span, by its name."""
    names = {span.span_id: span.name for span in spans}
    found: dict[str, list[str]] = {}
    for span in spans:
        if span.parent_id is not None:
            found.setdefault(names[span.parent_id], []).append(span.name)
    return found


async def test_a_turn_with_a_call_is_a_tree_with_all_ids_and_nothing_was_forced() -> None:
    async with bench(FakeTool("look")) as (c, p):
        c.provider.script([Call("look")], ["ok"])
        await p.submit()
        await p.finish()
        spans = spans_of(c.log())

    assert tree(spans) == {
        "session": ["turn"],
        "turn": ["attempt"],
        "attempt": ["chat fake", "chat fake"],
        "chat fake": ["execute_tool look"],
    }
    assert forced(spans) == []
    (call,) = [span for span in spans if span.name == "execute_tool look"]
    assert call.attributes.keys() >= {"hames.session.id", "hames.turn.id", "hames.attempt", "hames.call.id"}
    assert call.attributes["hames.outcome"] == "ok"
    turn = next(span for span in spans if span.name == "turn")
    assert (turn.attributes["hames.turn.id"], turn.attributes["hames.outcome"]) == ("t-1", "completed")
    assert {span.error for span in spans} == {None}


async def test_every_span_lies_within_the_one_it_is_in() -> None:
    async with bench(FakeTool("look")) as (c, p):
        c.provider.script([Call("look"), Call("look")], ["ok"])
        await p.submit()
        await p.finish()
        spans = {span.span_id: span for span in spans_of(c.log())}

    for span in spans.values():
        parent = spans.get(span.parent_id or "")
        assert parent is None or parent.start_ms <= span.start_ms <= span.end_ms <= parent.end_ms


async def test_what_a_cancel_finds_open_is_closed_by_the_settlement_and_says_so() -> None:
    async with bench() as (c, p):
        gate = Gate()
        c.provider.script([gate])
        await p.submit()
        await c.event("model.requested")
        await p.cancel()
        await p.finish()
        spans = spans_of(c.log())

    assert forced(spans) == ["chat fake"]
    assert [s.attributes["hames.outcome"] for s in spans if s.name in ("attempt", "turn")] == ["cancelled"] * 2


async def test_a_deaf_tool_is_closed_by_the_settlement_and_the_turn_says_so_too() -> None:
    gate = Gate()
    async with bench(FakeTool("deaf", "execute", waiting(gate, deaf=True)), termGraceMs=0, reapMs=1) as (c, p):
        c.provider.script([Call("deaf")])
        await p.submit()
        await gate.come()
        await p.cancel()
        await p.finish()
        spans = spans_of(c.log())
        gate.open()

    assert forced(spans) == ["execute_tool deaf", "attempt", "turn"]


async def test_repeats_and_usage_stand_on_their_step_and_sums_on_the_turn() -> None:
    async with bench() as (c, p):
        c.provider.usage = {"input_tokens": 3, "not a name": 1}
        c.provider.script(failed("model_gateway"), ["ok"])
        await p.submit()
        await p.finish()
        spans = spans_of(c.log())

    step = next(span for span in spans if span.name == "chat fake")
    assert [event.name for event in step.events] == ["retry"]
    assert step.events[0].attributes["error.type"] == "model_gateway"
    assert step.attributes["hames.request.tries"] == 2
    turn = next(span for span in spans if span.name == "turn")
    for span in (step, turn):
        assert {name for name in span.attributes if name.startswith("hames.usage.")} == {"hames.usage.input_tokens"}
    assert turn.attributes["hames.requests"] == 2


async def test_a_failure_is_told_by_its_kind_on_everything_that_failed_with_it() -> None:
    async with bench() as (c, p):
        c.provider.script(failed("model_gateway", retryable=False))
        await p.submit()
        await p.finish()
        spans = spans_of(c.log())

    assert {span.name: span.error for span in spans} == {
        "chat fake": "model_gateway",
        "attempt": "model_gateway",
        "turn": "model_gateway",
        "session": None,
    }


async def test_a_turn_that_another_process_takes_over_has_two_attempts_in_one_turn() -> None:
    async with cluster(FakeTool("look")) as c:
        first = await c.start()
        await first.create()
        gate = Gate()
        c.provider.script([gate], ["ok"])
        await first.submit()
        await c.event("model.requested")
        await first.die()
        second = await c.start()
        await second.resume()
        await second.finish()
        spans = spans_of(c.log())

    attempts = [span for span in spans if span.name == "attempt"]
    assert [(a.attributes["hames.attempt"], a.attributes["hames.outcome"]) for a in attempts] == [
        (1, "owner_lost"),
        (2, "completed"),
    ]
    assert len({span.span_id for span in spans}) == len(spans)
    assert tree(spans)["turn"] == ["attempt", "attempt"]
    # Attempts of others are told by those.
    assert {span.name for span in spans_of(c.log(), pid=1)} == {"turn", "session"}


async def test_a_turn_that_joined_another_names_it() -> None:
    async with bench(FakeTool("look")) as (c, p):
        gate = Gate()
        c.provider.script([gate, Call("look")], ["ok"])
        await p.submit()
        await c.event("model.requested")
        await p.submit("t-2", delivery="join")
        gate.open()
        await p.finish()
        await p.finish("t-2")
        spans = spans_of(c.log())

    turns = {span.attributes["hames.turn.id"]: span for span in spans if span.name == "turn"}
    assert turns["t-2"].attributes["hames.turn.host.id"] == "t-1"
    assert turns["t-2"].attributes["hames.outcome"] == "completed"


async def canaries(c: Cluster, p: Any) -> list[dict[str, Any]]:
    c.provider.script(
        [Call("look", {"path": f"argument {CANARY} {KEY}"})], [Call(CANARY, {"n": 1})], [f"answer {CANARY} {KEY}"]
    )
    await p.submit(text=f"prompt {CANARY} {KEY}")
    await p.finish()
    return c.log()


async def look(*_: Any) -> ToolOutcome:
    await anyio.lowlevel.checkpoint()
    return ToolOutcome(f"result {CANARY} {KEY}")


async def test_without_content_nothing_that_was_written_or_said_is_told() -> None:
    async with bench(FakeTool("look", body=look)) as (c, p):
        log = await canaries(c, p)

    assert CANARY in json.dumps(log)
    assert CANARY not in repr(spans_of(log))
    assert KEY not in repr(spans_of(log))


async def test_with_content_it_is_told_and_no_key() -> None:
    async with bench(FakeTool("look", body=look)) as (c, p):
        log = await canaries(c, p)
    spans = spans_of(log, content=lambda text: text.replace(KEY, "[redacted]"))

    told: dict[str, str] = {}
    for name, value in ((name, value) for span in spans for name, value in span.attributes.items()):
        if ".content." in name:
            told[name] = told.get(name, "") + str(value)
    assert told.keys() == {f"hames.content.{name}" for name in ("prompt", "arguments", "result", "output")}
    assert [text for text in told.values() if CANARY not in text] == []
    assert KEY not in repr(spans)


# --- any log, also one that is read from the middle ---------------------------------------------------------


@cache
def rich_log() -> tuple[Event, ...]:
    async def write() -> list[dict[str, Any]]:
        async with bench(FakeTool("look")) as (c, p):
            gate = Gate()
            c.provider.script(
                [Call("look"), Call("look")], failed("model_gateway"), [gate, "ok"], [Call("look")], ["x"]
            )
            await p.submit()
            await c.event("model.requested", count=3)
            await p.submit("t-2", delivery="join")
            await p.submit("t-3")
            gate.open()
            for turn_id in ("t-1", "t-2", "t-3"):
                await p.finish(turn_id)
            return c.log()

    return tuple(Event.of(event) for event in anyio.run(write))


@given(st.data())
def test_of_any_part_of_a_log_every_span_ends_once_and_in_its_time(data: st.DataObject) -> None:
    log = rich_log()
    kept = data.draw(st.lists(st.booleans(), min_size=len(log), max_size=len(log)))
    events = [event for event, keep in zip(log, kept, strict=True) if keep]
    session = SessionSpans("s-1", "ab" * 16, epoch_ms(log[0].time), attributes={})

    spans = [span for event in events for span in session.take(event)]
    spans += session.leave(epoch_ms(log[-1].time))

    assert len({span.span_id for span in spans}) == len(spans)
    assert all(span.start_ms <= span.end_ms for span in spans)
    ended = [event.turn_id for event in events if event.type in TERMINAL_EVENTS]
    assert [span.attributes["hames.turn.id"] for span in spans if span.name == "turn"] == ended
    assert [span.name for span in spans if span.parent_id is None] == ["session"]
