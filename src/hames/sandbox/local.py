"""The sandbox `local`: the host as it is. File tools stay beneath the workspace; commands are not confined.

Rule 1: paths are walked, never compared as text (`paths.py`).
Rule 2: a command gets the environment below and what its call adds, nothing else of Hames' own: a key in the
environment of Hames must not reach a tool (AH-TOOL-10).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hames.ports import Entry, OpenFile, ProcessResult
from hames.sandbox.bounds import Bounds
from hames.sandbox.command import Command
from hames.sandbox.hunt import MARKER
from hames.sandbox.paths import Workspace
from hames.sandbox.process import ReaperProcesses

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR")
"""Taken from the environment of Hames, with everything that begins with `LC_`."""

FIXED = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Nobody is there to page or to be asked."""

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

GUARANTEES: Mapping[str, str] = {
    "fs.write_confined": "no",
    "fs.read_confined": "no",
    "fs.protected_subpaths": "no",
    "net.disabled": "no",
    "net.destinations": "no",
    "host.process_hidden": "no",
    "host.signal_safe": "no",
    "host.secrets_safe": "no",
    "limits.memory": "partial",
    "limits.pids": "partial",
    "limits.cpu": "partial",
    "limits.files": "yes",
    "reap.tree": "yes",
    "reap.owner_death": "yes",
}
"""The most that holds for commands: what is said of limits is settled by `bounds.held`. The file tools are confined
besides: they are not what a hostile command would use."""


def base_environment(outer: Mapping[str, str]) -> dict[str, str]:
    """What every command finds, made from the environment `outer` of Hames."""
    kept = {name: value for name, value in outer.items() if name in PASSED_ON or name.startswith("LC_")}
    return {"PATH": DEFAULT_PATH, **kept, **FIXED}


class LocalSandbox:
    """Files and commands of one session on the host.

    `workspace` and `cwd` are absolute real paths, the second within the first. `reserved` are directories that no
    file tool may enter, wherever they are: the store. `keeps` says of a file whether no file tool may change it.
    `bounds` are the limits of each command, and `guarantees` what was found to hold here.

    Raises:
        HarnessFault: `workspace` or `cwd` cannot be used.
    """

    name = "local"

    def __init__(
        self,
        workspace: Path,
        cwd: Path,
        session_id: str,
        processes: ReaperProcesses,
        *,
        reserved: Sequence[Path] = (),
        keeps: Callable[[str], bool] = lambda key: False,
        bounds: Bounds | None = None,
        guarantees: Mapping[str, str] = GUARANTEES,
    ) -> None:
        self.session_id = session_id
        self._processes = processes
        self._paths = Workspace(workspace, cwd, reserved=reserved, keeps=keeps)
        self._environment = base_environment(os.environ)
        self._bounds = bounds
        self.guarantees = guarantees
        processes.admit(session_id)

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_ms: int,
        grace_ms: int,
        keep_bytes: int,
        keep_end: bool = True,
        on_output: Callable[[bytes], None] | None = None,
        on_start: Callable[[Callable[[int], None]], None] | None = None,
    ) -> ProcessResult:
        """See `ports.Sandbox.run`. `HAMES_SESSION` is set last: a call cannot take its own marker away."""
        environment = {**self._environment, **(env or {}), MARKER: self.session_id}
        with self._paths.enter(cwd) as directory:
            return await self._processes.run(
                self._command(tuple(argv), environment, directory, cwd),
                timeout_ms=timeout_ms,
                grace_ms=grace_ms,
                keep_bytes=keep_bytes,
                keep_end=keep_end,
                on_output=on_output,
                on_start=on_start,
            )

    def _command(
        self, argv: tuple[str, ...], environment: Mapping[str, str], directory: int, cwd: str | None
    ) -> Command:
        """What the reaper is asked to run in `directory`, which is `cwd` opened."""
        return Command(self.session_id, argv, environment, directory, bounds=self._bounds)

    def open(self, path: str) -> OpenFile:
        """See `ports.Sandbox.open`."""
        return self._paths.open(path)

    def resolve(self, path: str) -> str:
        """See `ports.Sandbox.resolve`."""
        return self._paths.resolve(path)

    def replace(self, path: str, content: bytes, *, mode: int | None = None) -> bool:
        """See `ports.Sandbox.replace`."""
        return self._paths.replace(path, content, mode=mode)

    def remove(self, path: str) -> None:
        """See `ports.Sandbox.remove`."""
        self._paths.remove(path)

    def entries(self, path: str, *, most: int) -> tuple[list[Entry], int]:
        """See `ports.Sandbox.entries`."""
        return self._paths.entries(path, most=most)

    def directory(self, path: str | None) -> str:
        """See `ports.Sandbox.directory`."""
        return self._paths.directory(path)

    async def aclose(self) -> None:
        """Close the workspace."""
        self._paths.close()
