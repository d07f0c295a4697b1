"""The reaper: a small process that starts commands and leaves nothing of them running.

Run by `python -I -S -c <BOOT> <folder> <socket fd> <listener fd> <reap ms> <listener path> [keyring]`, one per Hames
process, and one for a program that prints a key, which with `keyring` may look for it in the kernel's.

Rule 1: standard library, `supervisor`, `tree` and what starts a command only, so that it starts in a few milliseconds;
one thread, since it forks; it never waits for a pipe of a command.
Rule 2: every command has a supervisor, forked here, and one waits for the next command: a fork takes longer than all
the rest.
Rule 3: the reaper is a subreaper too: it ends what a supervisor leaves behind that was killed, and outlives Hames
until the last one is done.

Socket (SEQPACKET): `R<session>` with descriptors [control, status, output, cwd, request, rules?] runs a command, under
the rules of Landlock if there are any; `A<session>` allows a session again that was ended by the listener. The request
is a file of NUL-ended fields: number of arguments (with a `w` when the first of them confine the command, an `m` when
its stderr goes nowhere, and `s` with the number of settings), settings (`launch.py`), arguments, then `NAME=value`
pairs. Control pipe: `T<grace ms>` and a newline asks for TERM, then KILL; `K` for KILL. Status pipe, one line each:
`by <pid>` (the supervisor), `met <limit>` (told before the end), `exit <code>`, `failed <errno>`, `unbegun` (what
confines the command ended before it), `refused` (the session was taken over), and last of all
`reaped <kills> <reason>` or `alive <kills> <reason> <pid>...`; the reason is `done`, `orphaned` (the reaper died) or
`lost` (the supervisor was killed). Listener: a session id and a newline ends the commands of that session, and is
answered with `alive <pid>...` when they are gone.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import socket
import struct
import time
from contextlib import suppress

from hames.sandbox import groups
from hames.sandbox.groups import Place
from hames.sandbox.hunt import ancestors
from hames.sandbox.launch import IGNORED
from hames.sandbox.supervisor import NOT_REAPED, Supervisor
from hames.sandbox.tree import (
    KEYCTL_JOIN_SESSION_KEYRING,
    PR_SET_CHILD_SUBREAPER,
    children,
    close_all_but,
    keyctl,
    kill_all,
    prctl,
    read_now,
    receive,
    send_signal,
    watch_signals,
    write_line,
)

BOOT = "import sys; sys.path.append(sys.argv[1]); from hames.sandbox.reaper import main; main(sys.argv[2:])"
"""How the interpreter gets here; `folder` is the one that holds the package."""

KEYRING = "keyring"
"""The argument of a reaper whose commands keep the session keyring of who started it."""

MAX_CONNECTIONS = 16
MAX_SESSION_ID = 4096


class Supervised:
    """What the reaper knows of a supervisor: a copy of its status pipe, to report for it if it is killed."""

    __slots__ = ("session", "status")

    def __init__(self, session: bytes, status: int) -> None:
        self.session = session
        self.status = status


class Reaper:
    """Starts supervisors, ends what a killed one leaves behind, and ends sessions for other processes."""

    def __init__(
        self, *, socket_fd: int, listener_fd: int, reap_s: float, places: tuple[Place, ...] | None = None
    ) -> None:
        self.places = places
        self.socket = socket.socket(fileno=socket_fd)
        self.listener = socket.socket(fileno=listener_fd)
        for end in (self.socket, self.listener):
            end.setblocking(False)
            end.set_inheritable(False)
        self.reap_s = reap_s
        self.supervised: dict[int, Supervised] = {}
        self.spare: tuple[int, socket.socket] | None = None
        self.fallen: list[tuple[int, int]] = []
        self.hopeless: set[int] = set()
        self.ended: set[bytes] = set()
        self.callers: dict[int, tuple[socket.socket, bytes]] = {}
        self.wake = watch_signals(signal.SIGCHLD)
        self.poll = select.poll()
        for fd in (socket_fd, listener_fd, self.wake):
            self.poll.register(fd, select.POLLIN)

    def run(self) -> None:
        """Serve until Hames is gone and every supervisor is done."""
        open_until = float("inf")
        while self.supervised or open_until == float("inf"):
            left_s = open_until - time.monotonic()
            if left_s <= 0:
                break
            if not self.supervised:
                # Now, while nobody waits, and not beside a command that wants the processor.
                self.prepare()
            elif self.places is None:
                # Not before the first command, which would wait for it.
                self.places = groups.find()
            for fd, _ in self.poll.poll(min(left_s, 3600) * 1000):
                if fd == self.wake:
                    read_now(self.wake)
                elif fd == self.listener.fileno():
                    self.accept()
                elif fd != self.socket.fileno():
                    self.hear(fd)
                elif not self.serve():
                    self.poll.unregister(fd)
                    open_until = time.monotonic() + 2 * self.reap_s
            self.collect()
            self.bury()
            self.answer()

    def serve(self) -> bool:
        """Take one message from Hames; False when Hames is gone."""
        try:
            message, fds = receive(self.socket)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if message.startswith(b"A"):
            self.ended.discard(message[1:])
        elif message.startswith(b"R") and len(fds) in (5, 6):
            self.start(message[1:], fds)
            return True
        for fd in fds:
            os.close(fd)
        return bool(message)

    def start(self, session: bytes, fds: list[int]) -> None:
        """Have a supervisor run a command."""
        status = fds[1]
        if session in self.ended:
            write_line(status, "refused\nreaped 0 done")
            started = False
        else:
            started = self.hand_on(session, fds)
        for fd in fds:
            if fd != status or not started:
                os.close(fd)

    def hand_on(self, session: bytes, fds: list[int]) -> bool:
        """Give the command to the supervisor that waits; False when there is none to be had."""
        # Twice, since a command may have killed the one that waited.
        for _ in range(2):
            self.prepare()
            if self.spare is not None:
                (pid, channel), self.spare = self.spare, None
                with channel, suppress(OSError):
                    socket.send_fds(channel, [b"R"], fds)
                    self.supervised[pid] = Supervised(session, fds[1])
                    return True
        write_line(fds[1], f"failed {errno.EAGAIN}\nreaped 0 done")
        return False

    def prepare(self) -> None:
        """Fork the supervisor of the next command, if it is not there and can be."""
        if self.spare is not None:
            return
        me = os.getpid()
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A signal between the fork and the new wake pipe would wake the reaper instead of the supervisor.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            try:
                os._exit(Supervisor(far, reaper=me, reap_s=self.reap_s, places=self.places or ()).serve())
            finally:
                os._exit(70)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        far.close()
        if pid == -1:
            near.close()
        else:
            self.spare = (pid, near)

    def dismiss_spare(self) -> None:
        """End the supervisor that waits: its groups go with it."""
        if self.spare is None:
            return
        (pid, channel), self.spare = self.spare, None
        channel.close()
        end = time.monotonic() + self.reap_s
        with suppress(ChildProcessError):
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > end:
                    # Something stopped it.
                    os.kill(pid, signal.SIGKILL)
                    end = float("inf")
                time.sleep(0.001)

    def spare_pid(self) -> int:
        """The supervisor that waits for a command, 0 when there is none."""
        return 0 if self.spare is None else self.spare[0]

    def collect(self) -> None:
        """Reap the dead, and remember which supervisors fell."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                if pid in self.supervised or pid == self.spare_pid():
                    # Only its command can have stopped it; a stopped supervisor protects nobody.
                    os.kill(pid, signal.SIGKILL)
                continue
            self.hopeless.discard(pid)
            if self.spare is not None and pid == self.spare[0]:
                self.spare[1].close()
                self.spare = None
            if pid in self.supervised:
                self.fallen.append((pid, status))

    def orphans(self) -> list[int]:
        """What killed supervisors left behind: it became the reaper's own."""
        ours = {*self.supervised, *self.hopeless, self.spare_pid()}
        return [pid for pid in children(os.getpid()) if pid not in ours]

    def bury(self) -> None:
        """Forget the supervisors that fell; end and report what those that were killed left behind."""
        while self.fallen:
            pid, result = self.fallen.pop()
            supervised = self.supervised.pop(pid)
            if result != 0:
                self.end_orphans(supervised, reported=result >> 8 == NOT_REAPED)
            os.close(supervised.status)

    def end_orphans(self, supervised: Supervised, *, reported: bool) -> None:
        """Kill them, unless the supervisor has tried in vain."""

        def gone() -> bool:
            self.collect()
            return not self.orphans()

        killed: set[int] = set()
        if not reported:
            killed, _ = kill_all(self.orphans, gone, time.monotonic() + self.reap_s)
        left = self.orphans()
        self.hopeless.update(left)
        if not reported:
            word = "alive" if left else "reaped"
            write_line(supervised.status, " ".join([word, str(len(killed)), "lost", *map(str, left)]))

    def accept(self) -> None:
        """Take a connection of another process."""
        try:
            caller, _ = self.listener.accept()
        except OSError:
            return
        caller.setblocking(False)
        peer, _, _ = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        # What asks to end commands is a server, never a command: all that those start is below this process.
        if len(self.callers) >= MAX_CONNECTIONS or os.getpid() in ancestors(peer):
            caller.close()
            return
        self.callers[caller.fileno()] = (caller, b"")
        self.poll.register(caller.fileno(), select.POLLIN)

    def hear(self, fd: int) -> None:
        """Take a session id from another process and end that session's commands."""
        caller, heard = self.callers[fd]
        data = read_now(fd)
        if data is None:
            return
        heard += data
        if not data or len(heard) > MAX_SESSION_ID:
            self.dismiss(fd)
            return
        self.callers[fd] = (caller, heard)
        if heard.endswith(b"\n"):
            session = heard[:-1]
            self.ended.add(session)
            for pid, one in self.supervised.items():
                if one.session == session:
                    write_line(one.status, "refused")
                    send_signal([pid], signal.SIGTERM)

    def answer(self) -> None:
        """Tell those who asked, as soon as the commands are gone."""
        busy = {one.session for one in self.supervised.values()}
        for fd, (caller, heard) in list(self.callers.items()):
            if heard.endswith(b"\n") and heard[:-1] not in busy:
                with suppress(OSError):
                    caller.send(" ".join(["alive", *map(str, sorted(self.hopeless))]).encode() + b"\n")
                self.dismiss(fd)

    def dismiss(self, fd: int) -> None:
        """Close a connection."""
        self.poll.unregister(fd)
        self.callers.pop(fd)[0].close()


def main(arguments: list[str]) -> None:
    """Run the reaper on the descriptors that Hames gave."""
    socket_fd, listener_fd, reap_ms = map(int, arguments[:3])
    close_all_but({0, 1, 2, socket_fd, listener_fd})
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if KEYRING not in arguments[4:]:
        # The keys in that of Hames are not for commands, which would inherit it through every namespace (keyrings(7)).
        keyctl(KEYCTL_JOIN_SESSION_KEYRING, None)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN if number in IGNORED else signal.SIG_DFL)
    # One for keys runs nothing of a model.
    places = () if KEYRING in arguments[4:] else None
    reaper = Reaper(socket_fd=socket_fd, listener_fd=listener_fd, reap_s=reap_ms / 1000, places=places)
    # No collection, and no page copied for one, in the processes forked from here.
    gc.disable()
    gc.freeze()
    reaper.run()
    reaper.dismiss_spare()
    for place in reaper.places or ():
        groups.sweep(place, own=True)
    with suppress(OSError):
        os.unlink(arguments[3])
