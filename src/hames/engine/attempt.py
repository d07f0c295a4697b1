"""One execution of a turn under one fence: the commits of an attempt, and the fold that its steps decide on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio

from hames.core.artifacts import references, whole
from hames.core.commands import Boundary, Command, Draft, Ending, EndTurn, Record, Reply
from hames.core.compaction import Replacement
from hames.core.composition import Composition
from hames.core.context import Conversation
from hames.core.pictures import ALL_TYPES, Pictures, types_taken
from hames.core.plan import Progress, TurnBounds
from hames.core.repairs import Unsigned
from hames.core.session import Event
from hames.core.state import State
from hames.engine.kept import open_kept
from hames.engine.live import Live
from hames.engine.processes import CallProcesses, SessionProcesses
from hames.ports import Artifact, Background, Committed, Equipment, KeptOutput, Page, Pending, Spool, Store
from hames.protocol.errors import HarnessFault
from hames.protocol.events import CONVERSATION_TYPES
from hames.protocol.jsontext import reread


class Log:
    """A session's conversation, folded from its log and kept at its head.

    Events of other writers stand between ours; what we did not write we read.
    """

    def __init__(
        self, store: Store, session_id: str, limits: Mapping[str, int], image_types: frozenset[str] = ALL_TYPES
    ) -> None:
        self._image_types = image_types
        self.checked = 0
        """Messages of it that were found sendable and cannot change."""
        self.lost: set[str] = set()
        """Artifacts that a repair has said to be lost: the model is told of them in their places."""
        self.unsigned = Unsigned()
        self._store = store
        self._session_id = session_id
        self._limits = limits
        self._cursor: str | None = None
        self._replaced_at = 0
        self.conversation = self._begin(None)

    def _begin(self, replacement: Replacement | None) -> Conversation:
        pictures = Pictures(
            most=self._limits["requestImages"],
            most_bytes=self._limits["requestImageBytes"],
            types=self._image_types,
        )
        self.checked = 0
        self.lost = set()
        self.unsigned = Unsigned()
        return Conversation(pictures, replacement)

    async def shown_to(self, equipment: Equipment, state: State) -> Log:
        """The log as its model sees it: another one where that is shown other images of what was said so far. As a
        process folds it that comes to the session now, so that both send the same."""
        types = types_taken(equipment.provider.signs_as, equipment.images)
        if self.conversation.pictures.fits(types):
            self._image_types = types
            return self
        log = Log(self._store, self._session_id, self._limits, types)
        await log.catch_up(state)
        return log

    async def catch_up(self, state: State) -> None:
        """Fold everything up to the event that `state` stands at, at least."""
        if state.replaced_at != self._replaced_at:
            await self._begin_anew(state)
        while self.conversation.seq < state.seq:
            page = await self._store.read(
                self._session_id,
                after=self._cursor,
                limit=1_000,
                max_bytes=self._limits["pageBytes"],
                types=CONVERSATION_TYPES,
            )
            self._fold(await self._whole(_events(page), {}))
            self.conversation.seq = page.last_seq
            self._cursor = page.cursor

    def _fold(self, events: Sequence[Event]) -> None:
        self.conversation.apply_all(events)
        if any(event.type == "context.composed" for event in events):
            self.checked = 0  # messages may have gone
            self.unsigned = Unsigned()

    async def _begin_anew(self, state: State) -> None:
        """As a process does that comes to the session after the context was replaced: what both send is equal because
        it is made in the same way."""
        replacement = Replacement.of(await self._event(state.replaced_at, "context.replaced"))
        composition: Composition | None = None
        if 0 < state.composed_at < replacement.read_from:
            composition = Composition.of(await self._event(state.composed_at, "context.composed"))
        cursor = await self._store.place(self._session_id, replacement.read_from - 1)
        self.conversation = self._begin(replacement)
        self.conversation.composition = composition
        self._cursor, self._replaced_at = cursor, state.replaced_at

    async def _event(self, seq: int, type_: str) -> Event:
        """Event `seq`, whole, which is of this type."""
        before = await self._store.place(self._session_id, seq - 1)
        page = await self._store.read(
            self._session_id, after=before, limit=1, max_bytes=self._limits["pageBytes"], types=(type_,)
        )
        (event,) = await self._whole(_events(page), {})
        return event

    async def take(self, committed: Committed) -> None:
        """Fold what a commit of ours appended, and what stands before it."""
        if not committed.events:
            return
        is_next = committed.events[0].seq == self.conversation.seq + 1
        if not is_next or committed.state.replaced_at != self._replaced_at:
            await self.catch_up(committed.state)
            return
        self._fold(await self._whole(committed.events, committed.contents))
        self._cursor = committed.cursor

    async def _whole(self, events: Sequence[Event], known: Mapping[str, bytes]) -> Sequence[Event]:
        """`events` with the texts and images that they refer to; `known` are some of those.

        All of it before anything is folded: a wait that is cancelled leaves the conversation where it was.
        """
        wanted = [references(event.type, event.data) for event in events]
        missing = set().union(*wanted) - known.keys()
        found = {**known, **await self._store.contents(self._session_id, missing)} if missing else known
        self.lost |= missing - found.keys()
        return [
            replace(event, data=whole(event.type, event.data, found)) if names else event
            for event, names in zip(events, wanted, strict=True)
        ]


def _events(page: Page) -> list[Event]:
    return [Event.of(reread(b"{" + line + b"}")["event"]) for line in page.lines.splitlines()]


PROCESS_TOOL = "process"
"""By which a model reads and stops what runs in the background: without it nothing is started there."""


class Attempt:
    """What an attempt needs: its turn, its fence, its equipment, its bounds, and how it records facts."""

    def __init__(
        self,
        *,
        store: Store,
        session_id: str,
        turn_id: str,
        fence: int,
        log: Log,
        live: Live,
        state: State,
        snapshot: Mapping[str, Any],
        limits: Mapping[str, int],
        processes: SessionProcesses,
    ) -> None:
        turn = state.turns[turn_id]
        self.session_id = session_id
        self.turn_id = turn_id
        self.fence = fence
        self.live = live
        self.state = state
        self.snapshot = snapshot
        self.equipment: Equipment
        self._assurance: Mapping[str, Any] = {}
        self.limits = limits
        self.bounds = TurnBounds.of(snapshot["limits"], turn.limits)
        self.ended = False
        self.may_still_run: list[Any] = []
        self.calling = False
        """Calls run: the attempt cannot be left before they have their results."""
        self.warned = False
        """It was told that the conversation nears the model's window."""
        self.kept_context = False
        """The context was to be made shorter, and could not be."""
        self.leaving = False
        """Another process takes the turn from here: nothing further begins."""
        self._store = store
        self._processes = processes
        self.log = log
        self._pending: list[Pending] = []
        self._known = 0

    def equip(self, equipment: Equipment) -> None:
        """Have what it works with: without it, it can only be ended."""
        self.equipment = equipment
        self._assurance = equipment.assurance

    @property
    def conversation(self) -> Conversation:
        """Folded up to the last flush."""
        return self.log.conversation

    @property
    def progress(self) -> Progress:
        """How far the turn is.

        Raises:
            HarnessFault: `internal`, when the turn has ended.
        """
        progress = self.log.conversation.progress
        if progress is None:
            raise HarnessFault("internal", f"turn {self.turn_id} has no progress: it has ended")
        return progress

    @property
    def compacts(self) -> bool:
        """The context may be made shorter unasked. A strict session injects nothing, unless it says so."""
        policy = self.snapshot.get("context", {}).get("compaction")
        return bool(policy == "auto" if policy else self.snapshot["mode"] == "default")

    def spool(self) -> Spool:
        """A place for output of a call that is too large to be shown."""
        return self._store.spool()

    async def open_kept(self, handle: str) -> KeptOutput:
        """The whole output of an earlier call: see `ports.ToolContext.kept`."""
        return await open_kept(self._store, self.session_id, handle)

    def background(self, call_id: str) -> Background | None:
        """The background processes of the session; None where the model could not look after one."""
        if not any(tool.spec.name == PROCESS_TOOL for tool in self.equipment.tools):
            return None
        return CallProcesses(
            self._processes,
            turn_id=self.turn_id,
            call_id=call_id,
            fence=self.fence,
            sandbox=self.equipment.sandbox,
        )

    async def keep(self, spool: Spool, name: str) -> Artifact:
        """Keep what was spooled; the fact that names it comes after."""
        return await self._store.keep(self.session_id, spool, media_type="text/plain", name=name)

    def record(self, *drafts: Draft) -> None:
        """Append facts; they are durable after the next `flush`, in this order.

        Raises:
            Refused, HarnessFault: an earlier fact was not kept, so a later one would stand behind a gap.
        """
        while self._known < len(self._pending) and self._pending[self._known].settled:
            failure = self._pending[self._known].failure
            if failure is not None:
                raise failure
            self._known += 1
        self._pending.append(self._store.commit(self.session_id, Record(self.fence, self.turn_id, drafts)))

    async def flush(self) -> None:
        """Until everything recorded is durable and folded.

        Raises:
            Refused: `lease_lost`. HarnessFault: the store failed; what follows the failed fact was not kept.
        """
        pending, self._pending, self._known = self._pending, [], 0
        for one in pending:
            await self._take(one)

    async def boundary(self, step: int) -> None:
        """Let in joins and steers before `step`, if there are any."""
        waiting = any(self.state.turns[turn_id].delivery == "join" for turn_id in self.state.queue)
        if self.state.steers or waiting:
            await self._commit(Boundary(self.fence, self.turn_id, step))

    async def end(self, ending: Ending, *drafts: Draft) -> bool:
        """Append `drafts` and the terminal in one commit; False when a steer came first and the turn goes on."""
        await self.flush()
        if self.may_still_run:
            ending = replace(ending, forced=True, may_still_run=tuple(self.may_still_run))
        command = EndTurn(self.fence, self.turn_id, ending, drafts, self._assurance)
        self.ended = (await self._commit(command)).ended
        return self.ended

    async def _commit(self, command: Command) -> Reply:
        return (await self._take(self._store.commit(self.session_id, command))).reply

    async def _take(self, pending: Pending) -> Committed:
        # Shielded: what is on its way to disk is known before a cancel is acted on. The store bounds the wait.
        with anyio.CancelScope(shield=True):
            committed = await pending.wait()
            self.state = committed.state
            await self.log.take(committed)
        return committed
