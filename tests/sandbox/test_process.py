"""What a command is given, and what comes back of it."""

from __future__ import annotations

import os
import re
import resource
import stat
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.protocol.errors import HarnessFault, ToolFailed
from hames.sandbox import process
from hames.sandbox.command import Command, Tail
from hames.sandbox.local import LocalSandbox, base_environment
from hames.sandbox.process import ReaperProcesses

anyio_test = pytest.mark.anyio
BOUNDS: Any = {"timeout_ms": 30_000, "grace_ms": 0, "keep_bytes": 50_000}


async def shell(sandbox: LocalSandbox, script: str, **options: Any) -> bytes:
    with anyio.fail_after(60):
        return (await sandbox.run(["sh", "-c", script], **{**BOUNDS, **options})).output


@anyio_test
async def test_output_and_errors_come_in_the_order_they_were_written(sandbox: LocalSandbox) -> None:
    output = await shell(sandbox, "for i in 1 2 3; do echo o$i; echo e$i >&2; done")

    assert output.split() == [b"o1", b"e1", b"o2", b"e2", b"o3", b"e3"]


@anyio_test
@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -15 $$", -15)])
async def test_the_exit_code_is_reported(sandbox: LocalSandbox, script: str, code: int) -> None:
    result = await sandbox.run(["sh", "-c", script], **BOUNDS)

    assert (result.exit_code, result.timed_out, result.killed) == (code, False, 0)


@anyio_test
async def test_stdin_is_empty(sandbox: LocalSandbox) -> None:
    assert await shell(sandbox, "cat; readlink /proc/self/fd/0") == b"/dev/null\n"


@anyio_test
async def test_of_a_mute_command_nobody_gets_the_errors(workspace: Path, processes: ReaperProcesses) -> None:
    cwd = os.open(workspace, os.O_PATH)
    command = Command(
        "mute", ("/bin/sh", "-c", "echo told; echo untold >&2; readlink /proc/self/fd/2"), {}, cwd, mute=True
    )

    result = await processes.run(command, **BOUNDS)
    os.close(cwd)

    assert result.output == b"told\n/dev/null\n"


@anyio_test
async def test_a_command_holds_no_descriptor_but_the_standard_three(sandbox: LocalSandbox, workspace: Path) -> None:
    code = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd')))"
    leak = os.open(workspace, os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        output = await shell(sandbox, f'exec {sys.executable} -I -S -c "{code}"')
    finally:
        os.close(leak)

    # The fourth is the listing itself.
    assert output == b"[0, 1, 2, 3]\n"


@anyio_test
async def test_a_command_starts_with_default_signals_its_own_session_and_no_core(sandbox: LocalSandbox) -> None:
    script = "cat /proc/self/status; ulimit -c; cut -d' ' -f1,6 /proc/$$/stat"
    text = (await shell(sandbox, script)).decode()

    masks = [int(mask, 16) for mask in re.findall(r"^Sig(?:Blk|Ign|Cgt):\t(\w+)$", text, re.M)]
    # The first 31: the C library keeps the next two to itself, and passes on what it found.
    assert [mask & 0x7FFFFFFF for mask in masks] == [0, 0, 0]
    core, ids = text.splitlines()[-2:]
    assert core == "0"
    assert len(set(ids.split())) == 1


@anyio_test
async def test_the_environment_holds_no_key_and_names_session_and_call(
    workspace: Path, processes: ReaperProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_API_KEY", "hunter2")
    sandbox = LocalSandbox(workspace, workspace, "named", processes)
    output = await shell(sandbox, "env; tr '\\0' '\\n' </proc/$PPID/environ", env={"HAMES_SESSION": "x", "MINE": "é=1"})
    await sandbox.aclose()

    assert b"hunter2" not in output
    lines = output.decode().splitlines()
    for line in ("HAMES_SESSION=named", "MINE=é=1", "TERM=dumb", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0"):
        assert line in lines


def test_only_listed_variables_are_passed_on() -> None:
    outer = {"HOME": "/h", "LC_TIME": "C", "OPENAI_API_KEY": "k", "SSH_AUTH_SOCK": "s", "TERM": "xterm"}

    made = base_environment(outer)

    assert made["HOME"] == "/h"
    assert made["LC_TIME"] == "C"
    assert made["TERM"] == "dumb"
    assert made["PATH"]
    assert not {"OPENAI_API_KEY", "SSH_AUTH_SOCK"} & set(made)


@anyio_test
async def test_a_flood_is_counted_but_not_kept_and_others_get_their_turn(sandbox: LocalSandbox) -> None:
    size = 200_000_000
    turns = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(take_turns)
            script = f"yes | head -c {size}; printf end"
            result = await sandbox.run(["sh", "-c", script], **{**BOUNDS, "keep_bytes": 1000})
            group.cancel_scope.cancel()

    assert result.total_bytes == size + 3
    assert len(result.output) == 1000
    assert result.output.endswith(b"y\nend")
    assert turns > 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


@anyio_test
async def test_the_first_bytes_are_kept_on_request(sandbox: LocalSandbox) -> None:
    assert await shell(sandbox, "seq 1 10000", keep_bytes=5, keep_end=False) == b"1\n2\n3"


@anyio_test
async def test_what_a_process_substitution_writes_after_the_end_is_not_lost(sandbox: LocalSandbox) -> None:
    script = "echo late > >(sleep 0.02; cat)"
    result = await sandbox.run(["bash", "-c", script], **BOUNDS)

    assert (result.output, result.killed) == (b"late\n", 0)


@anyio_test
async def test_fifty_commands_run_at_once(sandbox: LocalSandbox) -> None:
    outputs: dict[int, bytes] = {}

    async def one(number: int) -> None:
        outputs[number] = await shell(sandbox, f"echo {number}; sleep 0.01")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(one, number)

    assert outputs == {number: b"%d\n" % number for number in range(50)}


@anyio_test
async def test_no_descriptor_is_left_open_in_hames(sandbox: LocalSandbox) -> None:
    await shell(sandbox, "true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await shell(sandbox, "sleep 9 & true")
        with anyio.move_on_after(0.005):
            await shell(sandbox, "sleep 9")

    assert len(os.listdir("/proc/self/fd")) == before


@anyio_test
@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        (["no-such-program"], "command_not_found"),
        (["/etc"], "not_started"),
        (["sh", "-c", "x" * 300_000], "command_too_long"),
        (["sh", "-c", "a\0b"], "invalid_text"),
        (["sh", "-c", "\ud800"], "invalid_text"),
    ],
)
async def test_a_command_that_cannot_be_started_is_told_to_the_model(
    sandbox: LocalSandbox, argv: list[str], kind: str
) -> None:
    with anyio.fail_after(30), pytest.raises(ToolFailed) as failure:
        await sandbox.run(argv, **BOUNDS)

    assert failure.value.kind == kind


@anyio_test
async def test_a_program_is_never_taken_from_the_working_directory(sandbox: LocalSandbox, workspace: Path) -> None:
    program = workspace / "trap"
    program.write_text("#!/bin/sh\necho caught\n")
    program.chmod(0o755)

    with pytest.raises(ToolFailed):
        await sandbox.run(["trap"], **BOUNDS)
    assert await shell(sandbox, "./trap") == b"caught\n"


@anyio_test
async def test_the_working_directory_is_the_sessions_and_may_be_below_it(
    workspace: Path, processes: ReaperProcesses
) -> None:
    (workspace / "a" / "b").mkdir(parents=True)
    sandbox = LocalSandbox(workspace, workspace / "a", "s", processes)

    assert await shell(sandbox, "pwd") == f"{workspace}/a\n".encode()
    assert await shell(sandbox, "pwd", cwd="b") == f"{workspace}/a/b\n".encode()
    for path in ("..", "../..", "nothing", "/etc"):
        if path == "..":
            assert await shell(sandbox, "pwd", cwd=path) == f"{workspace}\n".encode()
        else:
            with pytest.raises(ToolFailed):
                await shell(sandbox, "pwd", cwd=path)
    await sandbox.aclose()


@anyio_test
async def test_a_callback_that_fails_ends_the_command(sandbox: LocalSandbox) -> None:
    def fail(chunk: bytes) -> None:
        raise ZeroDivisionError

    with anyio.fail_after(30), pytest.raises(ZeroDivisionError):
        await sandbox.run(["sh", "-c", "echo x; sleep 60"], **BOUNDS, on_output=fail)


@anyio_test
async def test_the_first_command_need_not_wait_for_start(workspace: Path, tmp_path: Path) -> None:
    processes = ReaperProcesses(tmp_path / "run")
    sandbox = LocalSandbox(workspace, workspace, "s", processes)
    try:
        assert await shell(sandbox, "echo hi") == b"hi\n"
    finally:
        await processes.aclose()
        await sandbox.aclose()


@anyio_test
async def test_the_socket_works_below_a_long_path_and_is_private(workspace: Path, tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120) / ("e" * 120)
    processes = ReaperProcesses(directory)
    record = await processes.start()
    assert record is not None
    assert len(record.socket) > 240
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    with anyio.fail_after(30):
        assert await processes.stop_foreign(record, "none") == ()
    await processes.aclose()
    assert os.listdir(directory) == []


@anyio_test
async def test_a_platform_without_reaper_is_refused_at_the_first_command(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "supported", lambda: False)
    processes = ReaperProcesses(tmp_path / "run")
    sandbox = LocalSandbox(workspace, workspace, "s", processes)

    assert await processes.start() is None
    with pytest.raises(HarnessFault) as failure:
        await sandbox.run(["true"], **BOUNDS)
    assert failure.value.kind == "capability_unavailable"
    await processes.aclose()
    await sandbox.aclose()


@given(st.lists(st.binary(max_size=20)), st.integers(1, 30), st.booleans())
def test_a_tail_keeps_that_end_of_the_stream(chunks: list[bytes], keep: int, end: bool) -> None:
    kept = Tail(keep, end=end)
    for chunk in chunks:
        kept.add(chunk)

    whole = b"".join(chunks)
    assert kept.total == len(whole)
    assert kept.value() == (whole[-keep:] if end else whole[:keep])
