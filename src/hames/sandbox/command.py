"""One running command as Hames sees it: its three pipes, what it wrote, and what its supervisor reported.

Rule 1: the end of a command is what its supervisor reports, never the end of its output: somebody may hold that
pipe for ever.
Rule 2: one read a wake-up, so that a flood of output takes turns with the rest of the event loop.
Rule 3: memory is bounded by what the caller asked to keep, whatever the command writes.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import anyio

from hames.core.records import record
from hames.ports import ReaperRecord
from hames.protocol.errors import HarnessFault, ToolFailed
from hames.sandbox import hunt
from hames.sandbox.bounds import LIMITS, Bounds
from hames.sandbox.landlock import Ruleset
from hames.sandbox.wrapper import MARK, MUTE, SETTINGS

READ_BYTES = 64 * 1024
"""Output taken in one turn of the event loop: what a pipe holds."""

DRAIN_BYTES = 2**20
"""Output taken after the last process is gone: the most a pipe can be made to hold without privilege."""


SAID_CHARS = 300
"""Of what bubblewrap says when it fails: a line or two."""


@record
class Command:
    """What to run. `cwd` is a descriptor of a directory that the caller closes.

    `wrapper` is what confines it: bubblewrap and its arguments, before `argv`; see `wrapper.py`. `mute`: what it writes
    on stderr goes nowhere; else it is output as well. `bounds` are its limits; `rules` are what it may do with files by
    Landlock, None without it, and without `network` it gets no socket then.
    """

    session_id: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: int
    wrapper: tuple[str, ...] = ()
    mute: bool = False
    bounds: Bounds | None = None
    rules: Ruleset | None = None
    network: bool = True

    def encode(self) -> bytes:
        """As the reaper reads it.

        Raises:
            ToolFailed: something in it cannot be passed to a program.
        """
        words = [*self.wrapper, *self.argv]
        marks = (MARK if self.wrapper else b"") + (MUTE if self.mute else b"")
        settings = [] if self.bounds is None else self.bounds.encode()
        if not self.network:
            settings.append("network=no")
        fields = [f"{len(words)}{marks.decode()}{SETTINGS.decode()}{len(settings)}", *settings, *words]
        fields += [f"{name}={value}" for name, value in self.env.items()]
        try:
            encoded = [os.fsencode(field) for field in fields]
        except UnicodeEncodeError as error:
            raise ToolFailed("invalid_text", "The command or its environment is not valid Unicode.") from error
        if any(b"\0" in field for field in encoded):
            raise ToolFailed("invalid_text", "The command or its environment holds a NUL character; none is allowed.")
        return b"".join(field + b"\0" for field in encoded)

    def unbegun(self, said: bytes) -> ToolFailed | HarnessFault:
        """Why what confines it ended before it, from what that said: because of the command, or of itself."""
        text = said.decode("utf-8", "replace").strip()[-SAID_CHARS:]
        _, execution, why = text.partition(f"execvp {self.argv[0]}: ")
        if execution:
            return ToolFailed("not_started", f"{self.argv[0]} cannot be started: {why}.")
        return HarnessFault("containment_unavailable", f"The sandbox could not be set up: {text}", boundary="sandbox")

    def limits_met(self, names: Sequence[str]) -> dict[str, int]:
        """What its supervisor named of `bounds`, as limits with their values."""
        values = {} if self.bounds is None else self.bounds.values
        return {LIMITS[name]: values[name] for name in names if name in values}


class Tail:
    """The last (or first) `keep` bytes of a stream, and how many there were."""

    def __init__(self, keep: int, *, end: bool) -> None:
        self.total = 0
        self._keep = keep
        self._end = end
        self._held = 0
        self._chunks: deque[bytes] = deque()

    def add(self, chunk: bytes) -> None:
        """Take more of the stream."""
        self.total += len(chunk)
        if not self._end:
            chunk = chunk[: self._keep - self._held]
        if not chunk:
            return
        self._chunks.append(chunk)
        self._held += len(chunk)
        while self._chunks and self._held - len(self._chunks[0]) >= self._keep:
            self._held -= len(self._chunks.popleft())

    def value(self) -> bytes:
        """What is kept, in order."""
        joined = b"".join(self._chunks)
        return joined[max(0, len(joined) - self._keep) :]


class RunningCommand:
    """A command from its start to the report that nothing of it is left. Close it in any case.

    Closing it early kills the command: its control pipe ends.
    """

    def __init__(self, tail: Tail, on_output: Callable[[bytes], None] | None) -> None:
        self.exit_code: int | None = None
        self.start_error: int | None = None
        self.refused = False
        self.begun = True
        self.settled = False
        self.reason = ""
        self.killed = 0
        self.met: list[str] = []
        self.alive: tuple[int, ...] = ()
        self.tail = tail
        self.on_output = on_output
        self.reaper: ReaperRecord | None = None
        self._supervisor: hunt.Identity | None = None
        self._heard = b""
        self._fds: set[int] = set()
        self._epoll = select.epoll()
        try:
            self._far_control, self._control = self._pipe()
            self._status, self._far_status = self._pipe()
            self._output, self._far_output = self._pipe()
            for fd in (self._status, self._output):
                os.set_blocking(fd, False)
                self._epoll.register(fd, select.EPOLLIN)
        except OSError as error:
            self.close()
            raise HarnessFault("internal", f"No pipe for a command: {error.strerror}.", boundary="sandbox") from error

    def _pipe(self) -> tuple[int, int]:
        reader, writer = os.pipe()
        self._fds |= {reader, writer}
        return reader, writer

    def hand_over(self, reaper: socket.socket, command: Command) -> None:
        """Ask the reaper to start `command`; it reads this when it is ready.

        Raises:
            BlockingIOError: its queue is full: wait until the socket can be written.
            OSError: the reaper is gone.
            ToolFailed: the command cannot be passed to a program.
        """
        request = os.memfd_create("hames-command")
        try:
            os.write(request, command.encode())
            fds = [self._far_control, self._far_status, self._far_output, command.cwd, request]
            fds += [] if command.rules is None else [command.rules.fd]
            socket.send_fds(reaper, [b"R" + os.fsencode(command.session_id)], fds)
        finally:
            os.close(request)
        for fd in (self._far_control, self._far_status, self._far_output):
            self._close(fd)

    def order(self, text: str) -> None:
        """Tell the supervisor, see `reaper.py`; it may be gone already, and so may this."""
        if self._control in self._fds:
            with suppress(OSError):
                os.write(self._control, text.encode())

    def end(self, grace_ms: int) -> None:
        """Have it ended as `ports.Sandbox.run` says of `on_start`."""
        self.order(f"T{grace_ms}\n")

    @property
    def heard(self) -> bool:
        """Whether more may be reported."""
        return not self.settled and self._status in self._fds

    def watchers(self) -> list[hunt.Identity]:
        """Reaper and supervisor, as far as they are known."""
        reaper = None if self.reaper is None else (self.reaper.pid, self.reaper.start_time)
        return [watcher for watcher in (reaper, self._supervisor) if watcher is not None]

    async def until(self, done: Callable[[], bool]) -> None:
        """Take output and reports until `done()`, or until there is nothing more to hear."""
        while not done() and self._status in self._fds:
            await anyio.wait_readable(self._epoll.fileno())
            ready = {fd for fd, _ in self._epoll.poll(0)}
            if self._output in ready:
                self._take_output()
            if self._status in ready:
                self._take_status()

    def drain(self) -> None:
        """Take the output that is there already, without waiting."""
        end = self.tail.total + DRAIN_BYTES
        while self._output in self._fds and self.tail.total < end and self._take_output():
            pass

    def _take_output(self) -> bool:
        chunk = self._read(self._output, READ_BYTES)
        if not chunk:
            return False
        self.tail.add(chunk)
        if self.on_output is not None:
            self.on_output(chunk)
        return True

    def _take_status(self) -> None:
        *lines, self._heard = (self._heard + (self._read(self._status, 4096) or b"")).split(b"\n")
        for line in lines:
            word, *rest = line.decode().split()
            if word == "by":
                pid = int(rest[0])
                self._supervisor = pid, hunt.start_time(pid) or 0
            elif word == "exit":
                self.exit_code = int(rest[0])
            elif word == "unbegun":
                self.begun = False
            elif word == "failed":
                self.start_error = int(rest[0])
            elif word == "met":
                self.met.append(rest[0])
            elif word == "refused":
                self.refused = True
            else:
                self.settled = True
                self.killed, self.reason = int(rest[0]), rest[1]
                self.alive = tuple(map(int, rest[2:]))

    def _read(self, fd: int, size: int) -> bytes | None:
        try:
            data = os.read(fd, size)
        except BlockingIOError:
            return None
        if not data:
            self._epoll.unregister(fd)
            self._close(fd)
        return data

    def _close(self, fd: int) -> None:
        self._fds.discard(fd)
        os.close(fd)

    def close(self) -> None:
        """Close every descriptor."""
        self._epoll.close()
        while self._fds:
            os.close(self._fds.pop())
