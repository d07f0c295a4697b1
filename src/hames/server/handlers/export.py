"""`session/export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hames.engine.export import export_session

if TYPE_CHECKING:
    from hames.server.connection import Call


async def session_export(call: Call) -> dict[str, Any]:
    """Put the session, as it stands now, into an archive of its own; read it with `artifact/read`."""
    service = await call.service()
    exported = await export_session(await service.opened(), call.params["sessionId"])
    artifact = exported.artifact
    return {
        "artifact": artifact.artifact,
        "sizeBytes": artifact.size_bytes,
        "sha256": artifact.sha256,
        "mediaType": artifact.media_type,
        "name": artifact.name,
        "cursor": exported.cursor,
        "events": exported.events,
    }
