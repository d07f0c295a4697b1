"""Which tools a session gets: those it names, or what its model's family is offered; and they work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, text
from hames.config import Config
from hames.protocol.errors import Refused
from hames.tools import CORE, TABLE
from hames.toolsets import Toolsets
from tools.test_patch import patch
from tools.web import Web, answer, running

KEY = "brave-key-0123456789"


@pytest.fixture
def web() -> Iterator[Web]:
    with running() as server:
        yield server


def tools(server: Server, workspace: Path, **params: Any) -> list[str]:
    made = server.call("session/create", workspace=str(workspace), **params)
    named: list[str] = made["snapshot"]["tools"]
    return named


def refused(server: Server, workspace: Path, **params: Any) -> dict[str, Any]:
    error: dict[str, Any] = server.ask("session/create", workspace=str(workspace), **params)["error"]
    return error


def test_a_session_gets_what_it_names_and_else_what_its_model_is_offered(server: Server, workspace: Path) -> None:
    listed = {tool["name"]: tool for tool in server.call("tools/list")["tools"]}

    assert list(listed) == list(TABLE)
    assert tools(server, workspace, model="compatible/gpt-9", tools=["todo", "bash"]) == ["bash", "todo"]
    assert tools(server, workspace, tools=[]) == []
    assert tools(server, workspace, model="compatible/m", mode="strict") == list(CORE)
    assert "web_fetch" in tools(server, workspace, model="compatible/m", mode="strict", tools=["web_fetch"])
    for model, family in (("gpt-9", "openai"), ("gemini-9", "gemini"), ("claude-9", "anthropic"), ("m", "other")):
        offered = [name for name, tool in listed.items() if family in tool["offered"]["families"]]
        assert tools(server, workspace, model=f"compatible/{model}") == [
            name for name in offered if name != "web_search"
        ]


def test_a_tool_that_cannot_be_had_is_refused_with_what_can(server: Server, workspace: Path) -> None:
    unknown = refused(server, workspace, tools=["bash", "frobnicate"])
    keyless = refused(server, workspace, tools=["web_search"])

    assert unknown["data"]["kind"] == "invalid_config"
    assert unknown["data"]["details"] == {"member": "tools", "known": list(TABLE)}
    assert ", ".join(TABLE) in unknown["message"]
    assert "frobnicate" not in unknown["message"]
    assert keyless["data"]["kind"] == "credential_missing"
    assert "HAMES_BRAVE_API_KEY or BRAVE_API_KEY" in keyless["message"]


def test_without_a_network_nothing_goes_out() -> None:
    toolsets = Toolsets(Config({"tools.webSearch.apiKey": KEY}, {}))
    route = {"provider": "offline", "model": "offline"}

    assert toolsets.choose({}, route, network=False) == [*CORE, "process", "todo"]
    with pytest.raises(Refused) as refusal:
        toolsets.choose({"tools": ["web_fetch"]}, route, network=False)
    assert refusal.value.kind == "invalid_config"


@pytest.mark.parametrize("variable", ["HAMES_BRAVE_API_KEY", "BRAVE_API_KEY"])
def test_with_a_key_there_is_a_search_and_nobody_sees_the_key(
    start: Start, workspace: Path, fake: FakeProvider, web: Web, variable: str
) -> None:
    found = {"web": {"results": [{"title": f"T {KEY}", "url": "https://a.test/", "description": "d"}]}}
    web.pages["/res/v1/web/search"] = answer(json.dumps(found).encode())
    server = start(env={variable: KEY, "HAMES_BRAVE_BASE_URL": web.url})
    fake.script(calls([("web_search", {"query": "q"})]), calls([("bash", {"command": "env"})]), text("ok"))
    session_id = server.create(workspace)

    server.finish(session_id, server.submit(session_id))

    assert f"x-subscription-token: {KEY}".encode() in web.asked[0].lower()
    log = json.dumps(server.log(session_id))
    assert "T [" in log
    assert KEY not in log + server.stderr
    assert not any(KEY in json.dumps(request.body) for request in fake.requests)


def test_a_session_goes_on_when_the_key_of_its_search_is_gone(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    first = start(env={"BRAVE_API_KEY": KEY})
    session_id = first.create(workspace)
    assert first.stop() == 0
    fake.script(calls([("web_search", {"query": "q"})]), text("ok"))
    server = start()

    server.call("session/resume", sessionId=session_id)
    server.finish(session_id, server.submit(session_id))

    (completed,) = [
        each["event"]["data"] for each in server.log(session_id) if each["event"]["type"] == "tool.completed"
    ]
    assert completed["error"]["kind"] == "not_configured"


def test_the_web_is_got_and_this_machine_only_where_that_is_allowed(
    start: Start, workspace: Path, fake: FakeProvider, web: Web
) -> None:
    web.pages["/"] = answer(b"<h1>Here</h1>", content_type="text/html")
    for allowed, outcome in (("refuse", "error"), ("allow", "ok")):
        server = start(env={"HAMES_WEB_FETCH_PRIVATE_ADDRESSES": allowed})
        fake.script(calls([("web_fetch", {"url": web.url})]), text("ok"))
        session_id = server.create(workspace)

        server.finish(session_id, server.submit(session_id))

        (completed,) = [e["event"]["data"] for e in server.log(session_id) if e["event"]["type"] == "tool.completed"]
        assert completed["outcome"] == outcome
        assert ("# Here" in completed["text"]) == (outcome == "ok")
        assert server.stop() == 0
    assert len(web.asked) == 1


def test_a_patch_and_a_list_stand_in_the_log(start: Start, workspace: Path, fake: FakeProvider) -> None:
    (workspace / "a").write_text("one\n")
    text_of_patch = patch("*** Add File: b", "+new", "*** Update File: a", "-one", "+two")
    items = [{"text": "patch", "status": "completed"}, {"text": "rest", "status": "pending"}]
    fake.script(calls([("apply_patch", {"patch": text_of_patch}), ("todo", {"items": items})]), text("ok"))
    server = start()
    session_id = server.create(workspace, model="compatible/gpt-9")

    server.finish(session_id, server.submit(session_id))

    events = [each["event"] for each in server.log(session_id)]
    changed = [event["data"] for event in events if event["type"] == "file.changed"]
    assert [(change["path"], change["kind"]) for change in changed] == [("b", "created"), ("a", "modified")]
    texts = [event["data"]["text"] for event in events if event["type"] == "tool.completed"]
    assert texts == ["Applied:\nA b\nM a", "[x] patch\n[ ] rest"]
    assert (workspace / "a").read_text() == "two\n"
