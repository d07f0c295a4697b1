"""`verify` and `repair`: what a person and a script are told of a store, and that a good one is not touched."""

from __future__ import annotations

import hashlib
import os
import pty
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from cli.command import Cli, Finished, finish
from e2e.driver import Server


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """A store with one session in it, of which each test gets a copy: the bytes that a run of its own would leave."""
    cli = Cli(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("workspace"))
    assert cli("run", "--id", "s1", "say one").code == 0
    cli.end()
    return cli


@pytest.fixture
def hames(home: Path, pattern: Cli) -> Iterator[Cli]:
    """The command line, on a store of its own, where the session's workspace is."""
    cli = Cli(home, pattern.workspace)
    yield cli
    cli.end()


@pytest.fixture
def database(hames: Cli, pattern: Cli) -> Path:
    """The store's database, with one session in it."""
    copytree(pattern.home / "store", hames.home / "store")
    return hames.home / "store" / "store.db"


def edit(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0
        connection.commit()


def digests(store: Path) -> dict[str, str]:
    """Every file of the store that is not made for a moment; SQLite makes an empty WAL when it reads."""
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.stat().st_size and path.suffix != ".db-shm" and "live" not in path.parts
    }


def at_a_terminal(hames: Cli, answer: bytes, *words: str) -> Finished:
    """Run a command with a terminal for its input and its notes, and type."""
    main, other = pty.openpty()
    process = hames.start(*words, stdin=other, stderr=other)
    os.close(other)
    os.write(main, answer)
    finished = finish(process)
    shown = b""
    with suppress(OSError):  # the terminal is gone with its last user
        while piece := os.read(main, 4096):
            shown += piece
    os.close(main)
    return Finished(finished.code, finished.out, shown.decode())


def test_a_good_store_is_told_as_good(hames: Cli, database: Path) -> None:
    found = hames("verify")
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines()[0] == f"store {database.parent}: good"

    told = hames("verify", "--json").record
    assert (told["status"], told["exitCode"], told["findings"]) == ("good", 0, [])
    assert (told["sessions"], told["turns"], told["epoch"]) == (1, 1, 1)
    assert hames("verify", "--session", "s1").code == 0


CASES = [
    (["delete from event where id = (select max(id) from event)"], "torn", 10),
    (["insert into event select id + 1, digest, crc, line from event order by id desc limit 1"], "duplicated", 11),
    (["delete from event where id & 0xff = 3"], "gapped", 12),
    (["update event set line = replace(line, 'one', 'two') where id & 0xff = 2"], "edited", 13),
    (
        [
            "update event set id = id + 1000 where id & 0xff in (3, 4)",
            "update event set id = id - 999 where id & 0xffff = 1003",
            "update event set id = id - 1001 where id & 0xffff = 1004",
        ],
        "swapped",
        14,
    ),
    (["delete from turn"], "missing", 15),
]


@pytest.mark.parametrize(("statements", "status", "code"), CASES, ids=[case[1] for case in CASES])
def test_every_kind_of_damage_has_its_exit_code_and_is_repaired(
    hames: Cli, database: Path, statements: list[str], status: str, code: int
) -> None:
    edit(database, *statements)

    found = hames("verify", "--json")
    assert (found.code, found.record["exitCode"], found.record["status"]) == (code, code, status)
    text = hames("verify")
    assert text.code == code
    assert "session s1" in text.out
    assert "hames repair" in text.out

    repaired = hames("repair", "--yes", "--json")
    lossless = status in ("duplicated", "swapped", "missing")
    assert (repaired.code, repaired.record["status"]) == (0 if lossless else 20, "repaired")
    assert repaired.record["epoch"] == 2
    assert (Path(repaired.record["backup"]) / "store.db").exists()
    assert hames("verify").code == 0
    assert hames("run", "--session", "s1", "say two").code == 0
    told = hames("replay", "s1").out
    assert ("[the store was repaired, epoch 2" in told) != lossless
    assert hames("verify").code == 0


def test_a_store_that_is_good_is_not_touched_by_a_repair(hames: Cli, database: Path) -> None:
    before = digests(database.parent)

    found = hames("repair", "--yes")

    assert (found.code, found.out.splitlines()[0]) == (0, f"store {database.parent}: good")
    assert digests(database.parent) == before


def test_nobody_is_asked_who_is_not_there(hames: Cli, database: Path) -> None:
    edit(database, "delete from turn")
    before = digests(database.parent)

    found = hames("repair")

    assert found.code == 64
    assert "--yes" in found.err
    assert digests(database.parent) == before


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 64), (b"\n", 64)])
def test_who_is_there_is_asked_and_told_what_was_found(hames: Cli, database: Path, answer: bytes, code: int) -> None:
    edit(database, "delete from turn")

    found = at_a_terminal(hames, answer, "repair")

    assert found.code == code
    assert "missing" in found.out
    assert "A backup is made first" in found.err
    assert hames("verify").code == (0 if code == 0 else 15)


def test_a_repair_names_the_server_that_uses_the_store_and_verify_works_beside_it(
    hames: Cli, database: Path, workspace: Path
) -> None:
    with Server(hames.home) as server:
        server.create(workspace, "s2")
        assert hames("verify").code == 0
        edit(database, "delete from turn")
        assert hames("verify").code == 15

        found = hames("repair", "--yes")

        assert found.code == 1
        assert f"in use by process {server.pid} on" in found.err
        assert server.call("ping") == {}
    assert hames("repair", "--yes").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["verify"],
        ["repair", "--yes"],
        ["sessions", "list"],
        ["sessions", "show", "s1"],
        ["sessions", "export", "s1"],
        ["sessions", "delete", "s1", "--yes"],
        ["replay", "s1"],
    ],
    ids=lambda words: words[:2][-1],
)
def test_who_looks_where_no_store_is_is_told_so_and_makes_none(hames: Cli, words: list[str]) -> None:
    place = hames.home / "mistyped"

    found = hames(*words, env={"HAMES_HOME": str(place)})

    assert (found.code, found.out) == (64, "")
    assert f"There is no store at {place}. Check HAMES_HOME" in found.err
    assert not place.exists()


def test_that_there_is_no_store_is_a_record_too(hames: Cli) -> None:
    for words in (["verify", "--json"], ["repair", "--yes", "--json"]):
        told = hames(*words)
        assert (told.code, told.record["error"]["kind"]) == (64, "invalid_config")
        assert told.record["error"]["details"]["setting"] == "HAMES_HOME"


def test_a_second_repair_has_nothing_to_do_and_writes_nothing(hames: Cli, database: Path) -> None:
    edit(database, "update event set crc = 0, digest = x'00'", "update turn set status = 'failed'")

    first = hames("repair", "--yes", "--json").record
    assert (first["exitCode"], first["status"]) == (0, "repaired")
    assert first["mended"]["rows of events"] == first["sessions"][0]["lastGoodSeq"]
    before = digests(database.parent)
    second = hames("repair", "--yes")

    assert (second.code, second.out.splitlines()[-1]) == (0, "  nothing to do")
    assert digests(database.parent) == before


BEYOND_REPAIR: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "another key": (lambda database: database.with_name("key").write_bytes(os.urandom(32)), "edited"),
    "an empty database": (lambda database: database.write_bytes(b""), "torn"),
    "no database": (lambda database: database.unlink(), "missing"),
    "no key": (lambda database: database.with_name("key").unlink(), "missing"),
}


@pytest.mark.parametrize("what", BEYOND_REPAIR)
def test_what_no_repair_mends_is_told_and_nothing_is_written(hames: Cli, database: Path, what: str) -> None:
    harm, status = BEYOND_REPAIR[what]
    harm(database)
    before = digests(database.parent)

    verified = hames("verify")
    assert "no repair mends that" in verified.out
    found = hames("repair", "--yes")
    told = hames("repair", "--yes", "--json").record

    # Not 0: a script would take the store for a good one.
    assert (found.code, "nothing to do" in found.out, told["exitCode"]) == (verified.code, True, verified.code)
    assert (told["status"], told["mendable"]) == (status, False)
    assert digests(database.parent) == before


@pytest.mark.parametrize("place", ["2", "(select max(id) & 255 from event)"])
def test_a_run_on_a_corrupt_session_says_what_is_wrong_and_no_place_in_our_code(
    hames: Cli, database: Path, place: str
) -> None:
    edit(database, f"update event set line = replace(line, 'sessionId', 'sessionID') where id & 255 = {place}")

    found = hames("run", "--session", "s1", "say two")

    assert found.code == 1
    assert "[session_corrupt]" in found.err
    assert "hames verify" in found.err
    assert ".py" not in found.err


def test_an_unknown_session_and_an_unreadable_export_are_bad_usage(hames: Cli, database: Path) -> None:
    assert database.exists()
    assert hames("verify", "--session", "nope").code == 64
    assert hames("verify", "--export", "nope.tar").code == 64
    assert hames("verify", "--export", "x", "--session", "s1").code == 64


def test_what_is_no_export_is_foreign(hames: Cli) -> None:
    (hames.workspace / "some").write_bytes(b"nothing of ours" * 100)
    found = hames("verify", "--json", "--export", "some")
    assert (found.code, found.record["status"]) == (16, "foreign")


def test_a_store_whose_log_of_changes_was_deleted_is_refused_until_it_is_repaired(hames: Cli, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    assert hames("run", "--session", "s1", "say two").code == 0
    database.with_name("store.db-wal").unlink()

    refused = hames("sessions", "list")
    assert refused.code == 1
    assert "history was lost" in refused.err
    assert "hames repair" in refused.err
    assert hames("verify").code == 10

    repaired: dict[str, Any] = hames("repair", "--yes", "--json").record
    assert (repaired["exitCode"], repaired["historyLost"]) == (20, True)
    assert hames("verify").code == 0
    assert "which is lost after event" in hames("replay", "s1").out
    assert hames("run", "--session", "s1", "say three").code == 0


def test_an_export_is_verified_without_the_store_and_a_flipped_byte_is_found(hames: Cli, database: Path) -> None:
    assert hames("sessions", "export", "s1", "-o", "s1.tar").code == 0
    told = hames("verify", "--json", "--export", "s1.tar").record
    assert (told["status"], told["sessionId"], told["authentic"]) == ("good", "s1", True)

    elsewhere = hames("verify", "--json", "--export", "s1.tar", env={"HAMES_HOME": str(database.parent / "nowhere")})
    assert (elsewhere.code, elsewhere.record["authentic"]) == (0, None)

    data = bytearray((hames.workspace / "s1.tar").read_bytes())
    data[data.index(b"say one")] ^= 1
    (hames.workspace / "s1.tar").write_bytes(data)
    found = hames("verify", "--export", "s1.tar")
    assert found.code == 13
    assert "events.jsonl" in found.out
