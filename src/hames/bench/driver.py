"""A client that costs next to nothing: it looks for marks in the bytes of a peer's stdout and parses answers only.

Rule: one thread. What a peer says is read when somebody waits for it; requests are small enough for any pipe.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import orjson

READ_BYTES = 1 << 20
WAIT_S = 30.0
"""For anything a peer is asked: a figure that takes longer is not worth waiting for."""

TERMINAL = re.compile(rb'"type":"turn\.(completed|failed|cancelled)"')


class BenchFailed(Exception):
    """A figure cannot be had: a peer ended, answered with an error, or not in time."""


class Peer:
    """A process that is spoken to with lines of JSON over pipes. `spawned_at` is a `perf_counter` time."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, errors: Path) -> None:
        self._errors = errors
        with errors.open("ab") as stderr:
            self.spawned_at = perf_counter()
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=env,
                cwd=cwd,
                bufsize=0,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin = self.process.stdin
        self._stdout = self.process.stdout
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN)
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._last_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stdin.close()
        try:
            self.process.wait(5.0 if error is None else 0.5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._stdout.close()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    def end_input(self) -> None:
        """Close the peer's stdin."""
        self._stdin.close()

    def send(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a request; its id."""
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        self.send_line(orjson.dumps(message) + b"\n")
        return self._last_id

    def send_line(self, line: bytes) -> None:
        """Send prepared bytes."""
        try:
            os.write(self._stdin.fileno(), line)
        except BrokenPipeError as error:
            raise BenchFailed(f"the process ended: {self._last_words()}") from error

    def line(self) -> bytes:
        """The next line that the peer wrote.

        Raises:
            BenchFailed: it ended, or was silent for `WAIT_S`.
        """
        while not self._lines:
            *lines, self._rest = (self._rest + self.read()).split(b"\n")
            self._lines.extend(lines)
        return self._lines.popleft()

    def read(self) -> bytes:
        """Whatever comes next, not cut into lines."""
        if not self._poll.poll(WAIT_S * 1000):
            raise BenchFailed(f"no answer within {WAIT_S:.0f} s: {self._last_words()}")
        data = os.read(self._stdout.fileno(), READ_BYTES)
        if not data:
            raise BenchFailed(f"the process ended: {self._last_words()}")
        return data

    def unread(self, data: bytes) -> None:
        """Put back the end of what `read` gave."""
        self._rest = data + self._rest

    def until(self, mark: bytes) -> bytes:
        """The next line that holds `mark`; those before it are dropped."""
        while mark not in (line := self.line()):
            pass
        return line

    def answer(self, request_id: int) -> Any:
        """The result of a request; lines before it are dropped.

        Raises:
            BenchFailed: it was answered with an error.
        """
        mark = b'"id":%d' % request_id
        while True:
            line = self.line()
            if mark in line and b'"method"' not in line[:40]:
                message = orjson.loads(line)
                if message.get("id") != request_id:
                    continue
                if "error" in message:
                    raise BenchFailed(f"answered with an error: {message['error']['message'][:300]}")
                return message["result"]

    def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request and wait for its result."""
        return self.answer(self.send(method, params))

    def terminal(self, status: bytes = b"completed") -> bytes:
        """The next terminal event.

        Raises:
            BenchFailed: the turn ended in another way.
        """
        while True:
            line = self.line()
            found = TERMINAL.search(line)
            if found is not None:
                if found[1] != status:
                    raise BenchFailed(f"a turn ended as {found[1].decode()}: {line[-400:].decode(errors='replace')}")
                return line

    def exit_ms(self) -> float:
        """From now until the process has ended, in milliseconds.

        Raises:
            BenchFailed: not within `WAIT_S`.
        """
        started = perf_counter()
        while self._poll.poll(WAIT_S * 1000) and os.read(self._stdout.fileno(), READ_BYTES):
            pass
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise BenchFailed(f"the process did not end within {WAIT_S:.0f} s") from None
        return (perf_counter() - started) * 1000

    def _last_words(self) -> str:
        words = self._errors.read_bytes()[-2000:].decode(errors="replace").strip().splitlines()
        return words[-1][:300] if words else "it left no message"


def python(*arguments: str) -> list[str]:
    """The command line of this interpreter."""
    return [sys.executable, *arguments]
