"""The reaper seen from Hames: start it, run commands through it, end another process's commands.

Rule 1: starting a command never waits for the reaper to come up: the request lies in its socket until it is read.
Rule 2: `run` returns or raises only when nothing of the command is left, or says what may still run. That wait is
shielded from cancellation and bounded.
Rule 3: a reaper that does not answer in time is killed. Its death ends every command it started, so no command
outlives the means to end it.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

import anyio
import anyio.to_thread

from hames.core.limits import DEFAULTS
from hames.ports import ProcessResult, ReaperRecord
from hames.protocol.errors import HarnessFault, ToolFailed
from hames.sandbox import hunt, reaper
from hames.sandbox.command import Command, RunningCommand, Tail

TIMED_OUT = 124
"""Exit code of a command that ran out of time, as of `timeout(1)`."""

MARGIN_MS = 1_000
"""Added to the bounds that the reaper keeps itself: what a busy machine may need to let it speak."""

BACKLOG = 16


_START_KINDS = {errno.ENOENT: "command_not_found", errno.E2BIG: "command_too_long"}


class ReaperProcesses:
    """One reaper for all sessions of this process; its listening socket lies in `directory`, made private.

    `term_grace_ms`: from TERM to KILL when a call is cancelled. `reap_ms`: from KILL until what still lives is
    reported.
    """

    def __init__(
        self,
        directory: Path,
        *,
        term_grace_ms: int = DEFAULTS["termGraceMs"],
        reap_ms: int = DEFAULTS["reapMs"],
    ) -> None:
        self._directory = directory
        self._term_grace_ms = term_grace_ms
        self._reap_ms = reap_ms
        self._reaper: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._record: ReaperRecord | None = None
        self._running: set[RunningCommand] = set()
        self._closed = False

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
    ) -> ProcessResult:
        """Run `command` to its end and leave nothing of it; see `ports.Sandbox.run`.

        Raises:
            ToolFailed: it cannot be started.
            HarnessFault: the platform or the reaper cannot do it, or something of it may still run
                (`details.mayStillRun`, pids).
        """
        with closing(RunningCommand(Tail(keep_bytes, end=keep_end), on_output)) as running:
            await self._hand_over(running, command)
            self._running.add(running)
            try:
                timed_out = await self._watch(running, timeout_ms=timeout_ms, grace_ms=grace_ms)
            finally:
                try:
                    if not running.settled:
                        await self._end(running, command.session_id)
                finally:
                    self._running.discard(running)
            running.drain()
        return _result(running, command, timed_out=timed_out)

    async def _hand_over(self, running: RunningCommand, command: Command) -> None:
        while True:
            channel = self._connect()
            try:
                running.hand_over(channel, command)
            except BlockingIOError:
                await anyio.wait_writable(channel)
            except OSError as error:
                raise _fault(f"The reaper takes no command: {error.strerror}.") from error
            else:
                return

    async def _watch(self, running: RunningCommand, *, timeout_ms: int, grace_ms: int) -> bool:
        """Wait for the end of the command, or for its limit and then its end; True when it ran out of time."""
        with anyio.move_on_after(timeout_ms / 1000):
            await running.until(lambda: running.exit_code is not None or running.settled)
        timed_out = running.exit_code is None and not running.settled
        bound_ms = self._bound_ms(0)
        if timed_out:
            running.order(f"T{grace_ms}\n")
            bound_ms = self._bound_ms(grace_ms)
        with anyio.move_on_after(bound_ms / 1000):
            await running.until(lambda: running.settled)
        return timed_out

    async def _end(self, running: RunningCommand, session_id: str) -> None:
        """Cancelled, or not answered: have the command ended, by force if its supervisor does not do it.

        Shielded, since the caller may be cancelled already; each wait is bounded.
        """
        running.on_output = None
        running.order(f"T{self._term_grace_ms}\n")
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(self._bound_ms(self._term_grace_ms) / 1000):
                await running.until(lambda: running.settled)
            if running.settled:
                alive = running.alive
            else:
                self._drop_reaper()
                with anyio.move_on_after(self._bound_ms(0) / 1000):
                    await running.until(lambda: running.settled)
                alive = running.alive or await anyio.to_thread.run_sync(self._hunt, session_id)
                running.reason = "orphaned"
            if alive:
                _may_still_run(alive)

    def _hunt(self, session_id: str) -> tuple[int, ...]:
        return hunt.end_marked(session_id, within_ms=self._reap_ms)

    def _bound_ms(self, grace_ms: int) -> int:
        # Twice: the reaper takes over where a supervisor was killed.
        return grace_ms + 2 * self._reap_ms + MARGIN_MS

    def _connect(self) -> socket.socket:
        """The socket of a reaper that lives, a new one if need be."""
        if self._socket is not None and self._reaper is not None and self._reaper.poll() is None:
            return self._socket
        if self._closed:
            raise HarnessFault("shutting_down", boundary="sandbox")
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
                with _short(self._directory) as folder:
                    listener.bind(f"{folder}/{name}")
                listener.listen(BACKLOG)
                fds = (far.fileno(), listener.fileno())
                package = Path(__file__).parents[2]
                arguments = [str(package), *map(str, (*fds, self._reap_ms)), str(self._directory.absolute() / name)]
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
            answer = await self._ask(record.socket, session_id)
            if answer is not None:
                return answer
        return await anyio.to_thread.run_sync(self._hunt, session_id)

    async def _ask(self, path: str, session_id: str) -> tuple[int, ...] | None:
        """What the reaper at `path` says after ending the session; None when it does not say it in time."""
        answer = b""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller, _short(Path(path).parent) as folder:
                caller.setblocking(False)
                caller.connect(f"{folder}/{Path(path).name}")
                caller.send(os.fsencode(session_id) + b"\n")
                with anyio.move_on_after(self._bound_ms(0) / 1000):
                    while not answer.endswith(b"\n"):
                        await anyio.wait_readable(caller)
                        data = caller.recv(4096)
                        if not data:
                            break
                        answer += data
        except OSError:
            return None
        if not answer.endswith(b"\n"):
            return None
        return tuple(map(int, answer.split()[1:]))

    async def aclose(self) -> None:
        """End every command and the reaper, within the time that reaping may take. None can be started again."""
        self._closed = True
        for running in self._running:
            running.order("K")
        if self._reaper is not None and self._socket is not None and self._reaper.poll() is None:
            # The reaper ends by itself when nobody can ask any more and its supervisors are done.
            self._socket.shutdown(socket.SHUT_WR)
            pidfd = os.pidfd_open(self._reaper.pid)
            try:
                with anyio.move_on_after((self._reap_ms + MARGIN_MS) / 1000, shield=True):
                    await anyio.wait_readable(pidfd)
            finally:
                os.close(pidfd)
        self._drop_reaper()


def supported() -> bool:
    """True where processes can be adopted and awaited as the reaper needs it."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(os, "memfd_create")


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """`directory` under a name that fits a socket address, which holds 107 bytes."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


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
    )
