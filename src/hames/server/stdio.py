"""Descriptors 0 and 1 as the connection: claimed at start, read by a thread, written by the loop and another.

Rule 1: nobody but `Writer` writes to the claimed descriptor; descriptor 1 is stderr from then on, also for children,
C code and `print`.
Rule 2: `O_NONBLOCK` is never set on a descriptor that was inherited: it belongs to the open file, which the parent
shares. Hence threads that may block, and no event loop on these descriptors.
Rule 3: a frame goes out whole and in the order of `send`, or the connection is broken and nothing follows.
Rule 4: both directions are bounded: reading stops while the loop is `MAX_UNREAD_BYTES` behind, and who sends data that
can wait asks for `room` first.
Rule 5: the threads are daemons and may hang in a read or write that nobody can end. The process therefore ends with
`os._exit` once it has settled and `drain` or `close` has given the peer its time.
Rule 6: what an idle connection costs is one thread in `poll` and one in a lock.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import stat
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, cast

from hames.core.records import record

if TYPE_CHECKING:
    import anyio
    from typing_extensions import Buffer

    from hames.threads import LoopPort

READ_BYTES: Final = 256 * 1024
"""One read: four times what a pipe holds by default on Linux."""

MAX_UNREAD_BYTES: Final = 4 * 2**20
"""Handed to the loop and not yet consumed; reading stops above and goes on at half of it."""

WRITE_BYTES: Final = 256 * 1024
"""Frames joined for one write. Also how exactly `pending_bytes` is known while the peer reads slowly."""

PARENT_POLL_MS: Final = 5_000
"""How often the parent is looked for where no descriptor tells of its end."""

EndReason = Literal["eof", "error", "parent"]


@record
class Stdio:
    """Private duplicates of what were descriptors 0 and 1; not inherited by children."""

    stdin: int
    stdout: int


def claim_stdio() -> Stdio:
    """Take descriptors 0 and 1 for the protocol; call it once, before anything else that may print.

    Afterwards descriptor 0 is `/dev/null`, descriptor 1 is stderr, and `sys.stdin`, `sys.stdout` and `sys.stderr` are
    replaced to match; what was printed before and not yet flushed goes to stderr. Descriptors that were closed are
    opened as `/dev/null` first, so that no later file lands on 0 to 2. If stderr is the same pipe or file as stdout
    (`2>&1`), it becomes `/dev/null`: stdout carries frames and nothing else.
    """
    for descriptor in (0, 1, 2):
        _open_if_closed(descriptor)
    claimed = Stdio(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    if os.path.sameopenfile(1, 2) and not os.isatty(2):
        os.dup2(null, 2)
    os.dup2(2, 1)
    os.close(null)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    for name in ("stdout", "stderr"):
        noise = cast("BinaryIO", _Stderr())
        stream = io.TextIOWrapper(noise, encoding="utf-8", errors="backslashreplace", write_through=True)
        setattr(sys, name, stream)
    return claimed


def _open_if_closed(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        # The lowest free number is this one: those below it are open.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


class _Stderr(io.RawIOBase):
    """Descriptor 2 for text that nobody needs: dropped, never waited for, while the pipe is full or broken."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def write(self, data: Buffer) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), select.PIPE_BUF):
            # A pipe that is writable at all takes PIPE_BUF bytes without blocking.
            poll = select.poll()
            poll.register(2, select.POLLOUT)
            if not poll.poll(0):
                break
            with contextlib.suppress(OSError):
                os.write(2, view[start : start + select.PIPE_BUF])
        return len(view)


class _Wake:
    """A pipe of our own that ends a `poll`. `set` may be called from any thread."""

    def __init__(self) -> None:
        self.descriptor, self._write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write_end, False)

    def set(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_end, b"\0")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self._write_end)


class Reader:
    """Reads a descriptor to its end in a thread of its own and hands the bytes to the loop.

    `on_data(chunk)` and then, once, `on_end(reason)` are called in the loop. `eof` is the end of the stream, `error` a
    descriptor that cannot be read, `parent` the end of the parent process while another process still holds the
    other end of the pipe (only with `follow_parent`). What the parent wrote before it ended is delivered first.
    """

    def __init__(
        self,
        descriptor: int,
        port: LoopPort,
        *,
        on_data: Callable[[bytes], object],
        on_end: Callable[[EndReason], object],
        follow_parent: bool = False,
    ) -> None:
        self._descriptor = descriptor
        self._port = port
        self._on_data = on_data
        self._on_end = on_end
        self._wake = _Wake()
        self._parent = _ParentWatch() if follow_parent else None
        self._read_bytes = 0
        self._consumed_bytes = 0
        self._paused = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="hames-stdin", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def consumed(self, count: int) -> None:
        """Say that `count` bytes of what `on_data` brought are done with. Called in the loop."""
        self._consumed_bytes += count
        if self._paused and self._unread_bytes() <= MAX_UNREAD_BYTES // 2:
            self._paused = False
            self._wake.set()

    def stop(self, timeout_s: float = 1.0) -> None:
        """Deliver nothing more, and end the thread unless it hangs in a read of a terminal."""
        self._stopped = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._wake.close()
            if self._parent is not None:
                self._parent.close()

    def _unread_bytes(self) -> int:
        return self._read_bytes - self._consumed_bytes

    def _run(self) -> None:
        reason = self._read_to_end()
        if not self._stopped:
            self._port.post(self._deliver, b"", reason)

    def _read_to_end(self) -> EndReason:
        after_parent = 0
        while True:
            ready = self._wait()
            if self._stopped:
                return "eof"
            if self._parent is not None and self._parent.ended and (not ready or after_parent > READ_BYTES * 4):
                return "parent"
            if not ready:
                continue
            try:
                chunk = os.read(self._descriptor, READ_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                # A terminal that was hung up answers EIO: that is its end.
                return "eof" if error.errno == errno.EIO else "error"
            if not chunk:
                return "eof"
            if self._parent is not None and self._parent.ended:
                after_parent += len(chunk)
            self._read_bytes += len(chunk)
            if not self._port.post(self._deliver, chunk, None):
                return "eof"

    def _wait(self) -> bool:
        """Wait for something to happen; whether the descriptor is worth a read."""
        self._paused = self._unread_bytes() >= MAX_UNREAD_BYTES
        # The loop may have caught up between the two looks at the counters.
        if self._paused and self._unread_bytes() <= MAX_UNREAD_BYTES // 2:
            self._paused = False
        poll = select.poll()
        poll.register(self._wake.descriptor, select.POLLIN)
        if not self._paused:
            poll.register(self._descriptor, select.POLLIN)
        timeout_ms = self._parent.register(poll, paused=self._paused) if self._parent is not None else None
        ready = [descriptor for descriptor, _ in poll.poll(timeout_ms)]
        if self._parent is not None:
            self._parent.look(ready)
        if self._wake.descriptor in ready:
            self._wake.clear()
        return self._descriptor in ready

    def _deliver(self, chunk: bytes, reason: EndReason | None) -> None:
        if self._stopped:
            return
        if reason is None:
            self._on_data(chunk)
        else:
            self._on_end(reason)


class _ParentWatch:
    """Tells when the process that was our parent at the start has ended.

    A pidfd (Linux 5.3) tells at once and costs nothing; elsewhere the parent's id is compared now and then. The
    kernel's death signal would not do: it is sent when the parent's *thread* that started us ends (`prctl(2)`).
    """

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._pidfd = -1
        if sys.platform == "linux" and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(self._pid)
        self.ended = os.getppid() != self._pid

    def register(self, poll: select.poll, *, paused: bool) -> int | None:
        """Add the descriptor to `poll`; how long to wait at most, None for ever."""
        if self.ended:
            return None if paused else 0
        if self._pidfd >= 0:
            poll.register(self._pidfd, select.POLLIN)
            return None
        return PARENT_POLL_MS

    def look(self, ready: list[int]) -> None:
        """Note what `poll` told."""
        self.ended = self.ended or self._pidfd in ready or os.getppid() != self._pid

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def is_pipe(descriptor: int) -> bool:
    """It is a pipe, named or not."""
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


class Writer:
    """Writes frames to a descriptor, in order, as few writes as there can be.

    Frames of one turn of the loop are gathered. What fits into a pipe that has room is written at once: waking a thread
    costs more than the write. Everything else is written by a thread, which may block.

    `on_broken(error)` is called once in the loop when the peer no longer takes anything; what is sent then or waits
    is dropped. All methods are called in the loop.
    """

    def __init__(self, descriptor: int, port: LoopPort, *, on_broken: Callable[[OSError], object]) -> None:
        self._descriptor = descriptor
        self._port = port
        self._on_broken = on_broken
        self._frames: SimpleQueue[bytes | None] = SimpleQueue()
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._flush_is_due = False
        self._is_pipe = is_pipe(descriptor)
        self._handed_bytes = 0
        self._direct_bytes = 0
        self._dropping = False
        # Each counter has one thread that writes it, so that neither needs a lock.
        self._sent_bytes = 0
        self._written_bytes = 0
        self._broken = False
        self._waiting: dict[anyio.Event, int] = {}
        self._wanted_bytes = 0
        self._release_posted = False
        self._thread = threading.Thread(target=self._run, name="hames-stdout", daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    @property
    def pending_bytes(self) -> int:
        """Bytes sent that the descriptor has not taken; 0 once it is broken."""
        return 0 if self._broken else self._sent_bytes - self._direct_bytes - self._written_bytes

    def send(self, frame: bytes) -> None:
        """Queue one encoded frame. Never waits."""
        self._sent_bytes += len(frame)
        self._gathered.append(frame)
        self._gathered_bytes += len(frame)
        if self._gathered_bytes >= WRITE_BYTES:
            self._flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._port.later(self._flush_due)

    def _flush_due(self) -> None:
        self._flush_is_due = False
        self._flush()

    def _flush(self) -> None:
        if not self._gathered:
            return
        data = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
        self._gathered.clear()
        self._gathered_bytes = 0
        if self._broken or self._write_at_once(data):
            return
        self._handed_bytes += len(data)
        self._frames.put(data)

    def _write_at_once(self, data: bytes) -> bool:
        """Write to a pipe that has room, when nothing waits before it; False where the thread must do it."""
        if not self._is_pipe or len(data) > select.PIPE_BUF or self._handed_bytes != self._written_bytes:
            return False
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        # A pipe is writable when PIPE_BUF bytes fit (pipe(7)): the write neither blocks nor is it cut.
        if not any(events & select.POLLOUT for _, events in poll.poll(0)):
            return False
        try:
            os.write(self._descriptor, data)
        except BlockingIOError:
            return False
        except OSError as error:
            self._broken = True
            self._on_broken(error)
            self._release()
            return True
        self._direct_bytes += len(data)
        return True

    async def room(self, limit_bytes: int) -> None:
        """Wait until fewer than `limit_bytes` are pending, or the connection is broken."""
        import anyio

        while self.pending_bytes >= limit_bytes:
            event = anyio.Event()
            self._waiting[event] = limit_bytes
            self._wanted_bytes = max(self._waiting.values())
            try:
                # The writer looks at the wish after each write; this looks at the writes after the wish.
                if self.pending_bytes >= limit_bytes:
                    await event.wait()
            finally:
                del self._waiting[event]
                self._wanted_bytes = max(self._waiting.values(), default=0)

    async def drain(self, timeout_s: float) -> bool:
        """Wait until everything sent is written; False if it was not within the time, or never will be."""
        import anyio

        self._flush()
        with anyio.move_on_after(timeout_s):
            await self.room(1)
        return not self._broken and self.pending_bytes == 0

    def drop_waiting(self) -> None:
        """Begin no further frame; those being written are finished."""
        self._gathered.clear()
        self._dropping = True

    def close(self, timeout_s: float) -> None:
        """Write what waits and end the thread; give up after `timeout_s`, which blocks the loop: `drain` first."""
        self._flush()
        self._frames.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        more = True
        while more:
            batch, more = self._next_batch()
            if self._broken:
                continue
            if self._dropping:
                self._written_bytes += len(batch)
                continue
            try:
                self._write(batch)
            except OSError as error:
                self._broken = True
                self._port.post(self._on_broken, error)
                self._port.post(self._release)

    def _next_batch(self) -> tuple[bytes, bool]:
        """Wait for a frame, take what else is there, to `WRITE_BYTES`; False with the last."""
        frames: list[bytes] = []
        size = 0
        while not frames or (size < WRITE_BYTES and not self._frames.empty()):
            frame = self._frames.get()
            if frame is None:
                return b"".join(frames), False
            frames.append(frame)
            size += len(frame)
        return frames[0] if len(frames) == 1 else b"".join(frames), True

    def _write(self, batch: bytes) -> None:
        rest = memoryview(batch)
        while rest:
            try:
                count = os.write(self._descriptor, rest[:WRITE_BYTES])
            except BlockingIOError:
                # The parent has made the open file non-blocking.
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
                continue
            rest = rest[count:]
            self._written_bytes += count
            if self._wanted_bytes > self.pending_bytes and not self._release_posted:
                self._release_posted = True
                self._port.post(self._release)

    def _release(self) -> None:
        self._release_posted = False
        pending_bytes = self.pending_bytes
        for event, limit_bytes in self._waiting.items():
            if pending_bytes < limit_bytes:
                event.set()
