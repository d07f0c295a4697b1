"""Large texts and images over the wire: references in events, the whole by `artifact/read`, all of it for the model."""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server
from e2e.fixtures import of_shared
from fake.pictures import drawn, gif, jpeg, png, webp
from fake.provider import FakeProvider, calls, text

PROMPT = "".join(random.Random(7).choices("abcdefgh ijkl\näöü€😀", k=300_000))
ANSWER = "".join(random.Random(8).choices("mnopqrs tuv\nßéè—🚀", k=200_000))

server = of_shared("server")
fake = of_shared("fake")
workspace = of_shared("workspace")


def read_text(server: Server, session_id: str, reference: dict[str, Any], **wish: Any) -> str:
    """The whole of a text, piece by piece."""
    pieces: list[str] = []
    offset = 0
    while offset < reference["sizeBytes"]:
        piece = server.call(
            "artifact/read", sessionId=session_id, artifact=reference["artifact"], offset=offset, **wish
        )
        assert piece["offset"] == offset < piece["nextOffset"], "every piece has something"
        pieces.append(piece["text"])
        offset = piece["nextOffset"]
    return "".join(pieces)


def data_of(server: Server, session_id: str, type_: str) -> list[dict[str, Any]]:
    return [entry["event"]["data"] for entry in server.log(session_id) if entry["event"]["type"] == type_]


def images_in(body: Mapping[str, Any]) -> list[bytes]:
    """The images of a request, in order."""
    parts = [
        part for message in body["messages"] if isinstance(message["content"], list) for part in message["content"]
    ]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [b64decode(url.partition(",")[2]) for url in urls]


def test_large_texts_are_references_in_log_and_views_and_whole_by_read(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(text(ANSWER, chunks=20))
    session_id = server.create(workspace)

    turn = server.finish(session_id, server.submit(session_id, PROMPT))

    answered = turn["outcome"]["text"]
    assert answered["sha256"] == sha256(ANSWER.encode()).hexdigest()
    assert ANSWER.startswith(answered["head"])
    assert data_of(server, session_id, "message.completed")[0]["text"] == answered
    assert data_of(server, session_id, "turn.completed")[0]["text"] == answered
    view = server.call("session/get", sessionId=session_id, view=True)["view"]
    assert view["turns"][0]["outcome"]["text"] == answered
    assert [item["data"]["text"] for item in view["items"] if item["kind"] == "message"] == [answered]
    (prompt,) = data_of(server, session_id, "turn.queued")[0]["input"]
    assert read_text(server, session_id, prompt["text"]) == PROMPT
    assert read_text(server, session_id, answered, length=10_001) == ANSWER
    listed = server.call("artifact/list", sessionId=session_id)["artifacts"]
    assert sorted(each["artifact"] for each in listed) == sorted({prompt["text"]["artifact"], answered["artifact"]})


def test_a_piece_of_text_never_splits_a_character(server: Server, workspace: Path, fake: FakeProvider) -> None:
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id, "😀é" * 5_000))
    (slot,) = data_of(server, session_id, "turn.queued")[0]["input"]
    artifact = slot["text"]["artifact"]

    def read(**wish: Any) -> tuple[str, int, int]:
        piece = server.call("artifact/read", sessionId=session_id, artifact=artifact, **wish)
        return piece["text"], piece["offset"], piece["nextOffset"]

    assert read(length=5) == ("😀", 0, 4)
    assert read(length=6) == ("😀é", 0, 6)
    assert read(length=1) == ("😀", 0, 4)
    assert read(offset=1, length=5) == ("é", 4, 6)
    assert read(offset=29_998) == ("é", 29_998, 30_000)
    assert read(offset=30_000) == ("", 30_000, 30_000)
    assert read(offset=10**12) == ("", 30_000, 30_000)
    raw = server.call("artifact/read", sessionId=session_id, artifact=artifact, encoding="base64", offset=2, length=3)
    assert b64decode(raw["data"]) == "😀é".encode()[2:5]
    assert (raw["nextOffset"], raw["sizeBytes"]) == (5, 30_000)


def test_text_that_is_mostly_escapes_still_fits_its_frames(server: Server, workspace: Path, fake: FakeProvider) -> None:
    odd = "\u0001\u0085" * 200_000
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id, odd))
    (slot,) = data_of(server, session_id, "turn.queued")[0]["input"]

    assert read_text(server, session_id, slot["text"]) == odd


@pytest.mark.parametrize(
    ("method", "wish", "kind"),
    [
        ("artifact/read", {"artifact": "a-" + "0" * 32}, "artifact_not_found"),
        ("artifact/read", {"artifact": "key"}, "artifact_not_found"),
        ("artifact/read", {"artifact": "a-" + "0" * 32, "sessionId": "nobody"}, "session_not_found"),
        ("artifact/list", {"sessionId": "nobody"}, "session_not_found"),
    ],
)
def test_what_is_not_there_is_refused_typed(
    server: Server, workspace: Path, method: str, wish: dict[str, Any], kind: str
) -> None:
    session_id = server.create(workspace)

    error = server.refused(method, **{"sessionId": session_id, **wish})

    assert error["data"]["kind"] == kind


def test_a_tool_output_that_is_shown_in_part_is_kept_whole(server: Server, workspace: Path, fake: FakeProvider) -> None:
    fake.script(calls([("bash", {"command": "seq 200000"}), ("bash", {"command": "seq 10"})]), text("seen"))
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id, "count"))
    whole = "".join(f"{n}\n" for n in range(1, 200_001))

    large, small = data_of(server, session_id, "tool.completed")

    assert "artifact" not in small
    assert large["artifact"]["sha256"] == sha256(whole.encode()).hexdigest()
    assert large["truncation"]["keptBytes"] == large["truncation"]["totalBytes"] == len(whole)
    assert read_text(server, session_id, large["artifact"]) == whole
    (listed,) = [
        each
        for each in server.call("artifact/list", sessionId=session_id)["artifacts"]
        if each["artifact"] == large["artifact"]["artifact"]
    ]
    completed = [entry["event"] for entry in server.log(session_id) if entry["event"]["type"] == "tool.completed"]
    assert (listed["name"], listed["seq"]) == (f"bash-{large['callId']}.txt", completed[0]["seq"])


def test_a_client_gets_a_list_of_artifacts_in_pages(server: Server, workspace: Path, fake: FakeProvider) -> None:
    session_id = server.create(workspace)
    for n in range(5):
        server.finish(session_id, server.submit(session_id, f"{n}" * 20_000))

    listed: list[dict[str, Any]] = []
    page: dict[str, Any] = {"nextAfter": None}
    while "nextAfter" in page:
        after = {} if page["nextAfter"] is None else {"after": page["nextAfter"]}
        page = server.call("artifact/list", sessionId=session_id, limit=2, **after)
        listed += page["artifacts"]

    assert len({each["artifact"] for each in listed}) == len(listed) == 5
    assert {each["sizeBytes"] for each in listed} == {20_000}
    assert all(each["mediaType"].startswith("text/plain") and each["seq"] > 1 for each in listed)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"data": "not base64!"}, "input[0].data"),
        ({"data": b64encode(b"no image").decode()}, "input[0].data"),
        ({"data": b64encode(png()[:-9]).decode()}, "input[0].data"),
        ({"data": b64encode(jpeg()[:-9]).decode(), "mediaType": "image/jpeg"}, "input[0].data"),
        ({"data": b64encode(webp()[:-9]).decode(), "mediaType": "image/webp"}, "input[0].data"),
        ({"data": b64encode(gif()[:-1]).decode(), "mediaType": "image/gif"}, "input[0].data"),
        ({"data": b64encode(drawn("GIF", "P", 4, 4, frames=2)).decode(), "mediaType": "image/gif"}, "input[0].data"),
        (
            {"data": b64encode(drawn("WEBP", "RGB", 4, 4, frames=2)).decode(), "mediaType": "image/webp"},
            "input[0].data",
        ),
        ({"mediaType": "image/gif"}, "input[0].data"),
        ({"mediaType": "image/bmp"}, "input[0].mediaType"),
        ({"role": "command"}, "input[0].role"),
        ({"text": "x"}, "input[0].text"),
    ],
)
def test_an_image_that_is_none_is_refused_by_name(
    server: Server, workspace: Path, change: dict[str, Any], path: str
) -> None:
    slot = {"type": "image", "mediaType": "image/png", "data": b64encode(png()).decode(), **change}

    session_id = server.create(workspace)

    refused = [server.refused("turn/submit", sessionId=session_id, input=[slot])]
    if path.startswith("input[0].data"):
        turn = {"input": [{"type": "text", "text": "x"}, slot]}
        first = server.refused("session/create", workspace=str(workspace), turn=turn)
        assert (first["code"], first["data"]["path"]) == (-32602, "turn.input[1].data")
        refused.append(server.refused("turn/steer", sessionId=session_id, input=[slot]))

    assert [(each["code"], each["data"]["path"]) for each in refused] == [(-32602, path)] * len(refused)


@pytest.mark.parametrize(
    ("picture", "limit"), [(png(size_bytes=3_800_000), "imageBytes"), (png(9_000, 1), "imagePixels")]
)
def test_an_image_that_no_model_takes_is_refused_before_it_is_kept(
    server: Server, workspace: Path, picture: bytes, limit: str
) -> None:
    slot = {"type": "image", "mediaType": "image/png", "data": b64encode(picture).decode()}

    refused = server.refused("turn/submit", sessionId=server.create(workspace), input=[slot])

    assert (refused["data"]["kind"], refused["data"]["details"]["limit"]) == ("limit_exceeded", limit)


def test_an_image_that_is_read_is_shown_behind_the_results_of_its_step(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    picture = png(40, 30, size_bytes=5_000)
    (workspace / "a.png").write_bytes(picture)
    (workspace / "large.png").write_bytes(png(size_bytes=4_000_000))
    reads = [("read", {"path": path}) for path in ("a.png", "large.png", "a.png")]
    fake.script(calls(reads), text("seen"))
    session_id = server.create(workspace)

    turn = server.finish(session_id, server.submit(session_id, "look"))

    assert turn["status"] == "completed"
    *results, shown = fake.requests[-1].body["messages"][-4:]
    assert [message["role"] for message in results] == ["tool"] * 3
    assert results[0]["content"].startswith("[a.png: image/png, 40 x 30 pixels")
    assert results[1]["content"].startswith("Error (image_too_large)")
    assert "the same as image a.png above" in results[2]["content"]
    assert images_in({"messages": [shown]}) == [picture]
    results = data_of(server, session_id, "tool.completed")
    assert results[0]["images"][0]["data"]["sha256"] == sha256(picture).hexdigest()
