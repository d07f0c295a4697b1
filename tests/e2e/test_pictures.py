"""A model is sent only images that it takes: what the others are told, over switches of the model and restarts."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server, said
from e2e.fixtures import Start
from fake.pictures import gif, png
from fake.provider import FakeProvider, calls, text
from fake.vendors import VENDORS
from hames.config import SETTINGS

SEES, BLIND, UNKNOWN = "sees", "blind", "unlisted"
KEY = "sk-of-the-tests-0123456789"


def slot(data: bytes, kind: str = "png") -> dict[str, str]:
    return {"type": "image", "mediaType": f"image/{kind}", "data": b64encode(data).decode()}


def models_file(directory: Path) -> dict[str, str]:
    models = {SEES: {"images": True}, BLIND: {"images": False}}
    path = directory / "models.json"
    path.write_text(json.dumps({"version": "1", "cards": [{"name": "mine", "models": models}]}))
    return {"HAMES_MODELS_FILE": str(path)}


def images_of(body: Mapping[str, Any]) -> int:
    return json.dumps(body).count("data:image/")


def repairs(server: Server, session_id: str) -> list[Any]:
    log = [entry["event"] for entry in server.log(session_id)]
    return [event["data"]["repairs"] for event in log if event["type"] == "context.repaired"]


def turn(server: Server, session_id: str, *slots: Mapping[str, Any]) -> None:
    submitted = server.call("turn/submit", sessionId=session_id, input=[*slots, *said("go on")])
    assert server.finish(session_id, submitted["turn"]["turnId"])["status"] == "completed"


def switch(server: Server, session_id: str, model: str) -> None:
    server.call("session/update", sessionId=session_id, model=f"compatible/{model}")


def test_a_model_that_takes_no_images_is_told_of_them_and_one_that_does_sees_them_again(
    start: Start, workspace: Path, fake: FakeProvider, tmp_path: Path
) -> None:
    server = start(env=models_file(tmp_path))
    (workspace / "b.png").write_bytes(png(9, 9))
    session_id = server.create(workspace, model=f"compatible/{SEES}")
    fake.script(calls([("read", {"path": "b.png"})]), text("seen"))
    turn(server, session_id, slot(png()))
    switch(server, session_id, BLIND)
    turn(server, session_id)
    turn(server, session_id, slot(png(7, 7)))
    blind = fake.requests[-1].body
    switch(server, session_id, UNKNOWN)
    turn(server, session_id)
    switch(server, session_id, SEES)
    turn(server, session_id)

    assert [images_of(request.body) for request in fake.requests] == [1, 2, 0, 0, 3, 3]
    assert json.dumps(blind).count("not shown, since this model takes no images]") == 3
    assert "[image b.png: not shown" in json.dumps(blind)
    assert repairs(server, session_id) == [
        [{"code": "images_not_taken", "count": 2}],
        [{"code": "images_not_taken", "count": 3}],
    ]


@pytest.mark.parametrize("model", [SEES, BLIND])
def test_who_comes_to_a_session_later_sends_the_same(
    start: Start, workspace: Path, fake: FakeProvider, tmp_path: Path, model: str
) -> None:
    other = {SEES: BLIND, BLIND: SEES}[model]
    env = models_file(tmp_path)
    first = start(env=env)
    session_id = first.create(workspace, model=f"compatible/{other}")
    turn(first, session_id, slot(png()), slot(gif(), "gif"))
    switch(first, session_id, model)
    turn(first, session_id)
    first.stop()
    second = start(env=env)
    second.call("session/resume", sessionId=session_id)
    turn(second, session_id)

    before, after = (request.body["messages"] for request in fake.requests[-2:])
    assert after[: len(before)] == before
    assert images_of({"messages": after}) == (2 if model == SEES else 0)
    assert len(repairs(second, session_id)) == 1


@pytest.fixture
def model() -> Iterator[FakeProvider]:
    with FakeProvider(wire=VENDORS["gemini"].wire, api_key=KEY) as provider:
        yield provider
        assert provider.refusals == []


def test_a_type_that_a_vendor_does_not_take_is_left_out_and_told(
    start: Start, workspace: Path, model: FakeProvider
) -> None:
    env = {
        SETTINGS["providers.gemini.baseUrl"].environment: model.url,
        SETTINGS["providers.gemini.apiKey"].environment: KEY,
    }
    server = start(env=env)
    session_id = server.create(workspace, model="gemini/gemini-2.5-pro")
    turn(server, session_id, slot(gif(), "gif"), slot(png()))

    assert model.requests[-1].raw.count(b"inlineData") == 1
    assert b"not shown, since this model takes no image/gif]" in model.requests[-1].raw
    assert repairs(server, session_id) == [[{"code": "images_not_taken", "count": 1}]]
