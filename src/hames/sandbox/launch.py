"""From the fork to the command: what a new process does before the program is there, in its own process.

Rule 1: standard library, `bounds`, `groups`, `landlock`, `tree` and `wrapper` only: it runs in the supervisor.
Rule 2: what was to confine or bound the command and does not, ends it before it begins, and the supervisor is told why.
Rule 3: nothing is held but stdin, stdout and stderr, and the pipe of what confines it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
from collections.abc import Sequence
from typing import NoReturn

from hames.sandbox import landlock
from hames.sandbox.bounds import Bounds, be_the_victim
from hames.sandbox.groups import Group, enter
from hames.sandbox.tree import close_all_but, receive
from hames.sandbox.wrapper import MARK, MUTE, SETTINGS, STATUS_FD, Wrapper

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
"""What the reaper ignores, itself or by way of Python. An ignored signal stays so in a program that is executed."""

HANDLED = (signal.SIGCHLD, signal.SIGTERM)
"""What the supervisor waits for."""

HIGH = 64
"""Descriptors from here on are in nobody's way."""


class Unconfined(Exception):
    """The command was not begun, since it could not be confined or bounded as was said; the text says why."""


class Request:
    """A command to run, from the file `fd`; see `reaper.py`.

    Its settings are those of `bounds.py`, and `network=no` for a command under Landlock that gets no socket.
    """

    # Not a dataclass: importing those takes longer than starting the interpreter.
    __slots__ = ("argv", "bounds", "env", "mute", "network", "wrapped")

    def __init__(self, fd: int) -> None:
        data = b""
        while chunk := os.pread(fd, 2**20, len(data)):
            data += chunk
        fields = data.split(b"\0")[:-1]
        head, _, count = fields[0].partition(SETTINGS)
        begin = 1 + int(count or 0)
        end = begin + int(head.rstrip(MARK + MUTE))
        self.argv = fields[begin:end]
        self.env = dict(field.split(b"=", 1) for field in fields[end:])
        self.wrapped = MARK in head
        self.mute = MUTE in head
        self.network = b"network=no" not in fields[1:begin]
        self.bounds = Bounds.decode(fields[1:begin])


class Launcher:
    """The process that will be the command: it is made before there is one, and put into `groups`, for both take longer
    than all the rest.

    Raises:
        OSError: there cannot be another process.
    """

    def __init__(self, groups: Sequence[Group] = ()) -> None:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = near
        # A signal for this process would be taken by the new one, whose handlers are the same until then.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = os.fork()
            if self.pid == 0:
                close_all_but({0, 1, 2, far.fileno()})
                _wait_and_become(far, [group.path for group in groups])
        finally:
            far.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def launch(self, fds: list[int], wrapper: Wrapper | None, groups: list[Group]) -> None:
        """Have it be the command in `fds`: output, working directory, request, and rules where it has any.

        It returns when the program is there.

        Raises:
            OSError: it cannot be executed.
            Unconfined: it cannot be confined or bounded.
        """
        reader, writer = os.pipe()
        places = os.fsencode("\0".join(group.path for group in groups)) or b"\0"
        told = () if wrapper is None else (wrapper.teller,)
        try:
            socket.send_fds(self._channel, [places], [writer, *fds, *told])
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        said = b""
        while chunk := os.read(reader, 4096):
            said += chunk
        os.close(reader)
        if said:
            number, _, what = said.decode(errors="replace").partition(" ")
            if what:
                raise Unconfined(f"{what}: {os.strerror(int(number))}.")
            raise OSError(int(number), os.strerror(int(number)))

    def close(self) -> None:
        """It ends, if it has not become a command."""
        self._channel.close()


def _wait_and_become(channel: socket.socket, prepared: list[str]) -> NoReturn:
    """Be the command that comes. Never returns: it would be a second supervisor."""
    try:
        entered = [path for path in prepared if _can_enter(path)]
        os.setsid()
        be_the_victim()
        for number in (*IGNORED, *HANDLED):
            # They are blocked until the command is there.
            signal.signal(number, signal.SIG_DFL)
        message, fds = receive(channel)
        if fds:
            writer, *rest = map(_move_high, fds)
            places = os.fsdecode(message).split("\0")
            _become(writer, rest, [path for path in places if path and path not in entered])
    finally:
        os._exit(127)


def _can_enter(path: str) -> bool:
    try:
        enter(path)
    except OSError:
        return False
    return True


def _become(writer: int, fds: list[int], groups: list[str]) -> None:
    what = "The command cannot be started"
    try:
        output, cwd, *rest = fds
        request = Request(rest.pop(0))
        teller = rest.pop() if request.wrapped else None
        what = ""
        os.fchdir(cwd)
        program = find_program(request.argv[0], request.env.get(b"PATH", b"/usr/bin:/bin"))
        what = "The command cannot be started"
        _take_descriptors(request, output, teller)
        what = "The command cannot be put into its control group"
        for path in groups:
            enter(path)
        what = "Landlock cannot confine the command"
        for rules in rest:
            landlock.restrict(rules, network=request.network)
        what = "The limits of the command cannot be set"
        request.bounds.apply()
        what = ""
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execve(program, request.argv, request.env)
    except BaseException as error:
        number = error.errno if isinstance(error, OSError) else None
        os.write(writer, f"{number or errno.EIO} {what}".rstrip().encode())


def _move_high(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH)


def _take_descriptors(request: Request, output: int, teller: int | None) -> None:
    """Have the standard three, and the pipe of what confines it in its place."""
    null = _move_high(os.open("/dev/null", os.O_RDWR))
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(null if request.mute else output, 2)
    if teller is not None:
        os.dup2(teller, STATUS_FD)


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
