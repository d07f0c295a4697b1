"""What is asked again when a server died: requests of which nobody knows whether it did them, and its sessions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from hames_client.connection import Connection
from hames_client.errors import HamesError

REPEATABLE: Final = frozenset(
    {
        "initialize", "capabilities/describe", "health/check", "ping", "session/resume", "session/get", "session/list",
        "session/export", "session/delete",
        "turn/get", "turn/list", "turn/wait", "events/read", "events/subscribe", "usage/get", "models/list",
        "tools/list", "rpc.discover", "artifact/list", "artifact/read",
        "process/list", "process/read", "process/stop",
    }
)  # fmt: skip
"""Doing these twice is the same as doing them once. Others need an idempotency key, a cancel a `turnId`."""

KEYED: Final = frozenset({"session/create", "turn/submit", "turn/steer"})


def is_repeatable(method: str, params: Mapping[str, Any]) -> bool:
    """Whether doing this request twice is the same as doing it once."""
    if method in KEYED:
        return "idempotencyKey" in params
    return method in REPEATABLE or (method == "turn/cancel" and "turnId" in params)


async def resume(connection: Connection, session_id: str, own: str) -> None:
    """Run this session's turns again, unless it was closed in the meantime: resuming would open it."""
    # What the server refuses here, it refuses again when the session is used; then it is told to who uses it.
    with suppress(HamesError):
        answer = await connection.request("session/get", {"sessionId": session_id})
        if answer["session"]["status"] == "open":
            await connection.request("session/resume", {"sessionId": session_id, "own": own})
