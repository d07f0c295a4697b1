"""What `protocol/store.md` says of a store, held against the code and against a store."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from docs import pages
from e2e.driver import Server
from e2e.fixtures import Start
from hames.commands import exits

PAGE = pages.text("protocol/store.md")


def first_cells(section: str) -> Iterator[str]:
    """The names in the first column of a section's tables."""
    [body] = re.findall(rf"^#+ {re.escape(section)}\n(.*?)(?=^#)", PAGE, re.MULTILINE | re.DOTALL)
    for cell in re.findall(r"^\| (`[^|]*) \|", body, re.MULTILINE):
        yield from re.findall(r"`([^`]+)`", cell)


def test_every_file_of_a_store_is_named(start: Start, home: Path, workspace: Path) -> None:
    server = start()
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id, "a large text " * 10_000))
    named = {name.rstrip("/") for name in first_cells("What is in it")}

    assert {path.name for path in (home / "store").iterdir()} <= named


def test_every_table_of_a_store_is_named(home: Path, workspace: Path) -> None:
    with Server(home, env={"HAMES_MODEL": "offline"}) as server:
        server.create(workspace)
    with closing(sqlite3.connect(home / "store" / "store.db")) as connection:
        tables = {name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")}

    assert tables == set(first_cells("The tables"))


def test_the_exit_codes_are_those_that_are_published() -> None:
    found = dict(re.findall(r"^\| (\d+) `(\w+)` \|", PAGE, re.MULTILINE))

    assert {name: int(code) for code, name in found.items()} == exits.FOUND
    assert f"| {exits.LOSSES} |" in PAGE


def test_a_copy_of_the_directory_is_a_backup_and_a_client_that_was_further_on_is_told(
    start: Start, home: Path, workspace: Path
) -> None:
    server = start()
    server.create(workspace, "s1")
    server.stop()
    shutil.copytree(home / "store", home / "copy")
    server = start()
    at_copy = server.log("s1")
    server.call("session/update", sessionId="s1", title="after the copy")
    later = server.log("s1")[-1]["cursor"]
    server.stop()

    shutil.rmtree(home / "store")
    shutil.copytree(home / "copy", home / "store")

    server = start()
    assert server.log("s1") == at_copy
    assert server.refused("events/read", sessionId="s1", after=later)["data"]["kind"] == "cursor_ahead"
    server.call("session/update", sessionId="s1", title="another past")
    assert server.refused("events/read", sessionId="s1", after=later)["data"]["kind"] == "cursor_foreign"


def test_a_store_without_its_write_ahead_log_is_refused(start: Start, home: Path, workspace: Path) -> None:
    server = start()
    server.create(workspace, "s1")
    server.stop()
    with closing(sqlite3.connect(home / "store" / "store.db")) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    server = start()
    server.call("session/update", sessionId="s1", title="in the write-ahead log alone")
    server.stop()
    (home / "store" / "store.db-wal").unlink()

    server = start()

    data = server.refused("session/list")["data"]
    assert (data["kind"], data["details"]["historyLost"]) == ("store_unavailable", True)
