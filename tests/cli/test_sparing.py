from __future__ import annotations

from pathlib import Path

from e2e.driver import Server, compatible
from fake.provider import FakeProvider


def test_a_server_loads_no_other_event_loop_and_no_command_line_for_a_turn(
    home: Path, workspace: Path, fake: FakeProvider
) -> None:
    with Server(home, env=compatible(fake.url, PYTHONPROFILEIMPORTTIME="1")) as server:
        session_id = server.create(workspace)
        assert server.finish(session_id, server.submit(session_id))["status"] == "completed"
    loaded = {line.rpartition("|")[2].strip() for line in server.stderr.splitlines()}
    assert "httpx._client" in loaded
    assert [name for name in loaded if name.startswith(("trio.", "click.", "rich."))] == []
