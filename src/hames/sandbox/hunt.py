"""Find and end the processes of a session by the marker in their environment, when their reaper is gone.

Rule 1: this is the last resort. A process that took the marker out of its environment is found only below one
that kept it; the reaper needs no marker.
Rule 2: this process and those above it are never touched, even when a tool of that session started them.
"""

from __future__ import annotations

import os
import time

from hames.sandbox.tree import descendants, kill_all

MARKER = "HAMES_SESSION"
"""The environment variable that names the session in every command it runs."""


def stat_fields(pid: int) -> list[str] | None:
    """`/proc/<pid>/stat` from its third field on (state, ppid, ...); None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the name in parentheses, which may hold anything.
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return None


def start_time(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot; None when it is gone or dead."""
    fields = stat_fields(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def ancestors(pid: int) -> set[int]:
    """`pid` and the processes above it."""
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        fields = stat_fields(pid)
        pid = int(fields[1]) if fields else 0
    return found


def marked(session_id: str) -> set[int]:
    """The live processes that carry the session's marker, without this one and those above it."""
    entry = os.fsencode(f"{MARKER}={session_id}")
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                # Empty for a dead process; not readable for one of another user.
                if entry in file.read().split(b"\0"):
                    found.add(int(name))
        except OSError:
            continue
    return found - ancestors(os.getpid())


def end_marked(session_id: str, *, within_ms: int) -> tuple[int, ...]:
    """Kill the session's processes and wait until they are gone; the pids that still live after `within_ms`.

    Blocks: call it in a worker thread.
    """
    seen: dict[int, int] = {}

    def roots() -> set[int]:
        found = marked(session_id)
        for pid in descendants(found):
            if (started := start_time(pid)) is not None:
                seen.setdefault(pid, started)
        return found

    def living() -> list[int]:
        return sorted(pid for pid, started in seen.items() if start_time(pid) == started)

    # A dying process loses its environment before it lets go of its files, so both are asked.
    kill_all(roots, lambda: not marked(session_id) and not living(), time.monotonic() + within_ms / 1000)
    return tuple(living())
