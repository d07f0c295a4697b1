"""Answers that a server ends oddly, nests deeply or numbers twice: none of them runs half a call, and no session is
stuck behind one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.fixtures import Start
from fake import answers as chat
from fake import anthropic, gemini, openai
from fake.answers import Answer, Send, chunk, delta
from fake.histories import nested
from fake.provider import FakeProvider
from fake.vendors import VENDORS
from hames.config import SETTINGS

COMMAND = {"command": "touch ran.txt"}
MAX_DEPTH = 32


@pytest.fixture
def fakes() -> Iterator[Mapping[str, FakeProvider]]:
    """A strict fake for each provider."""
    with ExitStack() as stack:
        made = {name: stack.enter_context(FakeProvider(wire=vendor.wire)) for name, vendor in VENDORS.items()}
        yield made
        assert {name: fake.refusals for name, fake in made.items() if fake.refusals} == {}


def configured(fakes: Mapping[str, FakeProvider], **more: str) -> dict[str, str]:
    env = {SETTINGS[f"providers.{name}.baseUrl"].environment: fake.url for name, fake in fakes.items()}
    keys = {SETTINGS[f"providers.{name}.apiKey"].environment: "a-key-of-the-tests" for name in fakes}
    return {**env, **keys, "HAMES_LIMIT_RETRIES": "1", "HAMES_LIMIT_RETRY_BASE_MS": "1", **more}


def model_of(name: str) -> str:
    return f"{name}/{VENDORS[name].models[0]}"


# --- ends ---------------------------------------------------------------------------------------------------------


def chat_end(reason: str) -> Answer:
    return chat.partial("half of") + chat.call_fragments([("bash", COMMAND)]) + chat.finish(reason)


def openai_end(reason: str | None) -> Answer:
    items = (openai.Said(["half of"]), openai.Asked("bash", COMMAND))
    if reason is not None:
        return openai.answer(*items, reason=reason)
    response: dict[str, Any] = {
        "id": "r",
        "object": "response",
        "status": "incomplete",
        "incomplete_details": None,
        "output": [],
    }
    last = openai.event("response.incomplete", response=response)
    return (*openai.answer(*items, ends=False), Send(last))


def gemini_end(reason: str) -> Answer:
    parts: list[dict[str, Any]] = [{"text": "half of"}, {"functionCall": {"name": "bash", "args": COMMAND}}]
    return gemini.send(gemini.chunk(parts, reason=reason))


def anthropic_end(reason: str) -> Answer:
    return anthropic.answer(anthropic.Said(["half of"]), anthropic.Asked("bash", COMMAND), stop=reason)


ENDS: Sequence[tuple[str, Callable[[Any], Answer], str | None]] = [
    *(("compatible", chat_end, reason) for reason in ("abort", "cancelled", "timeout", "time_limit", "eos_toke")),
    *(("openai", openai_end, reason) for reason in (None, "server_overloaded", "steered")),
    *(("gemini", gemini_end, reason) for reason in ("OTHER", "LANGUAGE", "TOO_MANY_TOOL_CALLS", "SOMETHING_NEW")),
    ("anthropic", anthropic_end, "interrupted"),
]


def test_an_answer_that_ends_as_none_of_a_whole_one_fails_and_runs_nothing(
    start: Start, workspace: Path, fakes: Mapping[str, FakeProvider]
) -> None:
    with start(env=configured(fakes)) as server:
        for name, ending, reason in ENDS:
            session = server.create(workspace, f"{name}-{reason}", model=model_of(name))
            fakes[name].script(ending(reason))
            turn = server.finish(session, server.submit(session, "go"))
            error = turn["outcome"]["error"]

            assert (turn["status"], error["kind"], error["retryable"]) == ("failed", "model_gateway", False), reason
            assert error["details"]["stopReason"] == (reason or "incomplete")
            assert server.finish(session, server.submit(session, "again"))["status"] == "completed"
    assert not (workspace / "ran.txt").exists()


@pytest.mark.parametrize("reason", ["insufficient_system_resource", "network_error"])
def test_an_answer_that_lacked_resources_is_asked_for_again(
    start: Start, workspace: Path, fakes: Mapping[str, FakeProvider], reason: str
) -> None:
    fakes["compatible"].script(chat_end(reason), chat.text("whole"))
    with start(env=configured(fakes)) as server:
        session = server.create(workspace, model=model_of("compatible"))
        turn = server.finish(session, server.submit(session, "go"))

    assert (turn["status"], turn["outcome"]["text"]) == ("completed", "whole")
    assert not (workspace / "ran.txt").exists()


@pytest.mark.parametrize("reason", ["eos", "eos_token", "stop_sequence", "end", "COMPLETE", "end_turn", "tool_use"])
def test_the_odd_words_of_servers_for_a_whole_answer_are_known(
    start: Start, workspace: Path, fakes: Mapping[str, FakeProvider], reason: str
) -> None:
    fakes["compatible"].script(chat_end(reason), chat.partial("done") + chat.finish(reason))
    with start(env=configured(fakes)) as server:
        session = server.create(workspace, model=model_of("compatible"))
        turn = server.finish(session, server.submit(session, "go"))

    assert (turn["status"], turn["outcome"]["text"]) == ("completed", "done")
    assert (workspace / "ran.txt").exists()


# --- depth --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 100])
def test_a_call_nested_to_any_depth_is_answered_and_every_provider_takes_the_session_behind_it(
    start: Start, workspace: Path, fakes: Mapping[str, FakeProvider], depth: int
) -> None:
    arguments = {"command": "true", "more": nested(depth - 1)}
    with start(env=configured(fakes)) as server:
        session = server.create(workspace, model=model_of("compatible"))
        for name, vendor in VENDORS.items():
            server.call("session/update", sessionId=session, model=model_of(name))
            fakes[name].script(vendor.calls(vendor.models[0], "bash", arguments, "I look."))
            assert server.finish(session, server.submit(session, "go"))["status"] == "completed"
        for name in VENDORS:
            server.call("session/update", sessionId=session, model=model_of(name))
            assert server.finish(session, server.submit(session, "and?"))["status"] == "completed"
        results = [e["event"]["data"] for e in server.log(session) if e["event"]["type"] == "tool.completed"]

    assert [result["error"]["kind"] for result in results] == ["invalid_arguments"] * len(VENDORS)
    assert all(("nested" in result["text"]) == (depth > MAX_DEPTH) for result in results)


def test_raw_arguments_deeper_than_any_parser_reads_do_not_stop_a_session(
    start: Start, workspace: Path, fakes: Mapping[str, FakeProvider]
) -> None:
    raw = '{"x":' + "[" * 5_000 + "]" * 5_000 + "}"
    fakes["compatible"].script(chat.calls([("bash", raw), ("bash", raw[:-9])]))
    with start(env=configured(fakes)) as server:
        session = server.create(workspace, model=model_of("compatible"))
        assert server.finish(session, server.submit(session, "go"))["status"] == "completed"
        for name in VENDORS:
            server.call("session/update", sessionId=session, model=model_of(name))
            assert server.finish(session, server.submit(session, "and?"))["status"] == "completed"


# --- ids and numbers ----------------------------------------------------------------------------------------------


def test_a_server_that_gives_the_same_item_ids_in_every_answer_keeps_its_session(
    start: Start, workspace: Path, fakes: Mapping[str, FakeProvider]
) -> None:
    fake = fakes["openai"]
    same = openai.answer(openai.Thought(), openai.Said(["I look."]), openai.Thought(), openai.Said(["Done."]))
    fake.script(*[same] * 3)
    with start(env=configured(fakes)) as server:
        session = server.create(workspace, model=model_of("openai"))
        for _ in range(3):
            assert server.finish(session, server.submit(session, "go"))["status"] == "completed"

    kinds = [item["type"] for item in fake.requests[-1].body["input"]]
    assert kinds.count("reasoning") == 2
    assert kinds.count("message") == 7


def test_signed_parts_with_integers_beyond_64_bits_are_left_out_whole(
    start: Start, workspace: Path, fakes: Mapping[str, FakeProvider]
) -> None:
    fake = fakes["compatible"]
    detail = {"type": "reasoning.encrypted", "index": 0, "data": "abc", "id": 12345678901234567890123}
    fake.script(chunk(delta({"content": "hi", "reasoning_details": [detail]})) + chat.finish())
    with start(env=configured(fakes, HAMES_COMPATIBLE_SERVER="openrouter")) as server:
        session = server.create(workspace, model=model_of("compatible"))
        for _ in range(2):
            assert server.finish(session, server.submit(session, "go"))["status"] == "completed"

    assert fake.requests[-1].body["messages"][-2] == {"role": "assistant", "content": "hi"}
