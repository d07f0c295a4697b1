"""One short round of each kind that `make soak` does at length, and the proof that it would find what it looks for.

A hundred kills are in `crash/test_kill.py`, ten thousand frames in `fuzz/test_frames.py`: the same rounds.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from soak.__main__ import main
from soak.campaign import IMPOSSIBLE_CODE, Campaign, one, table_of
from soak.disk import Disk, Record
from soak.fences import fence_chaos
from soak.full import full_disk
from soak.mounts import full_tmpfs, read_only
from soak.place import Impossible, Place
from soak.plan import Kind, kinds, next_kind, seed_of
from soak.power import cuts, losses_without_syncs
from soak.state import Done, State, load_state


@pytest.fixture
def place(tmp_path: Path) -> Callable[[int], Place]:
    """An empty place for a round of this size; the output shows its seed."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")

    def make(size: int) -> Place:
        (tmp_path / "round").mkdir()
        return Place(tmp_path / "round", seed, size)

    return make


@pytest.mark.slow
def test_nothing_told_is_lost_when_the_power_goes(place: Callable[[int], Place]) -> None:
    print(cuts(place(26)))


@pytest.mark.slow
@pytest.mark.parametrize("synchronous", ["off", "normal"])
def test_losses_are_found_when_sqlite_syncs_less(place: Callable[[int], Place], synchronous: str) -> None:
    assert losses_without_syncs(place(12), synchronous) > 0


@pytest.mark.slow
def test_losses_are_found_when_the_directories_of_blobs_are_not_synced(place: Callable[[int], Place]) -> None:
    def of_blobs(record: Record) -> bool:
        return record[0] == "sync_directory" and "blobs" in str(record[1])

    assert losses_without_syncs(place(12), "full", forget=of_blobs) > 0


@pytest.mark.slow
def test_nothing_of_a_stopped_owner_stands_after_its_lease(place: Callable[[int], Place]) -> None:
    print(fence_chaos(place(5)))


@pytest.mark.slow
def test_nothing_told_is_lost_when_there_is_no_room(place: Callable[[int], Place]) -> None:
    print(full_disk(place(3)))


@pytest.mark.slow
@pytest.mark.parametrize("round_", [full_tmpfs, read_only])
def test_a_real_file_system_that_is_full_or_read_only_costs_nothing(
    place: Callable[[int], Place], round_: Callable[[Place], str]
) -> None:
    # Not every machine lets a test mount something; the round then says so.
    try:
        print(round_(place(1)))
    except Impossible as why:
        print(why)


# --- the disk -----------------------------------------------------------------------------------------------------


def found_after(tmp_path: Path, *records: tuple[object, ...]) -> set[tuple[tuple[str, bytes], ...]]:
    """Everything that a power cut after these records may leave: the files of each outcome."""
    (tmp_path / "base").mkdir(exist_ok=True)
    disk = Disk(tmp_path / "base")
    for record in records:
        disk.play(record)
    found = set()
    for seed in range(100):
        shutil.rmtree(tmp_path / f"cut-{seed}", ignore_errors=True)
        target = tmp_path / f"cut-{seed}"
        disk.write_after_cut(target, random.Random(seed))
        files = [path for path in sorted(target.rglob("*")) if path.is_file()]
        found.add(tuple((str(path.relative_to(target)), path.read_bytes()) for path in files))
    return found


def test_what_was_not_synced_may_be_there_or_not_and_may_be_torn(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base/f").write_bytes(b"." * 1024)

    found = found_after(tmp_path, ("open", "h", "f", 0), ("write", "h", 0, b"x" * 1024))

    contents = {content for ((_, content),) in found}
    assert contents == {b"." * 1024, b"x" * 1024, b"x" * 512 + b"." * 512, b"." * 512 + b"x" * 512}


def test_a_sync_makes_durable_what_was_written_before_it_began(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base/f").write_bytes(b"..")
    before = [("open", "h", "f", 0), ("write", "h", 0, b"a"), ("sync", "h"), ("write", "h", 1, b"b")]

    assert found_after(tmp_path, *before, ("synced", "h")) == {(("f", b"a."),), (("f", b"ab"),)}


def test_a_renamed_file_is_durable_with_its_directory_only(tmp_path: Path) -> None:
    made = [("open", "h", "new", 64), ("write", "h", 0, b"n"), ("sync", "h"), ("synced", "h")]
    moved = [*made, ("rename", "new", "f")]

    assert found_after(tmp_path, *moved) == {(), (("new", b"n"),), (("f", b"n"),)}
    assert found_after(tmp_path, *moved, ("sync_directory", "")) == {(("f", b"n"),)}


# --- the campaign -------------------------------------------------------------------------------------------------


def test_a_campaign_goes_on_where_it_was_and_stops_at_a_broken_rule(tmp_path: Path) -> None:
    def never(_: Place) -> str:
        raise AssertionError("this process runs no round")

    table = {"kills": Kind("kills", "kills", 4, 2, never), "lost": Kind("lost", "of nothing", 2, 1, never)}
    state = State(7, [Done("kills", 1, 2, 0.1, "ok", "fine")])
    state.save(tmp_path / "state.json")
    again = load_state(tmp_path / "state.json")
    assert again == state
    assert next_kind(table, again.units()) is table["lost"], "what is furthest from its end comes next"

    # No round is called `lost`: its process fails, whatever it prints.
    Campaign(tmp_path, table, again, minutes=1).run(1)

    broken = again.rounds[-1]
    assert (broken.kind, broken.seed, broken.result) == ("lost", seed_of(7, table["lost"], 0), "broken")
    assert (tmp_path / "evidence" / broken.name / "output").exists()
    assert f"BROKEN: {broken.name}" in table_of(table, load_state(tmp_path / "state.json"))


def test_a_round_that_the_machine_does_not_allow_is_said_and_no_failure(tmp_path: Path) -> None:
    def impossible(_: Place) -> str:
        raise Impossible("not here")

    assert one(Kind("tmpfs", "times", 1, 1, impossible), 1, tmp_path) == IMPOSSIBLE_CODE


def test_a_campaign_makes_the_same_choices_again() -> None:
    table = kinds()
    assert all(name == kind.name for name, kind in table.items())
    seeds = [seed_of(7, kind, number) for kind in table.values() for number in range(3)]
    assert seeds == [seed_of(7, kind, number) for kind in table.values() for number in range(3)]
    assert len(set(seeds)) == len(seeds)


def test_a_round_that_does_not_exist_is_refused_with_those_that_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOAK_SEED", "unknown-1")

    assert main([]) == 2

    assert "kills, power" in capsys.readouterr().out
