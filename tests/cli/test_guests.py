"""Commands that share a session with another process: each runs its own turn, and leaves the other's alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import Cli, finish
from crash.waits import until, until_file
from e2e.fixtures import Start

WAITS = 'call bash {"command": "touch up; until test -e go; do sleep 0.02; done"}\n'


def queued(hames: Cli) -> int:
    shown = json.loads(hames("sessions", "show", "s1", "--json").out)
    length: int = shown["session"]["queue"]["length"]
    return length


@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
def test_a_run_that_is_about_to_end_starts_no_turn_of_another(hames: Cli, workspace: Path, read: bool) -> None:
    # More than a pipe holds: whoever does not read it keeps the first from its end.
    said = "say done" if read else "repeat 40000 abcdef"
    first = hames.start("run", "--id", "s1", WAITS + said)
    until_file(workspace / "up")
    second = hames.start("run", "--session", "s1", "--json", 'call bash {"command": "echo here"}\nsay second')
    until(lambda: queued(hames) == 1, "the second turn waits")

    (workspace / "go").touch()
    done = finish(second)

    assert (done.code, done.record["status"], done.record["text"]) == (0, "completed", "second")
    assert "recovered" not in done.err
    events = [json.loads(line)["event"] for line in hames("replay", "s1", "--jsonl").out.splitlines()]
    started = [event for event in events if event["type"] == "turn.started"]
    assert [(each["attempt"], each["data"]["worker"]["pid"]) for each in started] == [(1, first.pid), (1, second.pid)]
    assert finish(first).code == 0


def test_what_was_queued_before_is_run_by_who_comes(hames: Cli, workspace: Path, start: Start) -> None:
    server = start(env={"HAMES_MODEL": "offline"})
    server.create(workspace, "s1")
    server.submit("s1", WAITS + "say first")
    server.submit("s1", "say second")
    until_file(workspace / "up")
    server.kill()
    (workspace / "go").touch()

    done = hames("run", "--session", "s1", "--json", "say third")

    assert (done.code, done.record["text"]) == (0, "third")
    events = [json.loads(line)["event"] for line in hames("replay", "s1", "--jsonl").out.splitlines()]
    # What the first had begun is not done twice.
    ended = [event["type"] for event in events if event["type"] in ("turn.completed", "turn.failed")]
    assert ended == ["turn.failed", "turn.completed", "turn.completed"]
