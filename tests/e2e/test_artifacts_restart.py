"""Artifacts over restarts and damage: the next process sends the model the same, keeps equal content once."""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from e2e.driver import Server, said
from e2e.fixtures import Start
from fake.pictures import png
from fake.provider import FakeProvider, calls, text

PROMPT = "".join(random.Random(7).choices("abcdefgh ijkl\näöü€😀", k=300_000))
ANSWER = "".join(random.Random(8).choices("mnopqrs tuv\nßéè—🚀", k=200_000))


def data_of(server: Server, session_id: str, type_: str) -> list[dict[str, Any]]:
    return [entry["event"]["data"] for entry in server.log(session_id) if entry["event"]["type"] == type_]


def bytes_below(folder: Path) -> int:
    """What everything below a directory takes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def images_in(body: Mapping[str, Any]) -> list[bytes]:
    """The images of a request, in order."""
    parts = [
        part for message in body["messages"] if isinstance(message["content"], list) for part in message["content"]
    ]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [b64decode(url.partition(",")[2]) for url in urls]


def test_another_process_sends_the_model_the_same_bytes(start: Start, workspace: Path, fake: FakeProvider) -> None:
    arguments = '{"path":"a.txt","content":"' + "line\\n" * 6_000 + '"}'
    fake.script(calls([("write", arguments)]), text(ANSWER), text("second"), text("third"))
    first = start()
    session_id = first.create(workspace)
    first.finish(session_id, first.submit(session_id, PROMPT, instructions="Follow them. " * 2_000))
    first.finish(session_id, first.submit(session_id, "go on"))
    first.stop()

    other = start()
    other.call("session/resume", sessionId=session_id)
    other.finish(session_id, other.submit(session_id, "and on"))

    before, after = (request.body["messages"] for request in (fake.requests[2], fake.requests[3]))
    assert after[1 : len(before)] == before[1:]
    contents = [message["content"] for message in after]
    assert (PROMPT in contents, ANSWER in contents) == (True, True)
    assert after[2]["tool_calls"][0]["function"]["arguments"] == arguments


def test_a_damaged_artifact_harms_nothing_but_what_needs_it(
    start: Start, workspace: Path, fake: FakeProvider, home: Path
) -> None:
    server = start()
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id, PROMPT))
    (slot,) = data_of(server, session_id, "turn.queued")[0]["input"]
    server.stop()
    [path] = [path for path in home.rglob("blobs/*/*") if path.is_file()]
    path.write_bytes(b"!" + path.read_bytes()[1:])

    other = start()
    wish = {"sessionId": session_id, "artifact": slot["text"]["artifact"]}
    refused = other.refused("artifact/read", **wish)

    assert refused["data"]["kind"] == "artifact_corrupt"
    assert refused["data"]["details"]["artifact"] == slot["text"]["artifact"]
    assert len(other.log(session_id)) > 3
    another = other.create(workspace)
    assert other.finish(another, other.submit(another, "hello"))["status"] == "completed"
    turn_id = other.submit(session_id, "needs the damaged text")
    waited = other.refused("turn/wait", sessionId=session_id, turnId=turn_id)
    assert waited["data"]["kind"] == "artifact_corrupt"


def test_an_image_of_the_caller_goes_to_the_model_and_is_the_same_for_the_next_process(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    picture = png(40, 30, size_bytes=100_000)
    slot = {"type": "image", "mediaType": "image/png", "data": b64encode(picture).decode(), "label": "a.png"}
    server = start()
    session_id = server.create(workspace)
    answer = server.call("turn/submit", sessionId=session_id, input=[*said("What is it?"), slot])
    server.finish(session_id, answer["turn"]["turnId"])
    server.stop()

    other = start()
    other.finish(session_id, other.submit(session_id, "and now?"))

    first, second = (request.body["messages"] for request in fake.requests)
    assert first[-1]["content"][1] == {"type": "text", "text": "What is it?\n\n[image a.png]"}
    assert images_in(fake.requests[0].body) == [picture]
    assert second[: len(first)][1:] == first[1:]
    kept = data_of(other, session_id, "turn.queued")[0]["input"][1]
    assert kept == {**slot, "data": {**kept["data"], "sha256": sha256(picture).hexdigest(), "sizeBytes": len(picture)}}
    raw = other.call(
        "artifact/read", sessionId=session_id, artifact=kept["data"]["artifact"], encoding="base64", length=10
    )
    assert (b64decode(raw["data"]), raw["mediaType"]) == (picture[:10], "image/png")
    refused = other.refused("artifact/read", sessionId=session_id, artifact=kept["data"]["artifact"])
    assert refused["data"]["path"] == "encoding"


def test_a_large_image_that_is_read_again_and_again_is_kept_once(
    start: Start, workspace: Path, fake: FakeProvider, home: Path
) -> None:
    (workspace / "a.png").write_bytes(png(400, 300, size_bytes=2_000_000))
    server = start()
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id, "begin"))
    before = bytes_below(home)
    for _ in range(3):
        server.stop()
        server = start()
        server.call("session/resume", sessionId=session_id)
        for _ in range(2):
            fake.script(calls([("read", {"path": "a.png"})]), text("seen"))
            assert server.finish(session_id, server.submit(session_id, "look"))["status"] == "completed"

    assert bytes_below(home) - before < 5 * 10**6
    assert len(server.call("artifact/list", sessionId=session_id)["artifacts"]) == 1
    assert len(images_in(fake.requests[-1].body)) == 1
