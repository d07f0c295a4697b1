"""Every single damage of a small store: what is called good serves, and what is not is repaired once and for all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest

from hames.protocol.errors import HamesError
from hames.store.repair import repair_store
from hames.store.verify import StoreReport, verify_store
from store.harms import (
    Harm,
    Lines,
    all_row_harms,
    blob_harms,
    file_harms,
    lines_of,
    provable,
    rich,
    row_harms,
    store_harms,
)
from store.play import LIMITS, World, submission

TABLES = ("meta", "session", "state", "event", "turn", "idem", "blob", "blob_ref", "tombstone", "epoch")

NOT_TOLD = {f"session {which} min_reader garbage" for which in (1, 3, "all")}
"""What looks like the work of a newer build: such a session is read, and told to be one."""

LEFT = {
    "key is a directory": "nobody can prove anything without the key",
    "store.db is a symbolic link": "where it leads to is the user's to say",
}
"""Damage that a repair names and leaves."""


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store that is whole."""
    world = World("sqlite", tmp_path_factory.mktemp("pattern") / "store")
    anyio.run(rich, world)
    assert look(world.directory).is_good
    for name in ("store.db-wal", "store.db-shm"):
        (world.directory / name).unlink(missing_ok=True)
    return world.directory


def look(directory: Path) -> StoreReport:
    return verify_store(directory, LIMITS)


async def serves(directory: Path, expected: Lines) -> list[str]:
    """What goes wrong when a server opens the store, lists it, reads it and submits a turn to each session."""
    wrong = []
    async with World("sqlite", directory).open() as store:
        listed = {
            loaded.state.session_id
            for _, loaded in await store.sessions(workspace=None, query=None, before=None, limit=99)
        }
        for session_id, lines in expected.items():
            if not lines:
                continue
            try:
                page = await store.read(session_id, limit=999, max_bytes=2**20)
                if page.lines.decode().split("\n")[: len(lines)] != lines:
                    wrong.append(f"{session_id}: other lines")
                await store.turns(session_id, before=None, limit=99, status=None)
                await store.turns(session_id, before=None, limit=99, status="completed")
                turn = replace(submission("t-new"), resume_queue=True)
                await store.commit(session_id, turn).wait()
                await store.turn(session_id, "t-new")
                if session_id not in listed:
                    wrong.append(f"{session_id}: not listed")
            except HamesError as error:
                wrong.append(f"{session_id}: {error.kind}: {error.message}")
    return wrong


def faults(directory: Path, whole: Lines) -> Iterator[str]:
    """What does not hold of a damaged store."""
    expected = provable(directory, whole)
    try:
        before = look(directory)
    except HamesError as error:
        yield f"verify fails: {error.message}"
        return
    if before.is_good:
        yield from (f"called good: {each}" for each in anyio.run(serves, directory, expected))
        return
    if not before.is_mendable:
        yield f"left: {before.findings}"
        return
    report = repair_store(directory, LIMITS)
    after = look(directory)
    if not after.is_good:
        yield f"not good after its repair: {after.findings}"
        return
    is_untold = report.history_lost or report.contents_lost or any(each.is_cut for each in report.salvaged)
    if report.loses and expected == whole and not is_untold:
        yield f"a loss is told where there is none: {report}"
    yield from (f"after its repair: {each}" for each in anyio.run(serves, directory, expected))
    if not look(directory).is_good:
        yield "not good after it was used"


def tried(harm: Harm, pattern: Path, whole: Lines, place: Path) -> list[str]:
    directory = place / "store"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    shutil.copytree(pattern, directory)
    try:
        if not harm.apply(directory):
            return []
        return [f"{harm.name}: {each}" for each in faults(directory, whole)]
    except HamesError as error:
        return [f"{harm.name}: {error.kind}: {error.message}"]


CATALOGUE: dict[str, Callable[[Path], Iterator[Harm]]] = {
    **{f"rows of {table}": partial(row_harms, table=table) for table in TABLES},
    "columns of all rows": all_row_harms,
    "the store as a whole": store_harms,
    "files": file_harms,
    "contents": blob_harms,
}


@pytest.mark.unmeasured
@pytest.mark.parametrize("harms", CATALOGUE.values(), ids=CATALOGUE)
def test_whatever_is_called_good_serves_and_the_rest_is_repaired_for_good(
    pattern: Path, tmp_path: Path, harms: Callable[[Path], Iterator[Harm]]
) -> None:
    whole = lines_of(pattern)
    found = [each for harm in harms(pattern) for each in tried(harm, pattern, whole, tmp_path / "tried")]

    assert [each for each in found if not each.startswith((*LEFT, *NOT_TOLD))] == []
