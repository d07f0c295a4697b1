"""The one thread of a process that writes: drains what waits into one transaction (group commit), then answers all.

Rule 1: nothing is answered or published before COMMIT has returned (invariant 1) and the files it went to are still
those of the store.
Rule 2: a batch that SQLite fails is rolled back and tried again job by job, once, so each fails alone with its own
error; when the cause is gone, the next batch works.
Rule 3: no delay to gather more: while one batch is synced, the next one gathers.
Rule 4: checkpoints happen here only, and when nothing waits unless the WAL grows too large.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import apsw

from hames.core.records import record
from hames.core.times import rfc3339
from hames.protocol.errors import HamesError, HarnessFault
from hames.store.blobs import BlobFiles
from hames.store.faults import FOREIGN, Damage, full, translate, unavailable
from hames.store.files import keep_key
from hames.store.opening import WriteSide, why_read_only
from hames.store.owners import Owners
from hames.store.reserve import Reserve
from hames.store.schema import CHECKPOINT_PAGES, one
from hames.store.ticket import Job, Ticket
from hames.store.transaction import Held, Scene, Transaction

BATCH_JOBS: Final = 512
BATCH_BYTES: Final = 2**20
"""Of one transaction: other processes wait at the gate meanwhile."""

IDLE_S: Final = 0.05
"""Nothing was given for so long: a checkpoint delays nobody. Callers that each wait for an answer leave the queue empty
for moments."""

BUSY_CHECKPOINT_PAGES: Final = 4096
"""16 MiB: beyond this a checkpoint is made though jobs wait; recovery of it takes 7 ms."""

MOST_GAPS: Final = 1024
"""Attempts that lost a fact and are remembered: each ends when it hears of it."""

CACHED_SESSIONS: Final = 4096
"""Sessions whose state is kept between batches; beyond, all are loaded anew."""


Outcome = tuple[Job, Any]

Chore = Callable[[Transaction], bool]
"""Something that is done when nothing waits, a little at a time; True while there is more of it."""


@record
class Batch:
    """What a transaction gave: the outcome of each job, the heads that moved (0 of a session that was deleted), and the
    lines that moved them: session, first seq, lines."""

    outcomes: list[Outcome]
    heads: Mapping[str, int]
    lines: Sequence[tuple[str, int, list[bytes]]] = ()


class Writer:
    """Owns the write side of the store. `report` is called in the thread, after each batch; `reopen` too, when the
    store could only be read before and its directory may be written to now."""

    def __init__(
        self,
        directory: Path,
        owners: Owners,
        *,
        report: Callable[[Batch], object],
        damage: Damage,
        blobs: BlobFiles,
        reserve: Reserve,
        reopen: Callable[[], WriteSide],
    ) -> None:
        self._directory = directory
        self._owners = owners
        self._report = report
        self._damage = damage
        self._reopen = reopen
        self._queue: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="hames-writer", daemon=True)
        self._left: list[Job] = []
        self._gaps: dict[tuple[str, int] | None, HarnessFault] = {}
        self._side: WriteSide | None = None
        self._closed: HarnessFault | None = None
        self._sessions: dict[str, Held] = {}
        self._blobs = blobs
        self._reserve = reserve
        self._chores: deque[Chore] = deque()
        self._commits = 0
        self._epoch = 0
        self._wal_pages = 0
        self._tried_pages = 0

    @property
    def side(self) -> WriteSide | None:
        """The write side, None while the store may only be read."""
        return self._side

    def start(self) -> None:
        """Start the thread on a store that was opened, or may only be read."""
        self._thread.start()

    def adopt(self, side: WriteSide) -> None:
        """Write by `side`; called before `start`, or by the thread itself."""
        self._side = side
        self._commits = side.meta.commits
        self._epoch += 1
        self._wal_pages = 0
        side.connection.set_wal_hook(self._grown)

    def give(self, jobs: list[Job]) -> None:
        """Put jobs behind the others."""
        self._queue.put(jobs)

    def put_off(self, chore: Chore) -> None:
        """Do a chore when nothing waits; given before `start`, or from the thread."""
        self._chores.append(chore)

    def stop(self) -> None:
        """Do what was given, give back leases, close, end."""
        self._queue.put(None)

    def join(self, limit_s: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(limit_s)

    # --- in the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._take()
            if batch:
                self._report(self._in_order(batch))
            self._checkpoint(BUSY_CHECKPOINT_PAGES)
        if self._side is not None:
            self._work([Job(Ticket(), Transaction.release_all)])
            if self._closed is None:
                with suppress(OSError):
                    keep_key(self._directory, self._side.key)
            self._side.close()
            self._side = None

    def _take(self) -> tuple[list[Job], bool]:
        """Everything that waits, to the bounds of a batch; False with the last."""
        batch, self._left = _cut(self._left) if self._left else ([], [])
        while not self._left:
            try:
                jobs = self._queue.get_nowait() if batch else self._next()
            except Empty:
                return batch, True
            if jobs is None:
                return batch, False
            batch, self._left = _cut(batch + jobs)
        return batch, True

    def _next(self) -> list[Job] | None:
        """Wait for jobs; meanwhile, once it seems that none come soon, tidy up."""
        tidying = self._is_due(CHECKPOINT_PAGES)
        while tidying or self._chores:
            try:
                return self._queue.get(timeout=IDLE_S)
            except Empty:
                self._checkpoint(CHECKPOINT_PAGES)
                self._do_chore()
                tidying = False
        return self._queue.get()

    def _do_chore(self) -> None:
        """A little of what was put off. What fails is left to another process or another day."""
        if self._chores:
            chore = self._chores.popleft()
            [(_, more)] = self._work([Job(Ticket(), chore)]).outcomes
            if more is True:
                self._chores.append(chore)

    def _in_order(self, batch: list[Job]) -> Batch:
        """Work on a batch, less the facts of attempts that lost one: behind a gap none may stand, though there be room
        again for a small one."""
        lost = [(job, fault) for job in batch if (fault := self._gaps.get(job.facts_of)) is not None]
        if not lost:
            return self._noted(self._work(batch))
        rest = [job for job in batch if job.facts_of not in self._gaps]
        done = self._noted(self._work(rest)) if rest else Batch([], {})
        return Batch([*done.outcomes, *lost], done.heads, done.lines)

    def _noted(self, done: Batch) -> Batch:
        for job, outcome in done.outcomes:
            if job.facts_of is not None and isinstance(outcome, HarnessFault) and outcome.kind == "store_full":
                if len(self._gaps) >= MOST_GAPS:
                    self._gaps.clear()
                self._gaps[job.facts_of] = outcome
        return done

    def _work(self, batch: list[Job]) -> Batch:
        try:
            side = self._ready()
            side.gate.enter()
        except HarnessFault as fault:
            return _failed(batch, fault)
        except FOREIGN as error:
            return _failed(batch, translate(error, self._directory))
        try:
            side.files.check()
            self._look_for_room()
            return self._transact(side, batch)
        except HarnessFault as fault:
            self._end(fault)
            return _failed(batch, fault)
        finally:
            side.gate.leave()

    def _end(self, fault: HarnessFault) -> None:
        self._closed = fault
        # Without its gate a store may not be written to; what it holds is whole.
        if fault.details.get("file") != "gate.lock":
            self._damage.lost = fault

    def _ready(self) -> WriteSide:
        """The write side; tried again if the store could only be read.

        Raises:
            HarnessFault: it still can only be read, or this process must not go on.
        """
        if self._closed is not None:
            raise self._closed
        if self._side is None:
            why = why_read_only(self._directory)
            if why is not None:
                raise unavailable(self._directory, why, readOnly=True)
            side = self._reopen()
            self._owners.arrive()
            self.adopt(side)
            return side
        return self._side

    def _transact(self, side: WriteSide, batch: list[Job]) -> Batch:
        try:
            return self._once(side, batch)
        except HarnessFault:
            # The store's own: what was committed may be lost, so nothing of the batch is answered as done.
            raise
        # The border of this thread: whatever one job does, the others go on.
        except Exception as error:
            _roll_back(side.connection)
            if len(batch) == 1:
                return self._failed(side, batch, translate(error, self._directory))
        outcomes: list[Outcome] = []
        heads: dict[str, int] = {}
        lines: list[tuple[str, int, list[bytes]]] = []
        for job in batch:
            self._look_for_room()
            fault = self._gaps.get(job.facts_of)
            alone = self._noted(self._transact(side, [job])) if fault is None else _failed([job], fault)
            outcomes += alone.outcomes
            heads.update(alone.heads)
            lines += alone.lines
        return Batch(outcomes, heads, lines)

    def _failed(self, side: WriteSide, batch: list[Job], fault: HarnessFault) -> Batch:
        """The outcome of one job. On a full disk it is tried again with the room of the reserve, which only what ends a
        turn, or removes something, is given."""
        if fault.kind != "store_full":
            return _failed(batch, fault)
        if self._reserve.give_up(to_remove=batch[0].frees):
            return self._transact(side, batch)
        return _failed(batch, full(self._directory, reserve_used=self._reserve.is_used))

    def _look_for_room(self) -> None:
        if self._reserve.is_used:
            self._reserve.make()

    def _once(self, side: WriteSide, batch: list[Job]) -> Batch:
        connection = side.connection
        connection.execute("begin immediate")
        (commits,) = one(connection, "update meta set value = value + 1 where key = 'commits' returning value")
        epoch = self._epoch if commits == self._commits + 1 else self._epoch + 1
        now = rfc3339(time.time_ns() // 1_000_000)
        tight = self._reserve.is_used
        scene = Scene(connection, side.key, self._owners, self._damage, self._blobs, is_tight=tight)
        transaction = Transaction(scene, self._sessions, epoch=epoch, now=now)
        outcomes = [(job, _attempt(job, transaction)) for job in batch]
        if transaction.dirty:
            transaction.flush()
            side.files.make_room()
            connection.execute("commit")
            side.files.confirm()
            self._commits = commits
        else:
            connection.execute("rollback")
            self._commits = commits - 1
        self._epoch = epoch
        if len(self._sessions) > CACHED_SESSIONS:
            self._sessions.clear()
        self._sessions.update(transaction.changed)
        if transaction.removed:
            self._take_leave(transaction.removed)
        if transaction.dirty:
            self._witness(side, commits)
        return Batch(outcomes, transaction.appended | dict.fromkeys(transaction.removed, 0), transaction.lines)

    def _take_leave(self, session_ids: set[str]) -> None:
        for session_id in session_ids:
            self._sessions.pop(session_id, None)
        self.put_off(Transaction.remove_some)

    def _witness(self, side: WriteSide, commits: int) -> None:
        # The commit stands whatever happens here. A witness that is behind only sees less, and a key that is missing
        # is written with the next commit.
        with suppress(OSError):
            side.witness.write(side.meta.store_id, commits)
        with suppress(OSError):
            keep_key(self._directory, side.key)

    def _grown(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._wal_pages:
            self._tried_pages = 0
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _is_due(self, limit_pages: int) -> bool:
        return self._wal_pages >= max(limit_pages, self._tried_pages + CHECKPOINT_PAGES)

    def _checkpoint(self, limit_pages: int) -> None:
        """Move the WAL into the database, if it is worth it and nobody else writes."""
        if not self._is_due(limit_pages):
            return
        side = self._side
        if side is None or self._closed is not None:
            return
        self._tried_pages = self._wal_pages
        try:
            if side.gate.enter(patient=False):
                try:
                    # A damaged WAL must not be moved over what the database still holds.
                    side.files.check()
                    side.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                except HarnessFault as fault:
                    self._end(fault)
                finally:
                    side.gate.leave()
        except FOREIGN:
            # No room, or a disk that fails: the commits stand in the WAL, and the next one will say it.
            return


def _cut(jobs: list[Job]) -> tuple[list[Job], list[Job]]:
    """A batch within its bounds, and what is left; at least one job."""
    size_bytes = 0
    for count, job in enumerate(jobs, 1):
        size_bytes += job.weight_bytes
        if size_bytes >= BATCH_BYTES or count >= BATCH_JOBS:
            return jobs[:count], jobs[count:]
    return jobs, []


def _attempt(job: Job, transaction: Transaction) -> Any:
    try:
        return job.work(transaction)
    except HamesError as error:
        return error


def _failed(batch: list[Job], fault: HamesError) -> Batch:
    return Batch([(job, fault) for job in batch], {})


def _roll_back(connection: apsw.Connection) -> None:
    try:
        if connection.in_transaction:
            connection.execute("rollback")
    except apsw.Error:
        # SQLite rolls back by itself what it could not write.
        return
