"""`hames doctor` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import Cli
from hames.doctor.table import CHECKS

NAMES = [
    "python", "install", "config", "directory", "filesystem", "space", "sqlite", "store", "leftovers", "sandbox",
    "model", "models", "providers", "framing", "terminal",
]  # fmt: skip
"""Published: programs look for them."""


def _tree(home: Path) -> dict[str, bytes]:
    files = (path for path in home.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {str(path): path.read_bytes() for path in files if "gate.lock" not in path.name}


def test_a_fresh_installation_has_nothing_that_fails_and_nothing_is_made(hames: Cli) -> None:
    done = hames("doctor")

    assert done.code == 0, done.out
    assert " 0 fail" in done.out.splitlines()[-1]
    assert not hames.config.exists()
    assert list(hames.home.iterdir()) == []


def test_the_record_has_a_row_for_every_check_by_its_published_name(hames: Cli) -> None:
    done = hames("doctor", "--json")

    record = done.record
    assert (done.code, done.out.count("\n")) == (0, 1)
    assert [row["name"] for row in record["checks"]] == NAMES == [check.name for check in CHECKS]
    assert set(record) == {"status", "version", "seconds", "checks"}
    for row in record["checks"]:
        assert set(row) == {"name", "status", "seen", "problems", "details", "ms"}
        assert row["status"] in ("ok", "warn"), row
        assert (row["status"] == "ok") == (not row["problems"])


def test_a_store_that_was_worked_with_is_told_and_not_changed(hames: Cli) -> None:
    assert hames("run", "--id", "s-1", "say hi").code == 0
    before = _tree(hames.home / "store")

    done = hames("doctor", "--json")

    rows = {row["name"]: row for row in done.record["checks"]}
    assert rows["store"]["status"] == "ok", rows["store"]
    assert rows["store"]["details"]["sessions"] == 1
    assert rows["store"]["details"]["events"] > 3
    assert rows["store"]["details"]["witnessed"] == rows["store"]["details"]["commits"]
    assert _tree(hames.home / "store") == before


def test_what_fails_ends_with_1_and_hides_no_other_row(hames: Cli) -> None:
    hames.config.write_text("{nonsense")

    done = hames("doctor")

    assert done.code == 1
    assert "fail  config" in done.out
    assert f"{hames.config} is not JSON" in done.out
    assert "ok    sandbox" in done.out
    assert "ok    framing" in done.out


@pytest.mark.parametrize(("place", "options"), [("environment", []), ("file", ["--json"])])
def test_a_key_is_never_shown(hames: Cli, place: str, options: list[str]) -> None:
    key = "sk-never-to-be-seen-0123456789"
    env = {"HAMES_COMPATIBLE_BASE_URL": "http://127.0.0.1:9/v1"}
    if place == "file":
        hames.config.write_text(json.dumps({"providers.compatible.apiKey": key, "limits.steps": key}))
    else:
        env["HAMES_COMPATIBLE_API_KEY"] = env["HAMES_LIMIT_STEPS"] = key

    done = hames("doctor", *options, env=env)

    assert done.code == 1
    assert "with a key" in done.out
    assert key not in done.out + done.err


def test_a_path_with_control_characters_cannot_move_a_terminal(hames: Cli) -> None:
    done = hames("doctor", env={"HAMES_HOME": f"{hames.home}/\x1b[2J\udcff"})

    assert "\x1b" not in done.out
    assert "\\x1b[2J" in done.out
    assert "not UTF-8" in done.out
