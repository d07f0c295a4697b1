"""A spawned `hames` command: what a person or a script sees of it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from e2e.driver import TIMEOUT_S, environment

SCRIPT = 'say one\ncall bash {"command": "echo first; echo second; exit 3"}\nsay two'
"""A prompt for the offline model: two messages and a command between."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> dict[str, Any]:
        """The one record on stdout, and that it is one line, the last."""
        assert self.out.endswith("\n")
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


class Cli:
    """Runs commands whose store and configuration are below `home`, in `workspace`."""

    def __init__(self, home: Path, workspace: Path) -> None:
        self.home = home
        self.workspace = workspace
        self.config = home / "config.json"
        self._started: list[tuple[subprocess.Popen[bytes], threading.Timer]] = []

    def start(
        self, *words: str, env: Mapping[str, str | None] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a command; its streams are pipes unless `options` say otherwise, its stdin `/dev/null`."""
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [sys.executable, "-m", "hames", *words],
            env=environment(self.home, env),
            cwd=self.workspace,
            **(pipes | options),
        )
        guard = threading.Timer(2 * TIMEOUT_S, process.kill)  # a test that reads its pipes does not wait for ever
        guard.daemon = True
        guard.start()
        self._started.append((process, guard))
        return process

    def end(self) -> None:
        """Kill what still runs, and close what was not read."""
        for process, guard in self._started:
            guard.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def __call__(
        self, *words: str, stdin: bytes | IO[bytes] | None = None, env: Mapping[str, str | None] | None = None
    ) -> Finished:
        """Run a command to its end; without `stdin` that is `/dev/null`."""
        given = (
            stdin if not isinstance(stdin, bytes | None) else subprocess.DEVNULL if stdin is None else subprocess.PIPE
        )
        process = self.start(*words, env=env, stdin=given)
        return finish(process, stdin if isinstance(stdin, bytes) else None)


def finish(process: subprocess.Popen[bytes], stdin: bytes | None = None) -> Finished:
    """Wait for the end of a command; one that hangs is killed, and fails the test."""
    try:
        out, err = process.communicate(stdin, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Finished(process.returncode, (out or b"").decode(), (err or b"").decode())


WHY_LOST = {"full": "No space left on device", "closed": "Bad file descriptor"}
"""What takes no output, and what a command says of it."""


def lost_stdout(place: str) -> dict[str, Any]:
    """The options of `Cli.start` that give a command a full or a closed standard output."""
    if place == "full":
        return {"stdout": os.open("/dev/full", os.O_WRONLY)}
    return {"stdout": None, "preexec_fn": lambda: os.close(1)}


def is_alive(pid: int) -> bool:
    """Whether there is a process of this id, a zombie too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
