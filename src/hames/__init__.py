"""Hames: a durable agent harness that other programs drive over stdio, or within their own process: see `embedded`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hames.embedded import (
        ConnectionLost,
        Events,
        HamesClient,
        HamesError,
        LogBroken,
        Session,
        SyncClient,
        SyncEvents,
        SyncSession,
        connect,
        connect_sync,
    )

__version__ = "0.1.0"

__all__ = [
    "ConnectionLost",
    "Events",
    "HamesClient",
    "HamesError",
    "LogBroken",
    "Session",
    "SyncClient",
    "SyncEvents",
    "SyncSession",
    "__version__",
    "connect",
    "connect_sync",
]


def __getattr__(name: str) -> Any:
    """The names of the library, loaded with the first of them: a server that is spawned needs none."""
    if name not in __all__:
        raise AttributeError(f"module 'hames' has no attribute {name!r}")
    from hames import embedded

    return getattr(embedded, name)
