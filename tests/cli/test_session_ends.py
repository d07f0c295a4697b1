"""`sessions export` and `sessions delete`: a file that proves itself, and nothing deleted without a word."""

from __future__ import annotations

import os
import pty
import stat
from shutil import copytree

import pytest

from cli.command import Cli, finish
from hames.archive.verify import verify_archive
from hames.commands.exits import COMPLETED, USAGE


@pytest.fixture
def hames(hames: Cli, stored: Cli) -> Cli:
    """The command line, on a copy of the store with session `s1`: the bytes that a run of its own would leave."""
    copytree(stored.home / "store", hames.home / "store")
    return hames


def test_an_export_is_a_file_that_proves_itself(hames: Cli) -> None:
    done = hames("sessions", "export", "s1")

    path = hames.workspace / "s1.tar"
    assert (done.code, done.err) == (COMPLETED, "")
    assert done.out.startswith("s1.tar: ")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with open(path, "rb") as stream:
        assert verify_archive(stream).good
    assert hames("verify", "--export", "s1.tar").code == COMPLETED
    assert sorted(os.listdir(hames.workspace)) == ["s1.tar"]


def test_an_export_goes_where_it_is_told_and_tells_where(hames: Cli) -> None:
    done = hames("sessions", "export", "s1", "-o", "other.tar", "--json")

    assert done.code == COMPLETED
    assert (done.record["path"], done.record["name"]) == ("other.tar", "s1.tar")
    assert (hames.workspace / "other.tar").stat().st_size == done.record["sizeBytes"]


def test_no_file_is_overwritten(hames: Cli) -> None:
    (hames.workspace / "s1.tar").write_text("mine")

    done = hames("sessions", "export", "s1")

    assert (done.code, done.out) == (USAGE, "")
    assert done.err == "hames: s1.tar is there already; remove it, or name another file with -o.\n"
    assert (hames.workspace / "s1.tar").read_text() == "mine"


def test_a_file_that_cannot_be_written_is_told(hames: Cli) -> None:
    done = hames("sessions", "export", "s1", "-o", "nowhere/x.tar")

    assert (done.code, done.out) == (USAGE, "")
    assert "nowhere/x.tar cannot be written: No such file or directory." in done.err


def test_a_delete_wants_a_word_where_nobody_can_be_asked(hames: Cli) -> None:
    refused = hames("sessions", "delete", "s1")
    still = hames("sessions", "list").out
    done = hames("sessions", "delete", "s1", "--yes")

    assert refused.code == USAGE
    assert refused.err == "hames: Not a terminal, so nobody can be asked: say --yes to delete the session.\n"
    assert still.startswith("s1 ")
    assert (done.code, done.out, done.err) == (COMPLETED, "s1 is deleted\n", "")
    assert hames("sessions", "list").out == ""
    assert hames("sessions", "show", "s1").code == USAGE
    assert hames("sessions", "delete", "s1", "--yes").code == COMPLETED


@pytest.mark.parametrize(("answer", "code", "left"), [(b"y\n", COMPLETED, 0), (b"\n", USAGE, 1), (b"no\n", USAGE, 1)])
def test_on_a_terminal_it_asks(hames: Cli, answer: bytes, code: int, left: int) -> None:
    controller, terminal = pty.openpty()
    try:
        process = hames.start("sessions", "delete", "s1", stdin=terminal, stderr=terminal)
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(controller, 1024)
        os.write(controller, answer)
        done = finish(process)
    finally:
        os.close(controller)
        os.close(terminal)

    assert asked.decode() == "Delete session s1 “a title”, 1 turn, for ever? [y/N] "
    assert done.code == code
    assert len(hames("sessions", "list").out.splitlines()) == left


def test_a_session_that_is_not_there_is_told(hames: Cli) -> None:
    for action in (["export", "nope"], ["delete", "nope", "--yes"]):
        done = hames("sessions", *action)
        assert (done.code, done.out) == (USAGE, "")
        assert "[session_not_found]" in done.err
