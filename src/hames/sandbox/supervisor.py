"""The supervisor: a process that watches one command and ends whatever came of it.

Rule 1: standard library and `tree` only: it is forked from the reaper.
Rule 2: it never holds a pipe of the command, and the command no descriptor but its stdin, stdout and stderr.
Rule 3: it is a child subreaper, so whatever the command starts, however it detaches, becomes its child in the end;
`waitpid` saying ECHILD proves that all is gone.
Rule 4: it ends the command when its control pipe closes (Hames died), when the reaper dies (parent death signal),
or when it gets SIGTERM (the session was taken over).
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import time

from hames.sandbox.tree import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    children,
    close_all_but,
    descendants,
    kill_all,
    prctl,
    read_now,
    receive,
    send_signal,
    watch_signals,
    write_line,
)
from hames.sandbox.wrapper import MARK, MUTE, STATUS_FD, Wrapper

LINGER_S = 0.1
"""What the command started may end by itself for this long after the command did: a process substitution writes
its last lines then."""

NOT_REAPED = 3
"""Exit status of a supervisor that reported processes it could not kill."""

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
"""What the reaper ignores, itself or by way of Python. An ignored signal stays so in a program that is executed."""


class Request:
    """A command to run."""

    # Not a dataclass: importing those takes longer than starting the interpreter.
    __slots__ = ("argv", "env", "mute", "wrapped")

    def __init__(self, argv: list[bytes], env: dict[bytes, bytes], *, wrapped: bool, mute: bool) -> None:
        self.argv = argv
        self.env = env
        self.wrapped = wrapped
        self.mute = mute


def read_request(fd: int) -> Request:
    """The request in the file `fd`; see `reaper.py`."""
    data = b""
    while chunk := os.pread(fd, 2**20, len(data)):
        data += chunk
    fields = data.split(b"\0")[:-1]
    end = 1 + int(fields[0].rstrip(MARK + MUTE))
    environment = dict(field.split(b"=", 1) for field in fields[end:])
    return Request(fields[1:end], environment, wrapped=MARK in fields[0], mute=MUTE in fields[0])


def launch(request: Request, output: int, wrapper: Wrapper | None) -> int:
    """Start the command in its own session, writing to `output`; its pid, or that of what confines it.

    The working directory and the limits are those of this process. `posix_spawn` copies no memory, so it takes a
    fraction of the time of a fork.

    Raises:
        OSError: it cannot be executed.
    """
    actions = (
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, 0 if request.mute else output, 2),
        *([] if wrapper is None else [(os.POSIX_SPAWN_DUP2, wrapper.teller, STATUS_FD)]),
    )
    program = find_program(request.argv[0], request.env.get(b"PATH", b"/usr/bin:/bin"))
    return os.posix_spawn(
        program, request.argv, request.env, file_actions=actions, setsid=True, setsigmask=[], setsigdef=IGNORED
    )


def find_program(name: bytes, path: bytes) -> bytes:
    """`name` as a path, found along `path` unless it is one already.

    Raises:
        FileNotFoundError: there is no such program.
    """
    if b"/" in name:
        return name
    for folder in path.split(b":"):
        place = os.path.join(folder, name)
        # Looking first: each place that is tried in vain would cost a process.
        if folder and os.access(place, os.X_OK) and os.path.isfile(place):
            return place
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


class Supervisor:
    """Watches one command, in its own process."""

    def __init__(self, channel: socket.socket, *, reaper: int, reap_s: float) -> None:
        close_all_but({0, 1, 2, channel.fileno()})
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self.channel = channel
        self.reaper = reaper
        self.reap_s = reap_s
        self.control = -1
        self.status = -1
        self.main = 0
        self.wrapper: Wrapper | None = None
        self.exited = False
        self.deadline: float | None = None
        self.terminating = False
        self.wake = watch_signals(signal.SIGCHLD, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def serve(self) -> int:
        """Wait for a command and see it to its end; the exit status of the supervisor."""
        _, fds = receive(self.channel)
        self.channel.close()
        if not fds:
            return 0
        self.control, self.status, output, cwd, request = fds
        write_line(self.status, f"by {os.getpid()}")
        try:
            os.fchdir(cwd)
            self.start(read_request(request), output)
        except OSError as error:
            write_line(self.status, f"failed {error.errno}")
        for fd in (output, cwd, request):
            os.close(fd)
        return self.run()

    def start(self, request: Request, output: int) -> None:
        """Start the command."""
        self.wrapper = Wrapper() if request.wrapped else None
        try:
            self.main = launch(request, output, self.wrapper)
        finally:
            if self.wrapper is not None:
                self.wrapper.started(self.main)

    def collect(self) -> bool:
        """Reap the dead and report the end of the command; True when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.main and not self.exited:
                self.exited = True
                code = os.waitstatus_to_exitcode(status)
                if self.wrapper is not None and self.wrapper.failed(code):
                    write_line(self.status, "unbegun")
                write_line(self.status, f"exit {code}")

    def run(self) -> int:
        """Watch until nothing is left."""
        os.set_blocking(self.control, False)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while not self.collect():
            if self.exited and self.deadline is None:
                self.deadline = time.monotonic() + LINGER_S
            left_s = 3600.0 if self.deadline is None else self.deadline - time.monotonic()
            if left_s <= 0 or os.getppid() != self.reaper:
                break
            poll.poll(left_s * 1000 + 1)
            if signal.SIGTERM in (read_now(self.wake) or b""):
                break
            if self.obey(read_now(self.control)):
                break
        return self.finish("done" if os.getppid() == self.reaper else "orphaned")

    def obey(self, orders: bytes | None) -> bool:
        """Follow what the control pipe said; True to kill now."""
        if orders is None:
            return False
        if not orders or b"K" in orders:
            return True
        grace_s = min(int(order[1:]) for order in orders.split()) / 1000
        now = time.monotonic()
        if not self.terminating:
            self.terminating = True
            self.deadline = None
            tree = descendants(children(os.getpid()))
            if self.wrapper is not None:
                tree.discard(self.main)
            send_signal(tree, signal.SIGTERM)
            # A stopped process takes the signal when it goes on.
            send_signal(tree, signal.SIGCONT)
        self.deadline = min(self.deadline or now + grace_s, now + grace_s)
        return False

    def finish(self, reason: str) -> int:
        """Kill what is left and report it."""
        me = os.getpid()
        own = {self.main}
        inside: set[int] = set()
        if self.wrapper is not None:
            own.add(self.wrapper.inner())
            inside = self.wrapper.end()
        killed, alive = kill_all(lambda: children(me), self.collect, time.monotonic() + self.reap_s)
        killed = (killed | inside) - own
        if alive:
            write_line(self.status, f"alive {len(killed)} {reason} {' '.join(map(str, sorted(alive)))}")
            return NOT_REAPED
        write_line(self.status, f"reaped {len(killed)} {reason}")
        return 0
