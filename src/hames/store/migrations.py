"""From the tables of an older build to those of this one: forward only, step by step, each step one transaction.

Rule 1: never under a live process of an older build: the database is held exclusively, so nobody has it open, and
nobody opens it, until the last step is done; who is alive is named.
Rule 2: first a copy, on the medium before anything is changed; without room for it nothing is changed.
Rule 3: a step that was made is not made again, whatever ended the process in between.
Rule 4: events are never rewritten; `fixtures/v<n>.tar.xz` beside the store's tests holds a store of every version.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import apsw

from hames.core.records import record
from hames.protocol.errors import HarnessFault
from hames.store import schema
from hames.store.faults import unavailable
from hames.store.files import make_directory, sync
from hames.store.guards import Gate
from hames.store.owners import Owners, new_owner_id

BACKUPS_KEPT: Final = 3
"""Of the copies made here; each is as large as the store was."""

COMPANY_MS: Final = 500
"""For others who have the database open for a moment, such as one that starts at the same time."""


@record
class Step:
    """To the next version: what to change, and which builds may then read and write the store."""

    change: Callable[[apsw.Connection], object]
    min_reader: int
    min_writer: int


def _to_2(connection: apsw.Connection) -> None:
    connection.execute(schema.TABLES[2])
    connection.execute("insert or ignore into meta values ('epoch', 1)")


STEPS: Final[Mapping[int, Step]] = {1: Step(_to_2, min_reader=1, min_writer=2)}
"""By the version they start from."""


def migrate(directory: Path, gate: Gate, *, limits: Mapping[str, int]) -> None:
    """Bring the store's tables to this build's version, if they are older. Nobody of this process may have it open.

    Raises:
        HarnessFault: `store_unavailable {storeVersion, supported, pids}`: an older build, or another program, has it
            open; `store_full`: no room for the copy.
        apsw.Error, OSError: to be translated by the caller.
    """
    gate.enter()
    try:
        with closing(schema.connect(directory, write=True, busy_ms=limits["gateMs"])) as connection:
            version = connection.pragma("user_version")
        if version < schema.VERSION:
            _refuse_company(directory, version, limits)
            _migrate(directory, version)
    finally:
        gate.leave()


def _migrate(directory: Path, version: int) -> None:
    try:
        with closing(schema.connect(directory, write=True, busy_ms=COMPANY_MS, alone=True)) as connection:
            back_up(connection, directory, version)
            advance(connection, version)
    except apsw.BusyError as error:
        raise _in_company(directory, version, "another program has it open", []) from error


def advance(connection: apsw.Connection, version: int) -> None:
    """Make the steps from `version` to this build's; the connection has the database alone, and there is a copy."""
    for start in range(version, schema.VERSION):
        _make(connection, start)


def _make(connection: apsw.Connection, start: int) -> None:
    step = STEPS[start]
    with connection:
        step.change(connection)
        values = [("min_reader", step.min_reader), ("min_writer", step.min_writer)]
        connection.executemany("update meta set value = ?2 where key = ?1", values)
        connection.pragma("user_version", start + 1)


def _refuse_company(directory: Path, version: int, limits: Mapping[str, int]) -> None:
    owners = Owners(directory, new_owner_id(), lease_ms=limits["leaseMs"], reaper=lambda: None)
    alive = [owner for owner in map(owners.look, owners.others()) if owner.alive]
    if alive:
        names = ", ".join(f"{owner.pid} on {owner.host}" for owner in alive)
        raise _in_company(directory, version, f"a process of an older build runs ({names})", [o.pid for o in alive])


def _in_company(directory: Path, version: int, who: str, pids: list[int]) -> HarnessFault:
    why = (
        f"its tables are of version {version}, this build's of version {schema.VERSION}, and they cannot be brought "
        f"there while {who}; end it, then try again"
    )
    return unavailable(directory, why, storeVersion=version, supported=schema.VERSION, pids=pids)


def back_up(connection: apsw.Connection, directory: Path, version: int) -> Path:
    """A copy of the whole database in `backups/`, on the medium; of those, the newest `BACKUPS_KEPT` stay.

    It takes the place of `store.db` once `store.db-wal`, `store.db-shm` and `witness` are removed.
    """
    backups = directory / "backups"
    make_directory(backups)
    name = f"pre-{version}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.db"
    for left in backups.glob(".pre-*"):
        # Of a process that was killed while it copied; the gate is held.
        left.unlink()
    unready = backups / f".{name}"
    try:
        connection.execute("vacuum into ?", (str(unready),))
        os.chmod(unready, 0o600)
        with closing(apsw.Connection(str(unready))) as copy:
            # What is written into the header: a store out of WAL mode is refused.
            copy.pragma("journal_mode", "wal")
        sync(unready)
        unready.rename(backups / name)
    except BaseException:
        unready.unlink(missing_ok=True)
        raise
    sync(backups)
    sync(directory)
    for old in sorted(backups.glob("pre-*.db"), key=lambda path: path.name.rpartition("-")[2])[:-BACKUPS_KEPT]:
        with suppress(OSError):
            old.unlink()
    return backups / name


def stand_in(connection: apsw.Connection, version: int) -> None:
    """Give a connection that may only read an older store the tables that it lacks, empty, as its own."""
    connection.execute("pragma query_only=off")
    for added in range(version + 1, schema.VERSION + 1):
        for statement in schema.TABLES[added].split(";"):
            if statement.strip().startswith("create table"):
                connection.execute(statement.replace("create table", "create temp table", 1))
    connection.execute("pragma query_only=on")
