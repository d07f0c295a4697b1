from __future__ import annotations

from pathlib import Path

from e2e.driver import Server
from fake.provider import FakeProvider, calls, text


def test_turn_with_a_tool_runs(server: Server, workspace: Path, fake: FakeProvider) -> None:
    fake.script(calls([("bash", {"command": "echo hi > f"})]), text("done", chunks=3))
    s = server.create(workspace)
    t = server.submit(s)
    assert server.finish(s, t)["status"] == "completed"
