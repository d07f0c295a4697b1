"""The end of a session for good: what runs of it here is cancelled and settled, then the store forgets it.

Rule: nothing of the session runs in this process when the store is asked; a live owner elsewhere keeps it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from hames.core.commands import By
from hames.engine.service import Service, expected, owner_view
from hames.ports import Owner
from hames.protocol.errors import HamesError, Refused

TAKE_LEAVE_S: Final = 1.0
"""For who follows the session on the caller's connection to take its last events; who does not read misses them."""

_DELETABLE: Final = frozenset({"session_deleted", "session_corrupt"})
"""Why a session cannot be loaded and can be deleted all the same."""


async def delete_session(
    service: Service,
    session_id: str,
    *,
    expect: Mapping[str, str],
    by: By,
    closing: Callable[[], object],
    settled: Callable[[int], Awaitable[None]],
) -> str:
    """Delete a session; when that was (RFC 3339), also if it was before.

    `expect` is held against it first. `closing()` is called once nothing more can be submitted to it. `settled(seq)` is
    waited for before it is gone, `seq` being its last event.

    Raises:
        Refused: `session_not_found`, `session_owned`, `session_incompatible`, `authority_mismatch`.
        HarnessFault: `store_unavailable`, `store_full`.
    """
    store = await service.opened()
    try:
        loaded = await store.load(session_id)
    except HamesError as error:
        if error.kind not in _DELETABLE:
            raise
    else:
        expected(loaded, expect)
        _refuse(loaded.owner)
        if service.serves(session_id) or loaded.state.open_processes():
            await service.settle(session_id, by, closing)
        with anyio.move_on_after(TAKE_LEAVE_S):
            await settled(store.head(session_id))
    outcome = await store.delete(session_id, by=str(by.get("principal")))
    if isinstance(outcome, Owner):
        raise Refused("session_owned", **owner_view(outcome))
    await service.forget(session_id)
    return outcome


def _refuse(owner: Owner | None) -> None:
    if owner is not None and owner.alive and not owner.mine:
        raise Refused("session_owned", **owner_view(owner))
