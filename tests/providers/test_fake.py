"""The fake provider itself: strict, scripted, and in step with a test without sleeping."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import fake.provider
from fake import strict
from fake.provider import (
    FakeProvider,
    calls,
    cut,
    delta_text,
    deltas,
    never,
    partial,
    reset,
    stall,
    status,
    text,
    trickle,
    wait_for,
)

BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
CALL = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "ok"}
GOOD: dict[str, Any] = {
    "model": "m",
    "messages": [USER, ASKED, RESULT],
    "tools": [BASH],
    "stream": True,
    "stream_options": {"include_usage": True},
}


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as started:
        yield started


@pytest.fixture
def client(server: FakeProvider) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as opened:
        yield opened


def post(client: httpx.Client, body: dict[str, Any] = GOOD) -> httpx.Response:
    return client.post("/chat/completions", json=body)


def messages(*given: dict[str, Any]) -> dict[str, Any]:
    return {**GOOD, "messages": list(given)}


def asked(**changes: Any) -> dict[str, Any]:
    return messages(USER, {**ASKED, "tool_calls": [{**CALL, **changes}]}, RESULT)


def function(**changes: Any) -> dict[str, Any]:
    return {**GOOD, "tools": [{"type": "function", "function": {**BASH["function"], **changes}}]}  # type: ignore[dict-item]


def test_a_good_request_is_answered_and_recorded(server: FakeProvider, client: httpx.Client) -> None:
    answer = post(client)

    assert answer.status_code == 200
    assert '"content":"ok"' in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
    assert server.refusals == []
    assert server.requests[0].body == GOOD
    assert server.requests[0].connection == 1


@pytest.mark.parametrize(
    "body",
    [
        {**GOOD, "thinking": True},
        {**GOOD, "stream": False},
        {**GOOD, "stream_options": {}},
        {**GOOD, "model": ""},
        {**GOOD, "messages": []},
        {**GOOD, "tool_choice": "required"},
        {**GOOD, "tools": []},
        {**GOOD, "tools": [BASH, BASH]},
        function(name="no spaces"),
        function(parameters={"type": "string"}),
        function(parameters={"type": "object", "properties": {"a": {"type": "nonsense"}}}),
        messages({"role": "assistant", "content": "hi"}, USER),
        messages({"role": "system", "content": "x"}, ASKED, RESULT),
        messages({"role": "user", "content": ""}),
        messages({"role": "user", "content": " \n"}),
        messages({"role": "user", "content": "x", "extra": 1}),
        messages(USER, {"role": "assistant", "content": None}),
        messages(USER, {"role": "assistant", "content": ""}),
        messages(USER, {"role": "assistant", "content": "x", "tool_calls": []}),
        messages(USER, {"role": "assistant", "content": "x", "reasoning_content": "y"}),
        messages(USER, ASKED),
        messages(USER, ASKED, USER, RESULT),
        messages(USER, RESULT),
        messages(USER, ASKED, RESULT, RESULT),
        messages(USER, ASKED, {**RESULT, "content": ""}),
        messages(USER, {**ASKED, "tool_calls": [CALL, CALL]}, RESULT),
        asked(id=""),
        asked(type="tool"),
        asked(index=0),
        asked(function={"name": "bash", "arguments": {}}),
        asked(function={"name": "bash", "arguments": "{}{}"}),
        asked(function={"name": "bash", "arguments": "[]"}),
        asked(function={"name": "bash", "arguments": r'{"a":"\ud83d"}'}),
        asked(function={"name": "no/slash", "arguments": "{}"}),
    ],
)
def test_what_a_vendor_may_refuse_is_refused(server: FakeProvider, client: httpx.Client, body: dict[str, Any]) -> None:
    answer = post(client, body)

    assert answer.status_code == 400
    assert server.refusals == [answer.json()["error"]["message"]]


@pytest.mark.parametrize(
    ("raw", "content_type"),
    [
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b'{"model": "\xff"}', "application/json"),
        (rb'{"model": "\ud83d"}', "application/json"),
        (b'{"model": "\xed\xa0\xbd"}', "application/json"),
        (b"{}", "text/plain"),
    ],
)
def test_what_is_no_strict_json_is_refused(raw: bytes, content_type: str) -> None:
    assert strict.refusal(raw, content_type)[1] is not None


def test_answers_come_from_rules_then_the_queue_then_the_default(server: FakeProvider, client: httpx.Client) -> None:
    server.on("hi", text("one"), text("two"))
    server.on(lambda body: body["model"] == "other", text("three"))
    server.script(text("four"))
    server.answer = lambda body: text(f"five {body['model']}")

    answers = [post(client).text, post(client).text, post(client, {**GOOD, "model": "other"}).text]
    answers += [post(client).text, post(client).text]

    for word, answer in zip(["one", "two", "three", "four", "five m"], answers, strict=True):
        assert word in answer


def test_many_deltas_are_all_sent(server: FakeProvider, client: httpx.Client) -> None:
    server.script(deltas(50_000, 12))

    lines = post(client).text.split("\n\n")

    assert sum('"content"' in line for line in lines) == 50_000
    assert len(delta_text(50_000, 12)) == 600_000


def test_a_call_can_be_cut_into_fragments(server: FakeProvider, client: httpx.Client) -> None:
    server.script(calls([("bash", {"command": "ls"})], "text first", fragment=1))

    assert post(client).text.count('"arguments"') == len('{"command": "ls"}') + 1


@pytest.mark.parametrize("answer", [partial("x") + cut(), partial("x") + reset(), reset()])
def test_a_cut_answer_breaks_off(server: FakeProvider, client: httpx.Client, answer: Any) -> None:
    server.script(answer)

    with pytest.raises(httpx.TransportError):
        post(client)

    assert post(client).status_code == 200
    assert server.disconnects == []


@pytest.mark.parametrize("answer", [never(), stall(), partial("x") + wait_for("gate"), trickle(b": " * 99, each_ms=99)])
def test_a_client_that_goes_is_noted_whatever_the_answer_waits_for(
    server: FakeProvider, client: httpx.Client, answer: Any
) -> None:
    server.script(answer)

    with pytest.raises(httpx.ReadTimeout):
        client.post("/chat/completions", json=GOOD, timeout=httpx.Timeout(30, read=0.05))
    server.wait_for_disconnects(1)

    assert server.disconnects[0].connection == 1


def test_a_gate_holds_an_answer_until_it_is_opened(server: FakeProvider, client: httpx.Client) -> None:
    server.script(partial("x") + wait_for("gate") + text("y"))
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(post(client).text))
    thread.start()

    server.wait_for_requests(1)
    server.gate("gate").wait_reached()
    assert answers == []
    server.gate("gate").open()
    thread.join(30)

    assert '"y"' in answers[0]


def test_release_ends_a_stall(server: FakeProvider, client: httpx.Client) -> None:
    server.script(stall() + text("after"))
    server.release()

    assert "after" in post(client).text


def test_a_wait_that_is_in_vain_says_so(server: FakeProvider) -> None:
    with pytest.raises(TimeoutError):
        server.wait_for_requests(1, timeout=0.01)


def test_a_wrong_key_is_refused_with_an_echo() -> None:
    with FakeProvider(api_key="right") as server:
        answer = httpx.get(f"{server.url}/models", headers={"authorization": "Bearer wrong"}, trust_env=False)
        assert answer.status_code == 401
        assert "wrong" in answer.text


def test_a_status_is_sent_with_its_headers(server: FakeProvider, client: httpx.Client) -> None:
    server.script(status(429, {"error": {"message": "slow down"}}, {"retry-after": "2"}))

    answer = post(client)

    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert client.get("/models").json()["data"][0]["id"] == "fake-model"
    assert client.get("/nothing").status_code == 404


def test_it_can_be_run_by_hand() -> None:
    path = Path(fake.provider.__file__)
    with subprocess.Popen(
        [sys.executable, str(path), "--port", "0", "--echo"], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        answer = httpx.post(f"{url}/chat/completions", json=GOOD, trust_env=False, timeout=30)
        process.terminate()

    assert answer.status_code == 200
    assert '"content":"h"' in answer.text
