"""The verifier that stands in each archive: one file, the standard library, the same answers."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archive.sample import look, sample
from hames.archive.standalone import EXITS
from hames.archive.write import program, texts
from hames.commands.exits import COMPLETED, FOUND, USAGE

DATA = sample()


def alone() -> ModuleType:
    """The program as a module of its own."""
    module = ModuleType("verify_alone")
    exec(compile(program(), "verify.py", "exec"), module.__dict__)
    return module


ALONE = alone()


def run(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (directory / "verify.py").write_bytes(program())
    command = [sys.executable, "-I", "-S", "verify.py", *words]
    return subprocess.run(command, cwd=directory, env={}, capture_output=True, text=True, timeout=30, check=False)


def test_it_needs_nothing_but_the_standard_library() -> None:
    found = ast.walk(ast.parse(program()))
    imported = {name.name for node in found if isinstance(node, ast.Import) for name in node.names}
    found = ast.walk(ast.parse(program()))
    imported |= {str(node.module) for node in found if isinstance(node, ast.ImportFrom)}

    assert imported <= {"__future__", "collections.abc", "contextlib", "hashlib", "json", "re", "sys", "typing"}


def test_it_is_written_for_python_3_8() -> None:
    ast.parse(program(), feature_version=(3, 8))


def test_it_is_in_every_archive() -> None:
    assert texts({})["verify.py"] == program()


@given(st.integers(0, len(DATA) - 1), st.integers(0, 255), st.sampled_from(["flip", "add", "drop", "cut"]))
def test_it_says_the_same_as_the_one_in_this_package(at: int, by: int, how: str) -> None:
    changed = {
        "flip": DATA[:at] + bytes([DATA[at] ^ by]) + DATA[at + 1 :],
        "add": DATA[:at] + bytes([by]) + DATA[at:],
        "drop": DATA[:at] + DATA[at + 1 :],
        "cut": DATA[:at],
    }[how]

    here, there = look(changed), ALONE.check(io.BytesIO(changed))

    assert there.verdict == here.verdict
    assert [tuple(each) for each in there.findings] == [(each.kind, each.where, each.message) for each in here.findings]
    assert (there.more, there.events, there.cursor, there.session_id) == (
        here.more,
        here.events,
        here.cursor,
        here.session_id,
    )


def test_it_runs_by_itself_and_says_good(tmp_path: Path) -> None:
    (tmp_path / "export.tar").write_bytes(DATA)

    done = run(tmp_path, "export.tar")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("good: session s-1, 5 events, cursor 5.")


def test_it_says_what_is_wrong_and_ends_with_the_published_code(tmp_path: Path) -> None:
    (tmp_path / "export.tar").write_bytes(DATA[:-600])
    torn = run(tmp_path, "export.tar")
    (tmp_path / "export.tar").write_bytes(b"no export at all")
    foreign = run(tmp_path, "export.tar")

    assert (torn.returncode, foreign.returncode) == (FOUND["torn"], FOUND["foreign"])
    assert torn.stdout == "torn: the end of the archive: the file ends 600 bytes short of the end of this part\n"
    assert foreign.stdout == "foreign: not an export of this format\n"


def test_bad_usage_and_an_unreadable_file_end_with_64(tmp_path: Path) -> None:
    nothing, unreadable = run(tmp_path), run(tmp_path, "nope.tar")

    assert (nothing.returncode, unreadable.returncode) == (USAGE, USAGE)
    assert nothing.stderr == "usage: python3 verify.py EXPORT.tar\n"
    assert unreadable.stderr == "nope.tar cannot be read: No such file or directory\n"


def test_its_exit_codes_are_those_of_hames_verify() -> None:
    assert EXITS == {"good": COMPLETED, **FOUND}


def test_a_log_of_any_length_is_checked_in_the_same_memory(tmp_path: Path) -> None:
    (tmp_path / "small.tar").write_bytes(sample(1_000))
    (tmp_path / "large.tar").write_bytes(sample(40_000))
    measure = (
        "import resource, runpy, sys\n"
        "sys.argv = ['verify.py', sys.argv[1]]\n"
        "try:\n    runpy.run_path('verify.py', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    (tmp_path / "verify.py").write_bytes(program())

    def peak_kib(name: str) -> int:
        command = [sys.executable, "-I", "-S", "-c", measure, name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        return int(done.stdout.split()[-1])

    if not sys.platform.startswith("linux"):
        pytest.fail("ru_maxrss is measured in KiB on Linux")
    assert peak_kib("large.tar") < peak_kib("small.tar") + 4 * 1024
