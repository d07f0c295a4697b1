"""What a hostile command would try, to be run within a sandbox by `probe.py`: it says which of it worked.

Run by `python -I -S -c <this text> <JSON>`. The JSON names a `workspace`, `outside` directories with their devices and
inodes, a `secret` file, the `pid` of a process with its `start` time, the number of the call `keyctl` and the keyring
`keys`, a TCP and a UDP port, an `abstract` and a `file` socket, the `name` of files to leave behind, a number of
`processes` and of bytes of `memory` that are too much, and a `victim`, a file outside that holds something.

Rule 1: standard library only, and nothing of Hames: it must run where the package cannot be seen.
Rule 2: it harms nothing where it succeeds: it makes files of that name and sets modes to what they are.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any


def works(attack: Callable[..., Any], *arguments: Any) -> bool:
    """Whether it did what it was to do."""
    try:
        return attack(*arguments) is not False
    except (OSError, ValueError, IndexError):
        return False


def make(path: str) -> None:
    """Make a file."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def read(path: str) -> bool:
    """Read something of a file."""
    with open(path, "rb") as file:
        return bool(file.read(1))


def append(path: str) -> None:
    """Open a file for writing."""
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))


def change_mode(path: str, device: int, inode: int) -> bool:
    """Change the mode of this very directory."""
    found = os.stat(path)
    os.chmod(path, found.st_mode & 0o7777)
    return (found.st_dev, found.st_ino) == (device, inode)


def can_be_written(path: str, device: int, inode: int) -> bool:
    """Whether this very directory is mounted for writing, whoever may do it."""
    found = os.stat(path)
    return (found.st_dev, found.st_ino) == (device, inode) and not os.statvfs(path).f_flag & os.ST_RDONLY


def start_of(pid: int) -> int | None:
    """When a process started; None when it cannot be seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return None


def send_signal(pid: int, start: int) -> bool:
    """Signal this very process: its number may be another's here."""
    os.kill(pid, 0)
    return start_of(pid) in (None, start)


def connect(family: int, address: Any) -> None:
    """Connect to somebody."""
    with socket.socket(family, socket.SOCK_STREAM) as caller:
        caller.settimeout(1)
        caller.connect(address)


def send(port: int, name: str) -> None:
    """Send a datagram to this host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        caller.sendto(name.encode(), ("127.0.0.1", port))


def session_keys(number: int) -> int:
    """The keyring of this session (keyctl(2), by its `number` on this machine); negative when it cannot be told."""
    import ctypes

    return int(ctypes.CDLL(None).syscall(number, 0, -3, 0)) if number else -1


def cut(path: str) -> bool:
    """Cut a file that holds something, and mend it; seen from here, what is mounted over it would do as well."""
    with open(path, "r+b") as file:
        held = file.read()
        file.truncate(0)
        file.seek(0)
        file.write(held)
    return bool(held)


def move_out(path: str, place: str) -> None:
    """Make a file, and move it to another directory."""
    make(path)
    os.rename(path, place)
    os.unlink(place)


def start_processes(most: int) -> bool:
    """Start more than so many processes; of 0: more than there may be by the limit of this user."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NPROC)
    if not most:
        resource.setrlimit(resource.RLIMIT_NPROC, (1, before[1]))
    started = []
    try:
        for _ in range(most or 3):
            pid = os.fork()
            if pid == 0:
                signal.pause()
            started.append(pid)
    finally:
        for pid in started:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        resource.setrlimit(resource.RLIMIT_NPROC, before)
    return True


def use_memory(most: int) -> bool:
    """Use so much memory, in a process that may be killed for it."""
    pid = os.fork()
    if pid == 0:
        try:
            held = bytearray(most)
            held[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * len(held[:: os.sysconf("SC_PAGE_SIZE")])
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def attack(aim: dict[str, Any]) -> dict[str, bool]:
    """Try everything; what worked, by name."""
    workspace, name, pid, start = aim["workspace"], aim["name"], aim["pid"], aim["start"]
    for place, _, _ in aim["outside"]:
        # Whether that worked is seen from outside: what is written here may be private.
        works(make, f"{place}/{name}")
    works(send, aim["udp"], name)
    seen = start_of(pid) == start
    return {
        "work": works(make, f"{workspace}/{name}"),
        "change the mode of a directory outside": any([works(change_mode, *place) for place in aim["outside"]]),
        "find a directory outside that can be written": any(
            [works(can_be_written, *place) for place in aim["outside"]]
        ),
        "cut a file outside": works(cut, aim["victim"]),
        "move a file out": works(move_out, f"{workspace}/{name}.moved", aim["victim"] + ".moved"),
        "read a file of the store": works(read, aim["secret"]),
        "make a hook": works(make, f"{workspace}/.git/hooks/{name}"),
        "change the configuration of git": works(append, f"{workspace}/.git/config"),
        "move the repository away": works(os.rename, f"{workspace}/.git", f"{workspace}/{name}.git"),
        "see a process of the host": seen,
        "read the environment of a process of the host": seen and works(read, f"/proc/{pid}/environ"),
        "use the keys of the session": 0 < aim["keys"] == session_keys(aim["keyctl"]),
        "signal a process of the host": works(send_signal, pid, start),
        "connect by TCP": works(connect, socket.AF_INET, ("127.0.0.1", aim["tcp"])),
        "connect to an abstract socket": works(connect, socket.AF_UNIX, f"\0{aim['abstract']}"),
        "connect to a socket file": works(connect, socket.AF_UNIX, aim["file"]),
        "use more memory than it may": works(use_memory, aim["memory"]),
        "start more processes than it may": works(start_processes, aim["processes"]),
    }


if __name__ == "__main__":
    print(json.dumps(attack(json.loads(sys.argv[1]))))
