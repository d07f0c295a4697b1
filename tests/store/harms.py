"""Every single damage of a small store: each a name and what does it, for tests that try all of them."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hames.core.commands import SteerTurn, SubmitTurn
from store.play import BY, World, chunk, completion, create, creation, fill, start, submission, take

SEQ_BITS = 40

Lines = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Harm:
    """A damage. `apply` gets the store's directory; False where the store does not let it be done."""

    name: str
    apply: Callable[[Path], bool]


async def rich(world: World) -> None:
    """A store with some of everything, and little of it: turns of every status, keys, a steer, a row and a file of
    content, a deleted session, an earlier repair."""
    async with world.open() as store:
        await store.commit("s-0", creation(store, "s-0", key="made", turn=submission("t-1", key="first"))).wait()
        fence = await take(store, "s-0")
        await store.commit("s-0", start(fence)).wait()
        steer = SteerTurn("u-1", ({"role": "command", "type": "text", "text": "left"},), "content", BY, key="steered")
        await store.commit("s-0", steer).wait()
        await store.commit("s-0", chunk(fence, "t-1", 0)).wait()
        await store.commit("s-0", completion(fence, "t-1")).wait()
        for turn_id, text, key in (("t-2", "Größe " * 20_000, "second"), ("t-3", "row " * 5_000, None)):
            slots = ({"role": "command", "type": "text", "text": text},)
            await store.commit("s-0", SubmitTurn(turn_id, slots, "content", BY, key=key)).wait()
        await fill(store, 6)
        await create(store, "s-2")
        await store.commit("s-3", creation(store, "s-3", key="gone")).wait()
        await store.delete("s-3")
    with closing(sqlite3.connect(world.directory / "store.db")) as connection:
        connection.execute("update meta set value = 2 where key = 'epoch'")
        connection.execute("insert into epoch values (2, '2026-01-01T00:00:00.000Z', 'damaged')")
        connection.commit()
        connection.execute("pragma wal_checkpoint(truncate)")


def lines_of(directory: Path) -> Lines:
    """The stored lines by session, whatever their keys."""
    with closing(sqlite3.connect(directory / "store.db")) as connection:
        select = "select s.id, e.line from session s join event e on e.id >> 40 = s.n order by e.id"
        found: Lines = {}
        for session_id, line in connection.execute(select):
            found.setdefault(session_id, []).append(line)
        return found


def provable(directory: Path, whole: Lines) -> Lines:
    """What the damaged store still proves, told independently: the longest beginnings of `whole` whose every line is
    still there in some row."""
    try:
        with closing(sqlite3.connect(directory / "store.db")) as connection:
            there = {line for (line,) in connection.execute("select line from event")}
    except sqlite3.DatabaseError:
        there = set()
    return {
        session_id: lines[: next((n for n, line in enumerate(lines) if line not in there), len(lines))]
        for session_id, lines in whole.items()
    }


# --- rows -------------------------------------------------------------------------------------------------------


def _sql(directory: Path, *statements: tuple[str, tuple[Any, ...]]) -> bool:
    with closing(sqlite3.connect(directory / "store.db")) as connection:
        try:
            for statement, values in statements:
                connection.execute(statement, values)
            changed = connection.total_changes
            connection.commit()
        except (sqlite3.IntegrityError, sqlite3.OperationalError):
            return False
        return changed > 0


def _rows(directory: Path) -> Iterator[tuple[str, list[str], list[str], list[tuple[Any, ...]]]]:
    """Tables with their columns, those of their key, and a few of their rows."""
    with closing(sqlite3.connect(directory / "store.db")) as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")]
        for table in tables:
            facts = connection.execute(f"pragma table_info({table})").fetchall()
            columns = [fact[1] for fact in facts]
            key = [fact[1] for fact in facts if fact[5]]
            rows = connection.execute(f"select * from {table} order by {', '.join(key)}").fetchall()
            yield table, columns, key, rows


def _some(table: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Of events the first, one between, and the last of a session; of what there is much of, both ends."""
    if table == "meta":
        return rows
    if table != "event":
        return [rows[0], rows[-1]]
    return [rows[0], rows[4], [row for row in rows if row[0] >> SEQ_BITS == 1][-1]]


def _garbage(value: Any) -> Any:
    match value:
        case int():
            return 7_777
        case bytes():
            return b"\x00\xffgarbage"
        case _:
            return "garbage"


def _zero(value: Any) -> Any:
    match value:
        case int():
            return 0
        case bytes():
            return b""
        case _:
            return ""


def row_harms(directory: Path, table: str) -> Iterator[Harm]:
    """Some rows deleted or doubled, each column set to garbage; of the first to null, zero, another row's value too."""
    for name, columns, key, rows in _rows(directory):
        if name != table:
            continue
        for number, row in enumerate(_some(table, rows)):
            place = dict(zip(columns, row, strict=True))
            where = " and ".join(f"{column} is ?" for column in key)
            at = tuple(place[column] for column in key)
            shown = ",".join(map(_shown, at))
            yield Harm(f"{table} {shown} deleted", _doing(f"delete from {table} where {where}", at))
            for column in columns:
                value = place[column]
                others = [other[columns.index(column)] for other in rows if other[columns.index(column)] != value]
                for said, new in (
                    ("null", None),
                    ("zero", _zero(value)),
                    ("garbage", _garbage(value)),
                    *([("another's", others[0])] if others else []),
                ):
                    if new != value and (number == 0 or said == "garbage"):
                        statement = f"update {table} set {column} = ? where {where}"
                        yield Harm(f"{table} {shown} {column} {said}", _doing(statement, (new, *at)))
                doubled = dict(place) | {column: _garbage(value)}
                marks = ", ".join("?" * len(columns))
                statement = f"insert into {table} ({', '.join(columns)}) values ({marks})"
                yield Harm(f"{table} {shown} doubled by {column}", _doing(statement, tuple(doubled.values())))


def all_row_harms(directory: Path) -> Iterator[Harm]:
    """Each column of each table set to the same in all rows."""
    for table, columns, _, rows in _rows(directory):
        for column, value in zip(columns, rows[0], strict=True):
            yield Harm(f"{table} all {column} garbage", _doing(f"update {table} set {column} = ?", (_garbage(value),)))


def _doing(statement: str, values: tuple[Any, ...]) -> Callable[[Path], bool]:
    return lambda directory: _sql(directory, (statement, values))


def _shown(value: Any) -> str:
    return value.hex()[:8] if isinstance(value, bytes) else str(value)


# --- tables, settings, files --------------------------------------------------------------------------------------


def _pragmas(*statements: str) -> Callable[[Path], bool]:
    def apply(directory: Path) -> bool:
        with closing(sqlite3.connect(directory / "store.db")) as connection:
            for statement in statements:
                connection.execute(statement).fetchall()
            connection.commit()
        return True

    return apply


def store_harms(directory: Path) -> Iterator[Harm]:
    """Tables and indexes dropped, emptied and altered; what the file's header says changed."""
    with closing(sqlite3.connect(directory / "store.db")) as connection:
        made = connection.execute("select type, name from sqlite_schema where sql is not null").fetchall()
    for kind, name in made:
        yield Harm(f"{kind} {name} dropped", _pragmas(f"drop {kind} {name}"))
        if kind == "table" and name not in ("state", "blob_ref", "epoch"):
            yield Harm(f"table {name} emptied", _pragmas(f"delete from {name}"))
            yield Harm(f"table {name} wider", _pragmas(f"alter table {name} add column more text"))
            yield Harm(f"table {name} renamed", _pragmas(f"alter table {name} rename to lost_{name}"))
    for index in ("unique index turn_id", "index blob_use"):
        yield Harm(
            f"{index} altered",
            _pragmas(f"drop index {index.split()[-1]}", f"create index {index.split()[-1]} on turn (n)"),
        )
    for statement in (
        "update session set n = 1 << 50 where n = 1",
        "update session set n = -1 where n = 1",
        "update session set fence = 9223372036854775807",
        "update session set fence = -1",
        "update session set min_reader = -1",
        "update session set owner = '../../key'",
        "update event set id = 1 << 62 where id & 255 = 3",
        "update event set id = -1 - id where id & 255 = 4",
        "update turn set n = 1 << 62 where n = 1",
        "update blob_ref set seq = 99",
        "update idem set turn_id = 't-9'",
        "update epoch set n = 1 << 62",
        "insert into tombstone values ('s-1', '2026-01-01T00:00:00.000Z', null)",
        'update event set line = replace(line, \'"cursor":"3.\', \'"cursor":"4.\') where id & 255 = 3',
    ):
        yield Harm(statement, _doing(statement, ()))
    yield Harm("a trigger", _pragmas("create trigger t after insert on turn begin delete from turn; end"))
    yield Harm("a table of others", _pragmas("create table notes (text)"))
    for pragma in (
        "application_id = 0",
        "application_id = 7",
        "user_version = 0",
        "user_version = 1",
        "user_version = 99",
        "user_version = -3",
        "journal_mode = delete",
        "journal_mode = truncate",
        "default_cache_size = 7",
    ):
        yield Harm(f"pragma {pragma}", _pragmas(f"pragma {pragma}"))
    yield Harm(
        "auto_vacuum",
        _pragmas("pragma auto_vacuum = 1", "pragma journal_mode = delete", "vacuum", "pragma journal_mode = wal"),
    )
    yield Harm(
        "a smaller page",
        _pragmas("pragma journal_mode = delete", "pragma page_size = 1024", "vacuum", "pragma journal_mode = wal"),
    )
    for name in ("store_id", "commits", "min_reader", "min_writer", "epoch", "collected"):
        for value in ("x", -5, 2**62, 99):
            yield Harm(f"meta {name} {value!r}", _doing("insert or replace into meta values (?, ?)", (name, value)))


def _write(at: int, data: bytes) -> Callable[[Path], bool]:
    def apply(directory: Path) -> bool:
        with open(directory / "store.db", "r+b") as file:
            file.seek(at)
            file.write(data)
        return True

    return apply


def _shadowed(at: int, data: bytes) -> Callable[[Path], bool]:
    """Written into the file while its first page stands in the WAL too, so that SQLite does not see it."""

    def apply(directory: Path) -> bool:
        with closing(sqlite3.connect(directory / "store.db")) as connection:
            connection.execute("pragma user_version = 7")
            connection.execute("pragma user_version = 2")
            with closing(sqlite3.connect(directory / "store.db")) as keeper:
                keeper.execute("select 1 from meta").fetchall()
                connection.close()
                copy = directory.with_name("copied")
                shutil.copytree(directory, copy)
        shutil.rmtree(directory)
        copy.rename(directory)
        (directory / "store.db-shm").unlink(missing_ok=True)
        assert (directory / "store.db-wal").stat().st_size > 4096
        return _write(at, data)(directory)

    return apply


def _directory(name: str) -> Callable[[Path], bool]:
    def apply(directory: Path) -> bool:
        (directory / name).unlink(missing_ok=True)
        (directory / name).mkdir()
        return True

    return apply


def _file(name: str) -> Callable[[Path], bool]:
    def apply(directory: Path) -> bool:
        shutil.rmtree(directory / name, ignore_errors=True)
        (directory / name).write_bytes(b"not a directory")
        return True

    return apply


def _gone(name: str) -> Callable[[Path], bool]:
    def apply(directory: Path) -> bool:
        (directory / name).rename(directory.with_name("taken"))
        return True

    return apply


def _linked(directory: Path) -> bool:
    elsewhere = directory.with_name("elsewhere.db")
    (directory / "store.db").rename(elsewhere)
    (directory / "store.db").symlink_to(elsewhere)
    return True


def file_harms(directory: Path) -> Iterator[Harm]:
    """Files of the wrong kind, or with other bytes."""
    for at in (0, 9, 15, 16, 17, 18, 19, 21, 24, 28, 36, 47, 56, 59, 63, 68, 92):
        yield Harm(f"header byte {at}", _write(at, b"\xa5"))
        yield Harm(f"header byte {at} under a WAL", _shadowed(at, b"\xa5"))
    for name in ("gate.lock", "witness", "ballast", "key"):
        yield Harm(f"{name} is a directory", _directory(name))
    for name in ("bell", "live", "heirs", "reaper", "backups", "repaired", "repairing"):
        yield Harm(f"{name} is a file", _file(name))
    yield Harm("store.db is a symbolic link", _linked)
    yield Harm("the witness is gone", _gone("witness"))
    yield Harm("the witness is garbage", lambda directory: bool((directory / "witness").write_bytes(os.urandom(64))))


def blob_harms(directory: Path) -> Iterator[Harm]:
    """The file of a content missing, short, flipped, of the wrong kind."""
    (file,) = [path.relative_to(directory) for path in (directory / "blobs").rglob("*") if path.is_file()]

    def cut(store: Path) -> bool:
        (store / file).chmod(0o600)
        os.truncate(store / file, 100)
        return True

    def flip(store: Path) -> bool:
        (store / file).chmod(0o600)
        data = bytearray((store / file).read_bytes())
        data[9] ^= 1
        (store / file).write_bytes(data)
        return True

    def folder(store: Path) -> bool:
        (store / file).unlink()
        (store / file).mkdir()
        return True

    yield Harm("a content is missing", _gone(str(file)))
    yield Harm("a content is short", cut)
    yield Harm("a content is flipped", flip)
    yield Harm("a content is a directory", folder)
    yield Harm("all contents are gone", _gone("blobs"))
