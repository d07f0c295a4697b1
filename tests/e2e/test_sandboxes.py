"""A session gets the sandbox that it asks for, or is refused before a model is asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, text
from hames.sandbox import landlock

UNCONFINED = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
BROKEN = "#!/bin/sh\necho bwrap: setting up uid map: Permission denied >&2\nexit 1\n"

PROGRAM: dict[str, str | None] = {"HAMES_BUBBLEWRAP": os.environ.get("HAMES_BUBBLEWRAP")}


def refused(server: Server, workspace: Path, **params: Any) -> dict[str, Any]:
    error = server.ask("session/create", workspace=str(workspace), **params)["error"]
    data: dict[str, Any] = error["data"]
    assert data["kind"] == "containment_unavailable"
    return data


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    path = tmp_path / "bwrap"
    path.write_text(BROKEN)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("network", ["general", "disabled"])
def test_a_session_under_landlock_runs_its_commands_restricted_or_is_refused(
    start: Start, workspace: Path, home: Path, fake: FakeProvider, network: str
) -> None:
    server = start()
    answer = server.ask("session/create", workspace=str(workspace), sandbox="landlock", network=network)
    if "error" in answer:
        assert landlock.abi() < 3 or (network == "disabled" and not landlock.can_filter())
        assert answer["error"]["data"]["kind"] == "containment_unavailable"
        assert answer["error"]["data"]["details"]["missing"]
        assert fake.requests == []
        return
    snapshot, session_id = answer["result"]["snapshot"], answer["result"]["session"]["sessionId"]
    outside, (kept,) = home / "new", home.rglob("landlock.json")
    command = f"echo x >f; cat f; cat {kept}; echo x >{outside}; echo >/dev/tcp/127.0.0.1/1"
    fake.script(calls([("bash", {"command": command})]), text("ok"))

    server.finish(session_id, server.submit(session_id))

    reduced = [name for name, held in snapshot["sandbox"]["guarantees"].items() if held != "yes"]
    assert (snapshot["sandbox"]["backend"], snapshot["sandbox"]["network"]) == ("landlock", network)
    assert snapshot["assurance"]["reduced"] == sorted(reduced)
    assert {"fs.write_confined", "host.process_hidden", "host.secrets_safe"} <= set(reduced)
    assert server.log(session_id)[-1]["event"]["data"]["assurance"] == snapshot["assurance"]
    said = fake.requests[-1].body["messages"][-1]["content"]
    assert said.startswith("x\n")
    assert "landlock.json: Permission denied" in said
    assert f"{outside}: Permission denied" in said
    assert ("socket: Permission denied" in said) == (network == "disabled")
    assert not outside.exists()
    checked = server.call("health/check", sessionId=session_id, dependencies=["sandbox"])["dependencies"]["sandbox"]
    assert (checked["status"], checked["details"]["backend"]) == ("ok", "landlock")
    assert checked["details"]["guarantees"]["host.process_hidden"] == "no"


@pytest.mark.parametrize("network", ["general", "disabled"])
def test_a_contained_session_runs_its_commands_confined_or_is_refused(
    start: Start, workspace: Path, fake: FakeProvider, network: str
) -> None:
    server = start(env=PROGRAM)
    asked = {"workspace": str(workspace), "sandbox": "contained", "network": network}
    answer = server.ask("session/create", **asked)
    if "error" in answer:
        data = answer["error"]["data"]
        assert data["kind"] == "containment_unavailable"
        assert data["details"]["missing"]
        assert fake.requests == []
        return
    snapshot, session_id = answer["result"]["snapshot"], answer["result"]["session"]["sessionId"]
    command = "id -u; cut -d: -f1 /proc/net/dev | tail -n +3"
    fake.script(calls([("bash", {"command": command})]), text("ok"))

    server.finish(session_id, server.submit(session_id))

    assert snapshot["sandbox"]["backend"] == "contained"
    assert snapshot["sandbox"]["network"] == network
    assert snapshot["assurance"]["reduced"] == sorted(
        name for name, held in snapshot["sandbox"]["guarantees"].items() if held != "yes"
    )
    assert ("net.disabled" in snapshot["assurance"]["reduced"]) == (network == "general")
    assert server.log(session_id)[-1]["event"]["data"]["assurance"] == snapshot["assurance"]
    user, *interfaces = fake.requests[-1].body["messages"][-1]["content"].split()
    assert user == str(os.getuid())
    assert (interfaces == ["lo"]) == (network == "disabled" or os.listdir("/sys/class/net") == ["lo"])
    checked = server.call("health/check", sessionId=session_id, dependencies=["sandbox"])["dependencies"]["sandbox"]
    assert (checked["status"], checked["details"]["backend"]) == ("ok", "contained")


def test_a_session_that_names_none_gets_the_host_and_no_proof(server: Server, workspace: Path, home: Path) -> None:
    snapshot = server.call("session/create", workspace=str(workspace))["snapshot"]

    assert (snapshot["sandbox"]["backend"], snapshot["sandbox"]["network"]) == ("local", "general")
    assert {"sandbox", "network"} <= set(snapshot["defaults"])
    assert not (home / "sandbox.json").exists()
    assert refused(server, workspace, network="disabled")["details"]["missing"] == ["net.disabled"]


@pytest.mark.parametrize("script", [UNCONFINED, BROKEN, None])
def test_what_cannot_be_had_is_refused_before_a_model_is_asked(
    start: Start, workspace: Path, fake: FakeProvider, stub: Path, script: str | None
) -> None:
    stub.unlink() if script is None else stub.write_text(script)
    server = start(env={"HAMES_BUBBLEWRAP": str(stub)})

    data = refused(server, workspace, sandbox="contained")
    other = server.call("session/create", workspace=str(workspace), sandbox="auto")["snapshot"]

    assert {"fs.write_confined", "host.secrets_safe"} <= set(data["details"]["missing"])
    assert data["details"]["evidence"]
    assert "bubblewrap" in data["details"]["hint"]
    assert other["sandbox"]["backend"] in ("landlock", "local")
    assert "fs.write_confined" in other["assurance"]["reduced"]
    assert fake.requests == []


def test_the_configured_sandbox_is_that_of_sessions_that_name_none(start: Start, workspace: Path, stub: Path) -> None:
    server = start(env={"HAMES_BUBBLEWRAP": str(stub), "HAMES_SANDBOX": "contained"})

    refused(server, workspace)
    checked = server.call("health/check", dependencies=["sandbox"])["dependencies"]["sandbox"]

    assert checked["status"] == "unavailable"
    assert "uid map" in checked["why"]
    assert server.call("session/create", workspace=str(workspace), sandbox="local")["snapshot"]["defaults"]


def test_a_contained_session_is_not_resumed_where_it_cannot_be_contained(
    start: Start, workspace: Path, stub: Path
) -> None:
    server = start(env=PROGRAM)
    answer = server.ask("session/create", workspace=str(workspace), sandbox="contained")
    assert server.stop() == 0
    if "error" in answer:
        assert answer["error"]["data"]["kind"] == "containment_unavailable"
        return
    elsewhere = start(env={"HAMES_BUBBLEWRAP": str(stub)})

    error = elsewhere.ask("session/resume", sessionId=answer["result"]["session"]["sessionId"])["error"]

    assert error["data"]["kind"] == "authority_mismatch"
    assert [field["member"] for field in error["data"]["details"]["fields"]] == ["sandbox.guarantees"]
