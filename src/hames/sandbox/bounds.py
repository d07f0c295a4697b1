"""What a command may use of the machine, and how its supervisor sees to that.

Rule 1: standard library and `groups` only: it runs in the supervisor.
Rule 2: a control group bounds the whole command, a resource limit (setrlimit(2)) each process for itself. The second is
used where the first is not to be had, and for what has no group.
Rule 3: a command that cannot be bounded as was said is not run.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from hames.sandbox.groups import Place

LIMITS = {
    "memory": "commandMemoryBytes",
    "pids": "commandProcesses",
    "cpu": "commandCpuSeconds",
    "file": "commandFileBytes",
    "files": "commandOpenFiles",
}
"""What is bounded, and the limit that says how much of it there may be."""

UNBOUNDED_BYTES = 2**50
"""Of memory: so much is no limit. Said to the kernel, it would be one for programs that reserve more than there is."""

_SIGNALS = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "file"}
"""What the kernel sends at a limit."""

CAP_SYS_RESOURCE = 24
"""May raise its own limits (capabilities(7))."""

VICTIM = b"1000"
"""`oom_score_adj` of commands: where memory runs out the kernel ends these first, and Hames last (proc(5))."""


class Bounds:
    """The limits of a command by their names in `LIMITS`, and the places of the groups that it goes into."""

    __slots__ = ("places", "values")

    def __init__(self, values: Mapping[str, int], places: Sequence[Place] = ()) -> None:
        self.values = dict(values)
        self.places = tuple(places)

    @staticmethod
    def of(limits: Mapping[str, int], places: Sequence[Place]) -> Bounds:
        """From limits by their published names."""
        values = {name: int(limits[limit]) for name, limit in LIMITS.items() if limit in limits}
        needed = [place for place in places if any(_counts(name, values) for name in place.controllers)]
        return Bounds(values, needed)

    def encode(self) -> list[str]:
        """As `decode` reads it."""
        return [*(f"{name}={value}" for name, value in self.values.items()), *(f"in={p.encode()}" for p in self.places)]

    @staticmethod
    def decode(fields: Sequence[bytes]) -> Bounds:
        """What `encode` wrote."""
        pairs = [os.fsdecode(field).split("=", 1) for field in fields]
        values = {name: int(value) for name, value in pairs if name in LIMITS}
        return Bounds(values, [Place.decode(text) for name, text in pairs if name == "in"])

    def grouped(self, name: str) -> bool:
        """Whether a group bounds it."""
        return any(name in place.controllers for place in self.places)

    def apply(self) -> None:
        """Bound the calling process and all that it will start, by what is no group. It can have less, never more.

        Raises:
            OSError: the kernel does not take a limit.
        """
        values = self.values
        if _counts("memory", values) and not self.grouped("memory"):
            # Not its address space, of which many programs reserve more than they use.
            _lower(resource.RLIMIT_DATA, values["memory"])
        if "pids" in values and not self.grouped("pids"):
            # It counts all of this user, so what there is already has to be added; for root it counts nothing.
            _lower(resource.RLIMIT_NPROC, values["pids"] + threads())
        if "cpu" in values:
            _lower(resource.RLIMIT_CPU, values["cpu"], spare=1)
        if "file" in values:
            _lower(resource.RLIMIT_FSIZE, values["file"])
        if "files" in values:
            _lower(resource.RLIMIT_NOFILE, values["files"])

    def met(self, exit_code: int) -> list[str]:
        """What a command ran into that ended with this code: its own signal, or that of the last program of a shell."""
        number = -exit_code if exit_code < 0 else exit_code - 128
        found = next((name for sent, name in _SIGNALS.items() if sent == number), None)
        return [found] if found in self.values else []


def _counts(name: str, values: Mapping[str, int]) -> bool:
    return name in values and (name != "memory" or values[name] < UNBOUNDED_BYTES)


def _lower(kind: int, value: int, *, spare: int = 0) -> None:
    """Set a limit, and the most that it can be set to again; a lower one stays as it is."""
    soft, hard = resource.getrlimit(kind)
    hard = _least(value + spare, hard)
    resource.setrlimit(kind, (_least(value, _least(soft, hard)), hard))


def _least(value: int, other: int) -> int:
    return value if other == resource.RLIM_INFINITY else min(value, other)


def threads() -> int:
    """How many threads there are on this host, which those of this user are a part of."""
    with suppress(OSError, ValueError), open("/proc/loadavg", "rb") as file:
        return int(file.read().split()[3].partition(b"/")[2])
    return 0


def be_the_victim() -> None:
    """Have the kernel end the calling process before others where memory runs out."""
    with suppress(OSError):
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, VICTIM)
        finally:
            os.close(descriptor)


def held(places: Sequence[Place], *, confined: bool) -> dict[str, str]:
    """The guarantees on limits that these places give: who is not confined can leave its group."""
    most = "yes" if confined else "partial"
    grouped = {name for place in places for name in place.controllers}
    by_user = "no" if os.getuid() == 0 else "partial"
    return {
        "limits.memory": most if "memory" in grouped else "partial",
        "limits.pids": most if "pids" in grouped else by_user,
        "limits.cpu": "partial",
        "limits.files": "partial" if not confined and _may_raise() else "yes",
    }


def _may_raise() -> bool:
    """Whether this process, and so a command that is not confined, may take more than a limit says."""
    with suppress(OSError, ValueError), open("/proc/self/status", "rb") as file:
        held = next(line.split()[1] for line in file if line.startswith(b"CapEff:"))
        return bool(int(held, 16) & 1 << CAP_SYS_RESOURCE)
    return False
