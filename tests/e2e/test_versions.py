"""A server on the store that an older build was killed on: what it had answered, and what it had left undone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server
from store.versions import VERSIONS, lines_of, unpack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fixtures' sessions work in /sys")

AWAY = "idle"
"""The session whose workspace is not on this machine."""


@pytest.fixture(params=VERSIONS)
def answered(request: pytest.FixtureRequest, home: Path) -> list[dict[str, Any]]:
    """The keyed requests that the older build had answered; its store is in `home`."""
    return unpack(request.param, home / "store")


def test_requests_with_keys_are_answered_as_the_older_build_did(home: Path, answered: list[dict[str, Any]]) -> None:
    lasting = {
        "session": ("sessionId", "createdAt", "snapshotDigest", "metadata"),
        "turn": ("turnId", "cursor", "queuedAt"),
    }
    before = lines_of(home / "store")
    with Server(home) as server:
        asked = [each for each in answered if each["params"]["sessionId"] != AWAY]
        assert {each["method"] for each in asked} == {"session/create", "turn/submit", "turn/steer"}
        for each in asked:
            result = server.call(each["method"], **each["params"])
            for member, names in lasting.items():
                for name in names:
                    assert result.get(member, {}).get(name) == each["result"].get(member, {}).get(name), each
            assert result["cursor"] == each["result"]["cursor"]
    after = lines_of(home / "store")
    for session_id, lines in before.items():
        assert after[session_id].startswith(lines)


def test_a_turn_that_the_older_build_left_running_ends_at_its_deadline_and_those_behind_it_run(
    home: Path, answered: list[dict[str, Any]]
) -> None:
    """It has passed since the fixture was made: the deadline runs through downtime."""
    with Server(home) as server:
        server.call("session/resume", sessionId="running")
        server.call("events/subscribe", sessionId="running")

        ended = server.finish("running", "r-1")
        error = ended["outcome"]["error"]
        assert (ended["status"], error["kind"], error["details"]["limit"]) == ("failed", "limit_exceeded", "wallTimeMs")
        assert server.finish("running", "r-2")["status"] == "completed"
        seqs = [entry["event"]["seq"] for entry in server.log("running")]
        assert seqs == list(range(1, len(seqs) + 1))


def test_a_queue_that_the_older_build_held_goes_on_when_told(home: Path, answered: list[dict[str, Any]]) -> None:
    with Server(home) as server:
        held = server.call("session/resume", sessionId="held")
        assert held["session"]["queue"]["turnIds"] == ["h-2", "h-3"]
        server.call("events/subscribe", sessionId="held")
        server.call("queue/resume", sessionId="held")
        assert server.finish("held", "h-2")["status"] == "completed"
        assert server.finish("held", "h-3")["status"] == "completed"


def test_every_session_of_the_older_build_is_listed_and_read(home: Path, answered: list[dict[str, Any]]) -> None:
    before = lines_of(home / "store")
    with Server(home) as server:
        listed = server.call("session/list")["sessions"]
        assert sorted(each["sessionId"] for each in listed) == sorted(before)
        for session_id, lines in before.items():
            assert len(server.log(session_id)) == lines.count(b"\n")
            server.call("turn/list", sessionId=session_id)
            assert server.call("session/get", sessionId=session_id)["session"]["sessionId"] == session_id
