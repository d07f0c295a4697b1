"""Process trees of Linux, and the few calls that supervisor and reaper share.

Rule 1: standard library only: the reaper runs without the packages that Hames needs.
Rule 2: a tree is frozen before it is killed, and is gone when the caller's own proof says so.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KEYCTL_JOIN_SESSION_KEYRING = 1

MOST_DESCRIPTORS = 8
"""Those of a command, with rules that confine it, and what its launcher is told besides."""

SYS_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219, "ppc64le": 271, "s390x": 280}
"""Its number by machine (syscalls(2))."""


def children(pid: int) -> list[int]:
    """The direct children of `pid`, dead ones too; empty when it is gone."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
    except OSError:
        pass
    return found


def descendants(roots: Iterable[int], *, most: float = float("inf")) -> set[int]:
    """`roots` and everything below them, `most` of it."""
    found: set[int] = set()
    todo = list(roots)
    while todo and len(found) < most:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children(pid)
    return found


def send_signal(pids: Iterable[int], number: int) -> None:
    """Send it to those that are still there and may be signalled."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def kill_all(
    roots: Callable[[], Iterable[int]], gone: Callable[[], bool], deadline: float
) -> tuple[set[int], set[int]]:
    """Kill the trees of `roots()` until `gone()` or `deadline` (monotonic seconds); the pids killed, and those left.

    Everything is frozen before it is killed: a process that forks while the tree is read, or that restarts a
    partner that died, would be ahead of a plain walk for ever.
    """
    killed: set[int] = set()
    pause = 0.0002
    while not gone():
        seen = descendants(roots())
        send_signal(seen, signal.SIGSTOP)
        born = descendants(roots()) - seen
        send_signal(born, signal.SIGSTOP)
        seen |= born
        send_signal(seen, signal.SIGKILL)
        killed |= seen
        if gone():
            break
        if time.monotonic() > deadline:
            return killed, descendants(roots())
        time.sleep(pause)
        pause = min(pause * 2, 0.005)
    return killed, set()


def write_line(fd: int, text: str) -> None:
    """Report; nobody may be listening any more."""
    with suppress(OSError):
        os.write(fd, text.encode() + b"\n")


def prctl(option: int, value: int) -> None:
    """Set a process attribute that Python has no call for."""
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def keyctl(operation: int, *arguments: int | None) -> int:
    """A call of keyctl(2), for which the C library has no function; negative when it failed or is not known here."""
    import ctypes

    number = SYS_KEYCTL.get(os.uname().machine)
    return -1 if number is None else int(ctypes.CDLL(None).syscall(number, operation, *arguments))


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor that is not in `keep`."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                continue


def watch_signals(*numbers: int) -> int:
    """A descriptor that gives each of these signals as one byte."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return reader


def read_now(fd: int, size: int = 4096) -> bytes | None:
    """What can be read without waiting: empty at the end of the stream, None when there is nothing."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """A message and the descriptors that came with it, which no program inherits."""
    # Not `socket.recv_fds`: up to Python 3.13 it drops its flags.
    room = socket.CMSG_SPACE(MOST_DESCRIPTORS * 4)
    message, ancillary, _, _ = channel.recvmsg(8192, room, socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds += memoryview(data[: len(data) // 4 * 4]).cast("i")
    return message, fds
