"""Follows the logs of the sessions that this process runs, and has their spans exported.

Rule 1: it reads what is committed, beside the work: nothing that a turn does waits for it, and memory holds no more
than a page, however far behind it is.
Rule 2: a session is followed from the moment its lease is taken until it is lost, the session is closed, or the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import anyio

from hames.core.session import Event
from hames.core.times import epoch_ms
from hames.ports import Loaded, Owner, Store
from hames.protocol.errors import HamesError
from hames.protocol.jsontext import reread
from hames.telemetry.otlp import Exporter
from hames.telemetry.spans import EVENT_TYPES, Redact, SessionSpans

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

LAG_S: Final = 0.25
"""Between two looks at a log: what came meanwhile is read at once."""

FLUSH_S: Final = 2.0
"""For everything that is left to be read and sent when the process ends."""

PAGE_EVENTS, PAGE_BYTES = 1_000, 512 * 1024


class Telemetry:
    """The spans of this process. `content` redacts texts that go into them; None: none do. Implements
    `ports.Observer`."""

    def __init__(
        self,
        store: Store,
        tasks: TaskGroup,
        *,
        url: str,
        headers: Mapping[str, str],
        content: Redact | None,
        report: Callable[[str, BaseException], None],
    ) -> None:
        self.exporter = Exporter(url, headers, tasks, report=report)
        self._store = store
        self._tasks = tasks
        self._content = content
        self._report = report
        self._followed: dict[str, _Followed] = {}
        self._unfinished: set[_Followed] = set()
        self._ends = False

    def owned(self, session_id: str, owner: Owner | None) -> None:
        """See `ports.Observer.owned`."""
        mine = owner is not None and owner.mine
        if not mine and session_id in self._followed:
            self._followed.pop(session_id).scope.cancel()
        elif mine and session_id not in self._followed and not self._ends:
            followed = self._followed[session_id] = _Followed(self._store, session_id, self._content)
            self._unfinished.add(followed)
            self._tasks.start_soon(self._follow, followed)

    async def aclose(self) -> None:
        """See `ports.Observer.aclose`."""
        self._ends = True
        with anyio.move_on_after(FLUSH_S):
            for followed in self._unfinished:
                followed.scope.cancel()
            for followed in tuple(self._unfinished):
                await followed.done.wait()
            await self.exporter.flush()
        await self.exporter.aclose()

    async def _follow(self, followed: _Followed) -> None:
        try:
            with followed.scope:
                await followed.begin()
                while not self._is_over(followed):
                    await self._store.changed(followed.session_id, followed.seq)
                    await anyio.sleep(LAG_S)
                    await self._catch_up(followed)
            if followed.spans is None:
                await followed.begin()
            # What was done until it was cancelled, also when the process is about to end.
            await self._catch_up(followed)
        except HamesError:
            return  # who works with the session is told; of one that was deleted there is nothing to tell
        except Exception as error:
            # A top border: a defect here costs spans, and no session.
            self._report(f"session {followed.session_id} is not in telemetry any more", error)
        finally:
            if self._followed.get(followed.session_id) is followed:
                del self._followed[followed.session_id]
            if followed.spans is not None:
                told = {"hames.dropped_spans": self.exporter.dropped} if self.exporter.dropped else {}
                self.exporter.offer(followed.spans.leave(_now_ms(), **told))
            self._unfinished.discard(followed)
            followed.done.set()

    def _is_over(self, followed: _Followed) -> bool:
        """The session is closed, and was not opened again since; it is not followed any more then."""
        known = self._store.latest(followed.session_id) if followed.closed else None
        if known is None or known[0].status != "closed":
            return False
        del self._followed[followed.session_id]
        return True

    async def _catch_up(self, followed: _Followed) -> None:
        assert followed.spans is not None
        more = True
        while more:
            events, more = await followed.page()
            for event in events:
                self.exporter.offer(followed.spans.take(event))
                followed.closed = followed.closed or event.type == "session.closed"


class _Followed:
    """One session, and how far its log was read."""

    def __init__(self, store: Store, session_id: str, content: Redact | None) -> None:
        self.session_id = session_id
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.closed = False
        self.spans: SessionSpans | None = None
        self.seq = 0
        self._store = store
        self._content = content
        self._since_ms = _now_ms()
        known = store.latest(session_id)
        # As it stands now: the turn that is about to start is not started yet.
        self._known = known if known is not None and known[0].seq >= store.head(session_id) else None
        self._cursor: str | None = None

    async def begin(self) -> None:
        """Find where to begin, and what waits there."""
        loaded = await self._store.load(self.session_id)
        state, self._cursor = self._known or (loaded.state, loaded.cursor)
        self.seq = state.seq
        trace_id = self._store.keyed(f"trace {self.session_id}")[:32]
        spans = SessionSpans(
            self.session_id,
            trace_id,
            self._since_ms,
            attributes=_attributes(loaded),
            content=self._content,
            pid=os.getpid(),
        )
        for turn in state.turns.values():
            if self._content is None:
                spans.queued(turn.turn_id, epoch_ms(turn.queued_at))
                continue
            before = await self._store.place(self.session_id, turn.queued_seq - 1)
            page = await self._store.read(self.session_id, after=before, limit=1, max_bytes=PAGE_BYTES)
            for event in _events(page.lines):
                spans.take(event)
        self.spans = spans

    async def page(self) -> tuple[list[Event], bool]:
        """The next events, and whether there are more."""
        page = await self._store.read(
            self.session_id, after=self._cursor, limit=PAGE_EVENTS, max_bytes=PAGE_BYTES, types=EVENT_TYPES
        )
        self._cursor, self.seq = page.cursor, max(self.seq, page.last_seq)
        return _events(page.lines), page.more


def _attributes(loaded: Loaded) -> dict[str, str | int]:
    said = loaded.snapshot.get("attribution", {})
    return {f"hames.attribution.{name}": value for name, value in said.items()}


def _events(lines: bytes) -> list[Event]:
    return [Event.of(reread(b"{" + line + b"}")["event"]) for line in lines.splitlines()]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
