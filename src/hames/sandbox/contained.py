"""The sandbox `contained`: commands under bubblewrap, within our reaper.

Rule 1: a command gets namespaces of its own, no capability, the file system read-only, the workspace writable, and of
what `shield.py` names nothing. The file tools work as in `local`, and leave what is protected as it is too.
Rule 2: what it is said to guarantee was tried here by `probe.py`, with the arguments that are used here.
Rule 3: there is no way back: a command that cannot be confined is not run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from hames.ports import ProcessResult
from hames.protocol.errors import HarnessFault, ToolFailed
from hames.sandbox import bubblewrap
from hames.sandbox.bounds import Bounds
from hames.sandbox.command import Command
from hames.sandbox.launch import find_program
from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses
from hames.sandbox.shield import Shield

CLAIMS: Mapping[str, str] = {
    "fs.write_confined": "yes",
    "fs.read_confined": "partial",
    "fs.protected_subpaths": "partial",
    "net.disabled": "yes",
    "net.destinations": "no",
    "host.process_hidden": "yes",
    "host.signal_safe": "yes",
    "host.secrets_safe": "yes",
    "limits.memory": "yes",
    "limits.pids": "yes",
    "limits.cpu": "partial",
    "limits.files": "yes",
    "reap.tree": "yes",
    "reap.owner_death": "yes",
}
"""The most it can guarantee. Reading is confined in part: what is hidden is listed, the rest can be read. Protected in
part: what did not exist when the session was opened can be made. `net.disabled` is for a session without network.
Memory and processes are limited where there are control groups for it, and else in part."""


def guarantees_of(proved: Mapping[str, str], *, network: bool) -> dict[str, str]:
    """What holds of what was proved: nothing is disabled in a session that has the network."""
    return {**proved, "net.disabled": "no"} if network else dict(proved)


class ContainedSandbox(LocalSandbox):
    """Files and confined commands of one session.

    `program` is the real path of bubblewrap. `secret` are files and directories that no command sees and no file tool
    enters. `guarantees` are those that were proved.

    Raises:
        HarnessFault: as `LocalSandbox`.
    """

    name = "contained"

    def __init__(
        self,
        workspace: Path,
        cwd: Path,
        session_id: str,
        processes: ReaperProcesses,
        *,
        program: str,
        guarantees: Mapping[str, str],
        network: bool,
        secret: Sequence[Path] = (),
        bounds: Bounds | None = None,
    ) -> None:
        self._shield = Shield(workspace, secret=secret, trusted=[Path(program)])
        super().__init__(
            workspace,
            cwd,
            session_id,
            processes,
            reserved=secret,
            keeps=self._shield.keeps,
            bounds=bounds,
            guarantees=guarantees_of(guarantees, network=network),
        )
        self.program = program
        self._network = network
        # Not the outer one's, which may be anywhere.
        self._environment["TMPDIR"] = "/tmp"

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
        """See `ports.Sandbox.run`. The exit code of a command that a signal ended is 128 and the signal.

        Raises:
            ToolFailed, HarnessFault: as there; `containment_unavailable`: it could not be confined, and did not run.
        """
        run = partial(
            super().run,
            argv,
            cwd=cwd,
            env=env,
            timeout_ms=timeout_ms,
            grace_ms=grace_ms,
            keep_bytes=keep_bytes,
            keep_end=keep_end,
            on_output=on_output,
            on_start=on_start,
        )
        try:
            return await run()
        except HarnessFault as fault:
            if fault.kind != "containment_unavailable":
                raise
            # It did not begin. A socket that was to be hidden may have gone between the look and the mount.
            return await run()
        finally:
            self._shield.take_away()

    def _command(
        self, argv: tuple[str, ...], environment: Mapping[str, str], directory: int, cwd: str | None
    ) -> Command:
        try:
            # Bubblewrap would look along the same PATH, and say it as its own failure.
            find_program(os.fsencode(argv[0]), os.fsencode(environment["PATH"]))
        except FileNotFoundError as error:
            raise ToolFailed("command_not_found", f"{argv[0]} cannot be started: {error.strerror}.") from error
        except UnicodeEncodeError as error:
            raise ToolFailed("invalid_text", "The command or its environment is not valid Unicode.") from error
        # By its name: it is entered within the sandbox, where no link leads out.
        view = self._shield.view(self.directory(cwd), network=self._network)
        wrapper = bubblewrap.arguments(self.program, view)
        return Command(self.session_id, argv, environment, directory, wrapper=wrapper, bounds=self._bounds)
