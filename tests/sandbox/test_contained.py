"""What a contained command is given, what comes back of it, and what is left of it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from hames.ports import ReaperRecord
from hames.protocol.errors import HarnessFault, ToolFailed
from hames.sandbox import hunt
from hames.sandbox.contained import CLAIMS, ContainedSandbox
from hames.sandbox.process import ReaperProcesses
from sandbox.confined import BOUNDS, Confined
from sandbox.conftest import Lock

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parent
STAYING = ["plain", "deaf", "detached", "stopped", "hopper", "respawner", "forest", "subreaper"]


@pytest.fixture
def inner_lock(workspace: Path) -> Any:
    """A lock that contained processes can reach."""
    made = Lock(workspace / "lock")
    yield made
    made.close()


def started(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def nasty(kind: str) -> list[str]:
    return [os.path.realpath(sys.executable), "-I", "-S", str(FOLDER / "nasty.py"), kind, "lock"]


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 1", 1), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
async def test_the_exit_code_is_reported(confined: Confined, script: str, code: int) -> None:
    result = await confined.run("sh", "-c", script)

    if result is not None:
        assert (result.exit_code, result.timed_out, result.killed) == (code, False, 0)


async def test_output_descriptors_and_signals_are_those_of_any_command(confined: Confined) -> None:
    script = "for i in 1 2; do echo o$i; echo e$i >&2; done; readlink /proc/self/fd/0; ls /proc/self/fd; ulimit -c"

    output = await confined.shell(script)

    # The last descriptor is that of the listing.
    assert output in (None, b"o1\ne1\no2\ne2\n/dev/null\n0\n1\n2\n3\n0\n")


async def test_a_command_starts_in_the_directory_that_is_asked_for(confined: Confined, workspace: Path) -> None:
    (workspace / "a").mkdir()

    assert await confined.shell("pwd") in (None, f"{workspace}\n".encode())
    assert await confined.shell("pwd", cwd="a") in (None, f"{workspace}/a\n".encode())
    sandbox = await confined.open()
    for path in ("..", "nothing", "/etc"):
        if sandbox is not None:
            with pytest.raises(ToolFailed):
                await sandbox.run(["pwd"], cwd=path, **BOUNDS)


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        (["no-such-program"], "command_not_found"),
        (["/etc"], "not_started"),
        (["./nothing"], "not_started"),
        (["sh", "-c", "x" * 300_000], "command_too_long"),
        (["sh", "-c", "a\0b"], "invalid_text"),
        (["sh", "-c", "\ud800"], "invalid_text"),
        (["\ud800"], "invalid_text"),
    ],
)
async def test_a_command_that_cannot_be_started_is_told_to_the_model(
    confined: Confined, argv: list[str], kind: str
) -> None:
    sandbox = await confined.open()
    if sandbox is not None:
        with pytest.raises(ToolFailed) as failure:
            await sandbox.run(argv, **BOUNDS)
        assert failure.value.kind == kind
        assert "bwrap" not in failure.value.message


@pytest.mark.parametrize("script", ["#!/bin/sh\necho no way >&2; exit 1\n", "#!/bin/sh\nexit 1\n"])
async def test_a_command_that_cannot_be_confined_is_not_run(
    workspace: Path, processes: ReaperProcesses, tmp_path: Path, script: str
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(script)
    program.chmod(0o755)
    sandbox = ContainedSandbox(
        workspace, workspace, "s", processes, program=str(program), guarantees=CLAIMS, network=True
    )

    with anyio.fail_after(30), pytest.raises(HarnessFault) as failure:
        await sandbox.run(["touch", "made"], **BOUNDS)

    assert (failure.value.kind, failure.value.boundary) == ("containment_unavailable", "sandbox")
    assert not (workspace / "made").exists()
    await sandbox.aclose()


async def test_confinement_that_failed_once_is_tried_again(
    workspace: Path, processes: ReaperProcesses, tmp_path: Path
) -> None:
    program = tmp_path / "bwrap"
    skip = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
    program.write_text(f"#!/bin/sh\n[ -e {tmp_path}/tried ] || {{ >{tmp_path}/tried; exit 1; }}\n{skip}\n")
    program.chmod(0o755)
    sandbox = ContainedSandbox(
        workspace, workspace, "s", processes, program=str(program), guarantees=CLAIMS, network=True
    )

    with anyio.fail_after(30):
        result = await sandbox.run(["echo", "done"], **BOUNDS)

    assert (result.exit_code, result.output) == (0, b"done\n")
    await sandbox.aclose()


async def test_commands_that_run_at_once_have_each_their_own_world(confined: Confined, workspace: Path) -> None:
    sandbox = await confined.open()
    outputs: dict[int, bytes] = {}

    async def one(number: int) -> None:
        assert sandbox is not None
        script = f"echo {number} >/tmp/name; echo $$ >{number}; sleep 0.05; cat /tmp/name {number}"
        outputs[number] = (await sandbox.run(["sh", "-c", script], **BOUNDS)).output

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for number in range(12 if sandbox else 0):
                group.start_soon(one, number)

    # Each is the second process of its namespace.
    assert outputs == {number: b"%d\n2\n" % number for number in range(12 if sandbox else 0)}


@pytest.mark.parametrize("name", ["a b", "wörk\u2028", "-", "x'\"$(y)"])
async def test_a_workspace_may_have_any_name(
    store: Path, workspace: Path, processes: ReaperProcesses, name: str
) -> None:
    place = workspace / name
    os.mkdir(place)
    confined = Confined(store, place, processes)

    assert await confined.shell("pwd; >made") in (None, os.fsencode(f"{place}\n"))
    await confined.aclose()


async def test_a_workspace_that_is_another_directory_now_is_not_used(confined: Confined, workspace: Path) -> None:
    sandbox = await confined.open()
    if sandbox is not None:
        os.rename(workspace, f"{workspace}.old")
        os.mkdir(workspace)
        with pytest.raises(HarnessFault) as failure:
            await sandbox.run(["true"], **BOUNDS)
        assert failure.value.kind == "containment_unavailable"


@pytest.mark.parametrize(
    "path", [".git/hooks/h", ".git/config", ".git/commondir", ".vscode/new/tasks.json", "link/h", ".mcp.json"]
)
async def test_a_file_tool_leaves_what_is_protected_as_it_is(confined: Confined, workspace: Path, path: str) -> None:
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / ".vscode").mkdir()
    for name in (".git/config", ".mcp.json"):
        (workspace / name).write_text("x")
    (workspace / "link").symlink_to(".git/hooks")
    sandbox = await confined.open()
    if sandbox is not None:
        with pytest.raises(ToolFailed) as failure:
            sandbox.replace(path, b"evil")
        assert failure.value.kind == "permission_denied"
        with pytest.raises(ToolFailed) as failure:
            sandbox.remove(".git/config")
        assert failure.value.kind == "permission_denied"
        assert sandbox.replace(".git/info/exclude", b"x")
        assert sandbox.replace(".gitignore", b"x")


async def test_what_a_command_leaves_behind_is_killed_and_counted(confined: Confined, inner_lock: Lock) -> None:
    for kind in ("detached_alone", "pipe_holder"):
        result = await confined.run(*nasty(kind))

        assert inner_lock.is_free()
        assert result is None or (result.exit_code, result.killed, result.alive) == (0, 1, ())


async def test_what_is_written_shortly_after_the_end_is_not_lost(confined: Confined) -> None:
    result = await confined.run("bash", "-c", "echo late > >(sleep 0.02; cat)")

    assert result is None or (result.output, result.killed) == (b"late\n", 0)


async def test_a_graceful_command_ends_by_its_own_handler(confined: Confined) -> None:
    script = "trap 'echo bye; exit 5' TERM; echo on; while :; do sleep 0.01; done"

    result = await confined.run("sh", "-c", script, timeout_ms=500, grace_ms=20_000)

    if result is not None:
        assert result.output.startswith(b"on\n")
        assert result.output.endswith(b"bye\n")
        assert (result.exit_code, result.timed_out) == (124, True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STAYING)
async def test_a_command_that_is_cancelled_or_out_of_time_is_gone(
    confined: Confined, inner_lock: Lock, kind: str
) -> None:
    sandbox = await confined.open()
    if sandbox is None:
        return
    ready = anyio.Event()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(partial(sandbox.run, nasty(kind), **BOUNDS, on_output=lambda _: ready.set()))
            await ready.wait()
            assert not inner_lock.is_free()
            group.cancel_scope.cancel()
        assert inner_lock.is_free()

        result = await sandbox.run(nasty(kind), **{**BOUNDS, "timeout_ms": 400})
    assert inner_lock.is_free()
    assert (result.exit_code, result.timed_out) == (124, True)


@pytest.mark.parametrize("kind", ["kill_supervisor", "stop_supervisor", "kill_both"])
async def test_a_command_cannot_reach_who_ends_it(
    confined: Confined, processes: ReaperProcesses, inner_lock: Lock, kind: str
) -> None:
    # Its parent is the first process of its namespace, which no signal from within can end or stop.
    record = await processes.start()
    sandbox = await confined.open()
    if sandbox is None:
        return
    with anyio.fail_after(60):
        result = await sandbox.run(nasty(kind), **{**BOUNDS, "timeout_ms": 600})

    assert inner_lock.is_free()
    assert (result.timed_out or result.exit_code != 0, result.alive) == (True, ())
    assert await processes.start() == record


@pytest.mark.slow
async def test_a_command_cancelled_at_any_moment_of_its_start_is_gone(confined: Confined, inner_lock: Lock) -> None:
    sandbox = await confined.open()
    chance = random.Random(7)
    with anyio.fail_after(120):
        for _ in range(60 if sandbox else 0):
            assert sandbox is not None
            with anyio.move_on_after(chance.uniform(0, 0.06)):
                await sandbox.run(nasty("detached"), **BOUNDS)
            assert inner_lock.is_free()


@pytest.mark.slow
@pytest.mark.parametrize("kind", STAYING)
async def test_a_killed_owner_leaves_neither_command_nor_reaper(
    confined: Confined, tmp_path: Path, workspace: Path, inner_lock: Lock, kind: str
) -> None:
    sandbox = await confined.open()
    if not isinstance(sandbox, ContainedSandbox):
        return
    argv = [sys.executable, str(FOLDER / "owner.py"), str(tmp_path / "other"), "orphan", kind, str(inner_lock.path)]
    argv += [sandbox.program, str(workspace)]
    with started(argv) as owner:
        assert owner.stdout is not None
        record = ReaperRecord(*json.loads(owner.stdout.readline()))
        assert owner.stdout.readline() == b"ready\n"
        reaper = os.pidfd_open(record.pid)
        os.kill(owner.pid, signal.SIGKILL)
        with anyio.fail_after(30):
            await inner_lock.until_free()
            await anyio.wait_readable(reaper)
        os.close(reaper)
    assert hunt.start_time(record.pid) is None


@pytest.mark.parametrize("reaper", ["running", "stopped"])
async def test_another_process_can_end_what_is_contained(
    confined: Confined, tmp_path: Path, workspace: Path, inner_lock: Lock, reaper: str
) -> None:
    sandbox = await confined.open()
    if not isinstance(sandbox, ContainedSandbox):
        return
    processes = ReaperProcesses(tmp_path / "mine", reap_ms=500)
    argv = [sys.executable, str(FOLDER / "owner.py"), str(tmp_path / "other"), "taken", "deaf", str(inner_lock.path)]
    with started([*argv, sandbox.program, str(workspace)]) as owner:
        assert owner.stdout is not None
        record = ReaperRecord(*json.loads(owner.stdout.readline()))
        assert owner.stdout.readline() == b"ready\n"
        if reaper == "stopped":
            # Then what runs is found by its marker, through the namespaces.
            os.kill(record.pid, signal.SIGSTOP)
        with anyio.fail_after(30):
            assert await processes.stop_foreign(record, "taken") == ()
        assert inner_lock.is_free()
        os.kill(record.pid, signal.SIGCONT)
        owner.kill()


@pytest.mark.slow
async def test_a_fork_bomb_is_ended_at_its_limit(confined: Confined, inner_lock: Lock) -> None:
    # Bounded: many sessions that spin, enough to starve who would look for each of them.
    spin = "setsid sh -c 'exec 9<lock; flock -s 9; while :; do :; done'"
    script = f"i=0; while [ $i -lt 80 ]; do {spin} & i=$((i+1)); done; wait"

    result = await confined.run("sh", "-c", script, timeout_ms=1_000)

    if result is not None:
        assert (result.exit_code, result.timed_out, result.alive) == (124, True, ())
        assert inner_lock.is_free()
