"""One session in this process: its lease, its recovery, its turns one after the other.

    waiting for the lease -> recover what a lost attempt left -> start, run, settle -> wait for the next turn

Rule 1: nothing of a session runs here without the lease; when it is lost, what runs is stopped and not recorded.
Rule 2: recovery calls no model before the log says what came of the attempt before (AH-LIFE-5).
Rule 3: cancel and deadline are watched in the log, so it does not matter which process asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import anyio
from anyio.abc import TaskGroup

from hames.core.commands import StartTurn
from hames.core.state import State
from hames.core.times import epoch_ms
from hames.engine.attempt import Attempt, Log
from hames.engine.beside import beside
from hames.engine.live import Live
from hames.engine.loop import (
    end_at_deadline,
    end_cancelled,
    end_failed,
    heartbeats,
    run_turn,
)
from hames.engine.processes import SessionProcesses
from hames.engine.recovery import Left, plan_left, settle_command, start_drafts
from hames.engine.standing import standing
from hames.ports import Equipment, Lease, Loaded, Owner, Pending, Store, World
from hames.protocol.errors import HamesError, HarnessFault, Refused

OWNER_POLL_S = 0.25
"""How often a worker that waits for somebody else's lease looks whether it is free: a dead owner rings no bell."""

STORE_RETRY_S = 1.0
"""Between tries to settle a turn whose store failed (full, read-only): it may get room again."""

PASSING = frozenset({"store_full", "store_unavailable"})
"""Failures of the store that may pass: another process may free space, or leave the gate."""

Why = Literal["cancel", "deadline", "lost"]


class Worker:
    """Runs the turns of one session while this process holds its lease.

    `settle_only`: settle what can be settled without a model (a cancelled turn of a dead owner), then end.
    """

    def __init__(
        self,
        store: Store,
        world: World,
        session_id: str,
        *,
        tasks: TaskGroup,
        live: Live,
        on_owner: Callable[[Owner | None], None],
        report: Callable[[str, BaseException], None],
        settle_only: bool = False,
        own_turns: set[str] | None = None,
    ) -> None:
        self.session_id = session_id
        self.recover: Literal["continue", "fail"] = "continue"
        self.settle_only = settle_only
        self.own_turns = own_turns
        """The turns that this process runs, and whoever adds to them; None: all. Others are left to who queued them."""
        self.left = False
        """It has left the session, which has only turns of others."""
        self.failure: HamesError | None = None
        self.done = anyio.Event()
        self._store = store
        self._world = world
        self._tasks = tasks
        self._live = live
        self._on_owner = on_owner
        self._report = report
        self._equipment: Equipment | None = None
        self._equipped_for: Mapping[str, Any] | None = None
        self._processes = SessionProcesses(store, world, session_id, tasks, report)
        self._log = Log(store, session_id, world.limits)
        self._scope = anyio.CancelScope()
        self._attempt: tuple[Attempt, anyio.CancelScope] | None = None
        self._stopping = False
        self._leaving = False
        self._resting: Literal["idle", "retry"] | None = None
        self._idle: Callable[[], Pending] | None = None
        self._pending: tuple[Pending, Pending] | None = None
        self._watching: anyio.CancelScope | None = None

    async def run(self) -> None:
        """Own the session whenever it can be had, until `stop`. Never raises; `failure` says why it ended."""
        try:
            with self._scope:
                while not self._stopping:
                    await self._serve_until_stopped()
                    if self.settle_only:
                        break
        except HamesError as failure:
            if failure.kind != "session_deleted":
                self._report(f"session {self.session_id} is not served", failure)
            self.failure = failure
        except Exception as error:
            # A top border: a defect ends this session's worker, and neither another session nor the server.
            self._report(f"the worker of {self.session_id} broke", error)
            self.failure = HarnessFault("internal", f"The worker of {self.session_id} broke.")
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave()
            self.done.set()

    async def _close_sandbox(self) -> None:
        equipment, self._equipment = self._equipment, None
        if equipment is not None:
            await equipment.sandbox.aclose()

    async def _leave(self) -> None:
        await self._processes.end("owner_left")
        await self._close_sandbox()
        if self.failure is not None or self.settle_only or self.left:
            # Who cannot or may not serve a session does not keep others from it.
            with suppress(HamesError):
                await self._store.release(self.session_id)

    def start_soon(self, admitted: Pending) -> None:
        """Start what was just given to the store, in the same commit if it can be: a turn costs one sync less."""
        if self._idle is not None and self._pending is None and not self._stopping:
            self._pending = admitted, self._idle()

    def look(self) -> None:
        """What was given to `start_soon` may leave the log as it is, which wakes nobody."""
        if self._pending is not None and self._watching is not None:
            self._watching.cancel()

    def stop(self) -> None:
        """Start no further turn; one that runs, or whose start is on its way to the log, goes on to its end."""
        self._stopping = True
        if self._resting is not None and self._pending is None:
            self._scope.cancel()

    def retire(self) -> bool:
        """As `stop`, but a worker that only waits for work is left to wait, since to end a thousand takes a second:
        whether it is one."""
        if self._resting == "idle" and self._pending is None and not self._processes.busy:
            self._stopping = True
            return True
        self.stop()
        return False

    @contextmanager
    def _rest(self, why: Literal["idle", "retry"]) -> Iterator[None]:
        """Around a wait in which nothing of the session is on its way: `stop` may end the worker there."""
        self._resting = why
        try:
            yield
        finally:
            self._resting = None

    @property
    def starting(self) -> bool:
        """It is about to run a turn, or to find that there is none."""
        return not self.done.is_set() and self._attempt is None and (self._resting is None or self._pending is not None)

    @property
    def running(self) -> bool:
        """A turn runs here."""
        return self._attempt is not None

    def end_processes(self) -> None:
        """End what runs in the background, since this process is about to leave; its end is waited for in `done`."""
        self._processes.stop("owner_left")

    def hand_over(self) -> None:
        """Leave the turn that runs, or is starting, to who stands by for it: at its next step boundary, or in a model
        request."""
        self._leaving = True
        if self._attempt is not None:
            self._attempt[0].leaving = True
            if not self._attempt[0].calling:
                self._attempt[1].cancel()

    def abandon(self) -> None:
        """Stop at once, without a terminal: recovery settles what is left from the log."""
        self._stopping = True
        self._scope.cancel()

    async def _serve_until_stopped(self) -> None:
        """Serve under one lease; a store that cannot be used now is asked again: what was admitted waits for it."""
        try:
            await self._serve_one_lease()
        except HarnessFault as fault:
            if fault.kind not in PASSING:
                raise
            with self._rest("retry"):
                await anyio.sleep(STORE_RETRY_S)

    async def _serve_one_lease(self) -> None:
        lease = await self._own()
        self._on_owner(await self._store.owner(self.session_id))
        try:
            await self._serve(lease)
        except Refused as refused:
            if refused.kind != "lease_lost":
                raise
            # Who took the session had our commands ended, and with them the right to start any in this sandbox.
            await self._close_sandbox()
            owner = await self._store.owner(self.session_id)
            if owner is None or not owner.mine:
                await self._processes.lose()
            self._on_owner(owner)

    async def _own(self) -> Lease:
        try:
            claimed = await self._store.claim(self.session_id)
            if isinstance(claimed, Lease):
                return claimed
            if self._stopping:
                self._scope.cancel()
            with self._rest("idle"):
                return await self._claimed()
        finally:
            self._store.stand_by(self.session_id, False)

    async def _claimed(self) -> Lease:
        while True:
            claimed = await self._store.claim(self.session_id)
            if isinstance(claimed, Lease):
                return claimed
            owner: Owner | None = claimed
            self._store.stand_by(self.session_id, True)
            while owner is not None and owner.alive:
                if owner.stale and await self._has_work():
                    taken = await self._take_over(owner)
                    if isinstance(taken, Lease):
                        return taken
                await anyio.sleep(OWNER_POLL_S)
                owner = await self._store.owner(self.session_id)

    async def _take_over(self, owner: Owner) -> Lease | Owner:
        """Take the session of a process that may only be stopped: fences protect the log, not the workspace, so
        its commands are ended first."""
        if owner.reaper is not None:
            alive = await self._world.processes.stop_foreign(owner.reaper, self.session_id)
            if alive:
                raise HarnessFault(
                    "internal",
                    f"Commands of process {owner.pid} on this session cannot be ended.",
                    boundary="sandbox",
                    mayStillRun=list(alive),
                )
        return await self._store.claim(self.session_id, force=True)

    async def _has_work(self) -> bool:
        state, _ = await standing(self._store, self.session_id)
        asked = any(process.stop is not None for process in state.open_processes())
        return state.running is not None or asked or _startable(state)

    async def _serve(self, lease: Lease) -> None:
        loaded = await self._store.load(self.session_id)
        await self._processes.recover(lease.fence, loaded.state)
        await self._recover(lease, loaded)
        if self.own_turns is not None:
            # What was queued before nobody else may run.
            self.own_turns.update(loaded.state.queue)
        while not self.settle_only and (self._pending is not None or not self._stopping):
            state, _ = await standing(self._store, self.session_id)
            pending = self._pending
            if self._stopping and pending is None:
                # It came while the state was asked for, when nothing rested that it could have ended.
                break
            if pending is None and not _startable(state):
                self._idle = lambda: self._store.commit(self.session_id, self._start(lease, loaded))
                try:
                    with self._rest("idle"), anyio.CancelScope() as self._watching:
                        await self._store.changed(self.session_id, state.seq)
                finally:
                    self._idle = self._watching = None
                continue
            self._pending = None
            if pending is None and self._is_of_others(state):
                self.left = self._stopping = True
                break
            if pending is None:
                await self._log.catch_up(state)
                if self._stopping:
                    break
                started = self._store.commit(self.session_id, self._start(lease, loaded))
            else:
                admitted, started = pending
                with suppress(HamesError):  # who submitted it is told
                    await self._log.take(await admitted.wait())
            committed = await started.wait()
            await self._log.take(committed)
            if committed.events:
                await self._run(lease, loaded, committed.state)

    def _is_of_others(self, state: State) -> bool:
        """Nothing that is queued is ours, and nothing of ours would end with us."""
        if self.own_turns is None or self._processes.busy:
            return False
        return self.own_turns.isdisjoint(state.queue)

    def _start(self, lease: Lease, loaded: Loaded, left: Left | None = None) -> StartTurn:
        return StartTurn(
            lease.fence,
            {"pid": os.getpid()},
            now_ms=time.time_ns() // 1_000_000,
            wall_time_ms=int(loaded.snapshot["limits"].get("wallTimeMs", self._world.limits["wallTimeMs"])),
            previous=None if left is None else left.plan.reason,
            drafts=() if left is None else start_drafts(left),
        )

    async def _equip(self, snapshot: Mapping[str, Any]) -> Equipment:
        if self._equipped_for != snapshot:
            await self._close_sandbox()
        if self._equipment is None:
            # Another process may have set a model that this one has not asked yet.
            await self._world.unlock(snapshot["model"]["provider"])
            await self._world.prove(snapshot["sandbox"]["backend"])
            self._equipment = self._world.equip(self.session_id, snapshot)
            self._equipped_for = snapshot
        return self._equipment

    async def _recover(self, lease: Lease, loaded: Loaded) -> None:
        """Settle or continue the turn that an attempt before us left."""
        while loaded.state.active is not None:
            turn = loaded.state.active
            await self._log.catch_up(loaded.state)
            overdue = time.time_ns() // 1_000_000 >= epoch_ms(turn.deadline_at or "")
            left = plan_left(self._log.conversation, turn, self.recover, overdue=overdue)
            if (self.settle_only or self._stopping) and not left.settles:
                return
            command = settle_command(left, lease.fence) if left.settles else self._start(lease, loaded, left)
            committed = await self._store.commit(self.session_id, command).wait()
            await self._log.take(committed)
            if committed.events:
                if not left.settles:
                    await self._run(lease, loaded, committed.state)
                return
            # A cancel came between the look and the start: look again, and settle it.
            loaded = await self._store.load(self.session_id)

    async def _run(self, lease: Lease, loaded: Loaded, state: State) -> None:
        """Run an attempt to its terminal.

        Raises:
            Refused: `lease_lost`: another process has the session, and writes the terminal.
        """
        assert state.running is not None
        attempt = Attempt(
            store=self._store,
            session_id=self.session_id,
            turn_id=state.running,
            fence=lease.fence,
            log=self._log,
            live=self._live,
            state=state,
            snapshot=state.effective(loaded.snapshot),
            limits=self._world.limits,
            processes=self._processes,
        )
        scope = anyio.CancelScope()
        self._attempt = attempt, scope
        if self._leaving:
            attempt.leaving = True
            scope.cancel()
        try:
            await self._run_watched(attempt, scope)
        finally:
            self._attempt = None

    async def _run_watched(self, attempt: Attempt, scope: anyio.CancelScope) -> None:
        why: list[Why] = []
        failures: list[HamesError] = []
        try:
            async with beside(partial(self._watch, attempt, scope, why, failures), partial(heartbeats, attempt)):
                with scope:
                    # It may wait for a program that prints a key, and what was promised may not be to be had any more.
                    attempt.equip(await self._equip(attempt.snapshot))
                    self._log = attempt.log = await self._log.shown_to(attempt.equipment, attempt.state)
                    await run_turn(attempt, self._tasks)
        except HamesError as failed:
            failures.append(failed)
        except Exception as error:
            # A top border: a defect of ours ends this turn, typed, and neither the session nor the server.
            self._report(f"turn {attempt.turn_id} broke", error)
            failures.append(HarnessFault("internal", f"The turn broke inside Hames: {type(error).__name__}."))
        if not attempt.ended:
            await self._settle(attempt, why[0] if why else None, failures[0] if failures else None)

    async def _watch(
        self, attempt: Attempt, scope: anyio.CancelScope, why: list[Why], failures: list[HamesError]
    ) -> None:
        """Stop the attempt at its deadline, on a durable cancel, or when it is not ours any more."""
        turn = attempt.state.turns[attempt.turn_id]
        left_s = (epoch_ms(turn.deadline_at or "") - time.time_ns() // 1_000_000) / 1000
        reason: Why | None = None
        try:
            with anyio.move_on_after(max(0.0, left_s)) as deadline:
                reason = await self._until_stopped(attempt)
            if deadline.cancelled_caught:
                reason = "deadline"
        except HamesError as failure:
            # An attempt that cannot be watched cannot be cancelled: it must not go on.
            failures.append(failure)
            scope.cancel()
        if reason is not None:
            why.append(reason)
            scope.cancel()
        if reason in ("cancel", "deadline"):
            await anyio.sleep(self._world.limits["settleMs"] / 1000)
            await self._force(attempt, reason)

    async def _force(self, attempt: Attempt, why: Why) -> None:
        """Settle from the log alone a turn whose attempt was stopped and does not end, under a fence of its own: what
        the attempt does later is refused. This is the one terminal that proves no reaping."""
        taken = await self._store.claim(self.session_id, force=True)
        turn = (await standing(self._store, self.session_id))[0].turns.get(attempt.turn_id)
        if turn is None or not isinstance(taken, Lease):
            return
        left = plan_left(self._log.conversation, turn, "fail", overdue=why == "deadline")
        command = settle_command(left, taken.fence)
        running = [{"callId": call} for call in left.progress.started] or [{"turnId": attempt.turn_id}]
        ending = replace(command.ending, forced=True, may_still_run=tuple(running))
        await self._store.commit(self.session_id, replace(command, ending=ending)).wait()

    async def _until_stopped(self, attempt: Attempt) -> Why | None:
        while True:
            state, _ = await standing(self._store, self.session_id)
            turn = state.turns.get(attempt.turn_id)
            if turn is None:
                # It has its terminal: by us, and the attempt is about to know; or by who took the session.
                if state.ended is not None and state.ended.fence == attempt.fence:
                    return None
                owner = await self._store.owner(self.session_id)
                return None if owner is not None and owner.mine else "lost"
            if turn.fence != attempt.fence:
                return "lost"
            if turn.cancel is not None:
                return "cancel"
            await self._store.changed(self.session_id, state.seq)

    async def _settle(self, attempt: Attempt, why: Why | None, failure: HamesError | None) -> None:
        """Write the terminal. A store that fails is asked again until it takes it, or another process does."""
        if failure is not None and failure.kind == "lease_lost":
            raise failure
        while True:
            try:
                if why == "cancel":
                    await end_cancelled(attempt)
                elif why == "deadline":
                    await end_at_deadline(attempt)
                elif failure is not None:
                    await end_failed(attempt, failure)
                elif attempt.leaving:
                    await attempt.flush()
                    raise Refused("lease_lost", f"Turn {attempt.turn_id} is handed over.")
                else:
                    raise Refused("lease_lost", f"The attempt of turn {attempt.turn_id} was superseded.")
                return
            except HarnessFault as fault:
                if fault.kind not in PASSING:
                    raise
                failure = failure or fault
            await anyio.sleep(STORE_RETRY_S)


def _startable(state: State) -> bool:
    return state.status == "open" and state.running is None and bool(state.queue) and state.hold is None
