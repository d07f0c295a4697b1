"""A request is ended where it waits for something, and nowhere else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from hames.engine.asking import ASKER, Asker, Preparing, begin
from hames.protocol.errors import Refused

pytestmark = pytest.mark.anyio

Step = Callable[[Preparing, Asker], Awaitable[None]]


async def served(*steps: Step, preparing: Preparing | None = None, waits: bool = False) -> tuple[int, bool]:
    """How many of the steps of a request were done, and whether its client ended it."""
    preparing = preparing or Preparing()
    done = 0
    with anyio.CancelScope() as scope:
        asker = Asker(scope, waits=waits)
        ASKER.set(asker)
        for step in steps:
            await step(preparing, asker)
            done += 1
        await anyio.lowlevel.checkpoint()
    return done, scope.cancelled_caught


async def wait(preparing: Preparing, asker: Asker) -> None:
    async with preparing.wait():
        await anyio.lowlevel.checkpoint()


async def need_nothing(preparing: Preparing, asker: Asker) -> None:
    async with preparing.wait():
        pass


async def leave(preparing: Preparing, asker: Asker) -> None:
    asker.leave()


async def leave_at_the_end_of_the_wait(preparing: Preparing, asker: Asker) -> None:
    async with preparing.wait():
        await anyio.lowlevel.checkpoint()
        asker.leave()


async def commit(preparing: Preparing, asker: Asker) -> None:
    begin()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((wait, wait, commit), (3, False)),
        ((leave, wait), (1, True)),
        ((leave, need_nothing), (1, True)),
        ((wait, leave, wait), (2, True)),
        ((leave_at_the_end_of_the_wait, commit), (0, True)),
        ((wait, leave, commit), (3, False)),
        ((wait, commit, leave, wait, need_nothing), (5, False)),
    ],
)
async def test_its_client_ends_it_in_a_wait_until_something_is_done(
    steps: tuple[Step, ...], expected: tuple[int, bool]
) -> None:
    assert await served(*steps) == expected


async def test_one_whose_work_is_to_wait_is_ended_anywhere() -> None:
    assert await served(wait, leave, waits=True) == (2, True)


async def test_the_end_of_all_waits_is_when_they_have_ended_also_those_that_began_meanwhile() -> None:
    preparing = Preparing()
    refused: list[str] = []
    stands = anyio.Event()

    async def wait_for_ever(again: bool) -> None:
        try:
            async with preparing.wait():
                stands.set()
                try:
                    await anyio.sleep_forever()
                finally:
                    if again:
                        tasks.start_soon(wait_for_ever, False)
                    with anyio.CancelScope(shield=True):
                        await anyio.lowlevel.checkpoint()
                        refused.append("ended")
        except Refused as refusal:
            refused.append(refusal.kind)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_ever, True)
            await stands.wait()
            await preparing.end()
            assert refused.count("ended") == 2

    assert refused.count("shutting_down") == 2
