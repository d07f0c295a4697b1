"""A session as one file: whole, the same every time, checked by who has nothing but the file."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from e2e.archives import fetch, member, verified_elsewhere
from e2e.driver import Server
from e2e.fixtures import Start
from e2e.large import MakeLarge
from hames.archive.standalone import EXITS

LARGE = "x" * 40_000


def test_an_export_is_checked_by_a_machine_without_hames(server: Server, workspace: Path, tmp_path: Path) -> None:
    session_id = server.create(workspace, model="offline")
    server.finish(session_id, server.submit(session_id, f"say {LARGE}"))
    log = server.log(session_id)

    exported = server.call("session/export", sessionId=session_id)
    data = fetch(server, session_id, exported)
    code, told = verified_elsewhere(tmp_path / "elsewhere", data)

    assert (sha256(data).hexdigest(), len(data)) == (exported["sha256"], exported["sizeBytes"])
    assert (code, told) == (0, f"good: session {session_id}, {len(log)} events, cursor {log[-1]['cursor']}\n")
    lines = member(tmp_path / "elsewhere", "events.jsonl").decode().split("\n")[:-1]
    assert [json.loads(line) for line in lines] == log
    text = log[-1]["event"]["data"]["text"]
    assert member(tmp_path / "elsewhere", f"artifacts/{text['sha256']}") == LARGE.encode()
    assert (exported["cursor"], exported["events"]) == (log[-1]["cursor"], len(log))


def test_an_export_changes_nothing_and_is_the_same_again(server: Server, workspace: Path) -> None:
    session_id = server.create(workspace, model="offline")
    server.finish(session_id, server.submit(session_id, "say hello"))
    server.call("session/close", sessionId=session_id)
    before = server.call("session/get", sessionId=session_id, view=True)

    first = server.call("session/export", sessionId=session_id)
    second = server.call("session/export", sessionId=session_id)

    assert first == second
    assert server.call("session/get", sessionId=session_id, view=True) == before
    [listed] = [each for each in server.call("artifact/list", sessionId=session_id)["artifacts"] if "seq" not in each]
    assert listed == {name: first[name] for name in ("artifact", "sizeBytes", "sha256", "mediaType", "name")}


def test_a_session_that_another_process_runs_is_exported_up_to_its_head(
    server: Server, start: Start, workspace: Path, tmp_path: Path
) -> None:
    session_id = server.create(workspace, model="offline")
    turn_id = server.submit(
        session_id, 'say one\ncall bash {"command": "until [ -e go ]; do sleep 0.05; done"}\nsay two'
    )
    server.wait_event("tool.started")
    other = start()

    exported = other.call("session/export", sessionId=session_id)
    data = fetch(other, session_id, exported)

    (workspace / "go").touch()
    server.finish(session_id, turn_id)
    code, told = verified_elsewhere(tmp_path / "elsewhere", data)
    log = server.log(session_id)
    assert (code, told.split(":")[0]) == (0, "good")
    assert 0 < exported["events"] < len(log)
    assert exported["cursor"] == log[exported["events"] - 1]["cursor"]
    assert "owner" in other.call("session/get", sessionId=session_id)["session"]


def test_a_changed_export_is_told_with_its_exit_code(server: Server, workspace: Path, tmp_path: Path) -> None:
    session_id = server.create(workspace, model="offline")
    server.finish(session_id, server.submit(session_id, "say hello"))
    data = fetch(server, session_id, server.call("session/export", sessionId=session_id))
    at = data.index(b"say hello")

    edited = verified_elsewhere(tmp_path / "elsewhere", data[:at] + b"say hallo" + data[at + 9 :])
    torn = verified_elsewhere(tmp_path / "elsewhere", data[: len(data) // 2])

    assert edited == (
        EXITS["edited"],
        "edited: events.jsonl line 2: event 2 does not have the digest that its cursor tells\n",
    )
    assert torn[0] == EXITS["torn"]


def test_what_is_not_there_is_not_exported(server: Server) -> None:
    assert server.refused("session/export", sessionId="nope")["data"]["kind"] == "session_not_found"


def test_no_session_reads_the_export_of_another(server: Server, workspace: Path) -> None:
    one, other = server.create(workspace, model="offline"), server.create(workspace, model="offline")
    exported = server.call("session/export", sessionId=one)

    error = server.refused("artifact/read", sessionId=other, artifact=exported["artifact"])

    assert error["data"]["kind"] == "artifact_not_found"


@pytest.mark.slow
def test_a_process_killed_while_it_exports_leaves_the_session_and_the_next_export_as_they_are(
    start: Start, home: Path, tmp_path: Path, make_large: MakeLarge
) -> None:
    make_large(home, 8_000)
    server = start()
    _, done = begun_export(server, home)

    server.process.kill()
    server.process.wait()
    after = start()
    listed = after.call("artifact/list", sessionId="large")["artifacts"]
    exported = after.call("session/export", sessionId="large")
    code, told = verified_elsewhere(tmp_path / "elsewhere", fetch(after, "large", exported))

    assert {each["artifact"] for each in listed} == done
    assert (code, exported["events"]) == (0, 8_000)
    assert told.startswith("good: session large, 8000 events")


@pytest.mark.slow
def test_other_requests_are_answered_while_a_long_session_is_exported(
    start: Start, home: Path, make_large: MakeLarge
) -> None:
    make_large(home, 8_000)
    server = start()
    identifier = server.send("session/export", sessionId="large")

    answered = 0
    while not server.answered(identifier):
        server.call("ping")
        answered += 1

    assert server.answer(identifier)["result"]["events"] == 8_000
    assert answered > 20


@pytest.mark.slow
def test_an_export_that_is_cancelled_leaves_no_file(start: Start, home: Path, make_large: MakeLarge) -> None:
    make_large(home, 8_000)
    server = start()
    identifier, _ = begun_export(server, home)

    server.notify("$/cancelRequest", id=identifier)

    assert server.answer(identifier)["error"]["code"] == -32800
    assert list(unnamed(home).iterdir()) == []


def unnamed(home: Path) -> Path:
    """Where a blob is written before it has its name."""
    return home / "store" / "blobs" / "tmp"


def begun_export(server: Server, home: Path) -> tuple[int, set[str]]:
    """The request of an export that is being written, and the artifacts of those that were done before that was seen:
    a busy machine may look too late."""
    done: set[str] = set()
    while True:
        identifier = server.send("session/export", sessionId="large")
        server.poll_until(
            lambda at=identifier: server.answered(at) or (unnamed(home).exists() and any(unnamed(home).iterdir())),  # type: ignore[misc]
            what="the export is being written",
        )
        if not server.answered(identifier):
            return identifier, done
        done.add(server.answer(identifier)["result"]["artifact"])
