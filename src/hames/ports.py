"""What the engine asks of the world: `Store`, `Provider`, `Tool`, `Sandbox`, as Protocols.

Rule 1: the engine knows these and no adapter; an adapter knows these and not the engine.
Rule 2: foreign exceptions end at the adapter: what leaves it is `Refused`, `ToolFailed` or `HarnessFault`.
Rule 3: every wait inside an adapter ends at a limit that the caller passed, and at cancellation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from hames.core.conversation import ModelRequest, Part, Reply, ToolSpec
from hames.protocol.errors import HarnessFault

Effect = Literal["read", "write", "execute"]
"""What a tool may do. After a crash only a `read` call may be run again."""


# --- Provider -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Bounds of one model request, milliseconds: see `core/limits.py`."""

    connect_ms: int
    first_byte_ms: int
    idle_ms: int
    request_ms: int


class ProviderFailed(HarnessFault):
    """One try of a model request failed.

    `retryable`: the same request may be sent again. `retry_after_ms`: what the provider asked for. `details`
    may hold `status`, `phase` (connect, first_byte, idle, total, stream), `providerCode`, `providerMessage`
    (bounded to 500 characters, no secret), `requestId`. `usage` as reported, if the try reported any.
    """

    retry_after_ms: int | None = None
    usage: Mapping[str, int] | None = None


class Provider(Protocol):
    """One way to a model.

    `name` is the adapter; `route` names what a session is bound to: base URL, credential source and salted
    fingerprint, never the credential.
    """

    name: str
    route: Mapping[str, Any]

    async def stream(self, request: ModelRequest, on_part: Callable[[Part], None], limits: ModelLimits) -> Reply:
        """Send `request` once, call `on_part` with each part as it comes, return the whole answer.

        Never retries. Cancelling it closes the connection at once. A stream that ends without saying that it
        is finished is a failure, never a reply.

        Raises:
            ProviderFailed: the try failed; `kind` says how.
        """
        ...

    async def models(self) -> Sequence[str]:
        """The models on offer, sorted.

        Raises:
            ProviderFailed: the list could not be had.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


# --- Sandbox ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a command ended.

    `exit_code` is negative for a signal, 124 after a timeout. `output` is the newest bytes, stdout and stderr
    in order of arrival, at most what was asked for; `total_bytes` counts all. `killed` counts processes that
    outlived the command and were killed; `alive` lists pids that could not be killed (containment failure).
    """

    exit_code: int
    timed_out: bool
    output: bytes
    total_bytes: int
    killed: int
    alive: tuple[int, ...]


@dataclass(frozen=True, slots=True)
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
    path: str
    """Relative to the workspace, `/` separated, without symbolic links: two names of one file agree on it."""

    def read(self, offset: int, length: int) -> bytes: ...

    def close(self) -> None: ...


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
    ) -> ProcessResult:
        """Run a command to its end, with /dev/null as stdin, and leave nothing of it running.

        `cwd` is relative to the session's working directory. `env` is added to the clean base environment.
        `keep_end` keeps the last `keep_bytes`, else the first. Output never waits for a pipe that somebody
        still holds. When cancelled, the tree gets TERM, a grace, KILL, and is reaped before this returns.

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

    def replace(self, path: str, content: bytes) -> bool:
        """Put `content` in place of `path` atomically, keeping mode and a link's name; True when it is new.

        Missing parent directories are made.

        Raises:
            ToolFailed: outside the workspace, a directory or special file, no permission, no space.
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

    async def start(self) -> ReaperRecord | None:
        """Start it if it does not run; None where the platform has none."""
        ...

    async def stop_foreign(self, record: ReaperRecord, session_id: str) -> tuple[int, ...]:
        """End the commands that another process started for a session; the pids that still live.

        Called before a session is taken over from a process that may only be stopped. Never touches that
        process itself.
        """
        ...

    async def aclose(self) -> None:
        """End every command and the reaper, within `reapMs`."""
        ...


# --- Tools --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that a tool changed, as observed: sha256 hex digests, None where there is no file.

    `diff` is a unified diff of at most 8 KiB, None for binary content.
    """

    path: str
    kind: Literal["created", "modified", "deleted"]
    before: str | None
    after: str | None
    diff: str | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call gave. `text` is exactly what the model is shown; `details` is for clients, bounded to 4 KiB.

    `truncation` says what was cut (`{mode, totalLines, shownLines, totalBytes, shownBytes, nextOffset?}`).
    """

    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
    truncation: Mapping[str, Any] | None = None
    changes: tuple[FileChange, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a call may use, and nothing else.

    `limits` are the tool limits of `core/limits.py`. `emit` takes live output, called from the event loop.
    """

    session_id: str
    turn_id: str
    call_id: str
    sandbox: Sandbox
    limits: Mapping[str, int]
    emit: Callable[[bytes], None]


class Tool(Protocol):
    """A tool the model may call. One file in `tools/`, one row in its table."""

    spec: ToolSpec
    effect: Effect

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """Calls with one key run one after the other, in dispatch order; None runs freely.

        Raises:
            ToolFailed: the path is not allowed.
        """
        ...

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """One line for people about the call, at most 200 characters (AH-TOOL-3)."""
        ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Do it. `arguments` fit `spec.parameters` already.

        Cancellation is passed on after clean-up; a tool that can, adds nothing to it.

        Raises:
            ToolFailed: the model can act on it.
            HarnessFault: it cannot.
        """
        ...
