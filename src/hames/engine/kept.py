"""The whole output of an earlier call, which the model was shown a part of: opened by a handle that it was told.

Rule: a handle opens what its own session keeps, and nothing else.
"""

from __future__ import annotations

from hames.core.artifacts import HANDLE
from hames.ports import Artifact, KeptOutput, Store
from hames.protocol.errors import HarnessFault, Refused, ToolFailed


def told(kept: Artifact) -> str:
    """What the model is told of an output that was kept."""
    path = f"{HANDLE}{kept.artifact}"
    return f"[{kept.size_bytes} bytes of the output are kept: page through them with read, path `{path}`.]"


async def open_kept(store: Store, session_id: str, handle: str) -> KeptOutput:
    """What the session keeps under `handle`.

    Raises:
        ToolFailed: `not_found`.
    """
    try:
        found = await store.artifact(session_id, handle.removeprefix(HANDLE))
    except Refused as refused:
        raise ToolFailed("not_found", "Nothing is kept in this session under such a name.") from refused
    return _Kept(store, session_id, found)


class _Kept:
    """See `ports.KeptOutput`."""

    def __init__(self, store: Store, session_id: str, artifact: Artifact) -> None:
        self.size = artifact.size_bytes
        self.path = f"{HANDLE}{artifact.artifact}"
        self._store = store
        self._session_id = session_id
        self._artifact = artifact.artifact

    async def read_at(self, offset: int, length: int) -> bytes:
        """See `ports.KeptOutput.read_at`."""
        try:
            return await self._store.read_artifact(self._session_id, self._artifact, offset=offset, length=length)
        except HarnessFault as fault:
            if fault.kind != "artifact_corrupt":
                raise
            raise ToolFailed(
                "damaged", "What was kept does not prove itself any more; run the command again."
            ) from fault
