"""What a hostile command tries: it works where the sandbox does not guarantee against it, and not where it does."""

from __future__ import annotations

import inspect
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from hames.sandbox.attacks import session_keys
from hames.sandbox.bubblewrap import find
from hames.sandbox.process import ReaperProcesses
from hames.sandbox.tree import KEYCTL_JOIN_SESSION_KEYRING, SYS_KEYCTL, keyctl
from sandbox.confined import BOUNDS, Confined

pytestmark = pytest.mark.anyio

PYTHON = f"{os.path.realpath(sys.executable)} -I -S"
SAY = "&& echo WORKED"
ANOTHER = "mkdir -p .git/hooks; echo x >.git/hooks/h"
CONNECT = f"""{PYTHON} -c 'import socket, sys
with socket.socket(getattr(socket, sys.argv[1])) as caller: caller.connect(eval(sys.argv[2]))' """


@dataclass
class Target:
    """What is attacked besides the workspace. `outside` can be seen by commands, and is not theirs."""

    outside: Path
    home: Path
    store: Path
    tcp: int
    abstract: str
    datagrams: socket.socket

    @property
    def names(self) -> dict[str, str | int]:
        udp = self.datagrams.getsockname()[1]
        named = {"outside": self.outside, "store": self.store, "abstract": self.abstract, "pid": os.getpid()}
        return {**{name: str(value) for name, value in named.items()}, "tcp": self.tcp, "udp": udp}

    def heard(self) -> bool:
        """Whether a datagram came."""
        with suppress(BlockingIOError):
            return bool(self.datagrams.recv(100))
        return False

    def state(self) -> dict[str, tuple[int, bytes | None]]:
        """Modes and contents of everything that is there."""
        paths = [self.outside, *self.outside.rglob("*")]
        return {str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None) for path in paths}


@pytest.fixture
def target(store: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    with ExitStack() as stack:
        # Not in the temporary directory: that is hidden.
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix=".outside-", dir=Path(__file__).parents[2]))
        outside = Path(name).resolve()
        for path in ("secret", "file"):
            (outside / path).write_text(path)
            (outside / path).chmod(0o600)
        home = outside / "home"
        (home / ".ssh").mkdir(parents=True)
        (home / ".ssh" / "id").write_text("key")
        (home / ".netrc").write_text("password")
        monkeypatch.setenv("HOME", str(home))
        (store / "log").write_text("log")
        (workspace / ".git" / "hooks").mkdir(parents=True)
        (workspace / ".git" / "config").write_text("[core]\n")
        (workspace / ".vscode").mkdir()
        (workspace / ".mcp.json").write_text("{}")
        (workspace / "link").symlink_to(outside)
        (workspace / "mine").touch()
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        abstract = f"hames-test-{os.urandom(8).hex()}"
        for address in (f"\0{abstract}", str(outside / "s")):
            unix = stack.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(address)
            unix.listen(9)
        yield Target(outside, home, store, tcp.getsockname()[1], abstract, udp)


@dataclass(frozen=True)
class Attack:
    """A script that says WORKED, or it can be seen. `guarantee` speaks of it, in a session with this `network`.

    `open_to`: a sandbox that gives this guarantee in part leaves this open.
    """

    name: str
    guarantee: str
    script: str
    network: str = "general"
    open_to: str = ""


ATTACKS = [
    Attack("write", "fs.write_confined", f"echo x >{{outside}}/new {SAY}"),
    Attack("append", "fs.write_confined", f"echo x >>{{outside}}/file {SAY}"),
    Attack("write through a link", "fs.write_confined", f"echo x >link/new {SAY}"),
    Attack("write through the root", "fs.write_confined", f"echo x >/proc/self/root{{outside}}/new {SAY}"),
    Attack("write through the parent", "fs.write_confined", f"echo x >/proc/$PPID/root{{outside}}/new {SAY}"),
    Attack("chmod", "fs.write_confined", f"chmod 666 {{outside}}/secret {SAY}", open_to="landlock"),
    Attack("touch", "fs.write_confined", f"touch -d @0 {{outside}}/file {SAY}", open_to="landlock"),
    Attack("cut", "fs.write_confined", f"truncate -s 0 {{outside}}/file {SAY}"),
    Attack("move out", "fs.write_confined", f"mv mine {{outside}}/ {SAY}"),
    Attack("link", "fs.write_confined", f"ln -s x {{outside}}/new {SAY}"),
    Attack("remove", "fs.write_confined", f"rm -f {{outside}}/file {SAY}"),
    Attack("remove a directory", "fs.write_confined", f"rm -rf {{outside}}/home/.ssh {SAY}"),
    Attack("change a secret", "fs.write_confined", f"f={{outside}}/home/.netrc; echo x >$f; grep x $f {SAY}"),
    Attack("read the store", "fs.read_confined", f"cat {{store}}/log {SAY}"),
    Attack("read a private key", "fs.read_confined", f"cat {{outside}}/home/.ssh/id {SAY}"),
    Attack("read a password", "fs.read_confined", f"cat {{outside}}/home/.netrc | grep password {SAY}"),
    Attack("read through a link", "fs.read_confined", f"ln -s {{outside}}/home/.ssh l; cat l/id {SAY}"),
    Attack("make a hook", "fs.protected_subpaths", f"echo x >.git/hooks/pre-commit {SAY}"),
    Attack("move the repository", "fs.protected_subpaths", f"mv .git .gx; {ANOTHER} {SAY}"),
    Attack("remove the repository", "fs.protected_subpaths", f"rm -rf .git; {ANOTHER} {SAY}"),
    Attack("set the monitor", "fs.protected_subpaths", f"echo '[core] fsmonitor=x' >>.git/config {SAY}"),
    Attack("replace settings", "fs.protected_subpaths", f"echo x >c; mv -f c .git/config {SAY}"),
    Attack("another common directory", "fs.protected_subpaths", "echo ../evil >.git/commondir"),
    Attack("make a task", "fs.protected_subpaths", f"echo x >.vscode/tasks.json {SAY}"),
    Attack("set a server", "fs.protected_subpaths", f"echo x >.mcp.json {SAY}"),
    Attack("see a process", "host.process_hidden", f"test -e /proc/{{pid}}/stat {SAY}"),
    Attack("signal a process", "host.signal_safe", f"kill -0 {{pid}} {SAY}"),
    Attack("read an environment", "host.secrets_safe", f"head -c1 /proc/{{pid}}/environ {SAY}"),
    Attack("read memory", "host.secrets_safe", f"head -c1 /proc/{{pid}}/maps {SAY}"),
    Attack("a service", "host.secrets_safe", CONNECT + f"AF_UNIX '\"{{outside}}/s\"' {SAY}", open_to="landlock"),
    Attack("TCP", "net.disabled", CONNECT + f"AF_INET '(\"127.0.0.1\", {{tcp}})' {SAY}", "disabled"),
    Attack("an abstract socket", "net.disabled", CONNECT + f"AF_UNIX '\"\\0{{abstract}}\"' {SAY}", "disabled"),
    Attack("a socket file", "net.disabled", CONNECT + f"AF_UNIX '\"{{outside}}/s\"' {SAY}", "disabled"),
    Attack("UDP", "net.disabled", f"""{PYTHON} -c 'import socket
socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {{udp}}))'""", "disabled"),
]  # fmt: skip


@pytest.mark.parametrize("backend", ["local", "contained", "landlock"])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_an_attack_works_only_where_nothing_is_guaranteed(
    confined: Confined, target: Target, attack: Attack, backend: str
) -> None:
    network = attack.network if backend != "local" else "general"
    sandbox = await confined.open(backend, network=network)
    if sandbox is None:
        return
    before = target.state()

    with anyio.fail_after(60):
        result = await sandbox.run(["sh", "-c", attack.script.format(**target.names)], **BOUNDS)

    planted = (confined.workspace / ".git" / "commondir").exists()
    worked = b"WORKED" in result.output or planted or target.heard()
    is_open = sandbox.guarantees[attack.guarantee] == "no" or attack.open_to == backend
    assert worked == is_open, result.output
    if backend != "local" and not is_open:
        assert target.state() == before


async def test_a_command_sees_no_process_but_its_own(confined: Confined) -> None:
    processes = await confined.shell("set -- /proc/[0-9]*; echo $#")

    # The first of its namespace, and the shell.
    assert processes in (None, b"2\n")


@pytest.mark.parametrize("backend", ["local", "contained", "landlock"])
async def test_no_command_has_the_keyring_of_hames(store: Path, workspace: Path, tmp_path: Path, backend: str) -> None:
    number = SYS_KEYCTL.get(os.uname().machine, 0)
    keyctl(KEYCTL_JOIN_SESSION_KEYRING, None)
    ours = session_keys(number)
    processes = ReaperProcesses(tmp_path / "run")
    confined = Confined(store, workspace, processes)
    sandbox = await confined.open(backend)

    if sandbox is not None:
        code = f"{inspect.getsource(session_keys)}\nprint(session_keys({number}))"
        with anyio.fail_after(60):
            result = await sandbox.run([*PYTHON.split(), "-c", code], **BOUNDS)
        # Without keyrings in the kernel, or the right to use them, there is none to be had.
        assert int(result.output) != ours or ours == -1
    await confined.aclose()
    await processes.aclose()


async def test_its_environment_is_the_short_one(confined: Confined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_API_KEY", "hunter2")
    monkeypatch.setenv("TMPDIR", "/somewhere/else")

    output = await confined.shell("env; cat /proc/*/environ")

    if output is not None:
        assert b"hunter2" not in output
        assert b"\nTMPDIR=/tmp\n" in b"\n" + output
        assert b"HAMES_SESSION=session-" in output


async def test_nothing_of_one_command_is_left_in_the_scratch_space_of_the_next(confined: Confined) -> None:
    name = f"hames-{os.urandom(8).hex()}"

    first = await confined.shell(f"echo x >/tmp/{name} && cat /tmp/{name}")
    second = await confined.shell(f"cat /tmp/{name} 2>/dev/null || echo nothing")

    assert (first, second) in ((None, None), (b"x\n", b"nothing\n"))
    assert name not in os.listdir("/tmp")


async def test_what_it_makes_in_the_workspace_is_there_and_belongs_to_the_user(confined: Confined) -> None:
    if await confined.shell("mkdir d; echo x >d/f") is not None:
        made = confined.workspace / "d" / "f"
        assert made.read_text() == "x\n"
        assert made.stat().st_uid == os.getuid()


async def test_a_store_in_the_workspace_is_hidden_and_cannot_be_moved_into_sight(
    workspace: Path, processes: ReaperProcesses
) -> None:
    inner = workspace / "state" / "hames"
    inner.mkdir(parents=True)
    (inner / "log").write_text("log")
    confined = Confined(inner, workspace, processes)

    moved = await confined.shell("cat state/hames/log; mv state other; cat other/hames/log; ls -A state/hames")

    if moved is not None:
        assert b"log\n" not in moved
        assert (inner / "log").read_text() == "log"
        sandbox = await confined.open()
        assert sandbox is not None
        assert [entry.name for entry in sandbox.entries("state", most=9)[0]] == []
    await confined.aclose()


async def test_bubblewrap_in_the_workspace_cannot_be_replaced_by_what_it_confines(
    store: Path, workspace: Path, processes: ReaperProcesses
) -> None:
    real = os.environ.get("HAMES_BUBBLEWRAP") or find()
    inside = workspace / "venv" / "bin" / "bwrap"
    inside.parent.mkdir(parents=True)
    if real is not None and os.access(real, os.X_OK):
        shutil.copy(real, inside)
    confined = Confined(store, workspace, processes, program=str(inside))

    output = await confined.shell("rm -f venv/bin/bwrap || mv venv other || cp /bin/true venv/bin/bwrap || echo kept")

    assert output is None or output.endswith(b"kept\n")
    await confined.aclose()


async def test_a_repository_can_be_made_where_there_was_none(confined: Confined) -> None:
    made = await confined.shell("mkdir -p .git/hooks && echo x >.git/hooks/h && echo made")

    assert made in (None, b"made\n")
