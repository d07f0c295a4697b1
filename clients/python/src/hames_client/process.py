"""A server in a process of its own, on pipes.

Rule 1: it is ended by what this object started and is reaped here; closing stdin comes first, then SIGTERM, then
SIGKILL, each with its time.
Rule 2: stderr is drained all the time: a server whose stderr is full would have to drop what it writes there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import PathLike

import anyio
from anyio.abc import ByteReceiveStream, Process

from hames_client.errors import ConnectionLost
from hames_client.transport import GONE

STDERR_BYTES = 8 * 1024
"""What is kept of stderr for the message of a `ConnectionLost`."""

TERM_S = 5.0
"""From SIGTERM to SIGKILL. The server settles what runs within a second of SIGTERM."""

RECEIVE_BYTES = 256 * 1024


class ServerProcess:
    """A running server. Implements `Transport`."""

    def __init__(self, process: Process) -> None:
        self.pid: int | None = process.pid
        self._process = process
        self._stderr = bytearray()
        self._stderr_ended = anyio.Event()

    @classmethod
    async def open(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
    ) -> ServerProcess:
        """Start the server.

        Raises:
            ConnectionLost: the command cannot be started.
        """
        try:
            # A session of its own: Ctrl-C at a terminal is for this program, which then closes the server in order.
            process = await anyio.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise ConnectionLost(
                f"the server {command[0]!r} cannot be started: {error.strerror}: {error.filename!r}. "
                "Install Hames, or give `spawn` the command, like ['/path/to/hames', 'serve']"
            ) from error
        return cls(process)

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    @property
    def stderr(self) -> str:
        return self._stderr.decode(errors="replace").strip()

    async def run(self) -> None:
        with suppress(*GONE):
            while True:
                self._stderr += await _stream(self._process.stderr).receive()
                del self._stderr[:-STDERR_BYTES]
        self._stderr_ended.set()

    async def send(self, frame: bytes) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send(frame)

    async def receive(self) -> bytes:
        return await _stream(self._process.stdout).receive(RECEIVE_BYTES)

    async def close(self) -> None:
        # Shielded: the server is told to end also where this is cancelled. Closing a pipe does not wait.
        stdin = self._process.stdin
        with anyio.CancelScope(shield=True), suppress(*GONE):
            if stdin is not None:
                await stdin.aclose()

    async def last_words(self) -> None:
        await self._process.wait()
        await self._stderr_ended.wait()

    async def end(self, grace_s: float) -> None:
        for stop, wait_s in ((None, grace_s), (self._process.terminate, TERM_S), (self._process.kill, None)):
            if stop is not None:
                with suppress(ProcessLookupError):
                    stop()
            with anyio.move_on_after(wait_s):
                await self._process.wait()
                return

    async def aclose(self) -> None:
        with suppress(*GONE):
            await self._process.aclose()


def _stream(stream: ByteReceiveStream | None) -> ByteReceiveStream:
    assert stream is not None
    return stream
