"""What clients ask of background processes: any process on the store answers, whoever runs them.

Rule 1: reading never attaches. Rule 2: a wish to stop one is durable before anybody acts on it, so it does not matter
which process was asked.
"""

from __future__ import annotations

import anyio

from hames.core.processes import find
from hames.engine.outputs import page_of, written
from hames.engine.service import OWNER_CHECK_S, Service
from hames.ports import Loaded, OutputPage

LOOK_S = 0.1
"""How often output is looked for that is waited for: a disk rings no bell."""


async def read_process(
    service: Service, session_id: str, process_id: str, *, offset: int, length: int, wait_ms: int
) -> tuple[OutputPage, Loaded]:
    """What a process wrote from `offset` on, and the session as it stood then; waits for some where there is none.

    Raises:
        Refused: `process_not_found`, `session_not_found`.
        HarnessFault: the store failed.
    """
    page, loaded = await _read(service, session_id, process_id, offset=offset, length=length)
    with anyio.move_on_after(wait_ms / 1000):
        while not page.data and not page.process.ended:
            with anyio.move_on_after(LOOK_S):
                await service.store.changed(session_id, loaded.state.seq)
            is_new = written(service.world.outputs, session_id, page.process) > page.offset
            if not is_new and service.store.head(session_id) == loaded.state.seq:
                continue
            page, loaded = await _read(service, session_id, process_id, offset=offset, length=length)
    return page, loaded


async def _read(
    service: Service, session_id: str, process_id: str, *, offset: int, length: int
) -> tuple[OutputPage, Loaded]:
    while True:
        loaded = await service.load(session_id)
        process = find(loaded.state, process_id)
        outputs = service.world.outputs
        page = await page_of(service.store, outputs, session_id, process, offset=offset, length=length)
        if page.data or process.ended or outputs.find(session_id, process_id) is not None:
            return page, loaded
        # Its files are taken away once its end is in the log: if they were just now, that tells where the rest is.
        if (await service.load(session_id)).state.seq == loaded.state.seq:
            return page, loaded


async def until_ended(service: Service, session_id: str, process_id: str) -> None:
    """Wait until nothing of a process runs whose stop was asked for.

    Where nobody runs the session its end is settled here: that costs nothing.

    Raises:
        Refused: `process_not_found`, `session_not_found`.
        HarnessFault: the store failed.
    """
    while True:
        loaded = await service.load(session_id)
        if find(loaded.state, process_id).ended:
            return
        await service.settle_unowned(session_id)
        with anyio.move_on_after(OWNER_CHECK_S):
            await service.store.changed(session_id, loaded.state.seq)
