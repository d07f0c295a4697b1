"""The README is run: what it shows is what happens.

Rule: a block behind `<!-- test: … -->` is executed. In what it shows, `…` stands for anything, a time, id or cursor
for any of its kind; the rest must be equal. The `console` blocks are one shell session, from top to bottom.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs import pages
from e2e.driver import TIMEOUT_S, Server, environment
from hames import cli
from hames.commands import exits
from hames.config import SETTINGS
from hames.core.limits import DEFAULTS, NO_COST_LIMIT
from hames.providers import PROVIDERS
from hames.providers.offline import DIRECTIVES
from hames.sandbox.local import FIXED, PASSED_ON

README = pages.text("README.md")

VOLATILE = (
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z",
    r"\b[a-z]-[0-9a-f]{20}\b",
    r"\b\d+\.[0-9a-f]{12}\b",
)
"""Times, ids, cursors: what differs every time."""

MARK = "\x02"
"""Stands between what two commands wrote."""


def blocks(kind: str, page: str = "README.md") -> list[str]:
    """The blocks of a kind, in order."""
    return [body for name, body in pages.blocks(page) if name == kind]


def pattern(shown: str) -> str:
    """A regular expression for what is shown."""
    parts = re.split(f"(…|{'|'.join(VOLATILE)})", shown)
    return "".join(_part(part) for part in parts)


def _part(part: str) -> str:
    if part == "…":
        return "(?:.*)"
    return next((volatile for volatile in VOLATILE if re.fullmatch(volatile, part)), re.escape(part))


def console() -> list[tuple[str, str]]:
    """Every command of the console blocks, with what it shows."""
    found: list[tuple[str, str]] = []
    for block in blocks("console"):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE):
            lines = entry.splitlines()
            command = lines[:1]
            while len(lines) > len(command) and lines[len(command)].startswith("> "):
                command.append(lines[len(command)][2:])
            if command:
                found.append(("\n".join(command), "\n".join(lines[len(command) :])))
    return found


@pytest.mark.slow
def test_the_console_shows_what_the_readme_shows(tmp_path: Path) -> None:
    commands = console()
    script = "".join(f"{command}\nprintf '{MARK}'\n" for command, _ in commands)
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    env = environment(home, {"PATH": f"{shim(tmp_path)}{os.pathsep}{os.environ['PATH']}"})
    done = subprocess.run(
        ["bash", "-c", script],
        env=env,
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=4 * TIMEOUT_S,
    )
    written = done.stdout.decode().split(MARK)
    assert len(written) == len(commands) + 1
    for (command, shown), output in zip(commands, written, strict=False):
        assert re.fullmatch(pattern(shown), output.rstrip("\n")), (
            f"$ {command}\n{output}\n-- the README shows:\n{shown}"
        )


def shim(directory: Path) -> Path:
    """A directory with a `hames` that is the one under test."""
    path = directory / "bin"
    path.mkdir()
    (path / "hames").write_text(f'#!/bin/sh\nexec {sys.executable} -m hames "$@"\n')
    (path / "hames").chmod(0o755)
    return path


def test_the_lines_by_hand_are_answered_as_shown(home: Path) -> None:
    (requests,) = blocks("serve")
    (answers,) = blocks("answers")
    with Server(home, initialize=False) as server:
        for number, line in enumerate(requests.splitlines(), 1):
            server.expect(number, re.search(r'"method":"([^"]+)"', line)[1])  # type: ignore[index]
            server.write(line.encode() + b"\n")
            server.answer(number)
        sent = [frame.raw.decode().rstrip("\n") for frame in server.frames]
    for kind in ('"id":', '"method":'):
        following = iter([line for line in sent if kind in line[:40]])
        for shown in [line for line in answers.splitlines() if kind in line[:40]]:
            assert any(re.fullmatch(pattern(shown), line) for line in following), f"not sent, or not here: {shown}"


@pytest.mark.parametrize("example", blocks("python") + blocks("python", "clients/python/README.md"))
def test_the_python_examples_run(tmp_path: Path, example: str) -> None:
    env = environment(tmp_path / "home")
    done = subprocess.run([sys.executable, "-c", example], env=env, capture_output=True, timeout=2 * TIMEOUT_S)
    lines = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (0, b"")
    assert lines[0] == "1 session.created"
    assert lines[-2:] == [f"{len(lines) - 1} turn.completed", "hello"]


def test_every_command_of_the_readme_exists_and_the_other_way_round() -> None:
    named = set(re.findall(r"^\| `hames (\w+)", README, re.MULTILINE))
    assert named == set(cli.COMMANDS)


@pytest.mark.parametrize(
    "row", re.findall(r"^\| `hames (\w+(?: (?:list|show|export|delete))?)[^|]*\| (.*) \|$", README, re.MULTILINE)
)
def test_every_option_of_the_readme_exists(row: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    words = row[0].split()
    with pytest.raises(SystemExit):
        cli.main([*words, "--help"])
    told = capfd.readouterr().out
    for option in re.findall(r"--[a-z-]+", row[1]):
        assert option in told


def test_the_exit_codes_are_those_that_are_published() -> None:
    cells = re.findall(r"^\| ([\d, ]+)(?: `\w+`)? \|", README + pages.text("protocol/store.md"), re.MULTILINE)
    shown = {int(code) for cell in cells for code in cell.split(", ")}
    published = {value for name, value in vars(exits).items() if name.isupper() and name != "FOUND"}
    assert shown == published | set(exits.FOUND.values())


@pytest.mark.parametrize("page", ["README.md", "protocol/models.md", "protocol/operating.md"])
def test_every_variable_and_setting_that_is_named_exists(page: str) -> None:
    text = pages.text(page)
    variables = {setting.environment for setting in SETTINGS.values()} | {"HAMES_HOME", "HAMES_CONFIG"}
    assert set(re.findall(r"\bHAMES_[A-Z_]+\b", text)) <= variables
    assert set(re.findall(r"\bproviders\.\w+\.\w+\b|\blimits\.\w+\b", text)) <= set(SETTINGS)


def test_the_script_language_is_told_whole() -> None:
    page = pages.text("protocol/offline.md")
    assert dict(re.findall(r"^\| `([a-z ]+<[^`]+>)` \| (.*) \|$", page, re.MULTILINE)) == DIRECTIVES


def test_the_environment_of_commands_is_told_whole() -> None:
    page = pages.text("protocol/tools.md")
    (told,) = re.findall(r"^A command gets a short environment: (.*?)\n\n", page, re.MULTILINE | re.DOTALL)
    fixed = {f"{name}={value}" for name, value in FIXED.items()}
    assert set(re.findall(r"`([^`]+)`", told)) == {*PASSED_ON, "LC_*", *fixed}


def test_the_limits_that_are_told_are_those_there_are() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)?) \| ([\w ,]+) \| .* \| ", README, re.MULTILINE)
    told = dict(
        zip(
            re.findall(r"\w+", " ".join(row[0] for row in rows)),
            ", ".join(row[1] for row in rows).split(", "),
            strict=True,
        )
    )
    units = {"": 1, " s": 1_000, " hour": 3_600_000, " MiB": 2**20}
    assert told.pop("costMicros") == "none"
    assert DEFAULTS["costMicros"] == NO_COST_LIMIT
    assert {name: int(shown.split()[0]) * units[shown.lstrip("0123456789")] for name, shown in told.items()} == {
        name: DEFAULTS[name] for name in told
    }


def test_the_providers_are_told_with_their_addresses_and_variables() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \| (.*) \|$", pages.text("protocol/models.md"), re.MULTILINE)
    assert [name for name, _, _ in rows] == ["anthropic", "openai", "gemini", "compatible", "offline"]
    assert {name for name, _, _ in rows} == set(PROVIDERS)
    for name, address, variables in rows:
        assert re.findall(r"`(https?://[^`]+)`", address) == [url for url in (PROVIDERS[name].base_url,) if url]
        if PROVIDERS[name].needs_key:
            assert tuple(re.findall(r"`(\w+)`", variables)) == PROVIDERS[name].key_variables
