"""What is told of Python, the installation, the configuration, SQLite and the terminal."""

from __future__ import annotations

import json
import locale
import os
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from doctor.conftest import MakeCase
from hames import __version__
from hames.doctor import machine
from hames.doctor.machine import (
    check_config,
    check_install,
    check_python,
    check_sqlite,
    check_terminal,
    starts_this,
)


def test_this_python_will_do(case: MakeCase) -> None:
    found = check_python(case())

    assert found.status == "ok"
    assert sys.executable in found.seen


def test_an_older_python_fails_with_the_version_that_is_needed(case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MIN_PYTHON", (99, 1))

    found = check_python(case())

    assert found.status == "fail"
    assert "older than 99.1" in found.problems[0].what


def test_the_command_that_path_starts_is_compared_with_this_one(case: MakeCase, tmp_path: Path) -> None:
    ours, foreign = tmp_path / "ours", tmp_path / "foreign"
    for folder, interpreter in ((ours, sys.executable), (foreign, "/usr/bin/other-python")):
        folder.mkdir()
        (folder / "hames").write_text(f"#!{interpreter}\n")
        (folder / "hames").chmod(0o755)

    assert check_install(case(PATH=str(ours))).problems == ()
    (problem,) = check_install(case(PATH=str(foreign))).problems
    assert problem.what == f"PATH has another `hames`: {foreign / 'hames'}."
    assert "PATH has no `hames`" in check_install(case(PATH=str(tmp_path))).problems[0].what


def test_a_script_beside_the_interpreter_is_ours_and_one_that_cannot_be_read_is_not(tmp_path: Path) -> None:
    assert starts_this(os.path.join(os.path.realpath(os.path.dirname(sys.executable)), "hames"))
    assert not starts_this(str(tmp_path / "nothing"))


def test_a_part_that_cannot_be_imported_is_named(case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PARTS", ("anyio", "no_such_part"))

    found = check_install(case())

    assert found.status == "fail"
    assert "no_such_part cannot be imported: ModuleNotFoundError" in found.problems[0].what


@pytest.mark.parametrize(("installed", "count"), [("0.0.1", 1), (__version__, 0), (None, 0)])
def test_an_installation_of_another_version_is_told(
    case: MakeCase, monkeypatch: pytest.MonkeyPatch, installed: str | None, count: int
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(metadata, "version", version)

    told = [problem.what for problem in check_install(case()).problems]

    assert len([what for what in told if what.startswith("The installation says")]) == count


def test_a_file_with_a_key_that_others_may_read_is_told(case: MakeCase, home: Path) -> None:
    config = home / "config.json"
    config.write_text(json.dumps({"providers.compatible.apiKey": "sk-0123456789"}))
    config.chmod(0o644)

    found = check_config(case())

    assert found.status == "warn"
    assert found.problems[0].advice == f"Run: chmod 600 {config}"
    config.chmod(0o600)
    assert check_config(case()).status == "ok"


def test_settings_that_are_wrong_and_variables_that_are_none_are_told(case: MakeCase) -> None:
    found = check_config(case(HAMES_LIMIT_STEPS="0", HAMES_MODLE="x"))

    assert [problem.status for problem in found.problems] == ["fail", "warn"]
    assert "Did you mean HAMES_MODEL?" in found.problems[1].what


def test_the_library_of_apsw_will_do(case: MakeCase) -> None:
    assert check_sqlite(case()).status == "ok"


def test_an_sqlite_that_is_old_or_of_the_system_is_told(case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    check_sqlite(case())  # loads what needs the real one
    old = SimpleNamespace(
        sqlite_lib_version=lambda: "3.45.1", apsw_version=lambda: "3.45.1.0", using_amalgamation=False
    )
    monkeypatch.setitem(sys.modules, "apsw", old)

    found = check_sqlite(case())

    assert [problem.status for problem in found.problems] == ["fail", "warn"]
    assert "of the system" in found.seen


def test_a_locale_without_utf8_is_told(case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locale, "getencoding", lambda: "ANSI_X3.4-1968")
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")

    found = check_terminal(case(TERM="vt100"))

    assert [problem.status for problem in found.problems] == ["warn", "warn"]
    assert "TERM vt100" in found.seen


def test_a_stream_that_is_closed_is_none(monkeypatch: pytest.MonkeyPatch, case: MakeCase) -> None:
    fstat = os.fstat

    def without_standard_streams(descriptor: int) -> os.stat_result:
        if descriptor < 3:
            raise OSError
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", without_standard_streams)

    assert check_terminal(case()).details["terminals"] == {}
