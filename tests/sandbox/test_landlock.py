"""Commands under Landlock read and write where they may, and the sandbox is refused where the kernel has none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from hames.protocol.errors import HarnessFault, Refused
from hames.sandbox import landlock, landlocked
from hames.sandbox.landlock import Ruleset
from hames.sandbox.landlocked import LandlockSandbox, exposed, leading_to, readable
from hames.sandbox.process import ReaperProcesses
from hames.sandbox.shield import PRIVATE
from hames.sandboxes import Sandboxes
from sandbox.confined import BOUNDS, Confined

anyio_test = pytest.mark.anyio
PYTHON = os.path.realpath(sys.executable)


async def shell(confined: Confined, script: str, *, network: str = "general") -> bytes | None:
    sandbox = await confined.open("landlock", network=network)
    if sandbox is None:
        return None
    with anyio.fail_after(60):
        return (await sandbox.run(["bash", "-c", script], **BOUNDS)).output


@anyio_test
async def test_the_workspace_and_a_directory_of_its_own_can_be_written_or_it_is_refused(confined: Confined) -> None:
    script = "mkdir d && echo x >d/f && mv d/f g && ln -s g l && cat l && echo y >$TMPDIR/t && mv $TMPDIR/t g && cat g"

    assert await shell(confined, script) in (None, b"x\ny\n")


@anyio_test
async def test_what_every_program_needs_works_or_it_is_refused(confined: Confined) -> None:
    script = (
        "echo x >/dev/null; head -c1 /dev/urandom | wc -c; cat /proc/self/comm; ls /usr >/dev/null && echo listed; "
        f"{PYTHON} -c 'import ssl, tempfile; tempfile.TemporaryFile(); print(1)'"
    )

    assert await shell(confined, script) in (None, b"1\ncat\nlisted\n1\n")


@anyio_test
async def test_it_has_no_capability_and_can_get_none_or_it_is_refused(confined: Confined) -> None:
    output = await shell(confined, "grep -E 'Cap|NoNewPrivs' /proc/self/status")

    if output is not None:
        lines = dict(line.split(b":\t") for line in output.splitlines())
        assert lines.pop(b"NoNewPrivs") == b"1"
        if os.getuid() != 0:
            # Who has none cannot take any out of what a program might bring, and no program may bring any.
            del lines[b"CapBnd"]
        assert {int(value, 16) for value in lines.values()} == {0}


@anyio_test
async def test_without_network_it_has_no_socket_but_a_pair_or_it_is_refused(confined: Confined) -> None:
    code = (
        "import socket\n"
        "socket.socketpair()\n"
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):\n"
        "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):\n"
        "        try: socket.socket(family, kind)\n"
        "        except PermissionError: continue\n"
        "        print(family, kind)\n"
    )
    script = f"{PYTHON} -I -S -c '{code}'"

    assert await shell(confined, script, network="disabled") in (None, b"")


@anyio_test
async def test_its_temporary_directory_is_gone_with_it_or_it_is_refused(confined: Confined) -> None:
    output = await shell(confined, "chmod 700 $TMPDIR; mkdir $TMPDIR/d; touch $TMPDIR/d/f; echo $TMPDIR")
    await confined.aclose()
    confined.opened.clear()

    if output is not None:
        assert output.startswith(b"/")
        assert os.path.basename(output.strip()) not in os.listdir(os.path.dirname(output))


@anyio_test
async def test_a_temporary_directory_that_was_taken_away_is_made_again_or_it_is_refused(confined: Confined) -> None:
    sandbox = await confined.open("landlock")
    if sandbox is None:
        return
    with anyio.fail_after(60):
        first = (await sandbox.run(["sh", "-c", "echo $TMPDIR"], **BOUNDS)).output.decode().strip()
        os.rmdir(first)
        os.symlink(confined.workspace, first)
        second = (await sandbox.run(["sh", "-c", "echo $TMPDIR; echo x >$TMPDIR/t"], **BOUNDS)).output.decode().strip()
    os.unlink(first)

    assert second not in (first, "")
    assert os.listdir(second) == ["t"]


@anyio_test
async def test_rules_are_kept_until_something_comes_or_goes_and_closed_with_the_session(
    workspace: Path, store: Path, processes: ReaperProcesses
) -> None:
    if landlock.abi() < 1:
        assert landlocked.why_not()
        return
    sandbox = LandlockSandbox(
        workspace, workspace, "s", processes, guarantees=landlocked.CLAIMS, network=True, secret=[store / "in"]
    )
    (store / "in").mkdir()
    scratch = sandbox._own_scratch()

    first, again = sandbox._rules(scratch), sandbox._rules(scratch)
    (store / "other").mkdir()
    new = sandbox._rules(scratch)

    assert first is again
    assert new.fd != first.fd
    held = new.fd
    await sandbox.aclose()
    del new
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)
    (store / "in").rmdir()
    (store / "other").rmdir()


@anyio_test
async def test_a_secret_that_comes_later_is_masked_for_the_next_command_or_it_is_refused(
    confined: Confined, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(__file__).parent / f".home-{os.urandom(4).hex()}"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    try:
        sandbox = await confined.open("landlock")
        if sandbox is None:
            return
        (home / ".netrc").write_text("password")
        (home / "other").write_text("other\n")
        with anyio.fail_after(60):
            result = await sandbox.run(["cat", str(home / ".netrc"), str(home / "other")], **BOUNDS)
    finally:
        for path in home.iterdir():
            path.unlink()
        home.rmdir()

    assert b"password" not in result.output
    # A checkout may itself lie where scratch space of others is masked.
    assert (b"other\n" in result.output) == (not is_masked(home))


def is_masked(place: Path) -> bool:
    return any(f"{place}/".startswith(f"{os.path.realpath(path)}/") for path in PRIVATE)


@pytest.mark.parametrize("inner", ["state", "a/b/state"])
@anyio_test
async def test_a_store_in_the_workspace_is_refused_before_there_is_a_session(
    workspace: Path, processes: ReaperProcesses, inner: str
) -> None:
    store = workspace / inner
    store.mkdir(parents=True)
    sandboxes = Sandboxes(store, processes)
    await sandboxes.prove("landlock")

    with pytest.raises(Refused) as refused:
        sandboxes.choose({"sandbox": "landlock", "workspace": str(workspace)})
    assert refused.value.kind == "containment_unavailable"
    assert sandboxes.choose({"sandbox": "auto", "workspace": str(workspace)})["backend"] != "landlock"
    with pytest.raises(HarnessFault):
        LandlockSandbox(
            workspace, workspace, "s", processes, guarantees=landlocked.CLAIMS, network=True, secret=[store]
        )


@anyio_test
async def test_a_kernel_without_it_is_refused_and_nothing_is_claimed(
    tmp_path: Path, processes: ReaperProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a kernel says that does not know the call.
    monkeypatch.setattr(landlock, "SYS_CREATE_RULESET", 10_000)
    sandboxes = Sandboxes(tmp_path, processes)
    await sandboxes.prove("landlock")

    with pytest.raises(Refused) as refused:
        sandboxes.choose({"sandbox": "landlock"})

    assert refused.value.details["missing"] == ["fs.read_confined", "fs.write_confined", "host.secrets_safe"]
    assert "no Landlock" in refused.value.details["evidence"][0]
    assert "landlock" in refused.value.details["hint"]
    assert (await sandboxes.check({"sandbox": {"backend": "landlock"}}))["status"] == "unavailable"
    assert "landlock.json" not in os.listdir(tmp_path)


@anyio_test
async def test_a_command_that_cannot_be_confined_is_not_run(
    workspace: Path, store: Path, processes: ReaperProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = LandlockSandbox(
        workspace, workspace, "s", processes, guarantees=landlocked.CLAIMS, network=True, secret=[store]
    )
    rules = Ruleset.__new__(Ruleset)
    # Something that is no set of rules.
    rules.fd = os.open(workspace, os.O_RDONLY)
    monkeypatch.setattr(sandbox, "_rules", lambda scratch: rules)

    with pytest.raises(HarnessFault) as failure:
        await sandbox.run(["touch", "ran"], **BOUNDS)

    assert failure.value.kind == "containment_unavailable"
    assert not (workspace / "ran").exists()
    await sandbox.aclose()


def test_no_rule_leads_to_what_is_masked_and_everything_else_has_one(tmp_path: Path) -> None:
    for name in ("a/secret/in", "a/open/in", "a/b/secret", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    hidden = [str(tmp_path / "a" / "secret"), str(tmp_path / "a" / "b" / "secret")]

    rules = {path for _, path in readable(hidden)}

    inside = {path for path in rules if path.startswith(f"{tmp_path}/")}
    assert inside == {str(tmp_path / name) for name in ("a/open", "c", "file")}
    assert not rules & leading_to(hidden)
    assert "/usr" in rules


def test_a_workspace_is_exposed_by_a_secret_within_it(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()

    assert exposed(tmp_path, [tmp_path / "store"])
    assert exposed(tmp_path / "store", [tmp_path / "store"])
    assert exposed(tmp_path / "work", [tmp_path / "store"]) is None


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process beside the sandbox, of the same user."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@anyio_test
async def test_no_limit_of_another_process_can_be_set_or_it_is_refused(
    confined: Confined, victim: subprocess.Popen[bytes]
) -> None:
    code = f"import resource; resource.prlimit({victim.pid}, resource.RLIMIT_CPU, (0, 0))"
    own = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); print(1)"
    for network in ("general", "disabled"):
        script = f"{PYTHON} -I -S -c '{code}' 2>&1 | tail -1; {PYTHON} -I -S -c '{own}'"
        output = await shell(confined, script, network=network)

        assert output is None or (b"PermissionError" in output and output.endswith(b"\n1\n"))
    assert victim.poll() is None


@anyio_test
async def test_no_terminal_of_others_is_reached_or_it_is_refused(confined: Confined) -> None:
    ours, theirs = os.openpty()
    try:
        output = await shell(confined, f"(echo x >{os.ttyname(theirs)}) 2>&1; (head -c1 {os.ttyname(theirs)}) 2>&1")
    finally:
        os.close(ours)
        os.close(theirs)

    assert output is None or output.count(b"Permission denied") == 2


def test_what_is_hidden_is_so_with_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "hidden/store").mkdir(parents=True)
    (tmp_path / "hidden/other").mkdir()
    (tmp_path / "seen").mkdir()
    hidden = [os.path.realpath(tmp_path / name) for name in ("hidden", "hidden/store")]

    seen = [path for _, path in readable(hidden) if path.startswith(os.path.realpath(tmp_path))]

    assert seen == [os.path.realpath(tmp_path / "seen")]


@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("machine", landlock.CALLS.values())
def test_the_filter_of_calls_refuses_what_it_should_and_nothing_else(
    machine: tuple[int, int, int], network: bool
) -> None:
    name, socket_call, limit_call = machine
    instructions = landlock._filter(*machine, network=network)
    program = [(int.from_bytes(one[:2], sys.byteorder), one[2], one[3], one[4:]) for one in instructions]

    def answer(architecture: int, call: int, first: int = 0) -> int:
        at, value = 0, 0
        while True:
            code, if_true, if_false, operand = program[at]
            number = int.from_bytes(operand, sys.byteorder)
            match code:
                case 0x20:
                    value = {0: call, 4: architecture, 16: first}[number]
                    at += 1
                case 0x15:
                    at += 1 + (if_true if value == number else if_false)
                case 0x35:
                    at += 1 + (if_true if value >= number else if_false)
                case _:
                    return number

    allow, refuse = answer(name, 0), answer(1, 0)
    assert (allow, refuse >> 16) == (0x7FFF0000, 5)
    assert {answer(name, call) for call in (425, socket_call)} == {allow if network else refuse}
    assert answer(name, landlock.X32) == refuse
    assert [answer(name, limit_call, pid) for pid in (0, 1, 2**22)] == [allow, refuse, refuse]


def test_without_a_kernel_that_has_it_the_version_is_zero() -> None:
    code = "from hames.sandbox import landlock; landlock.SYS_CREATE_RULESET = 10_000; print(landlock.abi())"

    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout == b"0\n"
