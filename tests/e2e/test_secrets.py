"""The credential is in the header of a model request, and in nothing that a command, a client or the store can see."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, text

KEY = "sk-secret-9f8e7d6c5b4a"
READ_ENVIRONMENT = """
pid=$$
while [ "$pid" -gt 1 ]; do
  pid=$(sed 's/.*) . //' /proc/$pid/stat | cut -d' ' -f1)
  tr '\\0' '\\n' </proc/$pid/environ | grep -a KEY_OF_TEST
  if tr '\\0' ' ' </proc/$pid/cmdline | grep -q 'hames serve'; then
    tr '\\0' '\\n' </proc/$pid/environ >seen
    exit
  fi
done
"""


@pytest.mark.parametrize("other", ["HAMES_ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"])
def test_no_command_finds_a_key_in_the_environment_of_the_server(
    start: Start, workspace: Path, fake: FakeProvider, other: str
) -> None:
    fake.api_key = KEY
    fake.script(calls([("bash", {"command": READ_ENVIRONMENT})]), text("done"))
    server = start(env={"HAMES_COMPATIBLE_API_KEY": KEY, other: f"{KEY}-of-another"})
    session_id = server.create(workspace)

    turn = server.finish(session_id, server.submit(session_id))

    assert turn["status"] == "completed"
    seen = (workspace / "seen").read_text()
    assert "HAMES_HOME=" in seen
    assert KEY not in seen
    assert KEY.encode() not in Path(f"/proc/{server.pid}/environ").read_bytes()


def test_a_key_that_tools_or_the_model_come_across_is_neither_sent_nor_stored(
    start: Start, home: Path, workspace: Path, fake: FakeProvider
) -> None:
    (workspace / "env").write_text(f"KEY={KEY}\nA=1\n")
    fake.api_key = KEY
    fake.script(
        calls(
            [
                ("bash", {"command": f"cat env; ls missing-{KEY}"}),
                ("read", {"path": "env"}),
                ("grep", {"pattern": "KEY"}),
                ("edit", {"path": "env", "oldText": "A=1", "newText": "A=2"}),
            ],
            text=f"I look for {KEY}",
        ),
        text(f"It is {KEY}", chunks=9, usage={KEY: 1}),
    )
    server = start(env={"HAMES_COMPATIBLE_API_KEY": KEY})
    session_id = server.create(workspace)

    turn = server.finish(session_id, server.submit(session_id))

    assert turn["outcome"]["text"] == "It is [redacted]"
    assert (workspace / "env").read_text() == f"KEY={KEY}\nA=2\n"
    assert server.stop() == 0
    assert not [frame.raw for frame in server.frames if KEY.encode() in frame.raw]
    assert not [path for path in home.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert KEY not in server.stderr
