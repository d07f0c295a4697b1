"""What several stores in memory share: their disk, and the sessions on it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hames.core.commands import KeyRecord
from hames.core.state import Turn
from hames.protocol.chain import first_digest
from hames.protocol.errors import Refused
from hames.store.log import Head
from hames.store.memory_blobs import MemoryBlobs, References

if TYPE_CHECKING:
    from hames.store.memory import MemoryStore


@dataclass(slots=True)
class MemorySession:
    """A session as its log stands. Implements `pages.Lines`."""

    n: int
    head: Head
    lines: list[bytes] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    turns: dict[str, Turn] = field(default_factory=dict)
    keys: dict[str, KeyRecord] = field(default_factory=dict)
    references: References = field(default_factory=dict)
    owner: str | None = None
    fence: int = 0

    @property
    def session_id(self) -> str:
        return self.head.state.session_id

    @property
    def head_seq(self) -> int:
        return len(self.lines)

    @property
    def head_cursor(self) -> str:
        return self.head.cursor

    def fetch(self, low: int, high: int) -> bytes:
        return b"\n".join(self.lines[low:high])

    def digest(self, seq: int) -> bytes | None:
        if seq == 0:
            return first_digest(self.session_id)
        return self.digests[seq - 1] if seq <= len(self.digests) else None


class MemoryDisk:
    """What several `MemoryStore` share. `clock_ns` tells how long an owner was silent."""

    def __init__(self, *, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.clock_ns = clock_ns
        self.store_id = secrets.token_hex(16)
        self.key = secrets.token_bytes(32)
        self.sessions: dict[str, MemorySession] = {}
        self.made = 0
        self.deleted: dict[str, str] = {}
        self.keys: dict[str, KeyRecord] = {}
        self.blobs = MemoryBlobs()
        self.stores: dict[str, MemoryStore] = {}
        self.heirs: dict[str, set[str]] = {}

    def refuse_deleted(self, session_id: str) -> None:
        """Go on only if the session was not deleted.

        Raises:
            Refused: `session_deleted`.
        """
        if session_id in self.deleted:
            raise Refused("session_deleted", sessionId=session_id, deletedAt=self.deleted[session_id])
