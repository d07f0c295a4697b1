"""What the engine asks of the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from hames.core.commands import Command
from hames.core.commands import Reply as CommandReply
from hames.core.records import record
from hames.core.session import Event
from hames.core.state import State, Turn
from hames.ports.sandbox import ReaperRecord
from hames.protocol.errors import HamesError


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
