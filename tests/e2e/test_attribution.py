"""Attribution (AH-DIAG-4): what a caller says of a session goes with its model requests, and nothing else."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path

import pytest

from e2e.driver import Server
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, status, text

ATTRIBUTION = {
    "application": "loom",
    "component": "planner",
    "environment": "production",
    "project": "p-1",
    "run": "build.77",
    "task": "2f1c0c5e-8d0f-4a51-9b1e-1f7f3f0b1a2c",
}

OF_HTTP = {"host", "content-type", "content-length", "accept", "accept-encoding", "connection", "authorization"}


def sent(fake: FakeProvider) -> list[dict[str, str]]:
    """The headers of every request, without those that are HTTP's."""
    return [{name: value for name, value in each.headers.items() if name not in OF_HTTP} for each in fake.requests]


def test_every_model_request_says_it_and_repeats_and_summaries_too(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    env = {"HAMES_LIMIT_RETRY_BASE_MS": "1"}
    fake.script(
        status(503),
        calls([("bash", {"command": "true"})]),
        text("one"),
        text("the summary"),
        text("two"),
        text("three"),
    )
    server = start(env=env)
    described = server.call("capabilities/describe")["attribution"]
    made = server.call("session/create", workspace=str(workspace), attribution=ATTRIBUTION)
    session_id = made["session"]["sessionId"]
    server.finish(session_id, server.submit(session_id))
    server.call("session/compact", sessionId=session_id)
    server.finish(session_id, server.submit(session_id))
    assert server.stop() == 0
    again = start(env=env)
    again.finish(session_id, again.submit(session_id))

    assert made["snapshot"]["attribution"] == ATTRIBUTION
    assert again.log(session_id)[0]["event"]["data"]["snapshot"]["attribution"] == ATTRIBUTION
    supplied = {each["header"]: ATTRIBUTION[each["name"]] for each in described["fields"] if "pattern" in each}
    inferred = {each["header"]: each["value"] for each in described["fields"] if "value" in each}
    assert len(sent(fake)) >= 5
    assert sent(fake) == [supplied | inferred] * len(sent(fake))


def test_without_it_a_request_says_only_what_harness_it_is(start: Start, workspace: Path, fake: FakeProvider) -> None:
    (workspace / "canary-of-a-file").write_text("x")
    fake.script(calls([("read", {"path": "canary-of-a-file"})]), text("done"))
    server = start(env={"HAMES_COMPATIBLE_API_KEY": "sk-canary-of-a-key"})
    session_id = server.create(workspace, title="canary", metadata={"canary": "canary"})

    server.finish(session_id, server.submit(session_id, "canary"))

    for headers in sent(fake):
        assert set(headers) == {"user-agent"}
        told = repr(headers).lower()
        assert not [word for word in ("canary", getpass.getuser(), socket.gethostname().lower()) if word in told]


@pytest.mark.parametrize(
    "attribution",
    [
        {"application": "two words"},
        {"application": ""},
        {"application": "x" * 49},
        {"project": "me@example.com"},
        {"prompt": "x"},
        {"task": "line\r\nauthorization: x"},
    ],
)
def test_what_is_no_short_name_or_no_field_is_refused(
    server: Server, workspace: Path, attribution: dict[str, str]
) -> None:
    error = server.ask("session/create", workspace=str(workspace), attribution=attribution)["error"]

    assert error["code"] == -32602
    assert "attribution" in error["message"]


def test_a_key_is_not_sent_as_attribution(start: Start, workspace: Path) -> None:
    server = start(env={"HAMES_COMPATIBLE_API_KEY": "sk-0123456789abcdef"})

    error = server.ask("session/create", workspace=str(workspace), attribution={"run": "x-sk-0123456789abcdef"})[
        "error"
    ]

    assert error["data"]["kind"] == "invalid_config"
    assert error["data"]["details"] == {"member": "attribution.run"}
    assert "sk-0123" not in repr(error)
