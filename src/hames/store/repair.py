"""The repair of a store: a backup, then what proves itself is kept, in one commit or by one rename.

Rule 1: nobody else has the store open: who lives is named, and whoever comes waits at the gate.
Rule 2: whatever ends it, the store is either as it was or repaired; the backup is on the medium before.
Rule 3: the number of the store's epoch goes up, so that everybody can tell.
Rule 4: a database that SQLite can read and finds whole, with all its tables, is mended where it is; else what can be
read is put into a new one (`rebuild.py`).
Rule 5: what follows from what proves itself is made anew (`mended`), and nothing that proves itself is cut.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import apsw

from hames.core.times import rfc3339
from hames.protocol.errors import HarnessFault
from hames.store import blob_check, migrations, places, room, schema, shape, strays
from hames.store.faults import FOREIGN, translate, unavailable
from hames.store.files import make_directory, sync
from hames.store.guards import Gate, Witness, refuse_network
from hames.store.kinds import misplaced
from hames.store.opening import REPAIRED, finish_repair, read_key
from hames.store.owners import Owners, new_owner_id
from hames.store.rebuild import rebuild
from hames.store.removal import IS_DELETED
from hames.store.salvage import Salvage, Salvaged
from hames.store.schema import every, one

COMPANY_MS: Final = 500
"""For others who have the database open for a moment."""


@dataclass(slots=True)
class RepairReport:
    """What a repair did. `history_lost`: the whole store went back; `removed` events belonged to no session;
    `mended`: what was made right without a loss, and how much of it; `contents_lost`: digests of contents that are
    nowhere."""

    backup: str = ""
    epoch: int = 0
    rebuilt: bool = False
    history_lost: bool = False
    salvaged: list[Salvaged] = field(default_factory=list)
    removed: int = 0
    mended: Counter[str] = field(default_factory=Counter)
    contents_lost: tuple[bytes, ...] = ()

    @property
    def loses(self) -> bool:
        """Events or contents were lost, or may have been."""
        is_cut = any(each.is_cut for each in self.salvaged)
        return self.history_lost or self.removed > 0 or is_cut or bool(self.contents_lost)


def refuse_company(directory: Path) -> None:
    """Go on only if no other process has the store open.

    Raises:
        HarnessFault: `store_unavailable {pids}`.
    """
    owners = Owners(directory, new_owner_id(), lease_ms=0, reaper=lambda: None)
    alive = [owner for owner in map(owners.look, owners.others()) if owner.alive]
    if alive:
        names = ", ".join(f"{owner.pid} on {owner.host}" for owner in alive)
        why = f"it is in use by process {names}; end it, then repair"
        raise unavailable(directory, why, pids=[owner.pid for owner in alive])


def finish_cut_repair(directory: Path, limits: Mapping[str, int]) -> None:
    """Finish a repair that was killed when its result was whole. Nobody else has the store open.

    Raises:
        HarnessFault: `store_unavailable`.
    """
    if not (directory / REPAIRED).is_dir():
        return
    try:
        gate = Gate(directory, limit_ms=limits["gateMs"])
        try:
            gate.enter()
            refuse_company(directory)
            finish_repair(directory)
        finally:
            gate.close()
    except FOREIGN as error:
        raise translate(error, directory) from error


def repair_store(directory: Path, limits: Mapping[str, int], *, session_id: str | None = None) -> RepairReport:
    """Repair the store in `directory`, or one session of it. Called when `verify_store` found something.

    Raises:
        HarnessFault: `store_unavailable {pids?}`: in use, without its key, or nothing of it can be read;
            `session_incompatible`; `store_full {neededBytes, freeBytes}`: no room for the backup. Nothing was changed.
    """
    try:
        refuse_network(directory)
        key = read_key(directory)
        refuse_company(directory)
        room.require(directory)
        moved = _clear(directory)
        gate = Gate(directory, limit_ms=limits["gateMs"])
        try:
            gate.enter()
            refuse_company(directory)
            finish_repair(directory)
            return _Repair(directory, key, limits, session_id, moved).run()
        finally:
            gate.close()
    except FOREIGN as error:
        raise translate(error, directory) from error


def _clear(directory: Path) -> int:
    """Move away what is no file or no directory where one has to be: nothing of the store is in it, and the gate may be
    among it. How many."""
    names = [name for name, _, is_moved in misplaced(directory) if is_moved]
    for name in names:
        (directory / name).rename(directory / f"{name}.moved-{time.time_ns()}")
    return len(names)


class _Repair:
    """One repair, under the gate. `moved` things were in the place of others."""

    def __init__(
        self, directory: Path, key: bytes, limits: Mapping[str, int], session_id: str | None, moved: int
    ) -> None:
        self._directory = directory
        self._key = key
        self._limits = limits
        self._session_id = session_id
        self._now = rfc3339(time.time_ns() // 1_000_000)
        self._report = RepairReport()
        self._moved = moved
        self._misshapen = 0

    def run(self) -> RepairReport:
        with closing(Witness(self._directory, write=True)) as witness:
            seen = witness.read()
            backup = self._copy_files()
            self._report.backup = str(backup)
            try:
                meta = self._in_place(seen)
            except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError):
                if self._session_id is not None:
                    shutil.rmtree(backup)
                    raise
                meta = self._anew(seen)
            except BaseException as error:
                # Nothing was changed.
                shutil.rmtree(backup)
                if isinstance(error, apsw.BusyError):
                    raise unavailable(self._directory, "another program has it open; end it, then repair") from error
                raise
            witness.write(meta.store_id, meta.commits)
        self._report.mended["files of the wrong kind"] += self._moved
        self._report.mended["tables and indexes"] += self._misshapen
        return self._report

    def _in_place(self, seen: tuple[str, int] | None) -> schema.Meta:
        """Mend the database where it is.

        Raises:
            apsw.CorruptError, apsw.NotADBError, apsw.SQLError: SQLite cannot read it, or finds it damaged.
        """
        directory = self._directory
        with closing(schema.connect(directory, write=True, busy_ms=COMPANY_MS, alone=True)) as connection:
            _refuse_damage(connection, directory)
            self._set_header(connection)
            self._misshapen = len(shape.misshapen(connection))
            if self._misshapen:
                raise apsw.CorruptError("a table is not as it was made")
            self._set_facts(connection, seen)
            meta, writable = schema.inspect(connection, directory)
            if not writable:
                raise schema.incompatible(directory, meta.version, "write")
            migrations.advance(connection, meta.version)
            meta = self._mend(connection, seen)
            # The header stands in the WAL too; what lies over it in the file is gone then.
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            return meta

    def _set_header(self, connection: apsw.Connection) -> None:
        """What says that the database is ours, and that it has a WAL.

        Raises:
            HarnessFault: `store_unavailable`: it is another program's.
        """
        if connection.pragma("application_id") != schema.APPLICATION_ID:
            if not shape.is_ours(connection):
                raise unavailable(self._directory, "store.db was not made by Hames", retryable=False)
            connection.pragma("application_id", schema.APPLICATION_ID)
            self._report.mended["settings of the database"] += 1
        if connection.pragma("journal_mode") != "wal":
            connection.pragma("journal_mode", "wal")
            self._report.mended["settings of the database"] += 1

    def _set_facts(self, connection: apsw.Connection, seen: tuple[str, int] | None) -> None:
        """What the store says of itself, where that cannot be."""
        _, wrong = shape.told(connection)
        if not wrong:
            return
        version = connection.pragma("user_version")
        instead: dict[str, Any] = {
            "store_id": secrets.token_hex(16) if seen is None else seen[0],
            # Nobody can tell how many were made: if the witness knows of any, they may be lost.
            "commits": 0,
            "epoch": strays.epoch_by_rows(connection, 1),
            **shape.limits_of(version),
        }
        with connection:
            for name in wrong:
                connection.execute("delete from meta where key = ?", (name,))
                if name in instead:
                    connection.execute("insert into meta values (?, ?)", (name, instead[name]))
        self._report.mended["settings of the store"] += len(wrong)

    def _anew(self, seen: tuple[str, int] | None) -> schema.Meta:
        """Put what can be read into a new database, mend that, and give it the old one's place."""
        directory = self._directory
        self._report.rebuilt = True
        # What was mended where it was is not where it was any more.
        self._report.mended.clear()
        unready = directory / "repairing"
        shutil.rmtree(unready, ignore_errors=True)
        make_directory(unready)
        rebuild(directory, unready, seen, busy_ms=self._limits["gateMs"])
        with closing(schema.connect(unready, write=True, busy_ms=COMPANY_MS)) as connection:
            meta = self._mend(connection, seen)
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        for name in ("store.db-wal", "store.db-shm"):
            (unready / name).unlink(missing_ok=True)
        shutil.rmtree(unready / "cut", ignore_errors=True)
        sync(unready / "store.db")
        sync(unready)
        unready.rename(directory / REPAIRED)
        sync(directory)
        finish_repair(directory)
        return meta

    def _mend(self, connection: apsw.Connection, seen: tuple[str, int] | None) -> schema.Meta:
        report, directory = self._report, self._directory
        with connection:
            meta, _ = schema.inspect(connection, directory)
            report.epoch = strays.epoch_by_rows(connection, meta.epoch) + 1
            salvage = Salvage(connection, self._key, directory, epoch=report.epoch, now=self._now)
            # Of all sessions: what one lacks may stand among the events of another.
            report.mended["events and sessions in another place"] += places.settle(connection, self._key)
            report.mended["contents"] += blob_check.mend_blobs(connection, directory)
            report.salvaged = list(salvage.sessions(self._session_id))
            report.mended["rows of events"] += sum(each.amended for each in report.salvaged)
            if seen is not None and seen[0] != meta.store_id and salvage.is_of_key:
                # Its sessions were written with the key that lies here, so the name alone was changed.
                meta = replace(meta, store_id=seen[0])
                connection.execute("update meta set value = ? where key = 'store_id'", (meta.store_id,))
                report.mended["settings of the store"] += 1
            report.history_lost = seen is not None and (seen[0] != meta.store_id or seen[1] > meta.commits)
            if self._session_id is None:
                report.removed, others = strays.drop(connection)
                report.mended["rows of no session"] += others
            self._settle_contents(connection)
            self._count(connection, report)
            salvage.mark(self._cuts(connection))
            commits = max(meta.commits, seen[1] if seen is not None else 0) + 1
            connection.execute("update meta set value = ? where key = 'commits'", (commits,))
        return schema.Meta(meta.store_id, commits, meta.version, report.epoch)

    def _settle_contents(self, connection: apsw.Connection) -> None:
        settled = blob_check.settle_references(connection, self._directory, epoch=self._report.epoch, now=self._now)
        blob_check.forget_lost(connection)
        self._report.mended["contents"] += settled.rows
        self._report.contents_lost = settled.lost

    def _count(self, connection: apsw.Connection, report: RepairReport) -> None:
        """The store is in another epoch; the rows of earlier ones that were lost are not told apart any more."""
        connection.execute("delete from epoch where n < 2 or n > ?", (report.epoch,))
        reason = "history_lost" if report.history_lost else "rebuilt" if report.rebuilt else "damaged"
        for n in range(2, report.epoch + 1):
            values = (n, self._now, reason if n == report.epoch else "unknown")
            connection.execute("insert or ignore into epoch (n, started, reason) values (?, ?, ?)", values)
        connection.execute("insert or replace into meta values ('epoch', ?)", (report.epoch,))

    def _cuts(self, connection: apsw.Connection) -> list[tuple[str, dict[str, Any]]]:
        cuts: dict[str, dict[str, Any]] = {}
        if self._report.history_lost:
            left = {each.session_id for each in self._report.salvaged if each.left is not None}
            for session_id, head in every(connection, f"select id, head from session where not {IS_DELETED}"):
                if session_id not in left:
                    cuts[session_id] = {"lastGoodSeq": head, "reason": "history_lost"}
        for each in self._report.salvaged:
            if each.is_cut and not each.gone:
                lost = {} if each.lost is None else {"lost": each.lost}
                cuts[each.session_id] = {"lastGoodSeq": each.last_good_seq, **lost, "reason": each.reason}
        return list(cuts.items())

    # --- backups ----------------------------------------------------------------------------------------------

    def _place(self) -> Path:
        backups = self._directory / "backups"
        make_directory(backups)
        name = f"repair-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        for number in range(1, 1000):
            place = backups / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                place.mkdir(mode=0o700)
                return place
        raise unavailable(self._directory, f"{backups} is full of backups of this moment; remove some")

    def _copy_files(self) -> Path:
        """Nobody has the store open, this process neither: the files may be opened by hand."""
        place = self._place()
        try:
            for name in room.COPIED:
                with suppress(FileNotFoundError):
                    shutil.copyfile(self._directory / name, place / name)
            _settle(place)
            if (self._directory / "blobs").is_dir():
                # Contents are never changed in place, so that another name for them is a copy.
                shutil.copytree(self._directory / "blobs", place / "blobs", copy_function=os.link)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return place


def _settle(place: Path) -> None:
    """A backup is the user's alone and on the medium."""
    for path in place.iterdir():
        os.chmod(path, 0o600)
        sync(path)
    sync(place)
    sync(place.parent)


def _refuse_damage(connection: apsw.Connection, directory: Path) -> None:
    try:
        schema.check_size(connection, directory)
    except HarnessFault as error:
        raise apsw.CorruptError("cut off") from error
    if connection.readonly("main"):
        raise apsw.CorruptError("its header tells of another version of SQLite's format")
    if one(connection, "pragma integrity_check(1)") != ("ok",):
        raise apsw.CorruptError("integrity_check")
