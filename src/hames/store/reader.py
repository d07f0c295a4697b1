"""The one thread of a process that reads: answers questions in order, and hears of other processes' commits.

Rule 1: it sleeps while nothing is asked. Only while somebody waits for a session and another process lives does it
look every `POLL_S`, in case a bell got lost.
While one page of a long log is being sent, it reads the next.
Rule 2: a question that was cancelled is answered to nobody; the thread never waits for the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from hames.protocol.errors import HamesError
from hames.store.faults import Damage, translate
from hames.store.files import StoreFiles
from hames.store.hub import Hub
from hames.store.lookup import Lookup
from hames.store.opening import ReadSide, open_for_reading
from hames.store.owners import Owners
from hames.store.ticket import Ticket

POLL_S: Final = 0.25
"""Between two looks for commits of other processes: 3 microseconds each."""

T = TypeVar("T")
Question = tuple[Ticket[Any] | None, Callable[[Lookup], Any]]


class Reader:
    """Owns the read side. `answer(ticket, outcome)` and `moved(heads)` are called in the thread; `files` are
    those that this process's writer has, None without one; they are closed here."""

    def __init__(
        self,
        directory: Path,
        owners: Owners,
        hub: Hub,
        *,
        limits: Mapping[str, int],
        files: StoreFiles | None,
        answer: Callable[[Ticket[Any], Any], object],
        moved: Callable[[Mapping[str, int]], object],
        damage: Damage,
    ) -> None:
        self._directory = directory
        self._owners = owners
        self._hub = hub
        self._limits = limits
        self._files = files
        self._answer = answer
        self._moved = moved
        self._damage = damage
        self._queue: SimpleQueue[Question | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="hames-reader", daemon=True)
        self._side: ReadSide | None = None
        self._lookup: Lookup | None = None
        self._seen_version = 0
        self._open = threading.Lock()
        self.has_bell = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Answer what was asked, close, end."""
        self._queue.put(None)

    def join(self, limit_s: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(limit_s)

    async def ask(self, question: Callable[[Lookup], T]) -> T:
        """What `question` finds.

        Raises:
            Refused, HarnessFault: by the question, or because the store cannot be read.
        """
        ticket: Ticket[T] = Ticket()
        self._queue.put((ticket, question))
        return await ticket.wait()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Nothing of the store is open here meanwhile, and questions wait: another thread of this process opens it
        for writing. SQLite has one shared memory for all connections of a process, and who opened it on a read-only
        file system leaves it so for those that come (os_unix.c: `unixShmNode.isReadonly`).
        """
        with self._open:
            if self._side is not None:
                self._side.close()
                self._side = self._lookup = None
            yield

    def share(self, files: StoreFiles) -> None:
        """From now on read the files that this process's writer has; called while this is `apart`."""
        self._files = files

    def hear(self, session_ids: list[str]) -> None:
        """A bell rang for these sessions, or for any: look, if somebody waits. Called from any thread."""
        if not session_ids or any(self._hub.is_watched(session_id) for session_id in session_ids):
            self._queue.put((None, self._look))

    # --- in the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                asked = self._queue.get(timeout=self._pause_s())
            except Empty:
                self._poll()
                continue
            if asked is None:
                break
            ticket, question = asked
            outcome = self._outcome(question)
            if ticket is not None:
                self._answer(ticket, outcome)
            if self._lookup is not None and self._lookup.is_followed and self._queue.empty():
                self._outcome(Lookup.look_ahead)
        with self._open:
            if self._side is not None:
                self._side.close()
            elif self._files is not None:
                self._files.close()

    def _pause_s(self) -> float | None:
        if not self._hub.watched():
            return None
        return POLL_S if not self.has_bell or self._owners.others() else None

    def _outcome(self, question: Callable[[Lookup], Any]) -> Any:
        try:
            with self._open:
                lookup = self._ready()
                assert self._side is not None
                # One transaction a question: what it reads in several statements is of one moment.
                with self._side.connection:
                    return question(lookup)
        except HamesError as error:
            self._damage.note(error)
            return error
        # The border of this thread: a question that fails must not end it.
        except Exception as error:
            fault = translate(error, self._directory)
            self._damage.note(fault)
            return fault

    def _ready(self) -> Lookup:
        if self._lookup is None or self._side is None:
            guard = self._files is None
            self._side = open_for_reading(self._directory, self._limits, guard=guard, files=self._files)
            self._lookup = Lookup(self._side, self._owners.look)
        self._side.files.check()
        if self._damage.lost is not None:
            raise self._damage.lost
        return self._lookup

    def _look(self, lookup: Lookup) -> None:
        heads = lookup.heads(self._hub.watched())
        if heads:
            self._moved(heads)

    def _poll(self) -> None:
        self._owners.sweep()

        def look(lookup: Lookup) -> None:
            version = lookup.version()
            if version != self._seen_version:
                self._seen_version = version
                self._look(lookup)

        self._outcome(look)
