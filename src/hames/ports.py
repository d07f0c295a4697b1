"""What the engine asks of the world: `Store`, `Provider`, `Tool`, `Sandbox`, as Protocols.

Rule 1: the engine knows these and no adapter; an adapter knows these and not the engine.
Rule 2: foreign exceptions end at the adapter: what leaves it is `Refused`, `ToolFailed` or `HarnessFault`.
Rule 3: every wait inside an adapter ends at a limit that the caller passed, and at cancellation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

from hames.core.catalog import ModelFacts
from hames.core.commands import Command
from hames.core.commands import Reply as CommandReply
from hames.core.conversation import ModelRequest, Part, Reply, ToolSpec
from hames.core.cost import Money, Prices
from hames.core.records import record
from hames.core.session import Event
from hames.core.state import Process, State, Turn
from hames.protocol.errors import HamesError, HarnessFault, ToolFailed

Effect = Literal["read", "write", "execute"]
"""What a tool may do. After a crash only a `read` call may be run again."""


# --- Provider -----------------------------------------------------------------------------------------------


@record
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
    (bounded to 500 characters, no secret), `requestId`. `usage` and `cost` as reported, if the try reported any;
    `usage_is_whole`: that is of all of the answer, by the provider's word.
    """

    retry_after_ms: int | None = None
    usage: Mapping[str, int] | None = None
    cost: Money | None = None
    usage_is_whole: bool = False


class Provider(Protocol):
    """One way to a model.

    `name` is the adapter; `route` names what a session is bound to: base URL, credential source and salted
    fingerprint, never the credential. `signs_as`: the dialect whose own parts of an answer go back to it.
    """

    name: str
    signs_as: str
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


# --- Output of background processes -------------------------------------------------------------------------


class Output(Protocol):
    """What a background process writes, the newest bytes of it, on disk. Blocking, and quick: the bytes go to a cache.

    It outlives the process that writes it, and any process on this host may read it meanwhile.
    """

    @property
    def total_bytes(self) -> int:
        """All that was written, also what is not kept any more."""
        ...

    def write(self, data: bytes) -> None:
        """More of it. What the disk does not take is not kept, nor is anything before it; nobody is told."""
        ...

    def read(self, offset: int, length: int) -> tuple[int, bytes]:
        """At most `length` bytes from `offset` on, or from the oldest that is kept; and where they begin. Empty at the
        end."""
        ...

    def copy_to(self, spool: Spool) -> None:
        """Write all that is kept to `spool`.

        Raises:
            HarnessFault: as `Spool.write`; the output cannot be read.
        """
        ...

    def discard(self) -> None:
        """It is not needed any more."""
        ...


class Outputs(Protocol):
    """Where background processes of all sessions write."""

    def make(self, session_id: str, process_id: str) -> Output:
        """A place for one that is about to start.

        Raises:
            HarnessFault: `store_unavailable`.
        """
        ...

    def find(self, session_id: str, process_id: str) -> Output | None:
        """What a process of this host has there; None when there is nothing, or nothing any more."""
        ...

    def forget(self, session_id: str) -> None:
        """The session is gone."""
        ...


# --- World --------------------------------------------------------------------------------------------------


@record
class Mismatch:
    """A member of a snapshot that the world does not match: both values, as published."""

    member: str
    recorded: Any
    found: Any


@record
class Equipment:
    """What a session's attempts work with, made from its snapshot.

    `window_tokens`: what a request may have, with its answer where the vendor counts that in. `output_tokens`: the most
    that is asked of an answer, None as much as the provider gives; `answer_tokens`: the most that it can have all the
    same. `prices` are those of the model where it is asked. `cutoff` is up to when it was trained. `images`: whether it
    takes any. None of them: not known. `hide` takes the keys out of a text, which no model may be told.
    """

    provider: Provider
    model: str
    sandbox: Sandbox
    tools: Sequence[Tool]
    assurance: Mapping[str, Any]
    window_tokens: int | None = None
    output_tokens: int | None = None
    answer_tokens: int | None = None
    prices: Prices | None = None
    cutoff: str | None = None
    images: bool | None = None
    hide: Callable[[str], str] = str


class World(Protocol):
    """Where snapshots come from and are held against: the composition of adapters and configuration.

    `limits` are the operator's values of every limit in `core/limits.py`.
    """

    limits: Mapping[str, int]

    @property
    def processes(self) -> Processes:
        """The reaper of this process."""
        ...

    @property
    def outputs(self) -> Outputs:
        """Where background processes write."""
        ...

    async def unlock(self, model: str | None) -> None:
        """Have at hand what asking a model needs, by its name, its provider's, or the configured one: a key that comes
        from a program. `snapshot`, `route`, `mismatches`, `provider`, `facts` and `equip` wait for nothing, and so
        come after it; it costs nothing where there is no such thing.

        Raises:
            Refused: `credential_missing`, `invalid_config`.
        """
        ...

    async def prove(self, backend: str | None) -> None:
        """Find out what a sandbox, as named in `session/create` or a snapshot, guarantees here; of None, the configured
        one. Once for a process, and nothing where nothing is to be proved. `snapshot`, `mismatches` and `equip` come
        after it."""
        ...

    def snapshot(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        """What a session may do, from the params of `session/create`; defaults are named.

        Raises:
            Refused: `invalid_config`, `path_outside_mounts`, `capability_unavailable`, `credential_missing`,
                `containment_unavailable`.
        """
        ...

    def route(self, model: str) -> dict[str, Any]:
        """The route of a model by its name, as `snapshot` has it.

        Raises:
            Refused: `invalid_config`, `credential_missing`.
        """
        ...

    def mismatches(self, snapshot: Mapping[str, Any]) -> list[Mismatch]:
        """What of `snapshot` the world does not match now, before anything is sent anywhere (AH-INT-4)."""
        ...

    def provider(self, name: str | None) -> Provider:
        """A provider by name, or the configured one.

        Raises:
            Refused: `capability_unavailable`, `invalid_config`, `credential_missing`.
        """
        ...

    def facts(self, provider: str, model: str) -> ModelFacts | None:
        """What is known of a model of a provider by name, as it is configured; None where nothing is.

        Raises:
            Refused: as `provider` does; `invalid_config`: the operator's file of models.
        """
        ...

    async def prepare(self) -> None:
        """Start what must run before the first attempt: the reaper. Cheap, and again at once when it runs."""
        ...

    async def check(self, dependency: str, snapshot: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Whether `sandbox`, `provider` or `workspace` works now: `{status, why?, details?}`."""
        ...

    def equip(self, session_id: str, snapshot: Mapping[str, Any]) -> Equipment:
        """Open what `snapshot` names. Starts no model request.

        Raises:
            Refused, HarnessFault: it cannot be had.
        """
        ...

    async def aclose(self) -> None:
        """Close providers and processes."""
        ...


# --- Tools --------------------------------------------------------------------------------------------------


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


# --- Store --------------------------------------------------------------------------------------------------


@record
class Committed:
    """A command that is durable. `events` are what it appended, `state` what stands after them.

    `cursor` is the head's after the commit; `reply_cursor` is that of the original answer when
    `reply.repeated`, else the same. `contents` are the artifacts that the events refer to, as they were committed.
    """

    state: State
    events: tuple[Event, ...]
    reply: CommandReply
    cursor: str
    reply_cursor: str
    contents: Mapping[str, bytes] = field(default_factory=dict)


class Pending(Protocol):
    """A command that is on its way to disk. Commands of one session commit in the order they were given."""

    @property
    def settled(self) -> bool:
        """It is known whether it was kept."""
        ...

    @property
    def failure(self) -> HamesError | None:
        """Why it was not kept, once that is known."""
        ...

    async def wait(self) -> Committed:
        """Until it is durable. Cancelling the wait does not take the command back.

        Raises:
            Refused: `decide` refused it; nothing was appended.
            HarnessFault: `store_unavailable`, `store_full`, `session_corrupt`: nothing was appended.
        """
        ...


@record
class Owner:
    """A process that runs sessions. `alive` is False when it is surely gone, `stale` when it was silent for
    longer than `leaseMs`: it may be stopped. `since` and `expires_at` are RFC 3339.
    """

    owner_id: str
    host: str
    pid: int
    since: str
    expires_at: str
    alive: bool
    stale: bool
    mine: bool
    reaper: ReaperRecord | None = None


@record
class Lease:
    """The right to run a session's attempts, proved by `fence`; None of it can be extended by time alone."""

    session_id: str
    fence: int


@record
class Loaded:
    """A session as stored: its state, its snapshot, who made it with which metadata, its head."""

    state: State
    snapshot: Mapping[str, Any]
    keyed_digest: str
    metadata: Mapping[str, Any] | None
    cursor: str
    owner: Owner | None


@record
class Artifact:
    """Content that a session keeps apart from its log.

    `seq` is the first event that refers to it; 0: none does, and it is kept until it was not used for a day.
    """

    artifact: str
    sha256: str
    size_bytes: int
    seq: int
    media_type: str | None
    name: str | None = None


@record
class Page:
    """Events in ascending order, as they are sent.

    `lines` is `"cursor":"…","event":{…}` of each, joined and ended by LF (no LF stands within one); empty
    when there are none. `cursor` is that of the last event looked at, also when a filter left it out.
    """

    lines: bytes
    count: int
    last_seq: int
    cursor: str
    head_seq: int
    head_cursor: str

    @property
    def more(self) -> bool:
        """The log goes on after this page."""
        return self.last_seq < self.head_seq


COLLECT_GRACE_MS = 86_400_000
"""A day: what nobody refers to may belong to somebody who is about to."""


class Spool(Protocol):
    """Content on its way into the store, written in pieces so that memory holds none of it.

    Blocking: `write` may go to the disk. What is neither kept nor discarded is collected later.
    """

    @property
    def size_bytes(self) -> int:
        """What was written."""
        ...

    def write(self, data: bytes) -> None:
        """More of it.

        Raises:
            HarnessFault: `store_full`, `store_unavailable`.
        """
        ...

    def sync(self) -> None:
        """Make durable what was written, so that keeping it is quick.

        Raises:
            HarnessFault: `store_full`, `store_unavailable`.
        """
        ...

    def discard(self) -> None:
        """It is not wanted; nothing, when it was kept."""
        ...


class Store(Protocol):
    """The log, the turns, the leases. One for the process; any number of processes on one store."""

    async def open(self) -> None:
        """Open or make the store. Called once; others wait for the first call.

        Raises:
            HarnessFault: `store_unavailable`, `store_full`, with what to do.
        """
        ...

    async def aclose(self) -> None:
        """Commit what was given, free leases, close. Never checkpoints."""
        ...

    def commit(self, session_id: str, command: Command) -> Pending:
        """Decide `command` against the session's head and append what follows, in one transaction.

        Does not wait. A command for a session that does not exist is refused by `decide`, save `CreateSession`.
        """
        ...

    async def room(self) -> None:
        """Wait while too much waits to be written (8 MiB or 4096 commands)."""
        ...

    async def load(self, session_id: str) -> Loaded:
        """A session at its head, proved: head, chain and keyed digest agree.

        Raises:
            Refused: `session_not_found`, `session_incompatible`.
            HarnessFault: `session_corrupt`, `store_unavailable`.
        """
        ...

    async def turn(self, session_id: str, turn_id: str) -> tuple[Turn, str]:
        """A turn, and the head's cursor.

        Raises:
            Refused: `turn_not_found`, `session_not_found`.
        """
        ...

    async def turns(
        self, session_id: str, *, before: int | None, limit: int, status: str | None
    ) -> tuple[list[Turn], str]:
        """Turns, newest first, with `n` below `before`; and the head's cursor."""
        ...

    async def sessions(
        self, *, workspace: str | None, query: str | None, before: int | None, limit: int
    ) -> list[tuple[int, Loaded]]:
        """Sessions, newest first, each with its number in the store (below `before`); unreadable ones left out."""
        ...

    async def read(
        self,
        session_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int,
        max_bytes: int,
        types: Sequence[str] | None = None,
    ) -> Page:
        """A page of the log after (or the last ones before) a cursor; at least one event if there is one.

        Every event is checked against its checksum.

        Raises:
            Refused: `cursor_malformed`, `cursor_foreign`, `cursor_ahead`, `session_not_found`.
            HarnessFault: `session_corrupt`, naming the event.
        """
        ...

    async def place(self, session_id: str, seq: int) -> str:
        """The cursor after event `seq`; 0 is the start.

        Raises:
            Refused: `cursor_ahead`, `session_not_found`.
            HarnessFault: `session_corrupt`.
        """
        ...

    async def contents(self, session_id: str, artifacts: Collection[str]) -> Mapping[str, bytes]:
        """Whole artifacts by their ids, each proved by its digest; without those that a repair has said to be lost.

        Raises:
            Refused: `artifact_not_found`, `session_not_found`.
            HarnessFault: `artifact_corrupt`.
        """
        ...

    async def artifact(self, session_id: str, artifact: str) -> Artifact:
        """What an artifact is.

        Raises:
            Refused: `artifact_not_found`, `session_not_found`.
        """
        ...

    async def artifacts(self, session_id: str, *, after: str | None, limit: int) -> list[Artifact]:
        """A session's artifacts by their ids, ascending, those after `after`."""
        ...

    async def read_artifact(self, session_id: str, artifact: str, *, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset` on, empty at the end; the whole was proved by its digest.

        Raises:
            Refused: `artifact_not_found`, `session_not_found`.
            HarnessFault: `artifact_corrupt`.
        """
        ...

    async def keep(self, session_id: str, spool: Spool, *, media_type: str, name: str) -> Artifact:
        """Make what was spooled an artifact of the session that no event refers to, like an export.

        Raises:
            Refused: `session_not_found`.
            HarnessFault: `store_full`, `store_unavailable`.
        """
        ...

    def spool(self) -> Spool:
        """A place to write large content to before it is kept. Touches the disk at its first write."""
        ...

    async def collect(self, *, grace_ms: int = COLLECT_GRACE_MS) -> int:
        """Remove contents that no session refers to and that were not used for so long; how many."""
        ...

    def head(self, session_id: str) -> int:
        """The newest seq that this process knows of, 0 for none. No I/O."""
        ...

    def latest(self, session_id: str) -> tuple[State, str] | None:
        """The newest state that this process has seen, by its own commits and loads, and its cursor; older than `head`
        says while another process writes. No I/O."""
        ...

    async def changed(self, session_id: str, after_seq: int) -> int:
        """Wait until the head, in whichever process it moves, is beyond `after_seq`; the head's seq."""
        ...

    async def claim(self, session_id: str, *, force: bool = False) -> Lease | Owner:
        """Take the lease with a new fence, or say who holds it.

        Taken when nobody holds it, this process does (`force` gives it a new fence, ending an attempt), or the
        owner is gone. A stale owner's lease is taken only with `force`: its commands must be ended first.
        """
        ...

    async def delete(self, session_id: str, *, by: str | None = None) -> str | Owner:
        """Remove a session for ever; when it was (RFC 3339), also if that was before, or the live process that runs it.

        Durable when it returns: ids and keys of the session answer `session_deleted` from then on, in all processes,
        and who waits in `changed` hears it. What only this session holds is removed from the disk by and by. A session
        that is corrupt can be deleted too. `by` is kept with the tombstone.

        Raises:
            Refused: `session_not_found`, `session_incompatible`.
            HarnessFault: `store_unavailable`, `store_full`.
        """
        ...

    async def release(self, session_id: str) -> None:
        """Give the lease back, if this process holds it."""
        ...

    async def release_all(self) -> None:
        """Give every lease of this process back, in one commit."""
        ...

    async def owner(self, session_id: str) -> Owner | None:
        """Who holds the lease."""
        ...

    def stand_by(self, session_id: str, waiting: bool) -> None:
        """Say, or no longer say, that this process takes the session when its lease is free."""
        ...

    async def heir(self, session_id: str) -> Owner | None:
        """Another live process that stands by for the session."""
        ...

    def beat(self) -> None:
        """Say that this process lives, to those who watch its leases. Called from the event loop; cheap."""
        ...

    def keyed(self, digest: str) -> str:
        """The keyed digest of a snapshot's digest, hex: proves that it was written by this store's users."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Kind, path, identity and versions, for `initialize` and `health/check`; works before `open`."""
        ...

    async def check(self) -> Mapping[str, Any]:
        """Whether a commit would work now: `{status, why?, details?}`."""
        ...


# --- Observer -----------------------------------------------------------------------------------------------


class Observer(Protocol):
    """Sees what this process does with sessions. No turn waits for it, and none fails with it."""

    def owned(self, session_id: str, owner: Owner | None) -> None:
        """Who runs a session, whenever that changes: called before this process starts turns of it."""
        ...

    async def aclose(self) -> None:
        """Hand over what was seen, within two seconds or so. The store is still open."""
        ...
