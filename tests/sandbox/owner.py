"""A process that runs a command and waits for it: `python owner.py <directory> <session> <nasty kind> <lock file>`.

Prints the record of its reaper, then `ready` when the command is.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio

from hames.sandbox.command import Command
from hames.sandbox.process import ReaperProcesses

NASTY = Path(__file__).with_name("nasty.py")


async def main(*arguments: str) -> None:
    directory, session, kind, lock = arguments
    processes = ReaperProcesses(Path(directory))
    record = await processes.start()
    assert record is not None
    print(json.dumps([record.pid, record.start_time, record.socket]), flush=True)
    cwd = os.open("/", os.O_PATH)
    argv = (sys.executable, str(NASTY), kind, lock)
    await processes.run(
        Command(session, argv, {"HAMES_SESSION": session}, cwd),
        timeout_ms=60_000,
        grace_ms=0,
        keep_bytes=100,
        on_output=lambda chunk: print(chunk.decode(), end="", flush=True),
    )


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
