"""Artifacts of an open store, asked for from the event loop: rows by the reading thread, files by threads of their own.

Rule 1: a large file is read and proved where it holds up no other question.
Rule 2: memory holds what was asked for, never a whole file for a piece of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

from hames.core.times import rfc3339
from hames.ports import Artifact, Spool
from hames.store.blob_rows import Place
from hames.store.blobs import BlobFiles, FileSpool
from hames.store.collecting import Collecting
from hames.store.faults import translate
from hames.store.reader import Reader
from hames.store.ticket import Ticket
from hames.store.transaction import Transaction


@dataclass(slots=True)
class Shelf:
    """The part of `ports.Store` that is about artifacts."""

    directory: Path
    files: BlobFiles
    reader: Reader

    def spool(self) -> FileSpool:
        """See `Store.spool`."""
        return FileSpool(self.files, partial(translate, directory=self.directory))

    async def keep(
        self,
        session_id: str,
        spool: Spool,
        *,
        media_type: str,
        name: str,
        give: Callable[[Callable[[Transaction], Any]], Ticket[Any]],
    ) -> Artifact:
        """See `Store.keep`."""
        assert isinstance(spool, FileSpool)
        # Not within the transaction: others would wait for it at the gate.
        await anyio.to_thread.run_sync(spool.sync)
        kept: Artifact = await give(
            lambda transaction: transaction.keep_spooled(session_id, spool, media_type=media_type, name=name)
        ).wait()
        return kept

    async def contents(self, session_id: str, artifacts: Collection[str]) -> Mapping[str, bytes]:
        """See `Store.contents`."""
        places = await self.reader.ask(lambda lookup: lookup.places_left(session_id, artifacts))
        return {place.artifact.artifact: await self._read(place, 0, place.artifact.size_bytes) for place in places}

    async def artifact(self, session_id: str, artifact: str) -> Artifact:
        """See `Store.artifact`."""
        [place] = await self.reader.ask(lambda lookup: lookup.places(session_id, [artifact]))
        return place.artifact

    async def artifacts(self, session_id: str, *, after: str | None, limit: int) -> list[Artifact]:
        """See `Store.artifacts`."""
        return await self.reader.ask(lambda lookup: lookup.artifacts(session_id, after, limit))

    async def read(
        self,
        session_id: str,
        artifact: str,
        *,
        offset: int,
        length: int,
        give: Callable[[Callable[[Transaction], Any]], Ticket[Any]],
    ) -> bytes:
        """See `Store.read_artifact`. `give` takes a job for the writer: who reads the beginning of an artifact that no
        event refers to keeps it for another while."""
        [place] = await self.reader.ask(lambda lookup: lookup.places(session_id, [artifact]))
        if place.artifact.seq == 0 and offset == 0:
            give(lambda transaction: transaction.use(place.digest))
        return await self._read(place, offset, length)

    async def _read(self, place: Place, offset: int, length: int) -> bytes:
        if place.data is not None:
            return place.data[offset : offset + length]
        read = partial(self.files.read, place.digest, place.artifact.size_bytes, offset=offset, length=length)
        try:
            return await anyio.to_thread.run_sync(read)
        except OSError as error:
            raise translate(error, self.directory) from error

    async def collect(self, grace_ms: int, give: Callable[[Callable[[Transaction], Any]], Ticket[Any]]) -> int:
        """See `Store.collect`; in small transactions, between which others write."""
        collecting = Collecting(self.files, before=rfc3339(time.time_ns() // 1_000_000 - grace_ms), grace_ms=grace_ms)
        while await give(collecting.step).wait():
            pass
        return collecting.removed
