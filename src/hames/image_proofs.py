"""Whether images are whole, found out in threads of their own.

Rule: a check takes as long as an image's bytes and pixels make it, up to seconds, and cannot be ended. So few run at
once, and never in a thread that something else of the process may wait for.
"""

from __future__ import annotations

from typing import Final

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from hames.core.images import check

THREADS: Final = 2
"""Who shows more images at once waits for them; the rest of the processor is for others."""

_limiter: RunVar[CapacityLimiter] = RunVar("hames.image_proofs")


def limiter() -> CapacityLimiter:
    """That of the running event loop."""
    try:
        return _limiter.get()
    except LookupError:
        made = CapacityLimiter(THREADS)
        _limiter.set(made)
        return made


async def prove(data: bytes, media_type: str) -> None:
    """As `core.images.check`. Who is cancelled leaves at once; a check that had begun goes on without him.

    Raises:
        Broken: it is not whole, or no picture that can be shown.
    """
    await anyio.to_thread.run_sync(check, data, media_type, abandon_on_cancel=True, limiter=limiter())
