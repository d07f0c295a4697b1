"""A model that makes the same calls again and again is told so, and then stopped."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from engine.kit import Answer, Call, Cluster, FakeTool, bench, said
from hames.core.context import REPEATED
from hames.core.conversation import ModelRequest
from hames.ports import ToolContext, ToolOutcome

pytestmark = pytest.mark.anyio


def detected(c: Cluster) -> list[dict[str, Any]]:
    return [event["data"] for event in c.log() if event["type"] == "loop.detected"]


def looping(*rounds: Answer, before: int = 0) -> Any:
    """`before` rounds of work, then `rounds` again and again."""
    numbers = count()

    def otherwise(_request: ModelRequest) -> Answer:
        n = next(numbers)
        return [Call("look", {"n": 1000 + n})] if n < before else rounds[(n - before) % len(rounds)]

    return otherwise


A, B, C = ([Call("look", {"n": n})] for n in (1, 2, 3))


@pytest.mark.parametrize("before", [0, 1, 5, 20])
@pytest.mark.parametrize("rounds", [(A,), (A, B), (A, B, C), ([*A, *B], C)])
async def test_a_loop_is_found_after_three_rounds_of_it_whatever_went_before(
    rounds: tuple[Answer, ...], before: int
) -> None:
    async with bench(FakeTool("look")) as (c, process):
        c.provider.otherwise = looping(*rounds, before=before)

        await process.submit()
        turn = await process.finish()

        assert detected(c) == [{"period": len(rounds), "repeats": 3}]
        asked = [REPEATED in said(request) for request in c.provider.requests]
        assert asked.index(True) == before + 3 * len(rounds)
        assert len(asked) == before + 6 * len(rounds)
        assert turn.outcome is not None
        assert turn.outcome["error"]["kind"] == "limit_exceeded"
        assert turn.outcome["error"]["details"]["limit"] == "loopRepeats"


async def test_who_heeds_the_word_goes_on() -> None:
    async with bench(FakeTool("look")) as (c, process):
        loop = looping(A)
        c.provider.otherwise = lambda request: ["Another way."] if said(request) == REPEATED else loop(request)

        await process.submit()

        assert (await process.finish()).status == "completed"
        assert len(detected(c)) == 1


async def test_calls_whose_results_change_are_no_loop() -> None:
    numbers = count()

    async def body(arguments: Any, context: ToolContext) -> ToolOutcome:
        return ToolOutcome(f"at {next(numbers)}")

    async with bench(FakeTool("look", body=body)) as (c, process):
        c.provider.script(*[A] * 12)

        await process.submit()

        assert (await process.finish()).status == "completed"
        assert detected(c) == []


async def test_the_order_of_keys_makes_no_difference() -> None:
    async with bench(FakeTool("look")) as (c, process):
        texts = ['{"n":1,"path":"a"}', '{"path":"a","n":1}', '{ "n": 1, "path": "a" }']
        c.provider.script(*[[Call("look", text)] for text in texts])

        await process.submit()

        assert (await process.finish()).status == "completed"
        assert len(detected(c)) == 1


@pytest.mark.parametrize("bad", ["{", "[1e999]", '{"n":"\\ud800"}'])
async def test_arguments_that_are_no_json_are_compared_as_they_are(bad: str) -> None:
    async with bench(FakeTool("look")) as (c, process):
        c.provider.script(*[[Call("look", bad)]] * 3)

        await process.submit()

        assert (await process.finish()).status == "completed"
        assert len(detected(c)) == 1


async def test_without_the_limit_nothing_is_said() -> None:
    async with bench(FakeTool("look")) as (c, process):
        c.provider.script(*[A] * 8)

        await process.submit(limits={"loopRepeats": 0})

        assert (await process.finish()).status == "completed"
        assert detected(c) == []
