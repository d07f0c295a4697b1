"""No command takes more than it may, as far as the machine holds it to that; where it does not, that is said."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.limits import DEFAULTS, NO_MEMORY_LIMIT, SESSION_LIMITS
from hames.ports import ProcessResult
from hames.protocol.errors import HarnessFault
from hames.sandbox import bounds, groups
from hames.sandbox.bounds import Bounds, held, threads
from hames.sandbox.command import Command
from hames.sandbox.groups import Place
from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses
from hames.sandboxes import Sandboxes
from sandbox.confined import BOUNDS, Confined

anyio_test = pytest.mark.anyio
BACKENDS = pytest.mark.parametrize("backend", ["local", "contained", "landlock"])
PYTHON = [os.path.realpath(sys.executable), "-I", "-S", "-c"]

FORK = """
import os, signal, sys
made = 0
try:
    while made < int(sys.argv[1]):
        if os.fork() == 0: signal.pause()
        made += 1
except OSError:
    print("bounded")
print(made)
sys.exit(made < int(sys.argv[1]))
"""
HOG = """
import sys
held = []
for _ in range(int(sys.argv[1])):
    held.append(b"x" * 2**20)
print("got it")
"""


async def run(confined: Confined, backend: str, *argv: str, **limits: int) -> ProcessResult | None:
    """What came of a command under these limits; None where there is no such sandbox."""
    sandbox = await confined.open(backend, limits=limits)
    if sandbox is None:
        return None
    with anyio.fail_after(60):
        result = await sandbox.run(argv, **BOUNDS)
        # Whatever became of it, there is another.
        assert (await sandbox.run(["echo", "on"], **BOUNDS)).output == b"on\n"
    return result


def own_score() -> bytes:
    with open("/proc/self/oom_score_adj", "rb") as file:
        return file.read().strip()


def guarantee(confined: Confined, name: str) -> str:
    return confined.opened[-1].guarantees[name]


@BACKENDS
@anyio_test
async def test_processes_are_bounded_where_that_is_said_and_not_where_it_is_not(
    confined: Confined, backend: str
) -> None:
    # Where all processes of a user are counted, those that there are already may be started besides.
    most = 64 + threads() + 50

    result = await run(confined, backend, *PYTHON, FORK, str(most), commandProcesses=64)

    if result is not None:
        assert (b"bounded" in result.output) == (guarantee(confined, "limits.pids") != "no")
        grouped = any("pids" in place.controllers for place in groups.find())
        assert result.met == ({"commandProcesses": 64} if grouped else {})
        assert int(result.output.split()[-1]) < 64 or not grouped


@BACKENDS
@anyio_test
async def test_a_fork_bomb_ends_with_its_command_and_harms_nobody(confined: Confined, backend: str) -> None:
    sandbox = await confined.open(backend, limits={"commandProcesses": 64})
    if sandbox is None:
        return
    if sandbox.guarantees["limits.pids"] == "no":
        # Nothing would stop it here, and that was said.
        assert held(groups.find(), confined=backend != "local")["limits.pids"] == "no"
        return

    with anyio.fail_after(60):
        result = await sandbox.run(["bash", "-c", "b() { b | b & }; b; sleep 60"], **{**BOUNDS, "timeout_ms": 500})
        after = await sandbox.run(["echo", "on"], **BOUNDS)

    assert result.exit_code != 0
    assert after.output == b"on\n"


@BACKENDS
@anyio_test
async def test_memory_is_bounded(confined: Confined, backend: str) -> None:
    result = await run(confined, backend, *PYTHON, HOG, "400", commandMemoryBytes=128 * 2**20)

    if result is not None:
        assert b"got it" not in result.output
        grouped = any("memory" in place.controllers for place in groups.find())
        assert result.met == ({"commandMemoryBytes": 128 * 2**20} if grouped else {})
        assert (result.exit_code in (-9, 137)) if grouped else b"MemoryError" in result.output


@BACKENDS
@anyio_test
async def test_what_may_have_the_memory_gets_it(confined: Confined, backend: str) -> None:
    for limits in ({"commandMemoryBytes": 1024 * 2**20}, {}):
        result = await run(confined, backend, *PYTHON, HOG, "200", **limits)

        assert result is None or (result.output, result.met) == (b"got it\n", {})


@BACKENDS
@anyio_test
async def test_a_file_does_not_become_larger_than_it_may(confined: Confined, backend: str) -> None:
    result = await run(confined, backend, "dd", "if=/dev/zero", "of=f", "bs=64k", "count=64", commandFileBytes=2**20)

    if result is not None:
        assert result.exit_code in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ)
        assert result.met == {"commandFileBytes": 2**20}
        assert (confined.workspace / "f").stat().st_size == 2**20


@BACKENDS
@anyio_test
async def test_processor_time_is_bounded(confined: Confined, backend: str) -> None:
    result = await run(confined, backend, "sh", "-c", "while :; do :; done", commandCpuSeconds=1)

    if result is not None:
        assert result.exit_code in (-signal.SIGXCPU, 128 + signal.SIGXCPU)
        assert result.met == {"commandCpuSeconds": 1}


@BACKENDS
@anyio_test
async def test_open_files_are_bounded_and_no_command_can_have_more(confined: Confined, backend: str) -> None:
    script = "ulimit -Hn; ulimit -Sn; ulimit -n 1000 2>/dev/null && echo more"
    result = await run(confined, backend, "bash", "-c", script, commandOpenFiles=100)

    if result is not None:
        # Who is not confined may have the right to take more: then it is given in part.
        may = guarantee(confined, "limits.files") == "partial"
        assert result.output == b"100\n100\n" + (b"more\n" if may else b"")


@BACKENDS
@anyio_test
async def test_a_command_is_ended_before_hames_where_memory_runs_out(confined: Confined, backend: str) -> None:
    result = await run(confined, backend, "cat", "/proc/self/oom_score_adj")

    assert result is None or result.output.strip() == bounds.VICTIM
    assert own_score() != bounds.VICTIM


@anyio_test
async def test_no_group_outlives_its_command_or_its_reaper(workspace: Path, tmp_path: Path) -> None:
    processes = ReaperProcesses(tmp_path / "run")
    sandbox = LocalSandbox(workspace, workspace, "s", processes, bounds=Bounds.of(DEFAULTS, groups.find()))

    with anyio.fail_after(60):
        await sandbox.run(["sh", "-c", "sleep 60 & true"], **BOUNDS)
        assert processes.record is not None
        pid = processes.record.pid
        await sandbox.aclose()
        await processes.aclose()

    prefix = f"{groups.PREFIX}{pid}-"
    left = [name for place in groups.find() for name in os.listdir(place.directory) if name.startswith(prefix)]
    assert left == []


@anyio_test
async def test_a_command_that_cannot_be_bounded_as_was_said_is_not_run(
    workspace: Path, processes: ReaperProcesses
) -> None:
    nowhere = Place(2, ["pids"], str(workspace / "none"))
    sandbox = LocalSandbox(workspace, workspace, "s", processes, bounds=Bounds({"pids": 16}, [nowhere]))

    with pytest.raises(HarnessFault) as failure:
        await sandbox.run(["touch", "ran"], **BOUNDS)

    assert failure.value.kind == "containment_unavailable"
    assert not (workspace / "ran").exists()
    await sandbox.aclose()


@anyio_test
async def test_a_command_without_bounds_is_run_as_it_is(workspace: Path, processes: ReaperProcesses) -> None:
    cwd = os.open(workspace, os.O_PATH)
    with anyio.fail_after(60):
        result = await processes.run(Command("s", ("sh", "-c", "ulimit -f"), {}, cwd), **BOUNDS)
    os.close(cwd)

    assert result.output == b"unlimited\n"


LIMITED = st.fixed_dictionaries({}, optional={name: st.integers(1, 2**60) for name in bounds.LIMITS})
PLACES = st.lists(
    st.builds(
        Place,
        st.sampled_from([1, 2]),
        st.lists(st.sampled_from(groups.WANTED), min_size=1, max_size=2, unique=True),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20).map("/{}".format),
    ),
    max_size=3,
)


@given(LIMITED, PLACES)
def test_bounds_reach_the_supervisor_as_they_were_meant(values: dict[str, int], places: list[Place]) -> None:
    read = Bounds.decode([os.fsencode(field) for field in Bounds(values, places).encode()])

    assert (read.values, list(read.places)) == (values, places)


def test_every_limit_of_a_command_is_one_that_a_session_may_ask_for() -> None:
    assert set(bounds.LIMITS.values()) == set(SESSION_LIMITS)
    assert bounds.UNBOUNDED_BYTES == NO_MEMORY_LIMIT


def test_a_group_is_used_only_for_what_it_is_to_bound() -> None:
    memory, pids = Place(1, ["memory"], "/m"), Place(1, ["pids"], "/p")

    assert Bounds.of(DEFAULTS, [memory, pids]).places == (pids,)
    assert Bounds.of({**DEFAULTS, "commandMemoryBytes": 2**30}, [memory, pids]).places == (memory, pids)


SYSTEMD = "/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope"


@pytest.mark.parametrize(
    ("own", "mounts", "enabled", "found"),
    [
        (
            [f"0::{SYSTEMD}"],
            ["31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"],
            {
                "/sys/fs/cgroup" + SYSTEMD.removesuffix("/a.scope"): ["memory", "pids"],
                "/sys/fs/cgroup": ["cpu", "pids"],
            },
            ["2:memory,pids:/sys/fs/cgroup" + SYSTEMD.removesuffix("/a.scope"), "2:pids:/sys/fs/cgroup"],
        ),
        (
            ["9:name=systemd:/", "8:pids:/", "4:memory:/box/one", "0::/"],
            [
                "40 30 0:35 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids",
                "41 30 0:36 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
                "42 30 0:37 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu",
                "43 30 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
            ],
            {},
            ["1:pids:/sys/fs/cgroup/pids", "1:memory:/sys/fs/cgroup/memory/box/one"],
        ),
        (
            ["4:memory:/docker/abc/in"],
            ["41 30 0:36 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"],
            {},
            ["1:memory:/sys/fs/cgroup/memory/in"],
        ),
        (["0::/"], ["1 0 0:1 / / rw - ext4 /dev/vda rw"], {}, []),
    ],
)
def test_places_for_groups_are_our_own_or_those_above_that_give_controllers(
    own: list[str], mounts: list[str], enabled: dict[str, list[str]], found: list[str]
) -> None:
    places = groups.candidates(own, mounts, enabled=lambda path: enabled.get(path, []))

    assert [place.encode() for place in places] == found


@anyio_test
async def test_a_session_goes_on_where_fewer_limits_are_kept_and_says_so(
    tmp_path: Path, processes: ReaperProcesses
) -> None:
    sandboxes = Sandboxes(tmp_path, processes)
    recorded = sandboxes.choose({})
    recorded["guarantees"] |= {"limits.pids": "yes", "limits.memory": "yes"}
    snapshot = {"sandbox": recorded, "assurance": {"reduced": ["net.disabled"]}}

    assert sandboxes.mismatches(recorded) == []
    assert sandboxes.assurance(snapshot) == {"reduced": ["limits.memory", "limits.pids", "net.disabled"]}


def test_what_is_held_depends_on_groups_and_on_who_may_leave_them() -> None:
    places = [Place(2, ["memory", "pids"], "/g")]

    assert held(places, confined=True) == {
        "limits.memory": "yes",
        "limits.pids": "yes",
        "limits.cpu": "partial",
        "limits.files": "yes",
    }
    assert {held(places, confined=False)[name] for name in ("limits.memory", "limits.pids")} == {"partial"}
    assert held([], confined=True)["limits.pids"] == ("no" if os.getuid() == 0 else "partial")
