"""A store that was damaged under a running turn: repaired, and its sessions go on as after a crash."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from crash.ledger import still_usable
from e2e.driver import TIMEOUT_S, CallFailed, environment
from e2e.fixtures import Start
from engine.rules import check_log
from fake.provider import FakeProvider, partial, text, wait_for


def hames(home: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command on the store of `home`."""
    command = [sys.executable, "-m", "hames", *words]
    return subprocess.run(command, env=environment(home), capture_output=True, timeout=2 * TIMEOUT_S, check=False)


@pytest.mark.slow
def test_a_turn_that_ran_when_the_log_was_cut_is_ended_and_later_cursors_are_told_so(
    start: Start, home: Path, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(partial("some text ") + wait_for("go") + text("more"), text("whole"))
    first = start(env={"HAMES_LIMIT_CHUNK_MS": "10"})
    session_id = first.create(workspace)
    other = first.create(workspace)
    turn_id = first.submit(session_id)
    waiting = first.submit(session_id)
    first.wait_event("message.chunk")
    before = first.log(session_id)
    first.kill()
    last = before[-1]["event"]["seq"]
    with closing(sqlite3.connect(home / "store" / "store.db")) as connection, connection:
        changed = connection.execute(
            "update event set line = replace(line, 'some text', 'same text') where id = (select max(id) from event"
            " where line like '%some text%')"
        )
        assert changed.rowcount == 1

    assert hames(home, "verify").returncode == 13
    assert hames(home, "repair", "--yes").returncode == 20
    assert hames(home, "verify").returncode == 0

    second = start()
    second.call("session/resume", sessionId=session_id)
    # Both may have gone further behind the cut: nothing of them is done again unasked.
    ended = second.finish(session_id, turn_id)
    assert (ended["status"], ended["outcome"]["error"]["kind"]) == ("failed", "lease_lost")
    assert second.call("session/get", sessionId=session_id)["session"]["queue"]["held"]["cause"] == "log_cut"
    second.call("queue/resume", sessionId=session_id)
    assert second.finish(session_id, waiting)["status"] == "completed"
    log = [entry["event"] for entry in second.log(session_id)]
    check_log(log)
    cut = next(event for event in log if event["type"] == "log.recovered" and "cut" in event["data"])
    kept = cut["data"]["cut"]["lastGoodSeq"]
    assert cut["seq"] == kept + 1 <= last
    assert log[:kept] == [entry["event"] for entry in before[:kept]]
    for entry in before[kept:]:
        with pytest.raises(CallFailed) as failed:
            second.call("events/read", sessionId=session_id, after=entry["cursor"])
        assert failed.value.error["data"]["kind"] == "cursor_foreign"
    still_usable(second, session_id)
    still_usable(second, other)
    second.stop()
    assert hames(home, "verify").returncode == 0
