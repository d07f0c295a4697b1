"""Every method, notification and event type, seen on the wire at least once in the published shape.

All end-to-end tests check each frame they see; here it is checked that nothing escapes for want of being seen.
"""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from e2e.background import STOPS_WELL, begin
from e2e.checks import Stream, check_shape, outline, strict_frame
from e2e.driver import Server, said
from e2e.fixtures import Start
from fake.pictures import png
from fake.provider import FakeProvider, calls, cut, finish, partial, status, text, thinking, wait_for
from hames.protocol.events import EVENTS
from hames.protocol.methods import METHODS, NOTIFICATIONS

QUICK = {"HAMES_LIMIT_RETRY_BASE_MS": "1", "HAMES_LIMIT_CHUNK_MS": "1", "HAMES_LIMIT_HEARTBEAT_MS": "50"}
LEASE = {"HAMES_LIMIT_LEASE_MS": "500"}


def test_every_method_notification_and_event_type_is_seen_in_its_shape(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    server = start(env={**QUICK, **LEASE})
    session_id = server.create(workspace, "s1")
    model_trouble(server, fake, session_id)
    tools(server, fake, session_id)
    queue_and_steering(server, fake, session_id)
    reads(server, session_id)
    loop(server, fake, session_id)
    in_the_background(server, fake, session_id)
    short = shortened(start, workspace)
    other = killed_and_recovered(start, fake, workspace)

    seen = {event["type"] for each in (server, short, other) for event in each.events()}
    seen |= {entry["event"]["type"] for entry in other.log("s2")}
    assert set(EVENTS) - seen == set()
    server.call("session/export", sessionId=session_id)
    server.call("session/delete", sessionId=session_id)
    notified = {frame.value["method"] for frame in server.frames if "method" in frame.value}
    assert set(NOTIFICATIONS) - notified == set()
    server.call("shutdown")
    answered = {
        method
        for each in (server, short)
        for identifier, (method, _) in each.sent.items()
        if "result" in each.answer(identifier)
    }
    assert set(METHODS) - answered == set()


def model_trouble(server: Server, fake: FakeProvider, session_id: str) -> None:
    """Retries, discarded text, reasoning, a lone surrogate, a failure."""
    fake.script(
        status(503, "busy"),
        thinking("let me think ") + partial("half") + wait_for("chunk") + cut(),
        thinking("again ") + partial("a ") + wait_for("again") + partial("b") + finish(),
        status(401, {"error": {"message": "no"}}),
    )
    turn_id = server.submit(session_id, "trouble \ud800")
    server.wait_event("message.chunk")
    server.wait_event("reasoning.chunk")
    fake.gate("chunk").open()
    server.wait_event("model.discarded")
    server.wait_for(lambda frame: frame.value.get("method") == "heartbeat")
    fake.gate("again").open()
    assert server.finish(session_id, turn_id)["status"] == "completed"
    assert server.finish(session_id, server.submit(session_id, "fails"))["status"] == "failed"


def tools(server: Server, fake: FakeProvider, session_id: str) -> None:
    """A command that speaks for a while, a file that is written, a document that is new."""
    workspace = Path(server.call("session/get", sessionId=session_id)["session"]["workspace"])
    (workspace / "AGENTS.md").write_text("Be brief.")
    fake.script(
        calls(
            [
                ("bash", {"command": "for i in $(seq 40); do echo $i; sleep 0.1; test -e stop && break; done; true"}),
                ("write", {"path": "a.txt", "content": "x\n"}),
            ]
        ),
        text("written"),
    )
    turn_id = server.submit(session_id, "tools")
    server.wait_event("tool.chunk")
    (workspace / "stop").touch()
    server.finish(session_id, turn_id)


def queue_and_steering(server: Server, fake: FakeProvider, session_id: str) -> None:
    """Join, steer, update, cancel with a hold, go on, title, close, open again."""
    fake.script(partial("host ") + wait_for("host") + finish(), text("steered"), partial("x") + wait_for("never"))
    asked = len(fake.requests)
    host = server.submit(session_id, "host", turnId="host")
    fake.wait_for_requests(asked + 1)
    server.submit(session_id, "joins", turnId="joins", delivery="join")
    server.call("turn/steer", sessionId=session_id, input=said("more"))
    fake.gate("host").open()
    assert server.finish(session_id, host)["status"] == "completed"
    running = server.submit(session_id, "running")
    fake.wait_for_requests(asked + 3)
    fake.script(text("queued"))
    queued = server.submit(session_id, "queued")
    server.call("turn/update", sessionId=session_id, turnId=queued, input=said("updated"))
    server.call("turn/cancel", sessionId=session_id, turnId=running)
    assert server.finish(session_id, running)["status"] == "cancelled"
    assert server.call("turn/wait", sessionId=session_id, turnId=queued)["why"] == "held"
    server.call("queue/resume", sessionId=session_id)
    assert server.finish(session_id, queued)["status"] == "completed"
    server.call("session/update", sessionId=session_id, title="a title")
    server.call("session/close", sessionId=session_id)
    server.call("session/resume", sessionId=session_id)
    server.wait_event("session.resumed")


def loop(server: Server, fake: FakeProvider, session_id: str) -> None:
    """A model that makes the same call again and again."""
    fake.script(*[calls([("glob", {"pattern": "*.none"})]) for _ in range(3)], text("There is none."))
    assert server.finish(session_id, server.submit(session_id, "look"))["status"] == "completed"
    server.wait_event("loop.detected")


def in_the_background(server: Server, fake: FakeProvider, session_id: str) -> None:
    """A command that outlives its turn."""
    process_id = begin(fake, server, session_id, STOPS_WELL, name="web")
    server.call("process/list", sessionId=session_id)
    for encoding in ("utf-8", "base64"):
        server.call("process/read", sessionId=session_id, processId=process_id, encoding=encoding, waitMs=30_000)
    server.call("process/stop", sessionId=session_id, processId=process_id)
    server.wait_event("process.exited")


def shortened(start: Start, workspace: Path) -> Server:
    """A conversation that grows beyond what a small model takes, with an image, of which it takes none."""
    server = start(env={"HAMES_LIMIT_CONTEXT_TOKENS": "2200", "HAMES_LIMIT_REQUEST_IMAGES": "0"})
    session_id = server.create(workspace, "s3")
    server.call("session/compact", sessionId=session_id)
    for _ in range(5):
        server.finish(session_id, server.submit(session_id, "word " * 400))
    server.wait_event("context.replaced")
    image = {"type": "image", "mediaType": "image/png", "data": b64encode(png()).decode()}
    answer = server.call("turn/submit", sessionId=session_id, input=[*said("look"), image])
    server.finish(session_id, answer["turn"]["turnId"])
    return server


def reads(server: Server, session_id: str) -> None:
    """What only reads."""
    turn: dict[str, Any] = {"sessionId": session_id, "turnId": "host"}
    subscription = server.call("events/subscribe", sessionId=session_id)["subscriptionId"]
    server.call("events/unsubscribe", subscriptionId=subscription)
    server.call("events/read", sessionId=session_id)
    server.call("session/get", sessionId=session_id, view=True)
    server.call("session/list")
    server.call("turn/get", **turn)
    server.call("turn/list", sessionId=session_id)
    server.call("usage/get", **turn)
    server.finish(session_id, server.submit(session_id, "large " * 4_000))
    (artifact,) = server.call("artifact/list", sessionId=session_id)["artifacts"]
    server.call("artifact/read", sessionId=session_id, artifact=artifact["artifact"])
    for method in ("ping", "capabilities/describe", "rpc.discover", "tools/list", "models/list", "health/check"):
        server.call(method)


def killed_and_recovered(start: Start, fake: FakeProvider, workspace: Path) -> Server:
    """A server dies in a tool call; another goes on."""
    fake.script(calls([("bash", {"command": "echo up > up; exec sleep 100"})]), text("went on"))
    dying = start(env=LEASE)
    dying.create(workspace, "s2")
    turn_id = dying.submit("s2")
    dying.poll_until(lambda: (workspace / "up").exists(), what="the tool is up")
    dying.kill()
    other = start(env=LEASE)
    other.call("session/resume", sessionId="s2", subscribe={})
    assert other.finish("s2", turn_id)["status"] in ("completed", "failed")
    return other


EVENT: dict[str, Any] = {"sessionId": "s", "seq": 1, "time": "2026-01-01T00:00:00.000Z", "type": "session.updated"}


@pytest.mark.parametrize(
    "line",
    [
        b"noise",
        b"",
        b"[]",
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"result":{}}',
        b'{"jsonrpc":"2.0","id":1.0,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":NaN}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}\r',
        '{"jsonrpc":"2.0","id":1,"result":"\u2028"}'.encode(),
        b'{"jsonrpc":"2.0","id":1,"result":"\xff"}',
        b'{"jsonrpc":"2.0","method":"event"}',
    ],
)
def test_checker_refuses_what_is_no_frame(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        strict_frame(line)


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "result": {}},
        {"id": 2, "error": {"code": -32000, "message": "x", "data": {"kind": "no_such_kind"}}},
        {"method": "no/such", "params": {}},
        {"method": "event", "params": {"subscriptionId": "u", "cursor": "1.0", "event": {**EVENT, "data": {}}}},
        {"method": "event", "params": {"subscriptionId": "u", "event": EVENT}},
    ],
)
def test_checker_refuses_what_is_not_in_the_published_shape(message: dict[str, Any]) -> None:
    frame = strict_frame(json.dumps({"jsonrpc": "2.0", **message}).encode())

    with pytest.raises((AssertionError, FileNotFoundError)):
        check_shape(frame, {1: ("turn/get", 0)})


def test_checker_looks_at_each_shape_that_a_schema_tells_from_others() -> None:
    known = {"type": "text", "at": ["2026-01-01T00:00:00Z"], "n": 1, "none": None}
    others: list[dict[str, Any]] = [{"type": "image"}, {"type": 5}, {"at": []}, {"at": [1]}, {"at": ["T", 1]}]
    others += [{"n": 1.5}, {"n": True}, {"none": 0}, {"more": 0}]

    outlines = [outline({**known, **other}) for other in others]

    assert len({outline(known), *outlines}) == 1 + len(others)
    assert outline(known) == outline({**known, "at": ["2026-01-01T00:00:01Z"] * 2, "n": 2})


def test_checker_refuses_gaps_repeats_and_what_comes_behind_a_terminal() -> None:
    def frame(seq: int, type_: str = "warning") -> Any:
        event = {**EVENT, "seq": seq, "type": type_, "turnId": "t", "data": {}}
        params = {"subscriptionId": "u", "cursor": f"{seq}.000000000000", "event": event}
        return strict_frame(json.dumps({"jsonrpc": "2.0", "method": "event", "params": params}).encode())

    for second in (frame(5), frame(7), frame(6)):
        stream = Stream()
        stream.take(frame(5, "turn.failed"))
        with pytest.raises(AssertionError):
            stream.take(second)
