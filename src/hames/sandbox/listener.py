"""The listening socket of a reaper: its name, and how another process asks it to end a session's commands.

Rule: a path longer than a socket address takes is reached through a descriptor of its directory.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio


async def ask(path: str, session_id: str, *, within_s: float) -> tuple[int, ...] | None:
    """What the reaper at `path` says after ending the session; None when it does not say it in time."""
    answer = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller, short(Path(path).parent) as folder:
            caller.setblocking(False)
            caller.connect(f"{folder}/{Path(path).name}")
            caller.send(os.fsencode(session_id) + b"\n")
            with anyio.move_on_after(within_s):
                while not answer.endswith(b"\n"):
                    await anyio.wait_readable(caller)
                    data = caller.recv(4096)
                    if not data:
                        break
                    answer += data
    except OSError:
        return None
    if not answer.endswith(b"\n"):
        return None
    return tuple(map(int, answer.split()[1:]))


@contextmanager
def short(directory: Path) -> Iterator[str]:
    """`directory` under a name that fits a socket address, which holds 107 bytes."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
