"""Opening a store's directory: making it when it is not there, refusing what is not whole, with the reason.

Rule 1: of two processes that make a store at once, one does, under the gate.
Rule 2: the key is made before the database, the witness after it; so a database that is missing beside a witness was
lost, and one that is missing without is being made.
Rule 3: a store that may only be read is opened for reading; a commit says why it cannot be.
Rule 4: a store of an older build is brought to this build's tables when it is opened for writing, after it has proved
itself whole; one that may only be read stays as it is.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from hames.core.records import record
from hames.store import migrations, schema
from hames.store.faults import unavailable
from hames.store.files import FORMAT, StoreFiles, make_database_file, make_private, sync
from hames.store.guards import (
    Gate,
    Witness,
    check_witness,
    mirror_locks,
    own_descriptors,
    refuse_network,
)

KEY_BYTES: Final = 32

REPAIRED: Final = "repaired"
"""Holds a database that a repair made, whole and on the medium, until it has its place."""


@record
class ReadSide:
    """A connection for reading, whose store it is and of which version, and its key."""

    connection: apsw.Connection
    store_id: str
    key: bytes
    files: StoreFiles
    version: int

    def close(self) -> None:
        """Close it."""
        self.connection.close()
        self.files.close()


@record
class WriteSide:
    """The one connection of a process that writes, with its guards."""

    connection: apsw.Connection
    meta: schema.Meta
    key: bytes
    files: StoreFiles
    gate: Gate
    witness: Witness

    def close(self) -> None:
        """Close all of it."""
        self.connection.close()
        self.files.close()
        self.witness.close()
        self.gate.close()


def why_read_only(directory: Path) -> str | None:
    """Why an existing store cannot be written to, None when it can as far as permissions tell."""
    database = directory / "store.db"
    if not database.exists():
        return None
    for path in (directory, database):
        if not os.access(path, os.W_OK):
            if os.statvfs(path).f_flag & os.ST_RDONLY:
                return f"{path} is on a read-only file system"
            return f"{path} may not be written to by this user"
    return None


def open_for_writing(directory: Path, limits: Mapping[str, int]) -> WriteSide:
    """Open or make the store.

    Raises:
        HarnessFault: `store_unavailable`, `session_incompatible`.
        apsw.Error, OSError: to be translated by the caller.
    """
    if not directory.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    refuse_network(directory)
    gate = Gate(directory, limit_ms=limits["gateMs"])
    connection: apsw.Connection | None = None
    witness: Witness | None = None
    try:
        make_private(directory)
        if (directory / REPAIRED).is_dir():
            gate.enter()
            try:
                finish_repair(directory)
            finally:
                gate.leave()
        before = own_descriptors(directory)
        if not _is_made(directory):
            _make(directory, gate, limits)
        key = read_key(directory)
        witness = Witness(directory, write=True)
        seen = witness.read()
        connection = schema.connect(directory, write=True, busy_ms=limits["gateMs"])
        meta, writable = schema.inspect(connection, directory)
        if not writable:
            raise schema.incompatible(directory, meta.version, "write")
        check_witness(directory, seen, meta.store_id, meta.commits)
        schema.check_size(connection, directory)
        if meta.version < schema.VERSION:
            connection.close()
            migrations.migrate(directory, gate, limits=limits)
            connection = schema.connect(directory, write=True, busy_ms=limits["gateMs"])
            meta, _ = schema.inspect(connection, directory)
        mirror_locks(directory, before)
        own = sqlites(directory, before)
        _restore_header(connection, own, gate)
        files = StoreFiles(directory, own, gate_fd=gate.fileno())
        return WriteSide(connection, meta, key, files, gate, witness)
    except BaseException:
        for part in (connection, witness, gate):
            if part is not None:
                part.close()
        raise


def _restore_header(connection: apsw.Connection, own: Mapping[str, int], gate: Gate) -> None:
    """Where the database was opened though its header is not that of one, the first page stands in the WAL: it is moved
    over the damage."""
    if "" in own and os.pread(own[""], len(FORMAT), 0) != FORMAT:
        gate.enter()
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        finally:
            gate.leave()


def open_for_reading(
    directory: Path, limits: Mapping[str, int], *, guard: bool, files: StoreFiles | None = None
) -> ReadSide:
    """Open an existing store; `guard` when this process has no writer to hold the mirrored locks, else `files` are
    those the writer has.

    Raises:
        HarnessFault: `store_unavailable`, `session_incompatible`.
        apsw.Error, OSError: to be translated by the caller.
    """
    if files is not None:
        files.check()
    else:
        refuse_network(directory)
        refuse_unfinished(directory)
    key = read_key(directory)
    before = own_descriptors(directory) if files is None else {}
    seen = _witnessed(directory)
    connection = schema.connect(directory, write=False, busy_ms=limits["gateMs"])
    try:
        meta, _ = schema.inspect(connection, directory)
        check_witness(directory, seen, meta.store_id, meta.commits)
        migrations.stand_in(connection, meta.version)
        if guard:
            with suppress(OSError):
                mirror_locks(directory, before)
        files = files or StoreFiles(directory, sqlites(directory, before))
        return ReadSide(connection, meta.store_id, key, files, meta.version)
    except BaseException:
        connection.close()
        raise


def refuse_unfinished(directory: Path) -> None:
    """Refuse a store whose repair was cut short: its new database waits to take its place.

    Raises:
        HarnessFault: `store_unavailable`.
    """
    if (directory / REPAIRED).is_dir():
        raise unavailable(directory, "its repair was cut short; any process that may write to it finishes that")


def finish_repair(directory: Path) -> None:
    """Give a repaired database its place; called with the gate held, again after it was cut short.

    The WAL goes first: SQLite would apply it to whatever database lies beside it.
    """
    ready = directory / REPAIRED
    if not ready.is_dir():
        return
    if (ready / "store.db").exists():
        for name in ("store.db-wal", "store.db-shm"):
            (directory / name).unlink(missing_ok=True)
        sync(directory)
        (ready / "store.db").rename(directory / "store.db")
        sync(directory)
    shutil.rmtree(ready)


def sqlites(directory: Path, before: Mapping[int, str]) -> dict[str, int]:
    """The descriptors of a connection that was opened since `before`, by suffix. The shared memory is one for all
    connections of a process and open as long as any of them."""
    found = own_descriptors(directory)
    return {suffix: number for number, suffix in found.items() if suffix or number not in before}


def read_key(directory: Path) -> bytes:
    """The store's key.

    Raises:
        HarnessFault: `store_unavailable`: it is missing or cut.
    """
    try:
        key = (directory / "key").read_bytes()
    except FileNotFoundError:
        key = b""
    if len(key) != KEY_BYTES:
        raise unavailable(directory, "its file `key` is missing or damaged; restore it from a backup", retryable=False)
    return key


def _witnessed(directory: Path) -> tuple[str, int] | None:
    try:
        witness = Witness(directory, write=False)
    except FileNotFoundError:
        return None
    seen = witness.read()
    witness.close()
    return seen


def _is_made(directory: Path) -> bool:
    """There is a database with something in it.

    Raises:
        HarnessFault: there was one.
    """
    database = directory / "store.db"
    try:
        size = database.stat().st_size
    except FileNotFoundError:
        size = 0
    if size == 0 and _witnessed(directory) is not None:
        why = "store.db is missing or empty, though commits were made; restore it, or move the directory away"
        raise unavailable(directory, why, retryable=False, historyLost=True)
    return size > 0 and (directory / "witness").exists()


def _make(directory: Path, gate: Gate, limits: Mapping[str, int]) -> None:
    gate.enter()
    try:
        if _is_made(directory):
            return
        make_database_file(directory)
        connection = schema.connect(directory, write=True, busy_ms=limits["gateMs"])
        try:
            if schema.is_new(connection):
                _make_key(directory)
                schema.create(connection, directory)
                # So that a store whose WAL is taken away is still known as ours, with its history lost.
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            meta, _ = schema.inspect(connection, directory)
        finally:
            connection.close()
        witness = Witness(directory, write=True)
        witness.write(meta.store_id, meta.commits)
        witness.close()
        sync(directory)
        # The directories above may be as new: without them what is acknowledged here would be lost with the power.
        for above in directory.absolute().parents:
            with suppress(OSError):
                sync(above)
    finally:
        gate.leave()


def _make_key(directory: Path) -> None:
    path = directory / "key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        # The making was cut short; the key, if it is whole, has sealed nothing yet.
        if path.stat().st_size == KEY_BYTES:
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, secrets.token_bytes(KEY_BYTES))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
