"""The removal of contents that nobody refers to, a little at a time.

Rule: each step is one transaction under the gate, short, so that other processes never wait for long.
"""

from __future__ import annotations

import time
from typing import Final

from hames.core.times import rfc3339
from hames.ports import COLLECT_GRACE_MS
from hames.store.blob_rows import COLLECTED_AT_ONCE
from hames.store.blobs import BlobFiles
from hames.store.transaction import Transaction

EVERY_MS: Final = 86_400_000
"""Between two collections of a store that is opened again and again."""


class Collecting:
    """One collection of what was last used `before` (RFC 3339) and of files that are older than `grace_ms`."""

    def __init__(self, files: BlobFiles, *, before: str, grace_ms: int) -> None:
        self.removed = 0
        self._files = files
        self._before = before
        self._older_than_s = grace_ms / 1000
        self._folders: list[str] | None = None

    def step(self, transaction: Transaction) -> bool:
        """Do a little of it; True while there is more to do."""
        if self._folders is None:
            collected = transaction.collect(self._before)
            self.removed += collected
            if collected < COLLECTED_AT_ONCE:
                self._folders = self._files.folders()
            return True
        if not self._folders:
            return False
        self.removed += transaction.sweep(self._folders.pop(), self._older_than_s)
        return True


class DailyCollecting:
    """A collection that is made when a day has gone since the last one, by whichever process."""

    def __init__(self, files: BlobFiles) -> None:
        self._files = files
        self._collecting: Collecting | None = None

    def step(self, transaction: Transaction) -> bool:
        """Do a little of it; True while there is more to do."""
        now_ms = time.time_ns() // 1_000_000
        if self._collecting is None:
            if not transaction.begin_collecting(now_ms, EVERY_MS):
                return False
            before = rfc3339(now_ms - COLLECT_GRACE_MS)
            self._collecting = Collecting(self._files, before=before, grace_ms=COLLECT_GRACE_MS)
            return True
        return self._collecting.step(transaction)
