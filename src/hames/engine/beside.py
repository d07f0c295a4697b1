"""Tasks that accompany a block and end with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio


@asynccontextmanager
async def beside(*companions: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run `companions` while the block runs, and cancel them at its end.

    What the block raises comes out as it is: a task group alone would wrap it, and nobody would know its kind.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for companion in companions:
            tasks.start_soon(companion)
        try:
            yield
        except Exception as error:  # passed on below
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
