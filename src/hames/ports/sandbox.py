"""What the engine and the tools ask of the place where files are and commands run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Literal, Protocol

from hames.core.records import record


@record
class ProcessResult:
    """How a command ended.

    `exit_code` is negative for a signal, 124 after a timeout. `output` is the newest bytes, stdout and stderr
    in order of arrival, at most what was asked for; `total_bytes` counts all. `killed` counts processes that
    outlived the command and were killed; `alive` lists pids that could not be killed (containment failure). `met` are
    the limits that it is known to have run into, with their values: not all are told by the machine.
    """

    exit_code: int
    timed_out: bool
    output: bytes
    total_bytes: int
    killed: int
    alive: tuple[int, ...]
    met: Mapping[str, int] = field(default_factory=dict)


@record
class ReaperRecord:
    """Where a process's reaper can be reached by another process: kept with the lease.

    `socket` is a path; `pid` and `start_time` (clock ticks since boot, `/proc/<pid>/stat` field 22) guard
    against a pid that was given to another.
    """

    pid: int
    start_time: int
    socket: str


class OpenFile(Protocol):
    """A regular file that was opened beneath the workspace."""

    size: int
    mode: int
    """Its permission bits."""
    path: str
    """Relative to the workspace, `/` separated, without symbolic links: two names of one file agree on it."""

    def read(self, offset: int, length: int) -> bytes: ...

    def close(self) -> None: ...


@record
class Entry:
    """What stands in a directory. A link is not followed. `size` is that of a file in bytes, else 0."""

    name: str
    kind: Literal["file", "directory", "link", "special"]
    size: int


class Sandbox(Protocol):
    """Where a session's tools work. One per session; opened before the first model request.

    `name` is the backend. `guarantees` maps each guarantee to `yes`, `partial` or `no`: what is not `yes`
    is recorded as reduced assurance (AH-DIAG-2).
    """

    name: str
    guarantees: Mapping[str, str]

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
        """Run a command to its end, with /dev/null as stdin, and leave nothing of it running.

        `cwd` is relative to the session's working directory. `env` is added to the clean base environment.
        `keep_end` keeps the last `keep_bytes`, else the first. Output never waits for a pipe that somebody
        still holds. When cancelled, the tree gets TERM, a grace, KILL, and is reaped before this returns. `on_start` is
        given what ends it in the same way, after a grace in milliseconds, and lets this return how it ended; that may
        be called at any time, and `on_start` again for a second try.

        Raises:
            ToolFailed: `cwd` is not a directory in the workspace; the command cannot be started.
            HarnessFault: the reaper is gone (`sandbox`), or a tree could not be killed.
        """
        ...

    def open(self, path: str) -> OpenFile:
        """Open an existing regular file for reading, by a path beneath the workspace.

        Raises:
            ToolFailed: not found, not a regular file, outside the workspace, not readable.
        """
        ...

    def resolve(self, path: str) -> str:
        """The canonical key of `path`, as `OpenFile.path`; the file need not exist.

        Raises:
            ToolFailed: outside the workspace.
        """
        ...

    def replace(self, path: str, content: bytes, *, mode: int | None = None) -> bool:
        """Put `content` in place of `path` atomically, keeping mode and a link's name; True when it is new.

        Missing parent directories are made. A new file gets the permission bits `mode`, if given.

        Raises:
            ToolFailed: outside the workspace, a directory or special file, no permission, no space.
        """
        ...

    def remove(self, path: str) -> None:
        """Take a regular file away. Of a link, the file that it leads to: what `replace` would write to.

        Raises:
            ToolFailed: not found, outside the workspace, a directory or special file, no permission.
        """
        ...

    def entries(self, path: str, *, most: int) -> tuple[list[Entry], int]:
        """The first `most` entries of a directory by the bytes of their names, and how many there are.

        Reserved ones are left out of both. Memory is bounded by `most`.

        Raises:
            ToolFailed: not a directory in the workspace, no permission.
        """
        ...

    def directory(self, path: str | None) -> str:
        """`path` as a real directory in the workspace, absolute; the session's cwd for None.

        Raises:
            ToolFailed: not a directory in the workspace.
        """
        ...

    async def aclose(self) -> None:
        """Free what this session's sandbox holds."""
        ...


class Processes(Protocol):
    """The reaper of this process: one for all sessions, started before the first command."""

    @property
    def record(self) -> ReaperRecord | None:
        """Where the one that runs now is; None where none does."""
        ...

    async def start(self) -> ReaperRecord | None:
        """Start it if it does not run; None where the platform has none."""
        ...

    async def stop_foreign(self, record: ReaperRecord, session_id: str) -> tuple[int, ...]:
        """End the commands that another process started for a session; the pids that still live.

        Called before a session is taken over from a process that may only be stopped. Never touches that
        process itself.
        """
        ...

    def hurry(self) -> None:
        """This process is about to leave: end every command now, without grace, and start none."""
        ...

    async def aclose(self) -> None:
        """End every command and the reaper, within half a second."""
        ...
