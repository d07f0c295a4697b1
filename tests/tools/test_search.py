"""`grep` and `glob`, with every engine that is here."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from hames.core.limits import DEFAULTS
from hames.ports import ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses
from hames.tools.glob import GlobTool
from hames.tools.grep import GrepTool, alternatives
from tools.conftest import Call

anyio_test = pytest.mark.anyio
Refused = Callable[..., Awaitable[str]]
Grep = Callable[..., Awaitable[ToolOutcome]]

PROGRAMS = ("sh", "find", "sort", "grep", "cat")
ENGINES = ["grep", *(["rg"] if shutil.which("rg") else []), *(["busybox"] if shutil.which("busybox") else [])]
RIPGREP_SHIM = """#!/bin/sh
# Answers as ripgrep does, with what it was asked in a file.
printf '%s\\n' "$*" >>"$0.log"
for argument; do :; done
[ "$argument" = /dev/null ] && exit 1
printf './a.py\\0%s:found\\n' 7
"""


def bin_folder(folder: Path, engine: str) -> Path:
    """A PATH on which just this engine is found."""
    made = folder / f"bin-{engine}"
    made.mkdir()
    for name in PROGRAMS:
        (made / name).symlink_to(str(shutil.which("busybox" if engine == "busybox" else name)))
    if engine == "rg":
        (made / "rg").symlink_to(str(shutil.which("rg")))
    return made


@pytest.fixture(params=ENGINES)
async def grep(
    request: pytest.FixtureRequest,
    context: ToolContext,
    tmp_path: Path,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Grep]:
    monkeypatch.setenv("PATH", str(bin_folder(tmp_path, request.param)))
    processes = ReaperProcesses(tmp_path / "engine")
    sandbox = LocalSandbox(workspace, workspace, "s", processes, reserved=[workspace / "store"])
    tool = GrepTool()

    async def run(pattern: str, *, limits: dict[str, int] | None = None, **arguments: Any) -> ToolOutcome:
        changed = replace(context, sandbox=sandbox, limits={**DEFAULTS, **(limits or {})})
        with anyio.fail_after(60):
            outcome = await tool.run({"pattern": pattern, **arguments}, changed)
        outcome.text.encode()
        assert outcome.details["engine"] == ("rg" if request.param == "rg" else "grep")
        return outcome

    yield run
    await processes.aclose()
    await sandbox.aclose()


async def test_another_name_of_a_reserved_file_shows_nothing_of_it(grep: Grep, corpus: Path) -> None:
    (corpus / "store" / "log").write_text("hello secret\n")
    (corpus / "innocent").hardlink_to(corpus / "store" / "log")

    found = await grep("hello secret")

    assert "innocent" not in found.text


@pytest.fixture
def corpus(workspace: Path) -> Path:
    (workspace / "src" / "deep").mkdir(parents=True)
    (workspace / ".git").mkdir()
    (workspace / "store").mkdir()
    (workspace / "src" / "a.py").write_text("import os\nx = a.b(1)\nprint('Hello')\n")
    (workspace / "src" / "deep" / "b.c").write_text("int main(void) { return 0; }\n// -e --files\n")
    (workspace / "src" / "deep" / ".hidden.py").write_text("hello\r\n")
    (workspace / "odd: 1:name.py").write_text("hello odd\n")
    (workspace / ".git" / "config").write_text("hello git\n")
    (workspace / "store" / "log").write_text("hello store\n")
    (workspace / "latin").write_bytes(b"hello caf\xe9\n")
    (workspace / ".gitignore").write_text("src\n")
    (workspace / "loop").symlink_to(".")
    (workspace / "etc").symlink_to("/etc")
    return workspace


@anyio_test
@pytest.mark.parametrize(
    ("pattern", "arguments", "rows"),
    [
        ("import", {}, ["src/a.py:1:import os"]),
        ("^x = a\\.b", {}, ["src/a.py:2:x = a.b(1)"]),
        ("a.b(", {"literal": True}, ["src/a.py:2:x = a.b(1)"]),
        ("a+b|main", {}, ["src/deep/b.c:1:int main(void) { return 0; }"]),
        ("-e", {}, ["src/deep/b.c:2:// -e --files"]),
        ("--files", {}, ["src/deep/b.c:2:// -e --files"]),
        ("(ello){1}'", {}, ["src/a.py:3:print('Hello')"]),
        (
            "HELLO",
            {"ignoreCase": True, "include": "*.py"},
            [
                "odd: 1:name.py:1:hello odd",
                "src/a.py:3:print('Hello')",
                "src/deep/.hidden.py:1:hello",
            ],
        ),
        (
            "hello",
            {},
            [
                "latin:1:hello caf\ufffd",
                "odd: 1:name.py:1:hello odd",
                "src/deep/.hidden.py:1:hello",
            ],
        ),
        ("o", {"path": "src/a.py", "maxMatches": 9}, ["src/a.py:1:import os", "src/a.py:3:print('Hello')"]),
        ("main", {"path": "src/deep", "include": "*.{h,c}"}, ["src/deep/b.c:1:int main(void) { return 0; }"]),
        ("main", {"include": "!*.py"}, ["[No matches.]"]),
        ("nothing at all", {}, ["[No matches.]"]),
    ],
)
async def test_every_engine_finds_the_same(
    grep: Grep, corpus: Path, pattern: str, arguments: dict[str, Any], rows: list[str]
) -> None:
    assert (await grep(pattern, **arguments)).text.split("\n") == rows


@anyio_test
async def test_at_most_a_hundred_matches_are_shown_in_order(grep: Grep, workspace: Path) -> None:
    for number in range(30):
        (workspace / f"f{number:02}").write_text("match\n" * 10)

    outcome = await grep("match", maxMatches=1000)

    rows = outcome.text.split("\n")
    assert rows[:100] == [f"f{number // 10:02}:{number % 10 + 1}:match" for number in range(100)]
    assert "there are more" in rows[100]
    assert outcome.details["more"] is True


@anyio_test
async def test_exactly_as_many_as_are_shown_are_not_more(grep: Grep, workspace: Path) -> None:
    (workspace / "f").write_text("match\n" * 3)

    assert (await grep("match", maxMatches=3)).details["more"] is False


@anyio_test
async def test_a_long_line_is_cut_in_characters(grep: Grep, workspace: Path) -> None:
    (workspace / "f").write_text("é" * 5000 + "\n" + "x" * 500 + "\n" + "y" * 10_000_000 + "\n")

    rows = (await grep("é|x|y")).text.split("\n")

    assert rows[0] == "f:1:" + "é" * 500 + "… [cut]"
    assert rows[1] == "f:2:" + "x" * 500
    assert rows[2] == "f:3:" + "y" * 500 + "… [cut]"


@anyio_test
@pytest.mark.parametrize("pattern", ["(", "[a", "a\nb", "a\0"])
async def test_a_pattern_that_is_not_valid_is_an_error(grep: Grep, corpus: Path, pattern: str) -> None:
    with pytest.raises(ToolFailed) as failure:
        await grep(pattern)

    assert failure.value.kind == "bad_pattern"


@anyio_test
@pytest.mark.parametrize(
    ("path", "kind"),
    [("none", "not_found"), ("etc", "outside_workspace"), ("store", "outside_workspace"), ("..", "outside_workspace")],
)
async def test_a_path_that_cannot_be_searched_is_an_error(grep: Grep, corpus: Path, path: str, kind: str) -> None:
    with pytest.raises(ToolFailed) as failure:
        await grep("x", path=path)

    assert failure.value.kind == kind


@anyio_test
async def test_binary_and_special_files_are_passed_over(grep: Grep, workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")
    (workspace / "binary").write_bytes(b"\0match\n")
    (workspace / "text").write_text("match\n")

    rows = (await grep("match")).text.split("\n")

    assert "text:1:match" in rows
    assert not any(row.startswith("fifo") for row in rows)


@anyio_test
async def test_a_search_that_takes_too_long_is_an_error(grep: Grep, workspace: Path) -> None:
    with (workspace / "big").open("wb") as file:
        for _ in range(200):
            file.write(b"a" * 1_000_000 + b"\n")

    with pytest.raises(ToolFailed) as failure:
        await grep("b$", limits={"searchTimeoutMs": 1})
    assert failure.value.kind == "timed_out"


@anyio_test
async def test_ripgrep_is_asked_for_once_per_sandbox(
    context: ToolContext, tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bin_folder(tmp_path, "grep")
    (folder / "rg").write_text(RIPGREP_SHIM)
    (folder / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    processes = ReaperProcesses(tmp_path / "shim")
    tool = GrepTool()
    for name in ("one", "two"):
        sandbox = LocalSandbox(workspace, workspace, name, processes)
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(tool.run, {"pattern": "--files"}, replace(context, sandbox=sandbox))
        outcome = await tool.run({"pattern": "--files"}, replace(context, sandbox=sandbox))
        assert (outcome.text, outcome.details["engine"]) == ("a.py:7:found", "rg")
        await sandbox.aclose()
    await processes.aclose()

    lines = (folder / "rg.log").read_text().splitlines()
    assert sum(line.endswith("-e x /dev/null") for line in lines) == 2
    assert sum(line.endswith("-e --files -- .") for line in lines) == 12


def test_braces_are_written_out() -> None:
    assert alternatives("") == []
    assert alternatives("*.{c,h}{,x}") == ["*.c", "*.cx", "*.h", "*.hx"]
    with pytest.raises(ToolFailed):
        alternatives("{a,b}" * 10)


@anyio_test
@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        ({"pattern": "*.py"}, ["odd: 1:name.py", "src/a.py", "src/deep/.hidden.py"]),
        ({"pattern": "[ab].*"}, ["src/a.py", "src/deep/b.c"]),
        ({"pattern": "?.c", "cwd": "src"}, ["src/deep/b.c"]),
        ({"pattern": "-name"}, ["[No files.]"]),
        ({"pattern": "loop"}, ["loop"]),
        ({"pattern": "config"}, ["[No files.]"]),
        ({"pattern": "log"}, ["[No files.]"]),
        ({"pattern": "passwd"}, ["[No files.]"]),
        ({"pattern": "deep"}, ["[No files.]"]),
    ],
)
async def test_glob_finds_names(call: Call, corpus: Path, arguments: dict[str, str], rows: list[str]) -> None:
    with anyio.fail_after(30):
        assert (await call("glob", **arguments)).text.split("\n") == rows


@anyio_test
async def test_glob_gives_a_hint_for_a_path(call: Call, corpus: Path) -> None:
    outcome = await call("glob", pattern="src/*.py")

    assert outcome.details["matches"] == 0
    assert "cwd" in outcome.text


@anyio_test
async def test_glob_shows_the_first_thousand_in_byte_order(call: Call, workspace: Path) -> None:
    names = [f"{mark}{number}" for number in range(500) for mark in "aBé"]
    for name in names:
        (workspace / name).touch()

    outcomes = [await call("glob", pattern="*", maxMatches=5000) for _ in range(3)]

    expected = sorted(names, key=os.fsencode)[:1000]
    for outcome in outcomes:
        assert outcome.text.split("\n")[:1000] == expected
        assert outcome.details["matches"] == 1500
        assert outcome.truncation is not None


@anyio_test
async def test_glob_shows_odd_names_on_one_line(call: Call, workspace: Path) -> None:
    (workspace / "new\nline").touch()
    (workspace / os.fsdecode(b"bad\xff")).touch()

    assert (await call("glob", pattern="*")).text.split("\n") == ["bad\ufffd", "new\\x0aline"]


@anyio_test
async def test_glob_refuses_what_is_no_directory(refused: Refused, corpus: Path) -> None:
    assert await refused("glob", pattern="*", cwd="none") == "not_found"
    assert await refused("glob", pattern="*", cwd="etc") == "outside_workspace"
    assert await refused("glob", pattern="*", cwd="src/a.py") == "not_a_directory"


@anyio_test
async def test_paths_are_relative_to_the_working_directory(context: ToolContext, corpus: Path, tmp_path: Path) -> None:
    processes = ReaperProcesses(tmp_path / "other")
    sandbox = LocalSandbox(corpus, corpus / "src", "s", processes)
    changed = replace(context, sandbox=sandbox)

    assert (await GlobTool().run({"pattern": "*.c"}, changed)).text == "deep/b.c"
    assert (await GlobTool().run({"pattern": "latin", "cwd": ".."}, changed)).text == "../latin"
    assert (await GrepTool().run({"pattern": "caf", "path": "../latin"}, changed)).text == "../latin:1:hello caf\ufffd"
    await processes.aclose()
    await sandbox.aclose()
