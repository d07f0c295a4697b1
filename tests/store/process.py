"""A second process on a store, started and ended by a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from e2e.processes import unmeasured

ROOT = Path(__file__).resolve().parents[2]


class Other:
    """The process of `other.py`, spoken to by lines."""

    def __init__(self, directory: Path, *, through: str | None = None, wait: bool = True) -> None:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
        self.process = subprocess.Popen(
            [sys.executable, *(["-c", through] if through else []), str(ROOT / "tests/store/other.py"), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**unmeasured(), "PYTHONPATH": path},
            text=True,
        )
        if wait:
            self.owner_id = self.hear()["owner"]

    def tell(self, do: str, **order: Any) -> None:
        """Give an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next answer."""
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        """Give an order and hear the answer."""
        self.tell(do, **order)
        return self.hear()

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> list[dict[str, Any]]:
        """End it by SIGKILL; what it had said by then, a half line left out."""
        self.process.kill()
        assert self.process.stdout is not None
        rest = self.process.stdout.read()
        self._reap()
        return [json.loads(line) for line in rest.split("\n")[:-1]]

    def _reap(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self.process.wait(30)


CLOSER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("select count(*) from event").fetchall()
connection.close()
"""

LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin immediate")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("rollback")
"""


HUMBLE = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Permissions hold for root too, in the program that is started by this; others need it not, and may not."""


OLDER = """
import runpy, sys
from hames.store import schema
schema.VERSION, schema.TABLES = 1, {1: schema.TABLES[1]}
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A build of version 1, as far as a store can tell, in the program that is started by this."""


NEWER_CLOSER = CLOSER.replace("sqlite3", "apsw").replace("apsw.connect", "apsw.Connection")
"""The same with the library that the store uses, without its settings."""


def close_from_outside(directory: Path, program: str = CLOSER) -> None:
    """Open, read and close the database by another program's SQLite."""
    subprocess.run([sys.executable, "-c", program, str(directory / "store.db")], check=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Another program's SQLite holds the write lock."""
    command = [sys.executable, "-c", LOCKER, str(directory / "store.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as locker:
        assert locker.stdout is not None
        locker.stdout.readline()
        yield
        locker.communicate(b"\n")


@contextmanager
def other(directory: Path, *, humble: bool = False) -> Iterator[Other]:
    """One that is gone afterwards, in good order if it still can; a `humble` one keeps to file permissions."""
    started = Other(directory, through=HUMBLE if humble else None)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.signal(signal.SIGCONT)
        started._reap()
