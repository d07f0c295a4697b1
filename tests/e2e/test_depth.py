"""JSON that is nested deeply: what is admitted can be read, replayed, proved and gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.command import Cli
from e2e.driver import Server
from e2e.fixtures import Start
from fake import gemini
from fake.provider import FakeProvider
from hames.config import SETTINGS
from hames.protocol.jsontext import MAX_DEPTH

MODEL = "gemini-3-flash-preview"


def nested(depth: int) -> Any:
    value: Any = "leaf"
    for _ in range(depth):
        value = {"in": value}
    return value


def goes_on(server: Server, session_id: str) -> None:
    """It can be read from its beginning, and works."""
    server.call("session/resume", sessionId=session_id, subscribe={})
    assert server.finish(session_id, server.submit(session_id, "and now?"))["status"] == "completed"
    assert server.log(session_id)[0]["event"]["seq"] == 1
    server.call("session/get", sessionId=session_id, view=True)


def test_metadata_as_deep_as_a_frame_may_be_is_read_again(
    start: Start, home: Path, workspace: Path, fake: FakeProvider
) -> None:
    first = start()
    # The frame and its params are two levels more.
    deep = {f"s{depth}": nested(depth) for depth in range(MAX_DEPTH - 8, MAX_DEPTH - 1)}
    for session_id, metadata in deep.items():
        first.call("session/create", workspace=str(workspace), sessionId=session_id, metadata=metadata)
        assert first.finish(session_id, first.submit(session_id))["status"] == "completed"
    first.stop()

    second = start()
    for session_id in deep:
        goes_on(second, session_id)
    second.stop()
    assert Cli(home, workspace)("verify").code == 0


@pytest.mark.parametrize("depth", [60, 100, 125])
def test_parts_of_a_provider_that_are_deep_harm_nothing(start: Start, home: Path, workspace: Path, depth: int) -> None:
    with FakeProvider(wire=gemini.Gemini()) as fake:
        env: dict[str, str | None] = {
            SETTINGS["providers.gemini.baseUrl"].environment: fake.url,
            SETTINGS["providers.gemini.apiKey"].environment: "a-key-of-the-tests",
            "HAMES_MODEL": f"gemini/{MODEL}",
        }
        signed = {**gemini.signed_text("Well.", MODEL), "partMetadata": nested(depth)}
        fake.script(gemini.send(gemini.chunk([signed])) + gemini.finish())
        first = start(env=env)
        session_id = first.create(workspace)
        assert first.finish(session_id, first.submit(session_id))["status"] == "completed"
        first.stop()

        second = start(env=env)
        goes_on(second, session_id)
        second.stop()
        assert fake.refusals == []
    assert Cli(home, workspace)("verify").code == 0
