"""Whether a database has the tables it was made with, and whether what it says of itself can be.

Rule 1: a version's tables are told by `schema.TABLES` alone: made in memory, and compared by the text that made them.
Rule 2: a newer build may have changed any of it; its stores are not judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import apsw

from hames.store import migrations, schema
from hames.store.schema import every

MOST_COMMITS: Final = 2**62
"""Of a store that lives: nobody counts that far, and beyond 2^63 SQLite would count in fractions."""

MOST_EPOCHS: Final = 10_000
"""Repairs of a store: beyond it the number was not counted."""

_FORMS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "store_id": lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value) is not None,
    "commits": lambda value: isinstance(value, int) and 0 <= value < MOST_COMMITS,
    "min_reader": lambda value: isinstance(value, int) and value >= 1,
    "min_writer": lambda value: isinstance(value, int) and value >= 1,
    "epoch": lambda value: isinstance(value, int) and 1 <= value <= MOST_EPOCHS,
    "collected": lambda value: isinstance(value, int) and value >= 0,
}

_OPTIONAL: Final = frozenset({"collected"})
_ADDED: Final[Mapping[str, int]] = {"epoch": 2}
"""By which version."""


def told(connection: apsw.Connection) -> tuple[dict[str, Any], dict[str, str]]:
    """What the store says of itself where that can be, and by name why the rest cannot. Of a newer store all of it is
    believed.

    Raises:
        apsw.SQLError: there is no such table.
    """
    version = connection.pragma("user_version")
    rows = {name: value for name, value in every(connection, "select key, value from meta") if name in _FORMS}
    expected = limits_of(version)
    wrong: dict[str, str] = {}
    for name, is_formed in _FORMS.items():
        if name not in rows:
            if name not in _OPTIONAL and version >= _ADDED.get(name, 1):
                wrong[name] = "is not there"
        elif not is_formed(rows[name]):
            wrong[name] = f"cannot be {rows[name]!r:.80}"
        elif name in expected and rows[name] != expected[name]:
            wrong[name] = f"is {rows[name]}, and {expected[name]} in every store of version {version}"
    return {name: value for name, value in rows.items() if name not in wrong}, wrong


def limits_of(version: int) -> Mapping[str, int]:
    """Which builds may read and write a store of this version; empty where this build cannot know."""
    if version == schema.VERSION:
        return {"min_reader": schema.MIN_READER, "min_writer": schema.MIN_WRITER}
    step = migrations.STEPS.get(version - 1)
    return {} if step is None else {"min_reader": step.min_reader, "min_writer": step.min_writer}


def is_newer(connection: apsw.Connection) -> bool:
    """By its own number."""
    return bool(connection.pragma("user_version") > schema.VERSION)


def is_ours(connection: apsw.Connection) -> bool:
    """Whatever its header says: at least half of our tables are there."""
    there = {name for (name,) in every(connection, "select name from sqlite_schema where type = 'table'")}
    ours = {name for kind, name in _made(schema.VERSION) if kind == "table"}
    return 2 * len(ours & there) >= len(ours)


def misshapen(connection: apsw.Connection) -> dict[str, str]:
    """What is not as the store's version has it, by name, and why. Nothing of a newer one."""
    version = connection.pragma("user_version")
    if version > schema.VERSION:
        return {}
    if version < 1:
        return {"store.db": f"its header tells of version {version}, which no build made"}
    made = _made(version)
    found = {
        (kind, name): _plain(sql)
        for kind, name, sql in every(connection, "select type, name, sql from sqlite_schema")
        # SQLite's own, such as statistics.
        if not name.startswith("sqlite_")
    }
    wrong = {f"{kind} {name}": "is not there" for kind, name in made if (kind, name) not in found}
    for place, sql in found.items():
        if place not in made:
            wrong[" ".join(place)] = "is none of ours"
        elif made[place] != sql:
            wrong[" ".join(place)] = "is not as it was made"
    return wrong


def columns(connection: apsw.Connection, table: str) -> set[str]:
    """Of a table as it is; none where it is not there."""
    return {row[0] for row in every(connection, "select name from pragma_table_info(?)", (table,))}


@cache
def _made(version: int) -> Mapping[tuple[str, str], str]:
    connection = apsw.Connection(":memory:")
    for added in range(1, version + 1):
        connection.execute(schema.TABLES[added])
    rows = every(connection, "select type, name, sql from sqlite_schema where sql is not null")
    connection.close()
    return {(kind, name): _plain(sql) for kind, name, sql in rows}


def _plain(sql: str | None) -> str:
    return re.sub(r"\s+", " ", sql or "").lower()
