"""The supervisor: a process that watches one command and ends whatever came of it.

Rule 1: standard library, `tree`, and what starts a command only: it is forked from the reaper.
Rule 2: it never holds a pipe of the command, and the command no descriptor but its stdin, stdout and stderr.
Rule 3: it is a child subreaper, so whatever the command starts, however it detaches, becomes its child in the end;
`waitpid` saying ECHILD proves that all is gone.
Rule 4: it ends the command when its control pipe closes (Hames died), when the reaper dies (parent death signal),
or when it gets SIGTERM (the session was taken over).
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from hames.sandbox.bounds import Bounds
from hames.sandbox.groups import PREFIX, Group, Place
from hames.sandbox.launch import Launcher, Request, Unconfined
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
from hames.sandbox.wrapper import Wrapper

LINGER_S = 0.1
"""What the command started may end by itself for this long after the command did: a process substitution writes
its last lines then."""

NOT_REAPED = 3
"""Exit status of a supervisor that reported processes it could not kill."""


class Supervisor:
    """Watches one command, in its own process."""

    def __init__(self, channel: socket.socket, *, reaper: int, reap_s: float, places: Sequence[Place] = ()) -> None:
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
        self.groups: list[Group] = []
        self.unused: list[Group] = []
        self.request: Request | None = None
        self.exited = False
        self.deadline: float | None = None
        self.terminating = False
        self.prepare(places)
        self.launcher = Launcher(self.groups)
        self.wake = watch_signals(signal.SIGCHLD, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def prepare(self, places: Sequence[Place]) -> None:
        """Make groups for the command to come; what cannot be made now is tried again for a command that needs it."""
        for place in places:
            with suppress(OSError):
                self.groups.append(Group(place, f"{PREFIX}{self.reaper}-{os.getpid()}"))

    def bound(self, bounds: Bounds) -> None:
        """Set the limits of the groups, of which there is one in each place.

        Raises:
            Unconfined: one cannot be made or limited.
        """
        prepared, self.groups = self.groups, []
        self.prepare([place for place in bounds.places if place not in [group.place for group in prepared]])
        self.unused = [group for group in prepared if group.place not in bounds.places]
        self.groups += [group for group in prepared if group.place in bounds.places]
        if len(self.groups) < len(bounds.places):
            raise Unconfined("A control group of the command could not be made.")
        for group in self.groups:
            try:
                group.bound(bounds.values)
            except OSError as error:
                raise Unconfined(f"{group.path} takes no limit: {error.strerror}.") from error

    def remove_groups(self) -> None:
        """Nothing is in them any more."""
        for group in (*self.groups, *self.unused):
            group.remove()

    def serve(self) -> int:
        """Wait for a command and see it to its end; the exit status of the supervisor."""
        _, fds = receive(self.channel)
        self.channel.close()
        if not fds:
            self.launcher.close()
            os.waitpid(self.launcher.pid, 0)
            self.remove_groups()
            return 0
        self.control, self.status, *rest = fds
        output = rest[0]
        write_line(self.status, f"by {os.getpid()}")
        try:
            self.start(rest)
        except Unconfined as why:
            write_line(output, str(why))
            write_line(self.status, "unbegun")
        except OSError as error:
            write_line(self.status, f"failed {error.errno}")
        for fd in rest:
            os.close(fd)
        return self.run()

    def start(self, fds: list[int]) -> None:
        """Start the command in `fds`."""
        begun = False
        try:
            self.request = Request(fds[2])
            self.bound(self.request.bounds)
            self.wrapper = Wrapper() if self.request.wrapped else None
            try:
                self.launcher.launch(fds, self.wrapper, self.groups)
            except BrokenPipeError:
                # Another command killed it.
                self.launcher = Launcher()
                self.launcher.launch(fds, self.wrapper, self.groups)
            self.main = self.launcher.pid
            begun = True
        finally:
            self.launcher.close()
            self.exited = not begun
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
                self.tell_limits(code)
                write_line(self.status, f"exit {code}")

    def tell_limits(self, code: int) -> None:
        """Report which limits the command met by now, before its end is told."""
        met = [] if self.request is None else self.request.bounds.met(code)
        for name in (*met, *(name for group in self.groups for name in group.met())):
            write_line(self.status, f"met {name}")

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
        self.remove_groups()
        if alive:
            write_line(self.status, f"alive {len(killed)} {reason} {' '.join(map(str, sorted(alive)))}")
            return NOT_REAPED
        write_line(self.status, f"reaped {len(killed)} {reason}")
        return 0
