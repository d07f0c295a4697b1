"""The background processes that a session has in this process: started, listened to, stopped, settled.

Rule 1: `process.started` is durable before anything runs; `process.exited` is written when nothing runs any more.
Rule 2: nothing waits for a process but who asks for it: no turn, no hand-over, no exit.
Rule 3: they live as long as this process serves the session. Who loses the lease ends them and writes nothing: who has
it now settles them.
Rule 4: what they write goes to the disk as it comes; memory holds none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from hames.core.commands import ExitProcess, StartProcess
from hames.core.state import Process, State
from hames.engine.ids import new_id
from hames.engine.outputs import keep_output, page_of, written
from hames.engine.running import Running, how_it_ended
from hames.engine.standing import standing
from hames.ports import Output, OutputPage, ProcessResult, ReaperRecord, Sandbox, Store, Wish, World
from hames.protocol.errors import HamesError, HarnessFault, ToolFailed
from hames.protocol.jsontext import clean_text

RETRY_S = 1.0
"""Between tries to say that a process ended, to a store that fails: it may get room again."""

SAID_BYTES = 4096
"""Of its output that is held in memory: what bubblewrap says when it fails."""

_PASSING = frozenset({"store_full", "store_unavailable"})


class SessionProcesses:
    """The background processes of one session here. `fence` is that of the lease under which it is served."""

    def __init__(
        self,
        store: Store,
        world: World,
        session_id: str,
        tasks: TaskGroup,
        report: Callable[[str, BaseException], None],
    ) -> None:
        self.fence = 0
        self._store = store
        self._world = world
        self._session_id = session_id
        self._tasks = tasks
        self._report = report
        self._here: dict[str, Running] = {}
        self._starting: set[str | None] = set()
        self._places = 0
        self._following: anyio.CancelScope | None = None
        self._leaving = False

    @property
    def busy(self) -> bool:
        """Some run, or are about to."""
        return bool(self._here) or self._places > 0

    # --- the session ---------------------------------------------------------------------------------------

    async def recover(self, fence: int, state: State) -> None:
        """Settle what other processes left running: ended first, said then.

        Raises:
            HamesError: the store failed, or the lease is lost.
        """
        self.fence = fence
        left = [process for process in state.open_processes() if process.process_id not in self._here]
        alive: set[int] = set()
        # What our own reaper ran is gone: this process waited for that.
        for record in {_record_of(process) for process in left} - {self._world.processes.record}:
            alive |= {*await self._world.processes.stop_foreign(record, self._session_id)}
        for process in left:
            output = self._world.outputs.find(self._session_id, process.process_id)
            data: dict[str, Any] = {"why": "owner_died", "outputBytes": 0 if output is None else output.total_bytes}
            if alive:
                data["mayStillRun"] = sorted(alive)
            await self._exit(process, output, data)

    async def end(self, why: str) -> None:
        """End all, and wait until that is said; what cannot be said is left to who recovers the session."""
        self._leaving = True
        self.stop(why)
        for one in tuple(self._here.values()):
            await one.ended.wait()

    def stop(self, why: str) -> None:
        """End all; `end` waits for it."""
        for one in self._here.values():
            self._stop(one, why)

    def _stop(self, one: Running, why: str) -> None:
        # Only who says so can wait: a close and an exit are as quick as the cancel of a turn.
        one.stop(why, self._world.limits["timeoutGraceMs" if why == "stopped" else "termGraceMs"])

    async def lose(self) -> None:
        """The lease is lost: end all, and say nothing."""
        self.fence = -1
        self.stop("owner_left")
        for one in tuple(self._here.values()):
            await one.ended.wait()

    # --- what calls ask ------------------------------------------------------------------------------------

    async def start(self, wish: Wish, *, turn_id: str, call_id: str, fence: int, sandbox: Sandbox) -> Process:
        """See `ports.Background.start`."""
        self._check(wish.name)
        self._places += 1
        self._starting.add(wish.name)
        try:
            one = await self._begin(wish, turn_id=turn_id, call_id=call_id, fence=fence)
        finally:
            self._places -= 1
            self._starting.discard(wish.name)
        self._tasks.start_soon(self._run, one, wish, sandbox, call_id)
        if self._following is None:
            self._following = anyio.CancelScope()
            self._tasks.start_soon(self._follow, self._following)
        try:
            with anyio.move_on_after(self._world.limits["processStartMs"] / 1000):
                await one.ended.wait()
        except anyio.get_cancelled_exc_class():
            # Nobody was told that it runs, so nobody would look after it.
            self._stop(one, "cancelled")
            with anyio.CancelScope(shield=True):
                await one.ended.wait()
            raise
        if one.failure is not None and one.ended.is_set():
            raise one.failure
        return await self._find(one.process.process_id)

    def _check(self, name: str | None) -> None:
        most = self._world.limits["processes"]
        if len(self._here) + self._places >= most:
            message = (
                f"{most} background processes run in this session, and no more may: stop one, or wait for its end."
            )
            raise ToolFailed("too_many", message, limit="processes", configured=most)
        taken = {one.process.name for one in self._here.values()} | self._starting
        if name is not None and name in taken:
            raise ToolFailed("name_taken", "A background process of this name runs: choose another, or stop that one.")

    async def _begin(self, wish: Wish, *, turn_id: str, call_id: str, fence: int) -> Running:
        """Write down that it starts."""
        process_id = new_id("p")
        data: dict[str, Any] = {
            "command": clean_text(wish.command),
            "callId": call_id,
            "lifetimeMs": self._world.limits["processLifetimeMs"],
        }
        if wish.name is not None:
            data["name"] = wish.name
        if (reaper := self._world.processes.record) is not None:
            data["reaper"] = {"pid": reaper.pid, "startTime": reaper.start_time, "socket": reaper.socket}
        output = self._world.outputs.make(self._session_id, process_id)
        command = StartProcess(fence, turn_id, process_id, data)
        try:
            # What is on its way to the disk is known before a cancel is acted on. The store bounds the wait.
            with anyio.CancelScope(shield=True):
                committed = await self._store.commit(self._session_id, command).wait()
        except BaseException:
            output.discard()
            raise
        one = Running(committed.state.processes[process_id], output, wish.screens)
        self._here[process_id] = one
        return one

    async def all(self) -> Sequence[tuple[Process, int]]:
        """See `ports.Background.all`."""
        state, _ = await standing(self._store, self._session_id)
        return [(each, written(self._world.outputs, self._session_id, each)) for each in state.processes.values()]

    async def read(self, which: str, offset: int | None, *, length: int, wait_ms: int) -> OutputPage:
        """See `ports.Background.read`."""
        process = await self._find(which)
        if offset is None:
            offset = max(0, written(self._world.outputs, self._session_id, process) - length)
        page = await self._page(process, offset, length)
        with anyio.move_on_after(wait_ms / 1000):
            while not page.data and (one := self._here.get(process.process_id)) is not None:
                # Not the end alone: that is said, and found, a moment later.
                await one.news.wait()
                page = await self._page(await self._find(process.process_id), offset, length)
        return page

    async def _page(self, process: Process, offset: int, length: int) -> OutputPage:
        return await page_of(self._store, self._world.outputs, self._session_id, process, offset=offset, length=length)

    async def stop_one(self, which: str) -> Process:
        """See `ports.Background.stop`."""
        process = await self._find(which)
        one = self._here.get(process.process_id)
        if one is not None:
            self._stop(one, "stopped")
            await one.ended.wait()
        return await self._find(process.process_id)

    async def _find(self, which: str) -> Process:
        state, _ = await standing(self._store, self._session_id)
        named = [process for process in state.processes.values() if process.name == which]
        found = state.processes.get(which) or next(
            (one for one in named if not one.ended), named[-1] if named else None
        )
        if found is None:
            raise ToolFailed("process_not_found", "There is no background process of this id or name: list them.")
        return found

    # --- one process ---------------------------------------------------------------------------------------

    async def _run(self, one: Running, wish: Wish, sandbox: Sandbox, call_id: str) -> None:
        """Run it to its end, and say that. Never raises."""
        try:
            one.result = await self._try_each(one, wish, sandbox, call_id)
        except (ToolFailed, HarnessFault) as failure:
            one.failure = failure
        except Exception as error:
            # A top border: a defect ends this process, and neither a turn nor the server.
            one.failure = HarnessFault("internal", f"A background process broke: {type(error).__name__}.")
        finally:
            with anyio.CancelScope(shield=True):
                await self._settle(one)

    async def _try_each(self, one: Running, wish: Wish, sandbox: Sandbox, call_id: str) -> ProcessResult:
        *before, last = wish.argvs
        for argv in before:
            try:
                return await self._try(one, argv, wish, sandbox, call_id)
            except ToolFailed as failure:
                if failure.kind != "command_not_found":
                    raise
        return await self._try(one, last, wish, sandbox, call_id)

    async def _try(
        self, one: Running, argv: tuple[str, ...], wish: Wish, sandbox: Sandbox, call_id: str
    ) -> ProcessResult:
        return await sandbox.run(
            argv,
            cwd=wish.cwd,
            env={**wish.env, "HAMES_CALL": call_id},
            timeout_ms=self._world.limits["processLifetimeMs"],
            grace_ms=self._world.limits["timeoutGraceMs"],
            keep_bytes=SAID_BYTES,
            on_output=one.take,
            on_start=one.begun,
        )

    async def _settle(self, one: Running) -> None:
        try:
            one.finish()
            data = how_it_ended(one)
            while self.fence >= 0:
                try:
                    await self._exit(one.process, one.output, data)
                    return
                except HamesError as failure:
                    if failure.kind not in _PASSING or self._leaving:
                        # Whoever serves the session next finds it open, and says so.
                        return
                await anyio.sleep(RETRY_S)
        except Exception as error:
            # A top border: it has ended, and who serves the session next will say so.
            self._report(f"the end of background process {one.process.process_id} could not be told", error)
        finally:
            del self._here[one.process.process_id]
            if not self._here and self._following is not None:
                self._following.cancel()
                self._following = None
            one.ended.set()
            one.news.set()

    async def _exit(self, process: Process, output: Output | None, data: Mapping[str, Any]) -> None:
        """Say that it ended, with what it wrote."""
        kept = None if output is None else await keep_output(self._store, self._session_id, process, output)
        whole = data if kept is None else {**data, "artifact": kept}
        await self._store.commit(self._session_id, ExitProcess(self.fence, process.process_id, whole)).wait()
        if output is not None:
            output.discard()

    async def _follow(self, scope: anyio.CancelScope) -> None:
        """End processes whose stop stands in the log, whoever asked for it, while any run here."""
        with scope:
            while True:
                try:
                    state, _ = await standing(self._store, self._session_id)
                    for process in state.open_processes():
                        one = self._here.get(process.process_id)
                        if one is not None and process.stop is not None:
                            is_closed = process.stop["cause"] == "session_closed"
                            self._stop(one, "session_closed" if is_closed else "stopped")
                    await self._store.changed(self._session_id, state.seq)
                except HamesError as failure:
                    if failure.kind not in _PASSING:
                        # Nobody could stop them any more.
                        self.stop("owner_left")
                        return
                    await anyio.sleep(RETRY_S)


class CallProcesses:
    """The background processes of a session, for one call of a turn. Implements `ports.Background`."""

    def __init__(
        self, processes: SessionProcesses, *, turn_id: str, call_id: str, fence: int, sandbox: Sandbox
    ) -> None:
        self._processes = processes
        self._turn_id = turn_id
        self._call_id = call_id
        self._fence = fence
        self._sandbox = sandbox

    async def start(self, wish: Wish) -> Process:
        """See `ports.Background.start`."""
        return await self._processes.start(
            wish, turn_id=self._turn_id, call_id=self._call_id, fence=self._fence, sandbox=self._sandbox
        )

    async def all(self) -> Sequence[tuple[Process, int]]:
        """See `ports.Background.all`."""
        return await self._processes.all()

    async def read(self, which: str, offset: int | None, *, length: int, wait_ms: int) -> OutputPage:
        """See `ports.Background.read`."""
        return await self._processes.read(which, offset, length=length, wait_ms=wait_ms)

    async def stop(self, which: str) -> Process:
        """See `ports.Background.stop`."""
        return await self._processes.stop_one(which)


def _record_of(process: Process) -> ReaperRecord:
    """Where its reaper was; one that never was, where that is not known: it is looked for by its marker then."""
    told = process.reaper or {"pid": 0, "startTime": 0, "socket": ""}
    return ReaperRecord(told["pid"], told["startTime"], told["socket"])
