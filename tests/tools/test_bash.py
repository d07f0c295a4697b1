from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from hames.ports import ToolContext
from hames.protocol.errors import ToolFailed
from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses
from hames.store.memory_blobs import MemorySpool
from hames.tools.bash import BashTool
from tools.conftest import BY_NAME, Call

pytestmark = pytest.mark.anyio
Refused = Callable[..., Awaitable[str]]


async def test_the_last_two_thousand_lines_are_shown(call: Call) -> None:
    outcome = await call("bash", command="seq 1 5000")

    assert outcome.text.startswith("[Only the last 2000 of 5000 lines are shown")
    assert outcome.text.endswith("\n4999\n5000\n")
    assert outcome.details["exitCode"] == 0
    assert outcome.truncation == {
        "mode": "tail",
        "totalLines": 5000,
        "shownLines": 2000,
        "totalBytes": 23_893,
        "shownBytes": 10_000,
    }


async def test_a_flood_is_cut_to_fifty_kibibytes_and_its_exit_code_kept(call: Call) -> None:
    outcome = await call("bash", command="yes 123456789012345678901234567890123456789 | head -c 10000000; exit 3")

    assert outcome.truncation is not None
    assert outcome.truncation["shownBytes"] <= 51_200
    assert outcome.truncation["totalBytes"] == 10_000_000
    assert outcome.details["exitCode"] == 3
    assert outcome.text.endswith("\n[Exit code 3.]")


async def test_a_command_without_output_says_so(call: Call) -> None:
    assert (await call("bash", command="true")).text == "[No output.]"


async def test_a_timeout_is_a_result(call: Call) -> None:
    with anyio.fail_after(30):
        outcome = await call("bash", command="echo on; sleep 60", timeout=200)

    assert outcome.text == "on\n[Stopped after 200 ms: exit code 124.]"
    assert (outcome.details["exitCode"], outcome.details["timedOut"]) == (124, True)


async def test_a_timeout_cannot_exceed_the_limit(call: Call) -> None:
    with anyio.fail_after(30):
        outcome = await call("bash", command="sleep 60", timeout=500_000, limits={"bashTimeoutMs": 100})

    assert outcome.details["exitCode"] == 124


@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & echo done",
        "setsid sleep 300 & echo done",
        "nohup sleep 300 & echo done",
        "sleep 300 >/dev/null 2>&1 & echo done",
    ],
)
async def test_a_background_process_holds_up_nothing_and_is_told(call: Call, command: str) -> None:
    with anyio.fail_after(10):
        outcome = await call("bash", command=command)

    assert "done\n" in outcome.text
    assert outcome.text.endswith("[1 process that outlived the command was killed.]")
    assert outcome.details["killed"] == 1


async def test_a_signal_is_named(call: Call) -> None:
    outcome = await call("bash", command="kill -9 $$")

    assert outcome.text == "[Killed by signal 9 (SIGKILL).]"


async def test_output_that_is_no_text_survives(call: Call) -> None:
    outcome = await call("bash", command=r"printf '\xff\xfehel\0lo'")

    assert outcome.text == "\ufffd\ufffdhel\ufffdlo"


async def test_one_huge_line_keeps_its_end(call: Call) -> None:
    outcome = await call("bash", command="printf '€%.0s' $(seq 40000); printf END")

    assert outcome.text.endswith("€END")
    assert "\ufffd" not in outcome.text


async def test_cwd_and_environment_are_applied(call: Call, refused: Refused, workspace: Path) -> None:
    (workspace / "sub").mkdir()

    outcome = await call("bash", command='pwd; echo "$A $HAMES_SESSION $HAMES_CALL"', cwd="sub", env={"A": "b c"})

    assert outcome.text == f"{workspace}/sub\nb c session call\n"
    assert await refused("bash", command="true", cwd="../..") == "outside_workspace"
    assert await refused("bash", command="true", cwd="none") == "not_found"
    assert await refused("bash", command="x" * 300_000) == "command_too_long"


async def test_no_start_file_is_read_and_nothing_pages(call: Call, workspace: Path) -> None:
    (workspace / ".bashrc").write_text("echo bashrc")
    (workspace / ".profile").write_text("echo profile")

    outcome = await call("bash", command="shopt -q login_shell || $PAGER; echo $TERM", env={"HOME": str(workspace)})

    assert outcome.text == "dumb\n"


async def test_output_is_emitted_while_the_command_runs(context: ToolContext, workspace: Path) -> None:
    os.mkfifo(workspace / "go")
    seen = anyio.Event()
    emitted: list[bytes] = []

    def emit(chunk: bytes) -> None:
        emitted.append(chunk)
        seen.set()

    async with anyio.create_task_group() as group:
        arguments = {"command": "echo first; cat go >/dev/null; echo second"}
        group.start_soon(BashTool().run, arguments, replace(context, emit=emit))
        with anyio.fail_after(30):
            await seen.wait()
            assert emitted == [b"first\n"]
            await anyio.to_thread.run_sync((workspace / "go").write_text, "go")

    assert emitted == [b"first\n", b"second\n"]


async def test_sh_runs_the_command_where_there_is_no_bash(
    context: ToolContext, tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    processes = ReaperProcesses(tmp_path / "other")
    sandbox = LocalSandbox(workspace, workspace, "s", processes)

    outcome = await BashTool().run({"command": "echo hi"}, replace(context, sandbox=sandbox))

    assert outcome.text == "hi\n"
    await processes.aclose()
    await sandbox.aclose()


@pytest.mark.parametrize(("limit", "kept_bytes"), [(10**6, 108_894), (1_000, 1_000), (0, None)])
async def test_the_beginning_of_a_long_output_is_kept(context: ToolContext, limit: int, kept_bytes: int | None) -> None:
    spool = MemorySpool()
    limits = {**context.limits, "keptOutputBytes": limit}

    outcome = await BY_NAME["bash"].run({"command": "seq 20000"}, replace(context, spool=lambda: spool, limits=limits))

    assert outcome.truncation is not None
    assert outcome.truncation.get("keptBytes") == kept_bytes
    assert spool.size_bytes == (kept_bytes or 0)
    assert (outcome.kept is spool) is (kept_bytes is not None)


async def test_a_short_output_or_a_failure_keeps_nothing(context: ToolContext) -> None:
    spool = MemorySpool()
    given = replace(context, spool=lambda: spool)

    assert (await BY_NAME["bash"].run({"command": "seq 10"}, given)).kept is None
    assert spool.size_bytes == 0
    with pytest.raises(ToolFailed):
        await BY_NAME["bash"].run({"command": "seq 10", "cwd": "nowhere"}, given)
