"""What the engine asks of a tool, and what a tool is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

from hames.core.conversation import ToolSpec
from hames.core.records import record
from hames.core.state import Process
from hames.ports.sandbox import Sandbox
from hames.ports.store import Spool
from hames.protocol.errors import ToolFailed

Effect = Literal["read", "write", "execute"]
"""What a tool may do. After a crash only a `read` call may be run again."""


@record
class FileChange:
    """A file that a tool changed, as observed: sha256 hex digests, None where there is no file.

    `diff` is a unified diff of at most 8 KiB, None for binary content.
    """

    path: str
    kind: Literal["created", "modified", "deleted"]
    before: str | None
    after: str | None
    diff: str | None = None


@record
class ToolImage:
    """An image that a call shows to the model: `data` is of `media_type`, within `imageBytes` and `imagePixels`."""

    media_type: str
    data: bytes
    label: str


@record
class ToolOutcome:
    """What a call gave. `text` and `images` are what the model is shown; `details` is for clients, bounded to 4 KiB.

    `truncation` says what was cut (`{mode, totalLines, shownLines, totalBytes, shownBytes, keptBytes?, nextOffset?}`).
    `kept` is the whole of what was cut, to be kept as an artifact (`keptBytes` of it where it was too much). `error`:
    the call failed, of this kind; it is told as a `ToolFailed` is, and `text` with it.
    """

    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
    truncation: Mapping[str, Any] | None = None
    changes: tuple[FileChange, ...] = ()
    images: tuple[ToolImage, ...] = ()
    error: ToolFailed | None = None
    kept: Spool | None = None


class KeptOutput(Protocol):
    """The whole output of an earlier call of the session. `path` is the handle by which it was opened."""

    size: int
    path: str

    async def read_at(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset` on; fewer only at the end.

        Raises:
            ToolFailed: it is damaged.
            HarnessFault: the store cannot be read.
        """
        ...


class Screen(Protocol):
    """A filter of bytes that come in pieces: see `core.redaction.RedactedStream`."""

    def feed(self, piece: bytes, /) -> bytes:
        """What of it can be shown now."""
        ...

    def rest(self) -> bytes:
        """What still waits, at the end."""
        ...


@record
class Wish:
    """A background process to start. `command` is what people are shown of it. `argvs` are tried one after the other
    while there is no such program. `screens` are what its output goes through before anything is kept."""

    argvs: tuple[tuple[str, ...], ...]
    command: str
    name: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    screens: tuple[Screen, ...] = ()


@record
class OutputPage:
    """A piece of what a process wrote: `data` from `offset` on; `total_bytes` is all that it wrote."""

    process: Process
    offset: int
    data: bytes
    total_bytes: int


class Background(Protocol):
    """The background processes of a session, as a call may use them. `which` is an id, or a name."""

    async def start(self, wish: Wish) -> Process:
        """Start one, and wait a moment for it to fail: durable before it runs. It stays when the call is answered; when
        the call is cancelled before, nothing of it stays.

        Raises:
            ToolFailed: `too_many`, `name_taken`; what `Sandbox.run` raises when a command cannot be started.
            HarnessFault: the store or the sandbox.
        """
        ...

    async def all(self) -> Sequence[tuple[Process, int]]:
        """All that run, and the newest of those that ended, each with the bytes that it wrote."""
        ...

    async def read(self, which: str, offset: int | None, *, length: int, wait_ms: int) -> OutputPage:
        """What it wrote from `offset` on, None for the last `length` bytes; waits for some where there is none.

        Raises:
            ToolFailed: `process_not_found`.
        """
        ...

    async def stop(self, which: str) -> Process:
        """End it; returns when nothing of it runs.

        Raises:
            ToolFailed: `process_not_found`.
        """
        ...


@record
class ToolContext:
    """What a call may use, and nothing else.

    `limits` are the tool limits of `core/limits.py`. `emit` takes live output, called from the event loop. `spool`
    gives a place for output that is too large to be shown, `kept` opens, by its handle, what went there in an earlier
    call (`ToolFailed`: `not_found`); None where there is none. `background` is None in a session without the tool that
    reads and stops what runs there.
    """

    session_id: str
    turn_id: str
    call_id: str
    sandbox: Sandbox
    limits: Mapping[str, int]
    emit: Callable[[bytes], None]
    spool: Callable[[], Spool] | None = None
    kept: Callable[[str], Awaitable[KeptOutput]] | None = None
    background: Background | None = None


class Tool(Protocol):
    """A tool the model may call. One file in `tools/`, one row in its table."""

    spec: ToolSpec
    effect: Effect

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | tuple[str, ...] | None:
        """Calls that share a key run one after the other, in dispatch order; None runs freely.

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
