"""Control groups: what bounds the memory and the number of processes of a whole command, however it forks.

Rule 1: standard library only: it runs in the supervisor.
Rule 2: a place is used only when a group could be made in it, bounded and taken away again.
Rule 3: nothing of ours stays: a group is removed with its command, and what a killed supervisor left behind is removed
by the next process that looks.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

PREFIX = "hames-"
"""Of the names of our groups; the pid of the process that made it follows."""

WANTED = ("memory", "pids")

_LIMIT_FILES = {
    (1, "memory"): ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    (2, "memory"): ("memory.max",),
    (1, "pids"): ("pids.max",),
    (2, "pids"): ("pids.max",),
}
"""By version and controller, in the order in which they are to be written; those after the first need not exist."""

_EVENT_FILES = {
    (1, "memory"): ("memory.oom_control", b"oom_kill"),
    (2, "memory"): ("memory.events", b"oom_kill"),
    (1, "pids"): ("pids.events", b"max"),
    (2, "pids"): ("pids.events", b"max"),
}
"""Where the kernel counts how often a limit was met, and under which word."""


_PAUSES_S = (0.001, 0.002, 0.005, 0.01)
"""Between tries to remove a group: for a moment the kernel still counts what has ended."""


class Place:
    """A directory of the version 1 or 2 in which we may make groups that have these controllers."""

    __slots__ = ("controllers", "directory", "version")

    def __init__(self, version: int, controllers: Sequence[str], directory: str) -> None:
        self.version = version
        self.controllers = tuple(controllers)
        self.directory = directory

    def encode(self) -> str:
        """As `decode` reads it."""
        return f"{self.version}:{','.join(self.controllers)}:{self.directory}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self.encode())

    @staticmethod
    def decode(text: str) -> Place:
        """What `encode` wrote."""
        version, controllers, directory = text.split(":", 2)
        return Place(int(version), controllers.split(","), directory)


class Group:
    """One group in a place, which bounds nothing yet.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.path = f"{place.directory}/{name}"
        os.mkdir(self.path)

    def bound(self, values: Mapping[str, int]) -> None:
        """Set the limits by controller.

        Raises:
            OSError: the kernel does not take one.
        """
        for controller in self.place.controllers:
            if controller in values:
                self._bound(controller, values[controller])

    def _bound(self, controller: str, value: int) -> None:
        first, *others = _LIMIT_FILES[self.place.version, controller]
        _write(f"{self.path}/{first}", value)
        for name in others:
            with suppress(FileNotFoundError):
                _write(f"{self.path}/{name}", value)
        if controller == "memory" and self.place.version == 2:
            # What is swapped out would not count.
            with suppress(FileNotFoundError):
                _write(f"{self.path}/memory.swap.max", 0)

    def met(self) -> list[str]:
        """The controllers whose limit was met."""
        return [controller for controller in self.place.controllers if self._count(controller)]

    def _count(self, controller: str) -> int:
        name, word = _EVENT_FILES[self.place.version, controller]
        with suppress(OSError, ValueError, IndexError), open(f"{self.path}/{name}", "rb") as file:
            return sum(int(fields[1]) for fields in map(bytes.split, file) if fields[0] == word)
        return 0

    def remove(self) -> None:
        """Take it away, if nothing is in it."""
        _remove(self.path)


def enter(path: str) -> None:
    """Put the calling process into the group at `path`.

    Raises:
        OSError: it may not.
    """
    _write(f"{path}/cgroup.procs", 0)


def find() -> tuple[Place, ...]:
    """Where groups for commands can be made, at most one place for each controller; empty where there is none."""
    found: dict[str, Place] = {}
    own, mounts = _lines("/proc/self/cgroup"), _lines("/proc/self/mountinfo")
    for place in candidates(own, mounts, enabled=lambda path: _words(f"{path}/cgroup.subtree_control")):
        new = [name for name in place.controllers if name not in found]
        if new and _works(narrow := Place(place.version, new, place.directory)):
            found |= dict.fromkeys(new, narrow)
    return tuple(dict.fromkeys(found.values()))


def _works(place: Place) -> bool:
    if not os.access(f"{place.directory}/cgroup.procs", os.W_OK):
        return False
    sweep(place)
    try:
        group = Group(place, f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
    except OSError:
        return False
    try:
        group.bound({"memory": 2**26, "pids": 16})
    except OSError:
        return False
    finally:
        group.remove()
    return True


def sweep(place: Place, *, own: bool = False) -> None:
    """Remove the groups of processes that are gone, or our own. One that is in use cannot be removed."""
    with suppress(OSError):
        for name in os.listdir(place.directory):
            pid = name.removeprefix(PREFIX).partition("-")[0]
            gone = pid == str(os.getpid()) if own else not os.path.exists(f"/proc/{pid}")
            if name.startswith(PREFIX) and gone:
                _remove(f"{place.directory}/{name}")


def _remove(path: str) -> None:
    for pause_s in (*_PAUSES_S, 0.0):
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            time.sleep(pause_s)
        else:
            return


def candidates(
    own: Iterable[str], mounts: Iterable[str], *, enabled: Callable[[str], Sequence[str]]
) -> Iterator[Place]:
    """Our own groups, and of version 2 those above: there a group has processes, or groups that have controllers.

    `own` and `mounts` are lines of `/proc/self/cgroup` (cgroups(7)) and `/proc/self/mountinfo` (proc(5)); `enabled`
    says which controllers the groups in a directory have.
    """
    paths = dict(_own(own))
    for version, controllers, root, mount in _mounts(mounts):
        path = paths.get("" if version == 2 else controllers[0])
        if path is None:
            continue
        above = f"{root.rstrip('/')}/"
        inside = f"{path}/".removeprefix(above) if f"{path}/".startswith(above) else ""
        directory = f"{mount}/{inside}".rstrip("/")
        if version == 1:
            yield Place(1, controllers, directory)
            continue
        while f"{directory}/".startswith(f"{mount}/"):
            held = [name for name in WANTED if name in enabled(directory)]
            if held:
                yield Place(2, held, directory)
            directory = os.path.dirname(directory)


def _own(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Controller, empty for version 2, and the path of our group."""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _mounts(lines: Iterable[str]) -> Iterator[tuple[int, list[str], str, str]]:
    """Version, wanted controllers, root and mount point of each mounted hierarchy."""
    for line in lines:
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mount = before.split(" ")[3:5]
        if kind == "cgroup2":
            yield 2, [], root, mount
        elif kind == "cgroup" and (held := [name for name in WANTED if name in options.split(",")]):
            yield 1, held, root, mount


def _lines(path: str) -> list[str]:
    with suppress(OSError), open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read().splitlines()
    return []


def _words(path: str) -> list[str]:
    return " ".join(_lines(path)).split()


def _write(path: str, value: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)
