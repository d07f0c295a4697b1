"""Stores of other versions: fixtures of older builds, and what a newer build would leave."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hames.core.session import Event
from hames.store import rows
from hames.store.log import DIGEST_BYTES, next_row
from hames.store.schema import SEQ_BITS

FIXTURES = Path(__file__).parent / "fixtures"

VERSIONS = sorted(int(path.name[1:].partition(".")[0]) for path in FIXTURES.glob("v*.tar.xz"))
"""Of which there are stores."""


def unpack(version: int, directory: Path) -> list[dict[str, Any]]:
    """Put the store that the build of `version` left into `directory`; the keyed requests it had answered."""
    directory.mkdir(mode=0o700)
    with tarfile.open(FIXTURES / f"v{version}.tar.xz") as tar:
        tar.extractall(directory, filter="data")
    answered = directory / "answered.json"
    requests: list[dict[str, Any]] = json.loads(answered.read_text())
    answered.unlink()
    return requests


@contextmanager
def raw(directory: Path) -> Iterator[sqlite3.Connection]:
    """The database by another library, while no process has it open."""
    with closing(sqlite3.connect(directory / "store.db")) as connection:
        yield connection
        connection.commit()


@contextmanager
def copied(directory: Path, name: str = "store.db") -> Iterator[sqlite3.Connection]:
    """A copy of the database, so that its WAL stays as it was left."""
    with tempfile.TemporaryDirectory() as copy:
        for path in directory.glob(f"{name}*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, copy)
        with closing(sqlite3.connect(Path(copy) / name)) as connection:
            yield connection


def lines_of(directory: Path) -> dict[str, bytes]:
    """The stored lines of every session, each ended by LF, as they stand in the file."""
    with copied(directory) as connection:
        found = connection.execute("select n, id from session").fetchall()
        select = "select line from event where id between ? and ? order by id"
        return {
            session_id: b"".join(
                line.encode() + b"\n"
                for (line,) in connection.execute(select, (n << SEQ_BITS, (n + 1 << SEQ_BITS) - 1))
            )
            for n, session_id in found
        }


def tables(directory: Path, name: str = "store.db") -> set[str]:
    """The text that made every table and index."""
    with copied(directory, name) as connection:
        return {sql for (sql,) in connection.execute("select sql from sqlite_schema where sql is not null")}


def meta(directory: Path, name: str = "store.db") -> dict[str, Any]:
    """What a store says of itself, with `user_version`."""
    with copied(directory, name) as connection:
        found = dict(connection.execute("select key, value from meta").fetchall())
        return {**found, "user_version": connection.execute("pragma user_version").fetchone()[0]}


def raise_version(directory: Path, version: int, *, min_reader: int, min_writer: int) -> None:
    """Make a store one that the build of `version` left."""
    with raw(directory) as connection:
        connection.execute(f"pragma user_version = {version}")
        connection.execute("update meta set value = ? where key = 'min_reader'", (min_reader,))
        connection.execute("update meta set value = ? where key = 'min_writer'", (min_writer,))


def append(directory: Path, session_id: str, type_: str, data: dict[str, Any], *, min_reader: int = 1) -> bytes:
    """Append an event as a newer build would; its line."""
    key = (directory / "key").read_bytes()
    with raw(directory) as connection:
        n, head, chain, crc, state_digest = connection.execute(
            "select n, head, chain, crc, state_digest from session where id = ?", (session_id,)
        ).fetchone()
        event = Event(head + 1, "2030-01-01T00:00:00.000Z", type_, data)
        row = next_row(session_id, event, chain, crc)
        connection.execute(
            "insert into event (id, digest, crc, line) values (?, ?, ?, ?)",
            ((n << SEQ_BITS) + row.seq, row.digest[:DIGEST_BYTES], row.crc, row.line.decode()),
        )
        mac = rows.seal(key, session_id, row.seq, row.digest, crc=row.crc, state_digest=state_digest)
        connection.execute(
            "update session set head = ?, chain = ?, crc = ?, mac = ?, min_reader = ? where n = ?",
            (row.seq, row.digest, row.crc, mac, min_reader, n),
        )
    return row.line
