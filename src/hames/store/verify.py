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
from hames.store import migrations, removal, schema, shape, strays
from hames.store.blob_check import check_blobs
from hames.store.faults import FOREIGN, translate, unavailable
from hames.store.files import FORMAT, HEADER, StoreFiles
from hames.store.findings import Findings
from hames.store.guards import Witness, check_witness, mirror_locks, own_descriptors, refuse_network
from hames.store.kinds import misplaced
from hames.store.opening import read_key, refuse_unfinished, sqlites
from hames.store.schema import one
from hames.store.session_check import COLUMNS, SessionCheck, SessionRow

INTEGRITY_ROWS: Final = 20
"""Of what SQLite finds wrong with its file."""

_STANDING: Final = f" where not {removal.IS_DELETED}"


@dataclass(slots=True)
class StoreReport:
    """What was found. `counts` has sessions, events, turns, keys, blobs; `notes` is what is no damage, but told; `left`
    counts what no repair mends."""

    path: str
    findings: list[Finding] = field(default_factory=list)
    more: int = 0
    kinds: Mapping[FindingKind, int] = field(default_factory=dict)
    store: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    left: int = 0

    @property
    def is_good(self) -> bool:
        """Nothing is wrong."""
        return not self.kinds

    @property
    def is_mendable(self) -> bool:
        """Some of what is wrong is of a kind that a repair does something about."""
        return sum(self.kinds.values()) > self.left


ANEW: Final = "put a backup of it in its place, or move the directory away to begin anew"
"""What to do where nothing is left that a repair could keep."""

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
        report.left = found.left
        return report

    def _look(self, session_id: str | None) -> None:
        directory = self._directory
        is_held, seen = self._kinds(), None
        if not is_held:
            seen = self._files()
        if is_held or not (directory / "store.db").exists() or self._found.kinds["torn"]:
            return
        key = self._key()
        refuse_network(directory)
        refuse_unfinished(directory)
        before = own_descriptors(directory)
        try:
            with closing(schema.connect(directory, write=False, busy_ms=self._limits["gateMs"])) as connection:
                if not self._settings(connection, seen):
                    return
                migrations.stand_in(connection, self._report.store["version"])
                mirror_locks(directory, before)
                if connection.pragma("journal_mode") == "wal":
                    self._as_opened(before)
                with connection:
                    self._tables(connection, key, session_id)
        except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
            # The last says that a format is not supported, or that a table has no such column.
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

    def _kinds(self) -> bool:
        """What is no file, or no directory; whether that is the database or the key, so that nothing can be told."""
        if not os.path.lexists(self._directory / "store.db") and not any(
            (self._directory / name).exists() for name in ("key", "witness")
        ):
            raise unavailable(self._directory, "there is no store; check HAMES_HOME")
        is_held = False
        for name, why, is_mended in misplaced(self._directory):
            self._found.part(name)
            self._found.add("edited", why)
            if not is_mended:
                self._found.leave()
                is_held = True
        return is_held

    def _files(self) -> tuple[str, int] | None:
        """What must be there before SQLite is asked; what the witness tells."""
        found, database = self._found, self._directory / "store.db"
        seen = None
        found.part("witness")
        try:
            with closing(Witness(self._directory, write=False)) as witness:
                seen = witness.read()
            if seen is None:
                found.add("edited", "does not match its checksum; the next commit writes it anew")
        except FileNotFoundError:
            found.add("missing", "is not there; the next commit writes it anew")
        except IsADirectoryError:
            # Told as of the wrong kind.
            pass
        found.part("store.db")
        if not database.exists():
            found.add("missing", f"is not there; {ANEW}")
            found.leave()
        elif database.stat().st_size == 0:
            found.add("torn", f"is empty; {ANEW}")
            found.leave()
        return seen

    def _key(self) -> bytes | None:
        try:
            return read_key(self._directory)
        except HarnessFault as fault:
            self._found.part("key")
            self._found.add("missing", f"{fault.details['why']}; without it no session proves itself")
            self._found.leave()
            return None

    def _settings(self, connection: apsw.Connection, seen: tuple[str, int] | None) -> bool:
        """The database as a whole, without its rows: whether those can be looked at."""
        found = self._found
        found.part("store.db")
        try:
            schema.check_size(connection, self._directory)
        except HarnessFault as fault:
            found.add("torn", fault.details["why"])
        if connection.pragma("application_id") != schema.APPLICATION_ID:
            found.add("edited", "its header does not say that Hames made it")
            if not shape.is_ours(connection):
                found.leave()
                return False
        mode = connection.pragma("journal_mode")
        if mode != "wal":
            found.add("edited", f"another program took it out of WAL mode, to {mode}")
        wrong = shape.misshapen(connection)
        for name, why in wrong.items():
            found.add("missing" if "not there" in why else "edited", why, at=name)
        return not wrong and self._told(connection, seen)

    def _told(self, connection: apsw.Connection, seen: tuple[str, int] | None) -> bool:
        """What the store says of itself, against its own version and the witness."""
        known, wrong = shape.told(connection)
        version = connection.pragma("user_version")
        if shape.is_newer(connection) and known.get("min_reader", version) > schema.VERSION:
            raise schema.incompatible(self._directory, version, "read")
        self._found.part("what the store says of itself")
        for name, why in wrong.items():
            self._found.add("missing" if "not there" in why else "edited", why, at=name)
        facts = {"storeId": "store_id", "epoch": "epoch", "commits": "commits"}
        self._report.store = {"version": version, "epoch": 1}
        self._report.store |= {name: known[key] for name, key in facts.items() if key in known}
        if "store_id" in known and "commits" in known:
            self._found.part("witness")
            try:
                check_witness(self._directory, seen, known["store_id"], known["commits"])
            except HarnessFault as fault:
                self._found.add("torn" if seen and seen[0] == known["store_id"] else "swapped", fault.details["why"])
        return True

    def _as_opened(self, before: Mapping[int, str]) -> None:
        """The files, as every process looks at them before each commit."""
        self._found.part("store.db")
        own = sqlites(self._directory, before)
        if "" in own and schema.is_of_other_format(self._directory, own[""]):
            self._found.add("edited", "tells of another version of SQLite's format", at="its header")
        try:
            with closing(StoreFiles(self._directory, own)) as files:
                files.check()
        except FileNotFoundError as error:
            self._found.add("missing", f"{os.path.basename(error.filename)} is not beside it", at="its files")
        except HarnessFault as fault:
            name, damage = fault.details.get("file", "store.db"), fault.details.get("damage", fault.details["why"])
            self._found.add("edited", f"{name} is {damage}: no process opens it", at="its files")

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
            self._found.part("epochs")
            why = strays.wrong_epochs(connection, self._report.store["epoch"])
            if why is not None:
                self._found.add("edited", why)
        self._sessions(connection, key, where, values)
        if session_id is None:
            self._report.notes += strays.notes(connection)
            strays.tell(connection, self._found)
        counts["blobs"] = check_blobs(connection, self._directory, self._found, self._report.notes, session_id)

    def _integrity(self, connection: apsw.Connection) -> None:
        self._found.part("store.db")
        for (text,) in connection.execute(f"pragma integrity_check({INTEGRITY_ROWS})"):
            if text != "ok":
                self._found.add("edited", f"SQLite finds: {text}")

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
