"""Contained commands where this machine has them, and the proof that they are refused where it has not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from hames.ports import ProcessResult, Sandbox
from hames.protocol.errors import Refused
from hames.sandbox import landlock
from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses
from hames.sandboxes import Sandboxes

BOUNDS: dict[str, Any] = {"timeout_ms": 30_000, "grace_ms": 0, "keep_bytes": 50_000}


class Confined:
    """Opens sandboxes of one workspace. `store` keeps what was proved for later tests."""

    def __init__(self, store: Path, workspace: Path, processes: ReaperProcesses, *, program: str | None = None) -> None:
        self.store = store
        self.workspace = workspace
        self.processes = processes
        self.opened: list[Sandbox] = []
        program = program or os.environ.get("HAMES_BUBBLEWRAP")
        self._sandboxes = Sandboxes(store, processes, program=program)

    def _is_lacking(self, backend: str, network: str) -> bool:
        """Whether this machine has no such sandbox, so that it must be refused."""
        if backend == "landlock":
            # The third version came with the right to cut a file.
            return landlock.abi() < 3 or (network == "disabled" and not landlock.can_filter())
        return backend == "contained" and self._sandboxes.choose({"sandbox": "auto"})["backend"] != "contained"

    async def open(
        self, backend: str = "contained", *, network: str = "general", limits: dict[str, int] | None = None
    ) -> LocalSandbox | None:
        """The sandbox, or None where it is refused; then it was refused as it should be."""
        await self._sandboxes.prove(backend)
        wish = {"sandbox": backend, "network": network, "workspace": str(self.workspace)}
        if self._is_lacking(backend, network):
            with pytest.raises(Refused) as failure:
                self._sandboxes.choose(wish)
            assert failure.value.kind == "containment_unavailable"
            assert failure.value.details["missing"]
            assert failure.value.details["evidence"]
            return None
        chosen = self._sandboxes.choose(wish)
        cwd = str(self.workspace)
        snapshot = {"workspace": {"path": cwd}, "cwd": cwd, "sandbox": chosen, "limits": limits or {}}
        made = self._sandboxes.open(f"session-{os.urandom(4).hex()}", snapshot)
        assert isinstance(made, LocalSandbox)
        assert (made.name, made.guarantees) == (chosen["backend"], chosen["guarantees"])
        self.opened.append(made)
        return made

    async def run(self, *argv: str, network: str = "general", **options: Any) -> ProcessResult | None:
        """What a contained command gave; None where it is refused."""
        sandbox = await self.open(network=network)
        if sandbox is None:
            return None
        with anyio.fail_after(60):
            return await sandbox.run(argv, **{**BOUNDS, **options})

    async def shell(self, script: str, **options: Any) -> bytes | None:
        """What a contained script wrote; None where it is refused."""
        result = await self.run("sh", "-c", script, **options)
        return None if result is None else result.output

    async def aclose(self) -> None:
        for sandbox in self.opened:
            await sandbox.aclose()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store").resolve()
