"""Images are proved in few threads of their own: nothing else of a process waits for them."""

from __future__ import annotations

import zlib

import anyio
import anyio.to_thread
import pytest
from anyio.to_thread import current_default_thread_limiter

from fake.pictures import chunk, png
from hames import image_proofs
from hames.core.bitmaps import Broken
from hames.image_proofs import THREADS, prove

pytestmark = pytest.mark.anyio

SIDE = 4_000
SLOW = b"".join(
    [
        png(SIDE, SIDE)[:33],
        chunk(b"IDAT", zlib.compress(bytes((SIDE + 1) * SIDE), 1)),
        chunk(b"IEND", b""),
    ]
)


async def test_many_are_proved_a_few_at_a_time_and_not_in_threads_of_others() -> None:
    most = 0
    done = 0

    async def one() -> None:
        nonlocal done
        await prove(SLOW, "image/png")
        done += 1

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(one)
            while done < 8:
                limiter = image_proofs.limiter()
                most = max(most, limiter.borrowed_tokens)
                assert current_default_thread_limiter().borrowed_tokens == 0
                await anyio.lowlevel.checkpoint()

    assert most == THREADS


async def test_who_is_cancelled_leaves_though_all_threads_are_busy() -> None:
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for _ in range(4 * THREADS):
                tasks.start_soon(prove, SLOW, "image/png")
            while image_proofs.limiter().borrowed_tokens < THREADS:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

        assert await anyio.to_thread.run_sync(lambda: 7) == 7
        await prove(png(), "image/png")


async def test_what_is_broken_is_told() -> None:
    with pytest.raises(Broken):
        await prove(png()[:-1], "image/png")
