"""A session that is deleted: nothing of it runs, everybody hears it, and it does not come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from e2e.driver import Server, descendants, said
from e2e.fixtures import Start
from e2e.large import MakeLarge
from fake.provider import FakeProvider, stall


def rows(home: Path) -> int:
    """Events and turns that are left in the store."""
    connection = apsw.Connection(str(home / "store" / "store.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return sum(len(connection.execute(f"select 1 from {table}").fetchall()) for table in ("event", "turn"))
    finally:
        connection.close()


def deleted_kind(server: Server, method: str, **params: object) -> str:
    kind: str = server.refused(method, **params)["data"]["kind"]
    return kind


def test_a_deleted_session_is_gone_for_every_method(server: Server, workspace: Path, home: Path) -> None:
    session_id = server.create(workspace, model="offline", idempotencyKey="key")
    turn_id = server.submit(session_id, "say hello")
    server.finish(session_id, turn_id)

    answer = server.call("session/delete", sessionId=session_id)

    assert answer["sessionId"] == session_id
    asked: dict[str, dict[str, Any]] = {
        "session/get": {},
        "session/resume": {},
        "session/update": {"title": "new"},
        "session/close": {},
        "session/export": {},
        "turn/submit": {"input": [{"type": "text", "text": "say more"}]},
        "turn/get": {"turnId": turn_id},
        "turn/wait": {"turnId": turn_id},
        "events/read": {},
        "events/subscribe": {},
        "artifact/list": {},
        "usage/get": {},
    }
    for method, params in asked.items():
        assert deleted_kind(server, method, sessionId=session_id, **params) == "session_deleted", method
    made = {"workspace": str(workspace), "model": "offline"}
    assert deleted_kind(server, "session/create", sessionId=session_id, **made) == "session_deleted"
    assert deleted_kind(server, "session/create", idempotencyKey="key", **made) == "session_deleted"
    assert server.call("session/list")["sessions"] == []
    assert rows(home) == 0


def test_deleting_again_gives_the_first_answer(server: Server, start: Start, workspace: Path) -> None:
    session_id = server.create(workspace, model="offline")

    first = server.call("session/delete", sessionId=session_id)

    assert server.call("session/delete", sessionId=session_id) == first
    assert start().call("session/delete", sessionId=session_id) == first


def test_a_running_turn_is_settled_and_its_commands_are_gone_before_the_answer(server: Server, workspace: Path) -> None:
    session_id = server.create(workspace, model="offline")
    server.submit(session_id, 'call bash {"command": "echo started; sleep 300"}')
    server.wait_event("tool.started")
    server.submit(session_id, "say never")

    server.call("session/delete", sessionId=session_id)

    ends = [event["data"].get("cause") for event in server.events(session_id, "turn.cancelled")]
    assert ends == ["session_closed", "session_closed"]
    assert [each["reason"] for each in server.notifications("subscription/closed")] == ["deleted"]
    assert not [pid for pid in descendants(server.pid) if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_everybody_who_follows_it_hears_that_it_was_deleted(server: Server, start: Start, workspace: Path) -> None:
    session_id = server.create(workspace, model="offline")
    other = start()
    subscribed = other.call("events/subscribe", sessionId=session_id)
    wish = {"types": ["turn.queued"], "waitMs": 60_000}
    waiting = other.send("events/read", sessionId=session_id, after=subscribed["headCursor"], **wish)

    server.call("session/delete", sessionId=session_id)

    other.wait_for(lambda frame: frame.value.get("method") == "subscription/closed")
    assert other.notifications("subscription/closed") == [
        {"subscriptionId": subscribed["subscriptionId"], "reason": "deleted"}
    ]
    assert other.answer(waiting)["error"]["data"]["kind"] == "session_deleted"


def test_a_session_that_another_live_process_runs_is_not_deleted(server: Server, start: Start, workspace: Path) -> None:
    session_id = server.create(workspace, model="offline")
    turn_id = server.submit(session_id, 'call bash {"command": "until [ -e go ]; do sleep 0.05; done"}\nsay done')
    server.wait_event("tool.started")
    other = start()

    error = other.refused("session/delete", sessionId=session_id)

    assert (error["data"]["kind"], error["data"]["details"]["pid"]) == ("session_owned", server.pid)
    (workspace / "go").touch()
    assert server.finish(session_id, turn_id)["status"] == "completed"


def test_a_session_whose_process_died_in_mid_turn_is_deleted_by_another(start: Start, workspace: Path) -> None:
    dying = start()
    session_id = dying.create(workspace, model="offline")
    dying.submit(session_id, 'call bash {"command": "sleep 300"}')
    dying.wait_event("tool.started")
    dying.process.kill()
    dying.process.wait()

    other = start()
    other.call("session/delete", sessionId=session_id)

    assert deleted_kind(other, "session/get", sessionId=session_id) == "session_deleted"


def test_a_process_that_stands_by_for_a_session_does_not_take_it_from_its_deletion(
    server: Server, start: Start, workspace: Path
) -> None:
    session_id = server.create(workspace, model="offline")
    server.finish(session_id, server.submit(session_id, "say hello"))
    other = start()
    other.call("session/resume", sessionId=session_id, own="prefer", subscribe={})

    server.call("session/delete", sessionId=session_id)

    other.wait_for(lambda frame: frame.value.get("method") == "subscription/closed")
    assert deleted_kind(other, "session/get", sessionId=session_id) == "session_deleted"
    assert "is not served" not in other.stderr


def test_a_session_that_is_not_what_the_caller_believes_is_not_deleted(server: Server, workspace: Path) -> None:
    session_id = server.create(workspace, model="offline")

    error = server.refused("session/delete", sessionId=session_id, expect={"workspace": "/elsewhere"})

    assert error["data"]["kind"] == "authority_mismatch"
    assert server.call("session/get", sessionId=session_id)["session"]["status"] == "open"
    expect = {"workspace": str(workspace.resolve())}
    assert server.call("session/delete", sessionId=session_id, expect=expect)["sessionId"] == session_id


def test_what_never_was_is_not_found(server: Server) -> None:
    assert deleted_kind(server, "session/delete", sessionId="nope") == "session_not_found"


def test_its_exports_go_with_it(server: Server, workspace: Path, home: Path) -> None:
    session_id = server.create(workspace, model="offline")
    server.call("session/export", sessionId=session_id)
    assert list((home / "store" / "blobs").glob("??/*"))

    server.call("session/delete", sessionId=session_id)

    assert list((home / "store" / "blobs").glob("??/*")) == []


@pytest.mark.slow
def test_a_process_killed_while_it_removes_rows_leaves_them_to_the_next_one(
    start: Start, home: Path, workspace: Path, make_large: MakeLarge
) -> None:
    make_large(home, 30_000)
    first = start()
    other = first.create(workspace, model="offline")
    first.finish(other, first.submit(other, "say hello"))
    log = first.log(other)
    for kills in range(3):
        server = start()
        server.send("session/delete", sessionId="large")
        server.poll_until(
            lambda kills=kills: rows(home) < 30_000 - 6_000 * kills,  # type: ignore[misc]
            what="rows are being removed",
        )
        server.process.kill()
        server.process.wait()

    after = start()

    assert deleted_kind(after, "session/get", sessionId="large") == "session_deleted"
    after.poll_until(lambda: rows(home) == len(log) + 1, what="the rows are gone")
    assert after.log(other) == log
    assert [each["sessionId"] for each in after.call("session/list")["sessions"]] == [other]


@pytest.mark.slow
def test_others_go_on_while_a_long_session_is_removed(
    start: Start, workspace: Path, home: Path, make_large: MakeLarge
) -> None:
    make_large(home, 30_000)
    server, other = start(), start()
    session_id = other.create(workspace, model="offline")
    identifier = server.send("session/delete", sessionId="large")

    turns = 0
    while rows(home) > 5_000:
        assert other.finish(session_id, other.submit(session_id, "say hello"))["status"] == "completed"
        turns += 1

    assert "result" in server.answer(identifier)
    assert turns > 1


def test_what_is_submitted_behind_a_delete_is_refused(start: Start, workspace: Path, fake: FakeProvider) -> None:
    fake.script(stall())
    server = start()
    session_id = server.create(workspace)
    server.submit(session_id)
    server.wait_event("model.requested")

    deleting = server.send("session/delete", sessionId=session_id)
    behind = server.send("turn/submit", sessionId=session_id, input=said("too late"))

    assert "result" in server.answer(deleting)
    assert server.answer(behind)["error"]["data"]["kind"] in ("session_closed", "session_deleted")
