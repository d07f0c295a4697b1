"""What the system tells of processes, and the environment that servers of a test get."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TMPDIR")


def unmeasured() -> dict[str, str]:
    """Our environment without coverage, for a process that runs what is measured elsewhere, or is killed."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def environment(home: Path, extra: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """The environment of a server whose store and configuration are below `home`; None takes a variable out."""
    values = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    values |= {
        "HOME": str(home),
        "HAMES_HOME": str(home / "store"),
        "HAMES_CONFIG": str(home / "config.json"),
        "NO_PROXY": "127.0.0.1",
        "HAMES_LIMIT_RESERVE_BYTES": str(64 * 1024),  # a thousand tests leave a thousand stores behind
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path.endswith("src")),
    }
    for name, value in (extra or {}).items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    return values


def compatible(url: str, **extra: str) -> dict[str, str]:
    """The variables that make `url` the model of new sessions."""
    return {"HAMES_MODEL": "compatible/fake-model", "HAMES_COMPATIBLE_BASE_URL": url, **extra}


def status_bytes(pid: int, name: str) -> int:
    """A size in `/proc/<pid>/status`."""
    for entry in Path(f"/proc/{pid}/status").read_text().splitlines():
        if entry.startswith(f"{name}:"):
            return int(entry.split()[1]) * 1024
    raise ProcessLookupError(pid)


def descendants(pid: int) -> list[int]:
    """The processes below `pid`, zombies too."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def connections(pid: int, port: int) -> list[str]:
    """States of the TCP connections that a process has to a port of 127.0.0.1, those in the making too (proc(5))."""
    mine = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                mine.add(os.readlink(entry))
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[3] for row in rows if row[2] == f"0100007F:{port:04X}" and f"socket:[{row[9]}]" in mine]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
