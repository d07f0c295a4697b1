"""A session is closed whatever its worker is at: no stop is lost between two waits."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from engine.kit import SID, by, cluster

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("between", ["update", "close"])
async def test_a_close_is_answered_at_whichever_moment_of_the_worker_it_comes(between: str) -> None:
    for ticks in range(30):
        async with cluster() as c:
            first, second = await c.start(), await c.start()
            await first.create()
            await first.submit()
            await first.finish()
            await second.service.attach(SID)
            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    # What another process writes wakes the worker at moments of its own.
                    if between == "update":
                        tasks.start_soon(second.service.update, SID, f"title {ticks}", None, by("ann"))
                    else:
                        tasks.start_soon(second.service.settle, SID, by("ann"))
                    for _ in range(ticks):
                        await anyio.lowlevel.checkpoint()
                    await first.service.settle(SID, by("ann"))

            assert (await first.service.load(SID)).state.status == "closed"
