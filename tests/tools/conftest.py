"""A session's workspace, and a way to call tools in it as the engine does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hames.core.limits import DEFAULTS
from hames.ports import Tool, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses
from hames.tools import ToolSettings, all_tools

BY_NAME: dict[str, Tool] = {tool.spec.name: tool for tool in all_tools(ToolSettings(private_addresses=True))}

Call = Callable[..., Awaitable[ToolOutcome]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "work"
    path.mkdir()
    return path


@pytest.fixture
async def context(tmp_path: Path, workspace: Path, anyio_backend: str) -> AsyncIterator[ToolContext]:
    processes = ReaperProcesses(tmp_path / "run")  # its reaper starts with the first command, and most tests run none
    sandbox = LocalSandbox(workspace, workspace, "session", processes, reserved=[workspace / "store"])
    yield ToolContext("session", "turn", "call", sandbox, DEFAULTS, lambda _: None)
    await sandbox.aclose()
    await processes.aclose()


@pytest.fixture
def call(context: ToolContext) -> Call:
    """Call a tool with arguments that fit its schema; `limits` lowers some."""

    async def make(tool: str, *, limits: dict[str, int] | None = None, **arguments: Any) -> ToolOutcome:
        jsonschema.Draft202012Validator(BY_NAME[tool].spec.parameters).validate(arguments)
        outcome = await BY_NAME[tool].run(arguments, replace(context, limits={**DEFAULTS, **(limits or {})}))
        outcome.text.encode()
        return outcome

    return make


@pytest.fixture
def refused(call: Call) -> Callable[..., Awaitable[str]]:
    """The kind of failure that a call ends with."""

    async def make(tool: str, **arguments: Any) -> str:
        with pytest.raises(ToolFailed) as failure:
            await call(tool, **arguments)
        failure.value.message.encode()
        return failure.value.kind

    return make
