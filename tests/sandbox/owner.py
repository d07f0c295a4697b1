"""A process that runs a command and waits for it: `python owner.py <directory> <session> <nasty kind> <lock file>`, and
`<bubblewrap> <workspace>` when the command is to be contained.

Prints the record of its reaper, then `ready` when the command is.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio

from hames.sandbox.command import Command
from hames.sandbox.contained import ContainedSandbox
from hames.sandbox.process import ReaperProcesses

PYTHON = os.path.realpath(sys.executable)
NASTY = Path(__file__).with_name("nasty.py")


async def main(*arguments: str) -> None:
    directory, session, kind, lock, *confinement = arguments
    processes = ReaperProcesses(Path(directory))
    record = await processes.start()
    assert record is not None
    print(json.dumps([record.pid, record.start_time, record.socket]), flush=True)
    argv = (PYTHON, str(NASTY), kind, lock)
    bounds: Any = {"timeout_ms": 60_000, "grace_ms": 0, "keep_bytes": 100}
    if confinement:
        program, workspace = confinement
        place = Path(workspace)
        sandbox = ContainedSandbox(place, place, session, processes, program=program, guarantees={}, network=True)
        await sandbox.run(argv, **bounds, on_output=show)
    else:
        command = Command(session, argv, {"HAMES_SESSION": session}, os.open("/", os.O_PATH))
        await processes.run(command, **bounds, on_output=show)


def show(chunk: bytes) -> None:
    print(chunk.decode(), end="", flush=True)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
