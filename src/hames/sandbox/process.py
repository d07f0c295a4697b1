"""The reaper seen from Hames: start it, run commands through it, end another process's commands.

Rule 1: starting a command never waits for the reaper to come up: the request lies in its socket until it is read.
Rule 2: `run` returns or raises only when nothing of the command is left, or says what may still run. That wait is
shielded from cancellation and bounded: grace and `reap_ms` and `SPARE_MS`, however the command resists.
Rule 3: a reaper that does not do its part is killed with all below it, and what got away is found by its marker. So
no command outlives the means to end it.
Rule 4: after `hurry` nobody waits for a grace: what resists is killed at once.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NoReturn

import anyio
import anyio.to_thread

from hames.core.limits import DEFAULTS
from hames.ports import ProcessResult, ReaperRecord
from hames.protocol.errors import HarnessFault, ToolFailed
from hames.sandbox import hunt, reaper
from hames.sandbox.command import Command, RunningCommand, Tail
from hames.sandbox.listener import ask, short
from hames.sandbox.supervisor import LINGER_S

TIMED_OUT = 124
"""Exit code of a command that ran out of time, as of `timeout(1)`."""

MARGIN_MS = 1_000
"""Added to the bounds that another process's reaper keeps: what a busy machine may need to let it speak."""

SPARE_MS = 500
"""Added to grace and `reap_ms` for the whole end of a command, forced or not: less than the engine adds until it
takes a tool for deaf, so that a turn never ends before its commands."""

LOOK_S = 0.05
"""How often those who end a command are looked at until it is gone."""

LOOKS = 4
"""Looks in a row that find them stopped or dead until the command is ended without them. A reaper that was stopped
once is woken by the first, and kills a stopped supervisor itself."""

WAKE_S = 1.0
"""How often the reaper is woken while a command runs: another command may have stopped it."""

HURRY_S = 0.2
"""For an orderly end after `hurry`, and as much again until what is left is reported."""

BACKLOG = 16

_START_KINDS = {errno.ENOENT: "command_not_found", errno.E2BIG: "command_too_long"}


class ReaperProcesses:
    """One reaper for all sessions of this process; its listening socket lies in `directory`, made private.

    `term_grace_ms`: from TERM to KILL when a call is cancelled. `reap_ms`: from KILL until what still lives is
    reported. `keyring`: its commands may use the keys of the kernel that this process has; those of a model may not.
    """

    def __init__(
        self,
        directory: Path,
        *,
        term_grace_ms: int = DEFAULTS["termGraceMs"],
        reap_ms: int = DEFAULTS["reapMs"],
        keyring: bool = False,
    ) -> None:
        self._directory = directory
        self._term_grace_ms = term_grace_ms
        self._reap_ms = reap_ms
        self._keyring = keyring
        self._reaper: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._record: ReaperRecord | None = None
        self._running: dict[RunningCommand, str] = {}
        """What runs, with its session."""
        self._hurried_at: float | None = None

    async def start(self) -> ReaperRecord | None:
        """Start the reaper if it does not run; None on a platform that has none: there `run` is refused.

        Raises:
            HarnessFault: it cannot be started.
        """
        if not supported():
            return None
        self._connect()
        return self._record

    @property
    def record(self) -> ReaperRecord | None:
        """Where the reaper that runs now can be reached by another process."""
        return self._record

    def admit(self, session_id: str) -> None:
        """Run commands of this session again, after another process had its commands ended.

        Raises:
            HarnessFault: the reaper cannot be told.
        """
        if self._socket is not None:
            try:
                self._socket.send(b"A" + os.fsencode(session_id))
            except BrokenPipeError:
                # The next one, started by the next command, knows of no ended session.
                return
            except OSError as error:
                raise _fault(f"The reaper cannot be told of a session: {error.strerror}.") from error

    async def run(
        self,
        command: Command,
        *,
        timeout_ms: int,
        grace_ms: int,
        keep_bytes: int,
        keep_end: bool = True,
        on_output: Callable[[bytes], None] | None = None,
        on_start: Callable[[Callable[[int], None]], None] | None = None,
    ) -> ProcessResult:
        """Run `command` to its end and leave nothing of it; see `ports.Sandbox.run`.

        Raises:
            ToolFailed: it cannot be started.
            HarnessFault: the platform or the reaper cannot do it, or something of it may still run
                (`details.mayStillRun`, pids).
        """
        with closing(RunningCommand(Tail(keep_bytes, end=keep_end), on_output)) as running:
            await self._hand_over(running, command)
            self._running[running] = command.session_id
            if on_start is not None:
                on_start(running.end)
            try:
                timed_out = await self._watch(running, timeout_ms=timeout_ms, grace_ms=grace_ms)
            finally:
                try:
                    if not running.settled:
                        running.on_output = None
                        running.order(f"T{self._term_grace_ms}\n")
                        with anyio.CancelScope(shield=True):
                            await self._end(running, grace_ms=self._term_grace_ms)
                finally:
                    del self._running[running]
            running.drain()
        return _result(running, command, timed_out=timed_out)

    async def _hand_over(self, running: RunningCommand, command: Command) -> None:
        while True:
            if self._hurried_at is not None:
                raise HarnessFault("shutting_down", boundary="sandbox")
            channel = self._connect()
            self._wake()
            try:
                running.hand_over(channel, command)
                running.reaper = self._record
            except BlockingIOError:
                await anyio.wait_writable(channel)
            except OSError as error:
                raise _fault(f"The reaper takes no command: {error.strerror}.") from error
            else:
                return

    async def _watch(self, running: RunningCommand, *, timeout_ms: int, grace_ms: int) -> bool:
        """Wait for the end of the command, or for its limit and then its end; True when it ran out of time."""
        with anyio.move_on_after(timeout_ms / 1000) as limit:
            mute = 0
            while running.exit_code is None and running.heard and mute < 2:
                with anyio.move_on_after(WAKE_S) as silence:
                    await running.until(lambda: running.exit_code is not None or running.settled)
                mute = mute + 1 if silence.cancelled_caught and self._is_mute(running) else 0
        timed_out = limit.cancelled_caught and running.exit_code is None and not running.settled
        if timed_out:
            running.order(f"T{grace_ms}\n")
        await self._end(running, grace_ms=grace_ms if timed_out else int(LINGER_S * 1000))
        return timed_out

    async def _end(self, running: RunningCommand, *, grace_ms: int) -> None:
        """Wait until nothing of the command is left, and do it by force when those who should do not."""
        began = anyio.current_time()
        patient_until = began + (grace_ms + (self._reap_ms + SPARE_MS) / 2) / 1000
        last = began + (grace_ms + self._reap_ms + SPARE_MS) / 1000
        mute = 0
        while running.heard and mute < LOOKS and anyio.current_time() < patient_until:
            if self._hurried_at is not None:
                hurried_at = max(began, self._hurried_at)
                patient_until = min(patient_until, hurried_at + HURRY_S)
                last = min(last, hurried_at + 2 * HURRY_S)
                running.order("K")
            with anyio.move_on_after(LOOK_S):
                await running.until(lambda: running.settled)
            mute = mute + 1 if self._is_mute(running) else 0
        if not running.settled:
            await self._force(running, max(0.0, last - anyio.current_time()))
        elif running.alive:
            # These alone: others of the session may run beside it.
            left = [(pid, hunt.start_time(pid) or 0) for pid in running.alive]
            running.alive = await self._hunt((), max(0.0, last - anyio.current_time()), left)
        if running.alive:
            _may_still_run(running.alive)

    def _is_mute(self, running: RunningCommand) -> bool:
        """Who should end the command cannot: a stopped reaper is woken, and does for a supervisor that died."""
        reaper, *supervisor = map(hunt.state, running.watchers())
        self._wake()
        return reaper in (None, *"TtZX") or "T" in supervisor or "t" in supervisor

    def _wake(self) -> None:
        if self._reaper is not None and self._reaper.poll() is None:
            self._reaper.send_signal(signal.SIGCONT)

    async def _force(self, running: RunningCommand, within_s: float) -> None:
        """End a command without its supervisor and, if it is still the one, without the reaper."""
        watchers = running.watchers()
        if running.reaper == self._record:
            dropped, self._reaper = self._reaper, None
            self._forget()
        else:
            dropped = None
        try:
            running.alive = await self._hunt({self._running[running]}, within_s, watchers)
            running.settled, running.reason = True, "orphaned"
        finally:
            if dropped is not None:
                dropped.kill()
                dropped.wait()

    async def _hunt(
        self, sessions: Collection[str], within_s: float, besides: Collection[hunt.Identity] = ()
    ) -> tuple[int, ...]:
        end = partial(hunt.end_marked, sessions, within_s=within_s, besides=besides)
        return await anyio.to_thread.run_sync(end)

    def hurry(self) -> None:
        """The process is about to leave: end every command now, and from here on without grace."""
        if self._hurried_at is None:
            self._hurried_at = anyio.current_time()
            self._wake()
            for running in self._running:
                running.order("K")

    def _connect(self) -> socket.socket:
        """The socket of a reaper that lives, a new one if need be."""
        if self._socket is not None and self._reaper is not None and self._reaper.poll() is None:
            return self._socket
        if not supported():
            raise HarnessFault(
                "capability_unavailable",
                "Commands need Linux 5.3 or later: nothing else here can end a whole process tree.",
                boundary="sandbox",
            )
        self._drop_reaper()
        try:
            self._spawn()
        except OSError as error:
            raise _fault(f"The reaper cannot be started: {error.strerror}.") from error
        assert self._socket is not None
        return self._socket

    def _spawn(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory.chmod(0o700)
        name = f"reaper-{os.getpid()}-{os.urandom(4).hex()}.socket"
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with far, listener:
            try:
                near.setblocking(False)
                with short(self._directory) as folder:
                    listener.bind(f"{folder}/{name}")
                listener.listen(BACKLOG)
                fds = (far.fileno(), listener.fileno())
                package = Path(__file__).parents[2]
                # Half of the time: the rest is for what has to be ended without it.
                arguments = [
                    str(package),
                    *map(str, (*fds, self._reap_ms // 2)),
                    str(self._directory.absolute() / name),
                    *((reaper.KEYRING,) if self._keyring else ()),
                ]
                self._reaper = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", reaper.BOOT, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=fds,
                    cwd="/",
                    # Not our own: keys would stand in its /proc/<pid>/environ.
                    env={key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ},
                    # A terminal's Ctrl-C is for Hames, which then ends its commands in order.
                    start_new_session=True,
                )
            except OSError:
                near.close()
                raise
        self._socket = near
        pid = self._reaper.pid
        self._record = ReaperRecord(pid, hunt.start_time(pid) or 0, str(self._directory.absolute() / name))

    def _drop_reaper(self) -> None:
        """Kill the reaper and forget it."""
        if self._reaper is not None:
            self._reaper.kill()
            self._reaper.wait()
        self._forget()

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._record is not None:
            Path(self._record.socket).unlink(missing_ok=True)
        self._reaper = self._socket = self._record = None

    async def stop_foreign(self, record: ReaperRecord, session_id: str) -> tuple[int, ...]:
        """End the commands that another process runs for a session; the pids that still live.

        Asks the reaper in `record`; when it is gone or does not answer, the session's processes are found by
        their marker.
        """
        if hunt.start_time(record.pid) == record.start_time:
            answer = await ask(record.socket, session_id, within_s=(self._reap_ms + MARGIN_MS) / 1000)
            if answer is not None:
                return answer
        return await self._hunt({session_id}, self._reap_ms / 1000)

    async def aclose(self) -> None:
        """End every command and the reaper, by force after a moment. None can be started again."""
        self.hurry()
        watchers = {watcher for running in self._running for watcher in running.watchers()}
        with anyio.CancelScope(shield=True):
            if self._reaper is not None and self._socket is not None and self._record is not None:
                watchers.add((self._record.pid, self._record.start_time))
                # The reaper ends by itself when nobody can ask any more and its supervisors are done.
                self._socket.shutdown(socket.SHUT_WR)
                await self._end_of(self._reaper, HURRY_S)
            if any(hunt.state(watcher) not in (None, "Z", "X") for watcher in watchers):
                await self._hunt(set(self._running.values()), HURRY_S, watchers)
        self._drop_reaper()

    async def _end_of(self, reaper: subprocess.Popen[bytes], within_s: float) -> None:
        if reaper.poll() is None:
            pidfd = os.pidfd_open(reaper.pid)
            try:
                with anyio.move_on_after(within_s):
                    await anyio.wait_readable(pidfd)
            finally:
                os.close(pidfd)


def supported() -> bool:
    """True where processes can be adopted and awaited as the reaper needs it."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(os, "memfd_create")


def _fault(message: str) -> HarnessFault:
    return HarnessFault("internal", message, boundary="sandbox")


def _may_still_run(alive: tuple[int, ...]) -> NoReturn:
    raise HarnessFault(
        "internal",
        f"{len(alive)} processes of a command could not be killed and may still run.",
        boundary="sandbox",
        mayStillRun=list(alive),
    )


def _result(running: RunningCommand, command: Command, *, timed_out: bool) -> ProcessResult:
    """What the reports amount to."""
    if running.refused:
        raise HarnessFault("lease_lost", "Another process has ended the commands of this session.", boundary="sandbox")
    if running.start_error is not None:
        kind = _START_KINDS.get(running.start_error, "not_started")
        raise ToolFailed(kind, f"{command.argv[0]} cannot be started: {os.strerror(running.start_error)}.")
    if running.alive:
        _may_still_run(running.alive)
    if not running.begun:
        raise command.unbegun(running.tail.value())
    if running.reason == "orphaned":
        raise _fault("The reaper died, and the command was ended with it.")
    code = running.exit_code if running.exit_code is not None else -9
    return ProcessResult(
        exit_code=TIMED_OUT if timed_out else code,
        timed_out=timed_out,
        output=running.tail.value(),
        total_bytes=running.tail.total,
        killed=running.killed,
        alive=running.alive,
        met=command.limits_met(running.met),
    )
