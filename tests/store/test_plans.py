"""No question and no commit looks through a table: what a store costs does not grow with what is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import apsw
import pytest

from hames.ports import Store
from hames.store import SqliteStore
from store.play import World, chunk, completion, create, creation, running, start, submission, take

pytestmark = pytest.mark.anyio

_COSTLY = re.compile(r"SCAN (?!meta|CONSTANT|b\b|blob\b)|TEMP B-TREE")
"""`meta` has some five rows; `blob` is looked through when idle, once a day."""

Statements = dict[str, Any]


@contextmanager
def traced(*connections: apsw.Connection) -> Iterator[Statements]:
    """What is executed on idle connections meanwhile: the statements, each with the values of one time."""
    seen: Statements = {}

    def note(_: Any, sql: str, values: Any) -> bool:
        seen[sql] = values
        return True

    for connection in connections:
        connection.exec_trace = note
    try:
        yield seen
    finally:
        for connection in connections:
            with suppress(apsw.ConnectionClosedError):
                connection.exec_trace = None


def plans(world: World, statements: Statements) -> dict[str, list[str]]:
    """How SQLite finds the rows of each statement."""
    connection = apsw.Connection(str(world.directory / "store.db"), flags=apsw.SQLITE_OPEN_READONLY)
    connection.create_scalar_function("casefold", _casefold, 1)
    found = {}
    for sql, values in statements.items():
        if sql.split()[0] in {"select", "update", "insert", "delete"}:
            rows = connection.execute(f"explain query plan {sql}", values)
            found[sql] = [detail for _, _, _, detail in rows]
    connection.close()
    return found


def _casefold(*values: Any) -> str:
    return str(values[0]).casefold()


def costly(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Those that look through a whole table, or sort."""
    return {sql: details for sql, details in found.items() if any(map(_COSTLY.search, details))}


def plan_of(found: dict[str, list[str]], part: str) -> str:
    """The plan of the one statement that holds `part`."""
    (details,) = [details for sql, details in found.items() if part in sql]
    return "; ".join(details)


def connections(store: Store) -> tuple[apsw.Connection, apsw.Connection]:
    """Those of the writer and the reader, once each was used."""
    assert isinstance(store, SqliteStore)
    assert store._running is not None
    writer, reader = store._running.writer.side, store._running.reader._side
    assert writer is not None
    assert reader is not None
    return writer.connection, reader.connection


async def test_no_question_looks_through_a_table(disk_world: World) -> None:
    async with disk_world.open() as store:
        await running(store)
        loaded = await store.load("s-1")
        with traced(*connections(store)) as seen:
            await store.load("s-1")
            await store.turn("s-1", "t-1")
            for status in (None, "queued", "running", "completed", "failed", "cancelled"):
                await store.turns("s-1", before=None, limit=9, status=status)
                await store.turns("s-1", before=2, limit=9, status=status)
            for workspace in (None, "/work"):
                for query in (None, "title"):
                    await store.sessions(workspace=workspace, query=query, before=None, limit=9)
                    await store.sessions(workspace=workspace, query=query, before=2, limit=9)
            await store.read("s-1", limit=9, max_bytes=999, types=["turn.started"])
            await store.read("s-1", after=loaded.cursor, limit=9, max_bytes=999)
            await store.read("s-1", before=loaded.cursor, limit=9, max_bytes=999)
            await store.owner("s-1")

        found = plans(disk_world, seen)
        assert len(found) >= 12
        assert costly(found) == {}
        assert "session_workspace" in plan_of(found, "workspace = ?2 order by")
        assert "turn_failed" in plan_of(found, "status in")


async def test_no_commit_looks_through_a_table(disk_world: World) -> None:
    store = disk_world.make()
    await store.open()
    await create(store, "s-0")
    await store.load("s-0")
    with traced(*connections(store)) as seen:
        await store.commit("s-1", creation(store, "s-1", key="a key", turn=submission("t-1", key="another"))).wait()
        fence = await take(store)
        await store.commit("s-1", start(fence)).wait()
        await store.commit("s-1", chunk(fence, "t-1", 0)).wait()
        await store.commit("s-1", submission("t-1", key="another")).wait()
        await store.commit("s-1", completion(fence, "t-1")).wait()
        await store.release("s-1")
        await take(store)
        await store.aclose()

    found = plans(disk_world, seen)
    assert len(found) >= 10
    assert costly(found) == {}
    assert "session_owner" in plan_of(found, "owner = null")
