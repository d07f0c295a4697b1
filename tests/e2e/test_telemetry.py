"""Telemetry of a server: what a collector gets, what it never gets, and that a collector that is gone costs nothing."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server
from e2e.fixtures import Start
from fake.collector import Collector, attributes
from fake.provider import FakeProvider, calls, text

CANARY = "canary-of-content"
KEY = "sk-canary-9f8e7d6c5b4a"
HEADER = "bearer-of-the-collector"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


def play(server: Server, workspace: Path, fake: FakeProvider) -> str:
    """A session with a turn whose every text has the canary and the key."""
    fake.script(calls([("bash", {"command": f"echo {CANARY} {KEY}"})]), text(f"It is {CANARY} {KEY}"))
    (workspace / CANARY).mkdir(exist_ok=True)
    session_id = server.create(workspace / CANARY, title=CANARY, metadata={"x": CANARY}, attribution={"project": "p-1"})
    server.finish(session_id, server.submit(session_id, f"say {CANARY} {KEY}"))
    return session_id


def test_by_default_a_collector_gets_what_was_done_and_nothing_that_was_said(
    start: Start, workspace: Path, fake: FakeProvider, collector: Collector
) -> None:
    env = {
        "HAMES_TELEMETRY_ENDPOINT": collector.url,
        "HAMES_TELEMETRY_HEADERS": f"authorization={HEADER}",
        "HAMES_COMPATIBLE_API_KEY": KEY,
    }
    server = start(env=env)
    session_id = play(server, workspace, fake)
    assert server.stop() == 0

    names = sorted(span["name"] for span in collector.spans)
    assert names == ["attempt", "chat fake-model", "chat fake-model", "execute_tool bash", "session", "turn"]
    (call,) = collector.named("execute_tool bash")
    told = attributes(call)
    assert (told["hames.session.id"], told["hames.attempt"]) == (session_id, 1)
    assert told.keys() >= {"hames.turn.id", "hames.call.id"}
    assert attributes(collector.named("session")[0])["hames.attribution.project"] == "p-1"
    assert attributes(collector.named("turn")[0])["hames.usage.prompt_tokens"]
    assert {headers["authorization"] for _, headers, _ in collector.requests} == {HEADER}
    sent = json.dumps([body for _, _, body in collector.requests])
    for canary in (CANARY, KEY, str(workspace)):
        assert canary not in sent
    assert not [frame for frame in server.frames if HEADER.encode() in frame.raw]
    assert "hames.span.forced_close" not in sent


def test_content_is_told_where_it_is_asked_for_and_no_key_even_then(
    start: Start, workspace: Path, fake: FakeProvider, collector: Collector
) -> None:
    env = {
        "HAMES_TELEMETRY_ENDPOINT": collector.url,
        "HAMES_TELEMETRY_CONTENT": "true",
        "HAMES_COMPATIBLE_API_KEY_COMMAND": f"{sys.executable} -S -c 'print(\"{KEY}\")'",
    }
    server = start(env=env)
    play(server, workspace, fake)
    assert server.stop() == 0

    told = {
        name: value
        for span in collector.spans
        for name, value in attributes(span).items()
        if name.startswith("hames.content.")
    }
    assert sorted(told) == [f"hames.content.{name}" for name in ("arguments", "output", "prompt", "result")]
    assert all(CANARY in str(value) and "[redacted]" in str(value) for value in told.values()), told
    assert KEY not in json.dumps([body for _, _, body in collector.requests])


def test_what_opens_the_collector_is_a_secret_like_any_key(
    start: Start, workspace: Path, fake: FakeProvider, collector: Collector
) -> None:
    env = {
        "HAMES_TELEMETRY_ENDPOINT": collector.url,
        "HAMES_TELEMETRY_CONTENT": "true",
        "HAMES_TELEMETRY_HEADERS": f"authorization=Bearer%20{HEADER}",
    }
    server = start(env=env)
    fake.script(calls([("bash", {"command": f"echo {HEADER}"})]), text(HEADER))
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id, f"say {HEADER}"))
    assert server.stop() == 0

    assert collector.spans
    assert HEADER not in json.dumps([body for _, _, body in collector.requests])
    assert HEADER not in json.dumps(fake.requests[1].body["messages"][-1])


def test_a_collector_that_is_not_there_costs_no_turn_and_is_told_once(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    server = start(env={"HAMES_TELEMETRY_ENDPOINT": "http://127.0.0.1:9"})
    for _ in range(2):
        play(server, workspace, fake)
    assert server.stop() == 0

    assert server.stderr.count("The collector took none of") == 1
    assert CANARY not in server.stderr


def test_a_collector_that_hangs_does_not_keep_the_server_from_ending(
    start: Start, workspace: Path, fake: FakeProvider, collector: Collector
) -> None:
    collector.hold.clear()
    server = start(env={"HAMES_TELEMETRY_ENDPOINT": collector.url})
    play(server, workspace, fake)

    assert server.stop() == 0


@pytest.mark.parametrize(
    ("env", "sends"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "{url}"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "no address at all"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "{url}", "HAMES_TELEMETRY_ENABLED": "true"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "{url}/v1/traces", "HAMES_TELEMETRY_ENABLED": "true"}, True),
        ({"HAMES_TELEMETRY_ENDPOINT": "{url}", "HAMES_TELEMETRY_ENABLED": "false"}, False),
    ],
)
def test_it_is_off_unless_hames_itself_is_told_to_send(
    start: Start, workspace: Path, collector: Collector, env: dict[str, str], sends: bool
) -> None:
    server = start(env={name: value.format(url=collector.url) for name, value in env.items()})
    session_id = server.create(workspace, model="offline")
    server.finish(session_id, server.submit(session_id, "say hello"))
    assert server.stop() == 0

    assert bool(collector.requests) == sends


def test_headers_for_the_collector_of_others_do_not_go_to_ours(
    start: Start, workspace: Path, collector: Collector
) -> None:
    env = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization={HEADER}", "HAMES_TELEMETRY_ENDPOINT": collector.url}
    server = start(env=env)
    session_id = server.create(workspace, model="offline")
    server.finish(session_id, server.submit(session_id, "say hello"))
    assert server.stop() == 0

    assert collector.requests
    assert HEADER not in repr(collector.requests)


def test_headers_of_the_file_do_not_go_to_another_collector_than_that_beside_them(
    start: Start, home: Path, workspace: Path, collector: Collector
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings: dict[str, Any] = {
            "telemetry.endpoint": f"http://127.0.0.1:{other.getsockname()[1]}",
            "telemetry.headers": f"authorization={HEADER}",
            "telemetry.content": False,
        }
        (home / "config.json").write_text(json.dumps(settings))
        server = start(env={"HAMES_TELEMETRY_ENDPOINT": collector.url})
        session_id = server.create(workspace, model="offline")
        server.finish(session_id, server.submit(session_id, "say hello"))
        assert server.stop() == 0

    assert collector.requests
    assert HEADER not in repr(collector.requests)
