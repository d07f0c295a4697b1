"""Commands that do not want to die: `python nasty.py <kind> <lock file>`.

Each process holds a shared lock on the lock file, so whoever gets it exclusively knows that all are gone. `ready` is
printed when the scene is set.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable

CHAIN_S = 60


def ready() -> None:
    os.write(1, b"ready\n")


def deafen() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)


def stay() -> None:
    time.sleep(CHAIN_S)
    os._exit(0)


def fork(body: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        body()
        os._exit(0)
    return pid


def daemon() -> None:
    """Leave the session, lose the parent, let go of the pipes."""
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.chdir("/")
    deafen()
    stay()


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def plain() -> None:
    ready()
    stay()


def deaf() -> None:
    deafen()
    ready()
    stay()


def detached() -> None:
    os.waitpid(fork(daemon), 0)
    ready()
    stay()


def detached_alone() -> None:
    os.waitpid(fork(daemon), 0)


def pipe_holder() -> None:
    deafen()
    fork(stay)
    os.write(1, b"done\n")


def stopped() -> None:
    def stop() -> None:
        deafen()
        os.kill(os.getpid(), signal.SIGSTOP)
        stay()

    def stop_apart() -> None:
        os.setsid()
        stop()

    for child in (fork(stop), fork(stop_apart)):
        os.waitpid(child, os.WUNTRACED)
    ready()
    stay()


def hopper() -> None:
    """Four chains of processes that fork and exit, each link in a session of its own."""
    deafen()
    end = time.monotonic() + CHAIN_S

    def chain() -> None:
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
            os.setsid()

    for _ in range(4):
        fork(chain)
    ready()
    stay()


def respawner() -> None:
    """Pairs that watch each other: whoever loses its partner makes a new one."""
    deafen()
    end = time.monotonic() + CHAIN_S

    def watch() -> None:
        os.setsid()
        while time.monotonic() < end:
            partner = os.fork()
            if partner == 0:
                parent = os.getppid()
                while os.getppid() == parent:
                    time.sleep(0.001)
                continue
            os.waitpid(partner, 0)

    for _ in range(4):
        fork(watch)
    ready()
    stay()


def forest() -> None:
    for child in [fork(daemon) for _ in range(60)]:
        os.waitpid(child, 0)
    ready()
    stay()


def subreaper() -> None:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    os.waitpid(fork(daemon), 0)
    ready()
    stay()


def kill_supervisor() -> None:
    os.waitpid(fork(daemon), 0)
    os.kill(os.getppid(), signal.SIGKILL)
    stay()


def stop_supervisor() -> None:
    os.waitpid(fork(daemon), 0)
    os.kill(os.getppid(), signal.SIGSTOP)
    stay()


def kill_reaper() -> None:
    os.kill(parent_of(os.getppid()), signal.SIGKILL)
    stay()


def kill_both() -> None:
    os.waitpid(fork(daemon), 0)
    supervisor = os.getppid()
    reaper = parent_of(supervisor)
    os.kill(reaper, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    os.kill(reaper, signal.SIGKILL)
    stay()


def stop_watchers() -> None:
    """Stop whoever should end this command, once."""
    os.waitpid(fork(daemon), 0)
    os.kill(parent_of(os.getppid()), signal.SIGSTOP)
    os.kill(os.getppid(), signal.SIGSTOP)
    ready()
    stay()


def hold_watchers() -> None:
    """Stop them again as soon as they are woken."""
    supervisor = os.getppid()
    reaper = parent_of(supervisor)

    def hold() -> None:
        os.setsid()
        deafen()
        for step in range(CHAIN_S * 10_000):
            os.kill(reaper, signal.SIGSTOP)
            os.kill(supervisor, signal.SIGSTOP)
            if step == 0:
                ready()
            time.sleep(0.0001)

    fork(hold)
    stay()


def stop_one_and_kill_the_other() -> None:
    os.waitpid(fork(daemon), 0)
    supervisor = os.getppid()
    reaper = parent_of(supervisor)
    os.kill(reaper, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(reaper, signal.SIGKILL)
    ready()
    stay()


KINDS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        plain,
        deaf,
        detached,
        detached_alone,
        pipe_holder,
        stopped,
        hopper,
        respawner,
        forest,
        subreaper,
        kill_supervisor,
        stop_supervisor,
        kill_reaper,
        kill_both,
        stop_watchers,
        hold_watchers,
        stop_one_and_kill_the_other,
    )
}

if __name__ == "__main__":
    fcntl.flock(os.open(sys.argv[2], os.O_RDONLY), fcntl.LOCK_SH)
    KINDS[sys.argv[1]]()
