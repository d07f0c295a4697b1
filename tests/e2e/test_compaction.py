"""A long conversation on the real server: a summary in the making can be cancelled, killed and timed out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server
from e2e.fixtures import Start
from fake.provider import FakeProvider, last_user_text, stall, text

WORDS = "word " * 700


def is_summary(body: Any) -> bool:
    return "is to be replaced by a summary" in last_user_text(body)


def grown(start: Start, workspace: Path) -> Server:
    """A server with a session whose context is to be made shorter with its next turn."""
    server = start()
    session_id = server.create(workspace, "s1")
    for _ in range(4):
        assert server.finish(session_id, server.submit(session_id, WORDS))["status"] == "completed"
    server.call("session/compact", sessionId=session_id)
    return server


def test_a_summary_in_the_making_is_cancelled_with_its_connection(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    fake.on(is_summary, stall(), text("All is said."))
    server = grown(start, workspace)
    turn_id = server.submit("s1", WORDS)
    fake.wait_for_requests(5)

    server.call("turn/cancel", sessionId="s1", turnId=turn_id)

    assert server.finish("s1", turn_id)["status"] == "cancelled"
    fake.wait_for_disconnects(1)
    assert server.finish("s1", server.submit("s1", "and now?"))["status"] == "completed"
    server.wait_event("context.replaced")


def test_a_server_that_is_killed_while_it_sums_up_leaves_a_session_that_goes_on(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    fake.on(is_summary, stall(), text("All is said."))
    first = grown(start, workspace)
    turn_id = first.submit("s1", WORDS)
    fake.wait_for_requests(5)
    first.kill()

    second = start()
    second.call("session/resume", sessionId="s1", subscribe={})

    assert second.finish("s1", turn_id)["status"] == "completed"
    kinds = [entry["event"]["type"] for entry in second.log("s1")]
    assert kinds.count("context.replaced") == 1


@pytest.mark.parametrize("limit", ["wallTimeMs", "firstByteMs"])
def test_a_summary_that_does_not_come_is_not_waited_for_beyond_the_limits(
    start: Start, workspace: Path, fake: FakeProvider, limit: str
) -> None:
    fake.on(is_summary, stall())
    server = grown(start, workspace)
    if limit == "firstByteMs":
        assert server.stop() == 0
        server = start(env={"HAMES_LIMIT_FIRST_BYTE_MS": "300", "HAMES_LIMIT_IDLE_MS": "300"})
        server.call("session/resume", sessionId="s1", subscribe={})
    limits = {"wallTimeMs": 700} if limit == "wallTimeMs" else {}

    turn = server.finish("s1", server.submit("s1", WORDS, limits=limits))

    if limit == "wallTimeMs":
        assert turn["outcome"]["error"]["details"]["limit"] == "wallTimeMs"
    else:
        assert turn["status"] == "completed"
        assert server.wait_event("context.kept")["data"]["trigger"] == "request"
