"""What the kernel tells of a process: CPU, memory, wake-ups. Linux only; elsewhere these figures are left out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

KNOWN = sys.platform == "linux"


def cpu_ms(pid: int) -> float:
    """User and system time of all threads, in milliseconds; exact to a clock tick, mostly 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Resident memory, in megabytes of 2**20 bytes."""
    return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mb(pid: int) -> float:
    """The most memory it was ever resident with, in megabytes of 2**20 bytes."""
    status = Path(f"/proc/{pid}/status").read_bytes()
    return int(status.partition(b"VmHWM:")[2].split()[0]) / 1024


def wakeups(pid: int) -> int:
    """How often its threads gave up the processor by themselves: each was a wait that ended or will."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_bytes().splitlines():
            if line.startswith(b"voluntary_ctxt_switches:"):
                total += int(line.split()[1])
    return total


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    if not KNOWN:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
