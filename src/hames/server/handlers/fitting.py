"""How much goes into one answer: every list in one is cut where it would not fit its frame, and says where to go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hames.protocol.jsontext import dumps

VIEW_ITEMS_BYTES: Final = 384 * 1024
"""Of items in a session's view, unless one alone is larger: snapshot, queue and turns stand beside them in a frame."""

VIEW_TURNS_BYTES: Final = 64 * 1024
"""Of turns in a session's view, likewise."""


def fitting(entries: Sequence[dict[str, Any]], room_bytes: int) -> list[dict[str, Any]]:
    """The first of `entries` that fit together, at least one if there is one."""
    taken: list[dict[str, Any]] = []
    for entry in entries:
        room_bytes -= len(dumps(entry)) + 1
        if room_bytes < 0 and taken:
            break
        taken.append(entry)
    return taken
