"""A reaper, a workspace and a proof that processes are gone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses
from sandbox.confined import Confined, store

__all__ = ["store"]


class Lock:
    """A file that nasty processes hold a shared lock on for as long as one of them lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._fd = os.open(path, os.O_RDONLY)

    def is_free(self) -> bool:
        """Whether all who held it are gone."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return True

    async def until_free(self) -> None:
        """Wait until all who held it are gone."""
        await anyio.to_thread.run_sync(fcntl.flock, self._fd, fcntl.LOCK_EX, abandon_on_cancel=True)

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[Lock]:
    made = Lock(tmp_path / "lock")
    yield made
    made.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "work"
    path.mkdir()
    return path


@pytest.fixture
async def processes(tmp_path: Path, anyio_backend: str) -> AsyncIterator[ReaperProcesses]:
    made = ReaperProcesses(tmp_path / "run")
    await made.start()
    yield made
    await made.aclose()


@pytest.fixture
async def sandbox(workspace: Path, processes: ReaperProcesses) -> AsyncIterator[LocalSandbox]:
    made = LocalSandbox(workspace, workspace, f"session-{os.urandom(4).hex()}", processes)
    yield made
    await made.aclose()


@pytest.fixture
async def confined(store: Path, workspace: Path, processes: ReaperProcesses) -> AsyncIterator[Confined]:
    made = Confined(store, workspace, processes)
    yield made
    await made.aclose()
