"""Whether a store is what was written to it: every table, every session from its first event, against the seals.

Rule 1: it only reads, in one transaction: what live processes write meanwhile is not seen.
Rule 2: memory does not grow with the store.
Rule 3: what is found is told, never mended; what could not be looked at is an error, never "good".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw

from hames.archive.findings import Finding, FindingKind
from hames.protocol.errors import HarnessFault, Refused
from hames.store import migrations, schema
from hames.store.blob_check import check_blobs
from hames.store.faults import FOREIGN, translate, unavailable
from hames.store.files import FORMAT, HEADER
from hames.store.findings import Findings
from hames.store.guards import Witness, check_witness, mirror_locks, own_descriptors, refuse_network
from hames.store.opening import read_key, refuse_unfinished
from hames.store.schema import one
from hames.store.session_check import COLUMNS, SessionCheck, SessionRow

INTEGRITY_ROWS: Final = 20
"""Of what SQLite finds wrong with its file."""

_STANDING: Final = " where id >= '0'"
"""Sessions that were not deleted: see `removal`."""

_WITHOUT_SESSION: Final = (
    "session_id not in (select id from session) and session_id not in (select session_id from tombstone)"
)


@dataclass(slots=True)
class StoreReport:
    """What was found. `counts` has sessions, events, turns, keys, blobs; `notes` is what is no damage, but told."""

    path: str
    findings: list[Finding] = field(default_factory=list)
    more: int = 0
    kinds: Mapping[FindingKind, int] = field(default_factory=dict)
    store: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Nothing is wrong."""
        return not self.kinds


Progress = Callable[[int, int], object]
"""Is told how many events were looked at, of how many."""


def verify_store(
    directory: Path,
    limits: Mapping[str, int],
    *,
    session_id: str | None = None,
    progress: Progress = lambda done, total: None,
) -> StoreReport:
    """Look at the store in `directory`, or at one session of it.

    Raises:
        HarnessFault: `store_unavailable`, `session_incompatible`: it cannot be looked at.
        Refused: `session_not_found`.
    """
    try:
        return _Verifier(directory, limits, progress).run(session_id)
    except FOREIGN as error:
        raise translate(error, directory) from error


class _Verifier:
    def __init__(self, directory: Path, limits: Mapping[str, int], progress: Progress) -> None:
        self._directory = directory
        self._limits = limits
        self._progress = progress
        self._found = Findings()
        self._report = StoreReport(str(directory))
        self._done = self._total = 0

    def run(self, session_id: str | None) -> StoreReport:
        found, report = self._found, self._report
        self._look(session_id)
        report.findings, report.more, report.kinds = found.kept, found.more, dict(found.kinds)
        return report

    def _look(self, session_id: str | None) -> None:
        directory = self._directory
        seen = self._files()
        if not (directory / "store.db").exists() or self._found.kinds["torn"]:
            return
        key = self._key()
        refuse_network(directory)
        refuse_unfinished(directory)
        before = own_descriptors(directory)
        try:
            with closing(schema.connect(directory, write=False, busy_ms=self._limits["gateMs"])) as connection:
                meta = self._meta(connection, seen)
                if meta is None:
                    return
                migrations.stand_in(connection, meta.version)
                mirror_locks(directory, before)
                with connection:
                    self._tables(connection, key, session_id)
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._unreadable(error)

    def _unreadable(self, error: apsw.Error) -> None:
        """SQLite gave up: tell a file that was cut by its header (sqlite.org/fileformat2.html, 1.3), which is read by a
        descriptor of SQLite's own."""
        database = self._directory / "store.db"
        self._found.part("store.db")
        before = own_descriptors(self._directory)
        with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)):
            for descriptor in own_descriptors(self._directory).keys() - before.keys():
                head = os.pread(descriptor, HEADER.size, 0)
                page_bytes, pages = HEADER.unpack(head) if head[: len(FORMAT)] == FORMAT else (0, 0)
                if database.stat().st_size < page_bytes * pages:
                    self._found.add("torn", f"was cut off: it tells of {page_bytes * pages} bytes")
                    return
        self._found.add("edited", f"SQLite cannot read it: {error}")

    def _files(self) -> tuple[str, int] | None:
        """What must be there before SQLite is asked; what the witness tells."""
        found, database = self._found, self._directory / "store.db"
        if not any((self._directory / name).exists() for name in ("store.db", "key", "witness")):
            raise unavailable(self._directory, "there is no store; check HAMES_HOME")
        seen = None
        found.part("witness")
        try:
            with closing(Witness(self._directory, write=False)) as witness:
                seen = witness.read()
            if seen is None:
                found.add("edited", "does not match its checksum; the next commit writes it anew")
        except FileNotFoundError:
            found.add("missing", "is not there; the next commit writes it anew")
        found.part("store.db")
        if not database.exists():
            found.add("missing", "is not there")
        elif database.stat().st_size == 0:
            found.add("torn", "is empty")
        return seen

    def _key(self) -> bytes | None:
        try:
            return read_key(self._directory)
        except HarnessFault as fault:
            self._found.part("key")
            self._found.add("missing", f"{fault.details['why']}; without it no session proves itself")
            return None

    def _meta(self, connection: apsw.Connection, seen: tuple[str, int] | None) -> schema.Meta | None:
        self._found.part("store.db")
        try:
            schema.check_size(connection, self._directory)
        except HarnessFault as fault:
            self._found.add("torn", fault.details["why"])
        try:
            meta, _ = schema.inspect(connection, self._directory)
        except HarnessFault as fault:
            if fault.kind == "session_incompatible":
                raise
            self._found.add("edited", fault.details["why"])
            return None
        self._report.store = {
            "storeId": meta.store_id,
            "version": meta.version,
            "epoch": meta.epoch,
            "commits": meta.commits,
        }
        self._found.part("witness")
        try:
            check_witness(self._directory, seen, meta.store_id, meta.commits)
        except HarnessFault as fault:
            self._found.add("torn" if seen and seen[0] == meta.store_id else "swapped", fault.details["why"])
        return meta

    def _tables(self, connection: apsw.Connection, key: bytes | None, session_id: str | None) -> None:
        counts = self._report.counts
        where, values = (_STANDING, ()) if session_id is None else (" where id = ?", (session_id,))
        counts["sessions"], total = one(
            connection, f"select count(*), ifnull(sum(head), 0) from session{where}", values
        )
        if session_id is not None and counts["sessions"] == 0:
            raise Refused("session_not_found", sessionId=session_id)
        self._total = total
        if session_id is None:
            self._integrity(connection)
            self._epochs(connection)
        self._sessions(connection, key, where, values)
        if session_id is None:
            self._strays(connection)
        counts["blobs"] = check_blobs(connection, self._directory, self._found, self._report.notes, session_id)

    def _integrity(self, connection: apsw.Connection) -> None:
        self._found.part("store.db")
        for (text,) in connection.execute(f"pragma integrity_check({INTEGRITY_ROWS})"):
            if text != "ok":
                self._found.add("edited", f"SQLite finds: {text}")

    def _epochs(self, connection: apsw.Connection) -> None:
        self._found.part("epochs")
        epoch = self._report.store["epoch"]
        rows = [n for (n,) in connection.execute("select n from epoch order by n")]
        if rows != list(range(2, epoch + 1)):
            self._found.add("edited", f"the store is in epoch {epoch}, and its rows tell of {rows or 'none'}")

    def _sessions(self, connection: apsw.Connection, key: bytes | None, where: str, values: tuple[str, ...]) -> None:
        counts = self._report.counts
        for (n,) in connection.execute(f"select n from session{where} order by n", values):
            try:
                row = one(connection, f"select {COLUMNS} from session where n = ?", (n,))
            except apsw.CorruptError as error:
                self._found.part(f"session number {n}")
                self._found.add("edited", f"its row cannot be read: {error}")
                continue
            check = SessionCheck(connection, key, SessionRow(*row), self._found, step=self._step)
            check.run()
            for name, count in check.counts.items():
                counts[name] = counts.get(name, 0) + count
        self._progress(self._done, self._total)

    def _step(self) -> None:
        self._done += 1
        if self._done % 1000 == 0:
            self._progress(self._done, self._total)

    def _strays(self, connection: apsw.Connection) -> None:
        """Rows that belong to no session. What is left of a deleted one still has its row, its keys stay for ever."""
        (deleted,) = one(connection, "select count(*) from session where id < '0'")
        if deleted:
            self._report.notes.append(f"{deleted} deleted sessions are still being removed")
        for name, count in (
            ("events", self._stray_events(connection)),
            ("turns", one(connection, "select count(*) from turn where session not in (select n from session)")[0]),
            ("states", one(connection, "select count(*) from state where n not in (select n from session)")[0]),
        ):
            self._found.part(name)
            if count:
                self._found.add("missing", f"the session of {count} of them is not there")
        self._found.part("idempotency keys")
        (count,) = one(connection, f"select count(*) from idem where {_WITHOUT_SESSION}")
        if count:
            self._found.add("missing", f"the session of {count} of them is not there")
        (count,) = one(
            connection, "select count(*) from idem where scope = 0 and session_id in (select id from session)"
        )
        made = self._report.counts.pop("storeKeys", 0)
        if count > made and self._found.kinds.total() == 0:
            self._found.add("duplicated", f"{count} rows are of creations, the logs lead to {made}")

    def _stray_events(self, connection: apsw.Connection) -> int:
        """Between the sessions' ranges of numbers: a scan of all events would take as long as reading them."""
        bits, count, end = schema.SEQ_BITS, 0, 0
        select = "select count(*) from event where id > ? and id <= ?"
        for (n,) in connection.execute("select n from session order by n"):
            count += one(connection, select, (end, n << bits))[0]
            end = (n + 1) << bits
        return int(count + one(connection, "select count(*) from event where id > ?", (end,))[0])
