"""A repair on a disk without room: told before anything is done, with how much it takes."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from hames.protocol.errors import HarnessFault
from hames.store import room
from hames.store.faults import translate
from hames.store.repair import repair_store
from store.play import LIMITS, World, fill
from store.test_verify import edit, look


def free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """So many bytes are free on every file system."""

    class Room:
        f_bavail, f_frsize = count, 1

    monkeypatch.setattr(os, "statvfs", lambda path: Room)


@pytest.mark.anyio
async def test_a_repair_without_room_says_how_much_it_takes_and_changes_nothing(
    disk_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with disk_world.open() as store:
        await fill(store, 10)
    edit(disk_world, "delete from turn")
    needed = room.needed_bytes(disk_world.directory)
    before = sorted(os.listdir(disk_world.directory))

    free(monkeypatch, needed - 1)
    with pytest.raises(HarnessFault, match="takes up to") as caught:
        repair_store(disk_world.directory, LIMITS)

    fault = caught.value
    assert (fault.kind, fault.details["neededBytes"], fault.details["freeBytes"]) == ("store_full", needed, needed - 1)
    assert sorted(os.listdir(disk_world.directory)) == before
    free(monkeypatch, needed)
    assert not repair_store(disk_world.directory, LIMITS).loses
    monkeypatch.undo()
    assert look(disk_world).is_good


def test_what_sqlite_cannot_write_on_a_full_disk_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert translate(apsw.IOError("disk I/O error"), tmp_path).kind == "store_unavailable"
    assert translate(apsw.IOError("disk I/O error"), tmp_path / "gone").kind == "store_unavailable"
    free(monkeypatch, 0)

    assert translate(apsw.IOError("disk I/O error"), tmp_path).kind == "store_full"
