"""The sandbox `landlock`: commands that give up rights before they begin, for a machine without namespaces.

Rule 1: it is weaker than `contained` and says so: what Landlock has no right for stays open (modes and times of files,
socket files, the list of processes, the insides of the workspace).
Rule 2: what a command may read is listed, for Landlock can allow and not except: everything that does not lead to a
masked place. The list is made anew for each command, so what comes later is masked too.
Rule 3: what is masked cannot lie in what is writable: such a workspace is refused.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio.to_thread

from hames.protocol.errors import HarnessFault
from hames.sandbox import landlock
from hames.sandbox.bounds import Bounds
from hames.sandbox.command import Command
from hames.sandbox.contained import guarantees_of
from hames.sandbox.landlock import Ruleset
from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses
from hames.sandbox.shield import CREDENTIALS, PRIVATE, RESOLVER, SYSTEM, SYSTEM_SECRETS

CLAIMS: Mapping[str, str] = {
    "fs.write_confined": "partial",
    "fs.read_confined": "partial",
    "fs.protected_subpaths": "no",
    "net.disabled": "yes",
    "net.destinations": "no",
    "host.process_hidden": "no",
    "host.signal_safe": "yes" if landlock.can_filter() else "no",
    "host.secrets_safe": "partial",
    "limits.memory": "yes",
    "limits.pids": "yes",
    "limits.cpu": "partial",
    "limits.files": "yes",
    "reap.tree": "yes",
    "reap.owner_death": "yes",
}
"""The most it can guarantee. Writing is confined in part: modes, owners, times and attributes of files outside can be
changed by who owns them. Secrets are safe in part: a service that listens on a socket file can be asked for its own."""

NEEDED = ("fs.write_confined", "fs.read_confined", "host.secrets_safe")
"""Without these it is not to be had; the others depend on the version of Landlock, and the snapshot says what holds."""

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
"""Of `/dev`: what programs cannot do without, and nobody's data. The terminals of other programs are not among it."""


class LandlockSandbox(LocalSandbox):
    """Files and restricted commands of one session.

    `secret` are files and directories that no command reads and no file tool enters. `guarantees` are those that were
    proved.

    Raises:
        HarnessFault: as `LocalSandbox`; `containment_unavailable`: a secret lies in the workspace.
    """

    name = "landlock"

    def __init__(
        self,
        workspace: Path,
        cwd: Path,
        session_id: str,
        processes: ReaperProcesses,
        *,
        guarantees: Mapping[str, str],
        network: bool,
        secret: Sequence[Path] = (),
        bounds: Bounds | None = None,
    ) -> None:
        if inside := exposed(workspace, secret):
            raise HarnessFault("containment_unavailable", inside, boundary="sandbox")
        held = guarantees_of(guarantees, network=network)
        super().__init__(workspace, cwd, session_id, processes, reserved=secret, bounds=bounds, guarantees=held)
        self._secret = tuple(secret)
        self._network = network
        self._scratch: tuple[str, tuple[int, int] | None] | None = None
        self._made: tuple[object, Ruleset] | None = None
        try:
            self._root = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            self._paths.close()
            message = f"{workspace} cannot be opened: {error.strerror}."
            raise HarnessFault("containment_unavailable", message, boundary="sandbox") from error

    def _command(
        self, argv: tuple[str, ...], environment: Mapping[str, str], directory: int, cwd: str | None
    ) -> Command:
        try:
            scratch = self._own_scratch()
            rules = self._rules(scratch)
        except OSError as error:
            message = f"Landlock cannot be set up: {error.strerror}."
            raise HarnessFault("containment_unavailable", message, boundary="sandbox") from error
        return Command(
            self.session_id,
            argv,
            {**environment, "TMPDIR": scratch},
            directory,
            bounds=self._bounds,
            rules=rules,
            network=self._network,
        )

    def _own_scratch(self) -> str:
        """A directory of our own, as long as nobody has put another in its place, or cleaned it away."""
        if self._scratch is None or self._scratch[1] != _identity(self._scratch[0]):
            path = os.path.realpath(tempfile.mkdtemp(prefix="hames-"))
            self._scratch = path, _identity(path)
        return self._scratch[0]

    def _rules(self, scratch: str) -> Ruleset:
        """The rules of a command that starts now: those of the last one, where nothing has come or gone since."""
        hidden = masked(self._secret)
        mark = scratch, hidden, tuple(map(_mark, sorted(leading_to(hidden))))
        if self._made is None or self._made[0] != mark:
            rules: list[tuple[str, str | int]] = [*readable(hidden), ("write", self._root), ("write", scratch)]
            self._made = mark, Ruleset(rules, network=self._network)
        return self._made[1]

    async def aclose(self) -> None:
        """Close the workspace, and take the temporary directory away."""
        await super().aclose()
        self._made = None
        if self._root >= 0:
            os.close(self._root)
            self._root = -1
        if self._scratch is not None:
            (path, identity), self._scratch = self._scratch, None
            if identity == _identity(path):
                await anyio.to_thread.run_sync(partial(shutil.rmtree, path, ignore_errors=True))


def masked(secret: Iterable[Path]) -> tuple[str, ...]:
    """Real paths of what commands must not read: secrets that are there, scratch space of others, devices."""
    home = os.path.realpath(os.path.expanduser("~"))
    # What this user may not read need not be masked, and so does not keep what is beside it from being listed.
    doors = [
        path for path in (*(f"{home}/{name}" for name in CREDENTIALS), *SYSTEM_SECRETS) if os.access(path, os.R_OK)
    ]
    real = map(os.path.realpath, (*doors, *map(str, secret), *PRIVATE, "/dev"))
    return tuple(dict.fromkeys(path for path in real if os.path.exists(path)))


def readable(hidden: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Rules that let everything be read but what is `hidden`. A directory that leads to it cannot be listed."""
    leading = leading_to(hidden)
    todo = ["/"]
    while todo:
        directory = todo.pop()
        for name in _names(directory):
            path = os.path.join(directory, name)
            # What is hidden is so with all that is in it, whatever else of it is named.
            if path in hidden:
                continue
            if path in leading:
                todo.append(path)
            else:
                yield "read", path
    for path in (RESOLVER, SYSTEM):
        if os.path.exists(path):
            yield "read", os.path.realpath(path)
    for name in DEVICES:
        yield "device", f"/dev/{name}"


def exposed(workspace: Path, secret: Iterable[Path]) -> str | None:
    """Why this workspace cannot be confined; None where it can."""
    own = {os.path.realpath(path) for path in secret}
    for path in masked(secret):
        if f"{path}/".startswith(f"{str(workspace).rstrip('/')}/"):
            what = "The store or the configuration" if path in own else path
            return f"{what} lies in the workspace, where Landlock cannot hide it. Ask for `contained`."
    return None


def why_not() -> str | None:
    """Why this machine has no Landlock; None where it has."""
    if landlock.abi() < 1:
        return "The kernel has no Landlock, or does not use it (Linux 5.13 or later, `lsm=` of its command line)."
    return None


def leading_to(paths: Iterable[str]) -> set[str]:
    """The directories above them."""
    return {str(parent) for path in paths for parent in Path(path).parents}


def _mark(directory: str) -> tuple[int, int] | None:
    """What is another one when something came into it, or went."""
    try:
        found = os.stat(directory)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _names(directory: str) -> list[str]:
    """Entries of a directory, without links: what one leads to has a rule of its own."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if not entry.is_symlink()]
    except OSError:
        return []


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
