"""The sessions of this process: admission, attaching, waiting, shutting down. What the server's handlers call.

Rule 1: an admission is durable before it is answered. Rule 2: reading a session never attaches to it: nothing
runs until somebody who may pay for it asks (submit, resume with `own`, queue/resume).
Rule 3: the world is held against a session's snapshot before its first attempt here (AH-INT-4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import anyio
from anyio.abc import TaskGroup

from hames.core.commands import (
    By,
    CancelTurn,
    CloseSession,
    Command,
    CreateSession,
    OpenSession,
    ResumeQueue,
    SubmitTurn,
    UpdateSession,
)
from hames.core.digests import canonical_digest
from hames.core.state import State, Turn
from hames.engine.asking import Preparing, begin
from hames.engine.ids import new_id
from hames.engine.live import Live
from hames.engine.standing import standing
from hames.engine.usage import refuse_unpriced
from hames.engine.worker import Worker
from hames.ports import Committed, Loaded, Owner, Store, World
from hames.protocol.errors import HamesError, Refused

OWNER_CHECK_S = 1.0
"""How often a wait looks whether the other process that runs the session is still there."""

HAND_OVER_S = 0.4
"""For calls to end before a turn can be handed over; longer ones are cancelled: who leaves has 1 s in all."""

WaitEnd = Literal["ended", "timeout", "held", "unowned"]


def no_report(what: str, error: BaseException) -> None:
    """Tell nobody of a defect."""


START_S = 5.0
"""For turns that were just submitted to start before a drain: as long as a wait for the store's gate may take."""

START_LOOK_S = 0.005


class Service:
    """Every session that this process has to do with."""

    def __init__(
        self,
        store: Store,
        world: World,
        tasks: TaskGroup,
        report: Callable[[str, BaseException], None] = no_report,
        *,
        guest: bool = False,
    ) -> None:
        self.store = store
        self.world = world
        self.stopping = False
        self.preparing = Preparing()
        self.owner_listeners: set[Callable[[str, Owner | None], None]] = set()
        self._tasks = tasks
        self._report = report
        self._guest = guest
        self._own_turns: defaultdict[str, set[str]] = defaultdict(set)
        self._opening: anyio.Event | None = None
        self._open_failure: HamesError | None = None
        self._workers: dict[str, Worker] = {}
        self._lives: dict[str, Live] = {}
        self._checked: dict[str, Loaded] = {}
        self._beating = False
        self._waiting: dict[str, set[anyio.CancelScope]] = {}

    # --- the store ----------------------------------------------------------------------------------------

    async def opened(self) -> Store:
        """The store, opened when it is first needed; a failure to open is tried again by the next caller."""
        while True:
            if self._opening is None:
                self._opening = anyio.Event()
                self._open_failure = None
                try:
                    await self.world.prepare()
                    await self.store.open()
                except HamesError as failure:
                    self._open_failure = failure
                    self._opening.set()
                    self._opening = None
                    raise
                self._opening.set()
                return self.store
            await self._opening.wait()
            if self._open_failure is None:
                return self.store

    async def commit(self, session_id: str, command: Command) -> Committed:
        """Decide and append a client's command; durable when this returns."""
        store = await self.opened()
        await store.room()
        return await store.commit(session_id, command).wait()

    async def load(self, session_id: str) -> Loaded:
        """A session at its head."""
        return await (await self.opened()).load(session_id)

    async def state(self, session_id: str) -> State:
        """A session's state at the head that this process knows of; read only when another process moved it."""
        return (await standing(self.store, session_id))[0]

    # --- admission ----------------------------------------------------------------------------------------

    async def unlock(self, model: str | None) -> None:
        """Have at hand what asking a model needs: see `ports.World.unlock`."""
        async with self.preparing.wait():
            await self.world.unlock(model)

    async def create(
        self, wish: Mapping[str, Any], *, session_id: str, digest: str, by: By, turn: SubmitTurn | None
    ) -> Committed:
        """Make a session; the caller's process attaches to it. A repeat answers the first one."""
        self._admitting()
        store = await self.opened()
        key = wish.get("idempotencyKey")
        try:
            await self.unlock(wish.get("model"))
            await self.world.prove(wish.get("sandbox"))
            snapshot = self.world.snapshot(wish)
            refuse_unpriced(self.world, snapshot["model"], snapshot["limits"], turn.limits if turn else {})
        except Refused as refusal:
            asked = CreateSession({}, "", "", digest, by, key=key, only_repeat=True)
            return await self._repeated(session_id, asked, refusal)
        snapshot_digest = canonical_digest(snapshot)
        committed = await self.commit(
            session_id,
            CreateSession(
                snapshot,
                snapshot_digest,
                store.keyed(snapshot_digest),
                digest,
                by,
                key=key,
                title=wish.get("title"),
                metadata=wish.get("metadata"),
                turn=turn,
            ),
        )
        begin()
        session_id = committed.reply.session_id or session_id
        try:
            await self._hold_against_world(await self.load(session_id))
        except Refused:
            if committed.reply.repeated:
                return committed
            raise
        await self.attach(session_id)
        return committed

    async def _repeated(self, session_id: str, asked: CreateSession | SubmitTurn, refusal: Refused) -> Committed:
        """What the key of a command was used for: it answers for ever, also when that could not be had again.

        Raises:
            Refused: `refusal`, where the key is new or absent.
        """
        if asked.key is not None:
            committed = await self.commit(session_id, asked)
            if committed.reply.repeated:
                return committed
        raise refusal

    async def update(self, session_id: str, title: str | None, model: str | None, by: By) -> Committed:
        """Change the title, or the model of turns that start from now on.

        Raises:
            Refused: the model cannot be had: `invalid_config`, `credential_missing`, `capability_unavailable`.
        """
        if model is None:
            return await self.commit(session_id, UpdateSession(title, by))
        loaded = await self.load(session_id)
        await self.unlock(model)
        route = self.world.route(model)
        refuse_unpriced(self.world, route, loaded.snapshot["limits"])
        digest = canonical_digest({**loaded.snapshot, "model": route})
        return await self.commit(session_id, UpdateSession(title, by, route, digest))

    async def snapshot(self, session_id: str) -> Mapping[str, Any]:
        """What a session may do. It never changes, so it is read once."""
        known = self._checked.get(session_id)
        return (known or await self.load(session_id)).snapshot

    async def submit(self, session_id: str, command: SubmitTurn) -> Committed:
        """Admit a turn, and attach so that it runs."""
        self._admitting()
        if session_id not in self._checked:
            loaded = await self.load(session_id)
            try:
                await self._hold_against_world(loaded)
            except Refused as refusal:
                return await self._repeated(session_id, replace(command, only_repeat=True), refusal)
        if "costMicros" in command.limits:
            loaded = await self.load(session_id)
            route = loaded.state.effective(loaded.snapshot)["model"]
            try:
                await self.unlock(route["provider"])
                refuse_unpriced(self.world, route, command.limits)
            except Refused as refusal:
                return await self._repeated(session_id, replace(command, only_repeat=True), refusal)
        worker = self._workers.get(session_id)
        if worker is not None and worker.failure is not None and worker.failure.kind == "session_corrupt":
            raise worker.failure
        store = await self.opened()
        await store.room()
        if self._guest:
            self._own_turns[session_id].add(command.turn_id)
        pending = store.commit(session_id, command)
        if worker is not None:
            worker.start_soon(pending)
        moves = False
        try:
            committed = await pending.wait()
            moves = bool(committed.events)
        finally:
            if worker is not None and not moves:
                worker.look()
        await self.attach(session_id)
        return committed

    async def resume(
        self,
        session_id: str,
        *,
        expect: Mapping[str, str],
        own: Literal["prefer", "require", "observe"],
        recover: Literal["continue", "fail"],
        by: By,
    ) -> Loaded:
        """Attach to a session; an observer only reads. Opens a closed one."""
        loaded = await self.load(session_id)
        expected(loaded, expect)
        if own == "observe":
            return loaded
        self._admitting()
        await self._hold_against_world(loaded)
        if own == "require" and loaded.owner is not None and not loaded.owner.mine and loaded.owner.alive:
            raise Refused("session_owned", **owner_view(loaded.owner))
        if loaded.state.status == "closed":
            await self.commit(session_id, OpenSession(by))
            loaded = await self.load(session_id)
        await self.attach(session_id, recover=recover)
        return loaded

    async def resume_queue(self, session_id: str, by: By) -> Committed:
        """Lift a hold, and attach so that the queue runs."""
        self._admitting()
        await self._hold_against_world(await self.load(session_id))
        committed = await self.commit(session_id, ResumeQueue(by))
        await self.attach(session_id)
        return committed

    async def cancel(self, session_id: str, command: CancelTurn) -> Committed:
        """Make a cancel durable. Where nobody runs the session, the turn is settled here: that costs nothing."""
        committed = await self.commit(session_id, command)
        turn = committed.state.active
        if turn is not None and turn.cancel is not None:
            await self.settle_unowned(session_id)
        return committed

    async def close(self, session_id: str, by: By, closing: Callable[[], object] = lambda: None) -> Loaded:
        """Cancel what runs and waits, wait until nothing runs, close; `closing` as for `settle`."""
        await self.settle(session_id, by, closing)
        await self.store.release(session_id)
        return await self.load(session_id)

    async def settle(self, session_id: str, by: By, closing: Callable[[], object] = lambda: None) -> None:
        """Close a session, and see that nothing of it runs here; a lease of this process stays. `closing()` is called
        once the wish is durable: what is submitted from then on is refused."""
        while True:
            committed = await self.commit(session_id, CloseSession(by))
            closing()
            if committed.state.status == "closed":
                break
            await self.settle_unowned(session_id)
            # Who runs it may fall silent meanwhile, and nothing in the log tells of that.
            with anyio.move_on_after(OWNER_CHECK_S):
                await self.store.changed(session_id, committed.state.seq)
        worker = self._workers.pop(session_id, None)
        if worker is not None:
            worker.stop()
            await worker.done.wait()

    def serves(self, session_id: str) -> bool:
        """Turns of the session run here, or will."""
        worker = self._workers.get(session_id)
        return worker is not None and not worker.done.is_set()

    async def forget(self, session_id: str) -> None:
        """The session is gone."""
        worker = self._workers.pop(session_id, None)
        if worker is not None:
            worker.abandon()
            await worker.done.wait()
        self._checked.pop(session_id, None)
        self._lives.pop(session_id, None)
        self.world.outputs.forget(session_id)

    def _admitting(self) -> None:
        if self.stopping:
            raise Refused("shutting_down")

    async def _hold_against_world(self, loaded: Loaded) -> None:
        session_id = loaded.state.session_id
        if session_id in self._checked:
            return
        digest = canonical_digest(dict(loaded.snapshot))
        if digest != loaded.state.snapshot_digest or self.store.keyed(digest) != loaded.keyed_digest:
            raise Refused(
                "authority_mismatch",
                "The stored snapshot was changed after this store's user signed it.",
                fields=[{"member": "snapshotDigest", "recorded": loaded.state.snapshot_digest, "found": digest}],
            )
        snapshot = loaded.state.effective(loaded.snapshot)
        await self.unlock(snapshot["model"]["provider"])
        await self.world.prove(snapshot["sandbox"]["backend"])
        mismatches = self.world.mismatches(snapshot)
        if mismatches:
            fields = [{"member": m.member, "recorded": m.recorded, "found": m.found} for m in mismatches]
            raise Refused("authority_mismatch", fields=fields)
        self._checked[session_id] = loaded

    # --- attaching ----------------------------------------------------------------------------------------

    def live(self, session_id: str) -> Live:
        """Where the session's previews are to be heard in this process."""
        return self._lives.setdefault(session_id, Live())

    async def attach(self, session_id: str, *, recover: Literal["continue", "fail"] = "continue") -> None:
        """Run the session's turns here whenever its lease can be had."""
        worker = self._workers.get(session_id)
        if worker is not None and not worker.done.is_set() and not worker.settle_only and not worker.left:
            return
        await self._settled_by(worker)
        if self._workers.get(session_id) is not worker:
            return  # somebody else was quicker
        self._start_worker(session_id, recover=recover, settle_only=False)

    async def settle_unowned(self, session_id: str) -> None:
        """Settle here what needs no model, where nobody runs the session."""
        worker = self._workers.get(session_id)
        if worker is not None and not worker.done.is_set():
            return
        owner = await self.store.owner(session_id)
        # One that is silent for longer than its lease is as good as gone: its commands are ended first.
        if owner is None or owner.mine or not owner.alive or owner.stale:
            self._start_worker(session_id, recover="continue", settle_only=True)

    async def _settled_by(self, worker: Worker | None) -> None:
        if worker is not None:
            await worker.done.wait()

    def _start_worker(self, session_id: str, *, recover: Literal["continue", "fail"], settle_only: bool) -> None:
        if self.stopping:
            # A request that was admitted before may get here late: who comes next takes the session.
            return

        def tell(owner: Owner | None) -> None:
            for listener in list(self.owner_listeners):
                listener(session_id, owner)

        worker = Worker(
            self.store,
            self.world,
            session_id,
            tasks=self._tasks,
            live=self.live(session_id),
            on_owner=tell,
            report=self._report,
            settle_only=settle_only,
            own_turns=self._own_turns[session_id] if self._guest else None,
        )
        worker.recover = recover
        self._workers[session_id] = worker
        self._tasks.start_soon(self._run_worker, worker)
        if not self._beating:
            self._beating = True
            self.store.beat()
            self._tasks.start_soon(self._beat)

    async def _run_worker(self, worker: Worker) -> None:
        await worker.run()
        # Who waits for a turn of it looks again: nothing more will be committed here.
        for scope in tuple(self._waiting.pop(worker.session_id, ())):
            scope.cancel()

    async def _beat(self) -> None:
        """Say that this process lives, for as long as it has sessions; a stopped process falls silent."""
        while True:
            await anyio.sleep(self.world.limits["leaseMs"] / 3000)
            self.store.beat()

    def failure(self, session_id: str) -> HamesError | None:
        """Why the session's worker ended, if it did by itself."""
        worker = self._workers.get(session_id)
        return None if worker is None else worker.failure

    # --- waiting ------------------------------------------------------------------------------------------

    async def wait(self, session_id: str, turn_id: str) -> tuple[Turn, str, WaitEnd]:
        """Until the turn has its terminal, or cannot get it without somebody acting."""
        store = await self.opened()
        while True:
            state, cursor = await standing(store, session_id)
            turn = state.turns.get(turn_id)
            if state.ended is not None and state.ended.turn_id == turn_id:
                return state.ended, cursor, "ended"
            if turn is None or (turn.status == "queued" and state.hold is not None):
                turn, cursor = await store.turn(session_id, turn_id)
                if turn.ended or turn.status == "queued":
                    return turn, cursor, "ended" if turn.ended else "held"
                continue
            worker = self._workers.get(session_id)
            if worker is not None and worker.failure is not None:
                # Nobody else runs it either: why it does not go on is the answer.
                raise worker.failure
            here = worker is not None and not worker.done.is_set()
            if not here:
                owner = await store.owner(session_id)
                if owner is None or not owner.alive:
                    turn, cursor = await store.turn(session_id, turn_id)
                    return turn, cursor, "ended" if turn.ended else "unowned"
            with anyio.move_on_after(None if here else OWNER_CHECK_S) as scope:
                waiting = self._waiting.setdefault(session_id, set())
                waiting.add(scope)
                try:
                    await store.changed(session_id, state.seq)
                finally:
                    waiting.discard(scope)

    # --- the end ------------------------------------------------------------------------------------------

    async def shutdown(
        self, mode: Literal["cancel", "drain"], *, by: By, cause: Literal["disconnect", "shutdown"]
    ) -> None:
        """Admit nothing more, cancel or wait for what runs, free the leases. To wait includes what was submitted to run
        at once and is only about to start."""
        if mode == "drain":
            with anyio.move_on_after(START_S):
                while any(worker.starting for worker in self._workers.values()):  # noqa: ASYNC110 - no bell rings
                    await anyio.sleep(START_LOOK_S)
        self.stopping = True
        workers = [worker for worker in self._workers.values() if not worker.done.is_set() and not worker.retire()]
        if mode == "cancel":
            self.preparing.cancel()
            for worker in workers:
                worker.end_processes()
            async with anyio.create_task_group() as letting_go:
                for worker in workers:
                    letting_go.start_soon(self._let_go, worker, by, cause)
        for worker in workers:
            await worker.done.wait()
        await self.preparing.end()
        # A store that fails now frees nothing; that this process is gone will be seen by its lock.
        with suppress(HamesError):
            await self.store.release_all()

    async def _let_go(self, worker: Worker, by: By, cause: Literal["disconnect", "shutdown"]) -> None:
        """Hand the running turn to a process that stands by for its session; cancel it where there is none."""
        if await self.store.heir(worker.session_id) is not None:
            worker.hand_over()
            with anyio.move_on_after(HAND_OVER_S):
                await worker.done.wait()
                return
            if not worker.running:
                # The turn is left; what ran in the background is on its way to its end.
                return
        await self._cancel_running(worker.session_id, by, cause)

    async def _cancel_running(self, session_id: str, by: By, cause: Literal["disconnect", "shutdown"]) -> None:
        try:
            owner = await self.store.owner(session_id)
            if owner is not None and owner.mine:
                await self.commit(session_id, CancelTurn(by, cause=cause))
        except HamesError:
            # Nothing runs, or the store fails: recovery settles from the log.
            return

    async def aclose(self) -> None:
        """End what runs at once and close what is open; workers that only wait end with their task group."""
        self.world.processes.hurry()
        busy = [worker for worker in self._workers.values() if not worker.retire()]
        for worker in busy:
            worker.abandon()
        for worker in busy:
            await worker.done.wait()
        await self.world.aclose()
        if self._opening is not None:
            await self.store.aclose()


def owner_view(owner: Owner) -> dict[str, Any]:
    """Who runs a session, as published."""
    return {
        "host": owner.host,
        "pid": owner.pid,
        "since": owner.since,
        "expiresAt": owner.expires_at,
        "alive": owner.alive,
        "mine": owner.mine,
    }


def expected(loaded: Loaded, expect: Mapping[str, str]) -> None:
    """Go on only if the session is bound to what its caller believes.

    Raises:
        Refused: `authority_mismatch`.
    """
    found = {"workspace": loaded.snapshot["workspace"]["path"], "snapshotDigest": loaded.state.snapshot_digest}
    fields = [
        {"member": member, "recorded": found[member], "found": value}
        for member, value in expect.items()
        if found[member] != value
    ]
    if fields:
        raise Refused("authority_mismatch", "The session is bound to something else than expected.", fields=fields)


def fresh_session_id() -> str:
    """An id for a session whose caller chose none."""
    return new_id("s")
