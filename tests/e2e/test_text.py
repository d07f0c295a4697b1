"""Text goes through unchanged: odd line ends, control characters, emoji cut in two; half characters are replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.driver import Server, said
from fake.provider import FakeProvider, calls, chunk, delta, finish, partial, text

ODD = "a\u2028b\u2029c\x85d\x0be\x0cf\r\ng\rh\ti\x00j\x1b]777;k\x07\u200b\ufeff😀e\u0301\U0010ffff\ufffe"


def test_odd_characters_round_trip_through_prompt_model_text_and_replay(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(text(ODD, chunks=list(ODD)))
    session_id = server.create(workspace)
    raw = {"jsonrpc": "2.0", "id": "raw", "method": "turn/submit", "params": {"sessionId": session_id}}
    raw["params"] |= {"turnId": "t1", "input": said(ODD)}  # type: ignore[operator]

    server.exchange(json.dumps(raw, ensure_ascii=False).encode() + b"\n")
    turn = server.finish(session_id, "t1")

    assert turn["outcome"]["text"] == ODD
    assert fake.requests[0].body["messages"][-1]["content"] == ODD
    live = server.events(session_id)
    replay = [entry["event"] for entry in server.log(session_id)]
    assert live == replay
    assert [event["data"]["input"][0]["text"] for event in live if event["type"] == "turn.queued"] == [ODD]
    assert [event["data"]["text"] for event in live if event["type"] == "message.completed"] == [ODD]
    assert "".join(params["text"] for params in server.notifications("delta")) == ODD
    view = server.call("session/get", sessionId=session_id, view=True)["view"]
    assert [item["data"]["text"] for item in view["items"] if item["kind"] == "message"] == [ODD]


def test_half_characters_of_client_model_and_tool_never_reach_log_or_provider(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    arguments = '{"command":"printf \'\\\\377\\\\376\\\\200 ok\'; : \\ud82d"}'
    fake.script(
        chunk(delta({"content": "half \ud82d and \ud83d"}))
        + chunk(delta({"content": "\ude00 whole"}))
        + calls([("bash", arguments)]),
        text("done \udc00"),
        text("third"),
    )
    session_id = server.create(workspace)
    prompt = b'[{"type":"text","text":"a \\udc00 b \\ud83d\\ude00"}]'
    request = (
        b'{"jsonrpc":"2.0","id":"raw","method":"turn/submit","params":{"sessionId":"%b","turnId":"t1","input":%b}}\n'
    )

    server.exchange(request % (session_id.encode(), prompt))
    first = server.finish(session_id, "t1")
    second = server.finish(session_id, server.submit(session_id, "again"))

    assert first["outcome"] == {"status": "completed", "text": "done \ufffd"}
    assert second["outcome"]["text"] == "third"
    events = server.events(session_id)
    assert _data(events, "turn.queued")[0]["input"] == said("a \ufffd b 😀")
    assert _data(events, "message.completed")[0]["text"] == "half \ufffd and 😀 whole"
    (result,) = _data(events, "tool.completed")
    assert (result["outcome"], "ok" in result["text"]) == ("ok", True)
    assert _data(events, "warning"), "that the prompt was changed is recorded"
    # The fake takes nothing but strict UTF-8 JSON, and it was asked three times.
    assert len(fake.requests) == 3


def _data(events: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] == type_]


def test_empty_text_is_refused_by_name_and_large_text_is_taken_whole(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    large = "é" * (2 * 2**20)
    fake.script(partial("ok") + finish())
    session_id = server.create(workspace)

    refusals = [
        server.refused("turn/submit", sessionId=session_id, input=value) for value in ([], said(""), said(" \n"))
    ]
    turn_id = server.submit(session_id, large)
    server.finish(session_id, turn_id)

    assert ["params.input" in error["message"] for error in refusals] == [True] * 3
    assert fake.requests[0].body["messages"][-1]["content"] == large
