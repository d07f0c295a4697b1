"""What commands may use: asked for by a session, kept by the sandbox, told to the model and to clients."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, text
from hames.sandbox import groups

MIB = 2**20
HOG = f"{os.path.realpath(sys.executable)} -c 'x = [b\"x\" * 2**20 for _ in range(400)]'"


def create(server: Server, workspace: Path, limits: dict[str, int]) -> dict[str, Any]:
    answer: dict[str, Any] = server.ask("session/create", workspace=str(workspace), limits=limits)
    return answer


def completed(server: Server, session_id: str) -> dict[str, Any]:
    events = [entry["event"] for entry in server.log(session_id)]
    data: dict[str, Any] = next(event["data"] for event in events if event["type"] == "tool.completed")
    return data


def test_a_session_may_ask_for_less_than_the_server_allows_and_not_for_more(start: Start, workspace: Path) -> None:
    server = start(env={"HAMES_LIMIT_COMMAND_PROCESSES": "100"})

    snapshot = create(server, workspace, {"commandProcesses": 50, "commandFileBytes": 5000})["result"]["snapshot"]
    refusal = create(server, workspace, {"commandProcesses": 101})["error"]
    too_few = create(server, workspace, {"commandProcesses": 1})["error"]

    assert snapshot["limits"]["commandProcesses"] == 50
    assert snapshot["limits"]["commandFileBytes"] == 5000
    assert create(server, workspace, {})["result"]["snapshot"]["limits"]["commandProcesses"] == 100
    assert (refusal["code"], too_few["code"]) == (-32602, -32602)
    assert "may not be above the server's 100" in refusal["message"]


def test_a_turn_has_no_say_in_what_commands_may_use(server: Server, workspace: Path) -> None:
    session_id = create(server, workspace, {})["result"]["session"]["sessionId"]

    error = server.ask(
        "turn/submit",
        sessionId=session_id,
        input=[{"type": "text", "text": "x"}],
        limits={"commandProcesses": 50},
    )["error"]

    assert error["code"] == -32602


def test_a_limit_that_was_met_is_told_apart_from_a_plain_failure(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    session_id = create(server, workspace, {"commandFileBytes": MIB})["result"]["session"]["sessionId"]
    command = "echo said; dd if=/dev/zero of=f bs=1M count=9"
    fake.script(calls([("bash", {"command": command})]), text("ok"))

    server.finish(session_id, server.submit(session_id))

    data = completed(server, session_id)
    assert data["outcome"] == "error"
    assert data["error"]["kind"] == "limit_exceeded"
    assert (data["error"]["limit"], data["error"]["configured"]) == ("commandFileBytes", MIB)
    assert data["details"]["limitsMet"] == {"commandFileBytes": MIB}
    told = fake.requests[-1].body["messages"][-1]["content"]
    assert told.startswith("Error (limit_exceeded): The command met the limit commandFileBytes")
    assert "said\n" in told


def test_a_plain_failure_is_a_result_and_names_no_limit(server: Server, workspace: Path, fake: FakeProvider) -> None:
    session_id = create(server, workspace, {"commandFileBytes": MIB})["result"]["session"]["sessionId"]
    fake.script(calls([("bash", {"command": "echo said; exit 3"})]), text("ok"))

    server.finish(session_id, server.submit(session_id))

    data = completed(server, session_id)
    assert (data["outcome"], data["details"]["exitCode"]) == ("ok", 3)
    assert "error" not in data
    assert "limitsMet" not in data["details"]


def test_a_command_that_takes_all_memory_is_ended_and_the_server_is_not(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    server = start(env={"HAMES_LIMIT_COMMAND_MEMORY_BYTES": str(128 * MIB)})
    session_id = create(server, workspace, {})["result"]["session"]["sessionId"]
    fake.script(calls([("bash", {"command": HOG})]), text("one"))
    fake.script(calls([("bash", {"command": "echo on"})]), text("two"))

    server.finish(session_id, server.submit(session_id))
    data = completed(server, session_id)
    server.finish(session_id, server.submit(session_id))

    if any("memory" in place.controllers for place in groups.find()):
        assert data["error"]["limit"] == "commandMemoryBytes"
    else:
        assert "MemoryError" in data["text"]
    assert fake.requests[-1].body["messages"][-1]["content"] == "on\n"


@pytest.mark.parametrize("backend", ["local", "contained", "landlock"])
def test_capabilities_say_which_limits_there_are_and_health_which_are_held(
    server: Server, workspace: Path, backend: str
) -> None:
    described = server.call("capabilities/describe")
    row = next(row for row in described["sandboxes"] if row["name"] == backend)
    names = {name for name in row["guarantees"] if name.startswith("limits.")}

    assert names == {"limits.memory", "limits.pids", "limits.cpu", "limits.files"}
    answer = server.ask("session/create", workspace=str(workspace), sandbox=backend)
    if "error" in answer:
        assert answer["error"]["data"]["kind"] == "containment_unavailable"
        return
    session_id, snapshot = answer["result"]["session"]["sessionId"], answer["result"]["snapshot"]
    checked = server.call("health/check", sessionId=session_id, dependencies=["sandbox"])["dependencies"]["sandbox"]
    for name in names:
        assert snapshot["sandbox"]["guarantees"][name] == checked["details"]["guarantees"][name]
        assert (name in snapshot["assurance"]["reduced"]) == (snapshot["sandbox"]["guarantees"][name] != "yes")
