"""Find and end the processes of a session by the marker in their environment, when their reaper is gone.

Rule 1: this is the last resort. A process that took the marker out of its environment is found only below one
that kept it; the reaper needs no marker.
Rule 2: this process and those above it are never touched, even when a tool of that session started them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from hames.sandbox.tree import descendants, kill_all

Identity = tuple[int, int]
"""A pid and its start time: a pid alone may be given to another."""

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


def state(who: Identity) -> str | None:
    """The state of a process as in `stat_fields`; None when it is gone."""
    fields = stat_fields(who[0])
    return None if fields is None or int(fields[19]) != who[1] else fields[0]


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


def marked(sessions: Collection[str]) -> set[int]:
    """The live processes that carry the marker of one of the sessions, without this one and those above it."""
    entries = {os.fsencode(f"{MARKER}={session_id}") for session_id in sessions}
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                # Empty for a dead process; not readable for one of another user.
                if not entries.isdisjoint(file.read().split(b"\0")):
                    found.add(int(name))
        except OSError:
            continue
    return found - ancestors(os.getpid())


def end_marked(sessions: Collection[str], *, within_s: float, besides: Collection[Identity] = ()) -> tuple[int, ...]:
    """Kill the sessions' processes, `besides` and all below them, and wait until they are gone; the pids that still
    live after `within_s`.

    Blocks: call it in a worker thread.
    """
    seen: dict[int, int] = {}

    def roots() -> set[int]:
        found = marked(sessions) | {pid for pid, started in besides if start_time(pid) == started}
        for pid in descendants(found):
            if (started := start_time(pid)) is not None:
                seen.setdefault(pid, started)
        return found

    def living() -> list[int]:
        return sorted(pid for pid, started in seen.items() if start_time(pid) == started)

    # A dying process loses its environment before it lets go of its files, so both are asked.
    roots()
    kill_all(roots, lambda: not marked(sessions) and not living(), time.monotonic() + within_s)
    return tuple(living())
