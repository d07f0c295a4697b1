"""A store that is open: its threads, its bell, and what joins them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hames.ports import ReaperRecord
from hames.protocol.errors import HarnessFault
from hames.store.bell import Bell
from hames.store.blobs import BlobFiles
from hames.store.collecting import DailyCollecting
from hames.store.faults import FOREIGN, Damage, translate
from hames.store.hub import Hub
from hames.store.opening import WriteSide, open_for_reading, open_for_writing, why_read_only
from hames.store.owners import Owners, new_owner_id
from hames.store.reader import Reader
from hames.store.reserve import Reserve
from hames.store.schema import library
from hames.store.shelf import Shelf
from hames.store.ticket import Job, Ticket
from hames.store.transaction import Transaction
from hames.store.writer import Batch, Writer

Calls = tuple[Callable[[Batch], object], Callable[[Ticket[Any], Any], object], Callable[[Mapping[str, int]], object]]
"""What the threads call: `report`, `answer`, `moved`."""


@dataclass(slots=True)
class Running:
    """The parts of an open store."""

    key: bytes
    identity: Mapping[str, Any]
    owners: Owners
    writer: Writer
    reader: Reader
    bell: Bell | None
    shelf: Shelf

    def write(self, jobs: list[Job]) -> None:
        """Give the writer jobs."""
        self.writer.give(jobs)

    def close(self, limit_s: float) -> None:
        """Write what was given, give back leases, end the threads; in a thread, at most `limit_s` for each."""
        self.writer.stop()
        self.writer.join(limit_s)
        self.reader.stop()
        self.reader.join(limit_s)
        if self.bell is not None:
            self.bell.close()
        self.owners.leave()


def open_store(
    directory: Path,
    hub: Hub,
    *,
    limits: Mapping[str, int],
    reaper: Callable[[], ReaperRecord | None],
    calls: Calls,
) -> Running | HarnessFault:
    """Open the store in `directory` and start its threads, or say why that cannot be."""
    try:
        return _open(directory, hub, limits=limits, reaper=reaper, calls=calls)
    except HarnessFault as fault:
        return fault
    except FOREIGN as error:
        return translate(error, directory)


def _open(
    directory: Path,
    hub: Hub,
    *,
    limits: Mapping[str, int],
    reaper: Callable[[], ReaperRecord | None],
    calls: Calls,
) -> Running:
    report, answer, moved = calls
    owners = Owners(directory, new_owner_id(), lease_ms=limits["leaseMs"], reaper=reaper)
    read_only = why_read_only(directory)
    side: WriteSide | None = None
    if read_only is None:
        try:
            side = open_for_writing(directory, limits)
            key, store_id, version = side.key, side.meta.store_id, side.meta.version
        except HarnessFault as fault:
            # A newer build may still let this one read.
            if fault.kind != "session_incompatible":
                raise
            read_only = fault.details["why"]
    if side is None:
        probe = open_for_reading(directory, limits, guard=False)
        key, store_id, version = probe.key, probe.store_id, probe.version
        probe.close()
    damage = Damage()
    files = None if side is None else side.files.for_reading()
    reader = Reader(directory, owners, hub, limits=limits, files=files, answer=answer, moved=moved, damage=damage)
    bell = None if side is None else _appear(directory, owners, reader, side)

    def publish(batch: Batch) -> None:
        report(batch)
        if batch.heads and bell is not None:
            bell.ring(owners.others(), batch.heads)

    def reopen() -> WriteSide:
        with reader.apart():
            opened = open_for_writing(directory, limits)
            reader.share(opened.files.for_reading())
            return opened

    blobs = BlobFiles(directory)
    reserve = Reserve(directory, limits["reserveBytes"])
    writer = Writer(directory, owners, report=publish, damage=damage, blobs=blobs, reserve=reserve, reopen=reopen)
    if side is not None:
        writer.adopt(side)
        writer.put_off(DailyCollecting(blobs).step)
        writer.put_off(Transaction.remove_some)
        writer.put_off(lambda _: reserve.keep())
    identity: dict[str, Any] = {
        "storeId": store_id,
        "schemaVersion": version,
        "sqlite": library(),
    }
    if read_only is not None:
        identity["readOnly"] = read_only
    writer.start()
    reader.start()
    return Running(key, identity, owners, writer, reader, bell, Shelf(directory, blobs, reader))


def _appear(directory: Path, owners: Owners, reader: Reader, side: WriteSide) -> Bell | None:
    """Make this process known to the others, and hang its bell if that is possible here."""
    try:
        owners.arrive()
        bell = Bell(directory, owners.owner_id, reader.hear)
    except BaseException:
        owners.leave()
        side.close()
        raise
    if not bell.hang():
        bell.close()
        return None
    reader.has_bell = True
    # Those who wait must know that there is another process now: they look for lost bells from now on.
    bell.ring(owners.others(), [])
    return bell
