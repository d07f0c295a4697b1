"""What each server of Chat Completions gets: what it wants, and nothing that it refuses."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import strict
from fake.answers import delta
from fake.pictures import png
from hames.core.conversation import (
    AssistantMessage,
    Effort,
    Message,
    ModelRequest,
    Picture,
    Reply,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from hames.protocol.errors import Refused
from hames.providers import PROVIDERS, ProviderSettings
from hames.providers.chat_body import BRIDGE, body
from hames.providers.chat_quirks import SERVERS, STRICTEST, Quirks, quirks_of
from hames.providers.chat_reply import ReplyBuilder
from hames.providers.compatible import Compatible

ASK = UserMessage("hi")
BASH = ToolSpec("bash", "Run a command.", {"type": "object", "properties": {}})
CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}
EVERYTHING = ModelRequest(
    "m",
    "be brief",
    (ASK,),
    (BASH,),
    effort="high",
    max_output_tokens=100,
    output_schema=CLOSED,
    cache_key="s-1",
)
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": CLOSED, "strict": True}}


def sent(request: ModelRequest, server: str | Quirks) -> dict[str, Any]:
    parsed: dict[str, Any] = orjson.loads(body(request, SERVERS[server] if isinstance(server, str) else server))
    return parsed


def answered(server: str, *chunks: dict[str, Any], secret: str | None = None) -> Reply:
    builder = ReplyBuilder(secret, EVERYTHING, SERVERS[server])
    for chunk in chunks:
        builder.add(json.dumps(chunk).encode())
    builder.end()
    return builder.reply()


def called(*ids: str) -> tuple[Message, ...]:
    calls = tuple(ToolCall("c", each, "bash", "{}") for each in ids)
    return (AssistantMessage("", calls), *(ToolResult("c", each, "bash", "ok") for each in ids))


# --- which row --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://mine.openai.azure.com/openai/v1", "azure"),
        ("https://mine.services.ai.azure.com/openai/v1/", "azure"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://api.moonshot.cn/v1", "moonshot"),
        ("https://API.mistral.ai/v1", "mistral"),
        ("http://127.0.0.1:11434/v1", "ollama"),
        ("http://box.example:11434/v1", "ollama"),
        ("http://127.0.0.1:8080/v1", "unknown"),
        ("https://api.openai.com.example/v1", "unknown"),
        ("https://notopenrouter.ai/v1", "unknown"),
    ],
)
def test_a_server_is_told_by_its_host(url: str, name: str) -> None:
    assert quirks_of(url).name == name


def test_a_name_goes_before_the_host_and_one_that_is_not_known_is_refused() -> None:
    assert quirks_of("https://api.mistral.ai/v1", "vllm").name == "vllm"
    with pytest.raises(Refused) as caught:
        PROVIDERS["compatible"].make(ProviderSettings("http://h", None, "none", b"", server="lama.cpp"))
    assert "llama.cpp" in caught.value.message


def test_azure_gets_its_key_in_a_header_of_its_own_and_a_version_where_the_path_has_none() -> None:
    dated = Compatible(quirks_of("https://mine.openai.azure.com/openai/deployments/gpt"))
    newer = Compatible(quirks_of("https://mine.openai.azure.com/openai/v1/"))

    assert dated.headers("key") == newer.headers("key") == {"api-key": "key"}
    assert dated.path(EVERYTHING) == "/chat/completions?api-version=2024-10-21"
    assert dated.models_path == "/models?api-version=2024-10-21"
    assert (newer.path(EVERYTHING), newer.models_path) == ("/chat/completions", "/models")
    assert Compatible().headers("key") == {"authorization": "Bearer key"}
    assert dated.headers(None) == {}


# --- options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "options"),
    [
        ("unknown", {"max_tokens": 100}),
        (
            "openai",
            {
                "max_completion_tokens": 100,
                "reasoning_effort": "high",
                "response_format": FORMAT,
                "prompt_cache_key": "s-1",
            },
        ),
        ("azure", {"max_completion_tokens": 100, "reasoning_effort": "high", "response_format": FORMAT}),
        ("openrouter", {"max_tokens": 100, "reasoning": {"effort": "high"}, "response_format": FORMAT}),
        ("deepseek", {"max_tokens": 100, "reasoning_effort": "high"}),
        ("moonshot", {"max_tokens": 100}),
        (
            "mistral",
            {"max_tokens": 100, "reasoning_effort": "high", "response_format": FORMAT, "prompt_cache_key": "s-1"},
        ),
        ("ollama", {"max_tokens": 100, "reasoning_effort": "high", "response_format": FORMAT}),
        ("vllm", {"max_completion_tokens": 100, "reasoning_effort": "high", "response_format": FORMAT}),
        ("llama.cpp", {"max_tokens": 100, "response_format": FORMAT}),
    ],
)
def test_a_server_gets_the_options_that_it_has_a_place_for(server: str, options: dict[str, Any]) -> None:
    document = sent(EVERYTHING, server)

    for name in ("model", "stream", "stream_options", "tools", "messages"):
        document.pop(name, None)
    assert document == options


def test_every_row_is_looked_at() -> None:
    names = [mark for mark in SERVERS if mark != "unknown"]

    assert len(names) == 9
    assert all(SERVERS[name].name == name for name in SERVERS)


@pytest.mark.parametrize(
    ("server", "effort", "members"),
    [
        ("deepseek", "none", {"thinking": {"type": "disabled"}}),
        ("deepseek", "minimal", {"reasoning_effort": "low"}),
        ("mistral", "minimal", {"reasoning_effort": "none"}),
        ("mistral", "low", {"reasoning_effort": "high"}),
        ("ollama", "minimal", {"reasoning_effort": "low"}),
        ("openrouter", "none", {"reasoning": {"effort": "none"}}),
        ("unknown", "high", {}),
    ],
)
def test_an_effort_is_said_in_the_words_of_the_server(server: str, effort: Effort, members: dict[str, Any]) -> None:
    document = sent(ModelRequest("m", "", (ASK,), effort=effort), server)

    assert {
        name: document[name] for name in document if name in ("thinking", "reasoning", "reasoning_effort")
    } == members


def test_the_instructions_have_the_role_that_the_server_knows() -> None:
    assert sent(EVERYTHING, "openai")["messages"][0] == {"role": "developer", "content": "be brief"}
    assert sent(EVERYTHING, "mistral")["messages"][0] == {"role": "system", "content": "be brief"}


def test_only_a_server_that_refuses_it_is_not_asked_for_usage() -> None:
    assert [name for name in SERVERS if "stream_options" not in sent(EVERYTHING, name)] == ["mistral"]


def test_a_schema_of_no_object_and_a_long_cache_key_do_no_harm() -> None:
    request = ModelRequest("m", "", (ASK,), output_schema={"type": "array"}, cache_key="k" * 100)

    assert "response_format" not in sent(request, "openai")
    assert len(sent(request, "openai")["prompt_cache_key"]) == 64


@pytest.mark.parametrize("server", SERVERS)
def test_options_stand_before_the_messages_so_that_a_longer_conversation_begins_like_the_shorter(server: str) -> None:
    longer = ModelRequest("m", "be brief", (ASK, *called("a")), (BASH,), effort="high", output_schema=CLOSED)
    shorter = ModelRequest("m", "be brief", (ASK,), (BASH,), effort="high", output_schema=CLOSED)

    assert body(longer, SERVERS[server]).startswith(body(shorter, SERVERS[server]).removesuffix(b"]}"))


# --- ids, names, order ------------------------------------------------------------------------------------------

MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")


@given(
    steps=st.lists(
        st.lists(st.sampled_from(["call_0", "abcdefghi", "x" * 80, "é"]), unique=True, min_size=1), max_size=5
    )
)
def test_mistral_gets_ids_of_nine_letters_each_once_and_no_user_behind_a_result(steps: list[list[str]]) -> None:
    history: list[Message] = [ASK]
    for ids in steps:
        history += [*called(*ids), ASK]

    messages = sent(ModelRequest("m", "", tuple(history), (BASH,)), "mistral")["messages"]

    asked = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    assert all(MISTRAL_ID.fullmatch(each) for each in asked)
    assert len(set(asked)) == len(asked)
    assert asked == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    roles = [message["role"] for message in messages]
    assert ("tool", "user") not in pairwise(roles)


def test_mistral_gets_a_word_of_the_assistant_before_images_of_results() -> None:
    result = ToolResult("c", "a", "bash", "x", images=(Picture("a-1", "image/png", png()),))
    history = (ASK, called("a")[0], result)

    *_, bridge, shown = sent(ModelRequest("m", "", history, (BASH,)), "mistral")["messages"]

    assert bridge == {"role": "assistant", "content": BRIDGE}
    assert shown["role"] == "user"


def test_an_id_that_fits_stays_as_it_is_and_one_that_is_used_again_is_made_new() -> None:
    history = (ASK, *called("functions.bash:0"), *called("functions.bash:0"), *called("x" * 100))

    asked = [
        message["tool_calls"][0]["id"]
        for message in sent(ModelRequest("m", "", history, (BASH,)), STRICTEST)["messages"]
        if "tool_calls" in message
    ]

    assert asked[0] == "functions.bash:0"
    assert len(set(asked)) == 3
    assert all(len(each) <= 64 for each in asked)


def test_tools_whose_names_become_alike_keep_apart_and_their_calls_come_home() -> None:
    tools = (ToolSpec("run it!", "", CLOSED), ToolSpec("run_it_", "", CLOSED))
    request = ModelRequest("m", "", (ASK,), tools)
    names = [tool["function"]["name"] for tool in sent(request, STRICTEST)["tools"]]
    builder = ReplyBuilder(None, request)

    for place, name in enumerate(names):
        call = {"index": place, "id": f"c{place}", "function": {"name": name, "arguments": "{}"}}
        builder.add(json.dumps(delta({"tool_calls": [call]}, reason="tool_calls")).encode())

    assert strict.refusal(body(request), "application/json")[1] is None
    assert [call.tool for call in builder.reply().calls] == ["run it!", "run_it_"]


# --- reasoning that goes back -----------------------------------------------------------------------------------

STOP = delta(reason="stop")


def test_reasoning_goes_back_to_the_server_that_wants_it_and_to_its_model_alone() -> None:
    reply = answered(
        "deepseek", delta({"reasoning_content": "h"}), delta({"reasoning_content": "m", "content": "x"}), STOP
    )
    history = (ASK, AssistantMessage(reply.text, reply.calls, reply.parts), ASK)

    assert sent(ModelRequest("m", "", history), "deepseek")["messages"][1]["reasoning_content"] == "hm"
    assert sent(ModelRequest("n", "", history), "deepseek")["messages"][1]["reasoning_content"] == ""
    for server in ("unknown", "mistral", "moonshot", "openrouter"):
        assert set(sent(ModelRequest("m", "", history), server)["messages"][1]) == {"role", "content"}
    assert answered("unknown", delta({"reasoning_content": "hm", "content": "x"}), STOP).parts == {}


def test_an_answer_without_reasoning_says_so_only_where_that_is_asked_for() -> None:
    history = (ASK, AssistantMessage("x"), ASK)

    assert sent(ModelRequest("m", "", history), "deepseek")["messages"][1]["reasoning_content"] == ""
    assert "reasoning_content" not in sent(ModelRequest("m", "", history), "moonshot")["messages"][1]


def test_details_of_reasoning_that_came_in_pieces_go_back_whole_and_in_order() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "bash", "arguments": "{}"}}
    pieces: list[Any] = [
        [{"type": "reasoning.text", "text": "Let", "format": "x", "index": 0}],
        [{"type": "reasoning.text", "text": " me", "index": 0, "signature": None}],
        [
            {"type": "reasoning.text", "signature": "sig", "index": 0},
            {"type": "reasoning.summary", "summary": "s", "index": 0},
        ],
        [{"type": "reasoning.encrypted", "data": "d1", "id": "a", "index": 1}],
        [
            {"type": "reasoning.encrypted", "data": "d2", "id": "b"},
            "odd",
            {"type": "reasoning.encrypted", "data": "d3"},
        ],
        "odd",
    ]

    chunks = [delta({"reasoning_details": piece}) for piece in pieces]
    reply = answered("openrouter", *chunks, delta({"tool_calls": [call]}, reason="tool_calls"))
    history = (ASK, AssistantMessage("", reply.calls, reply.parts), ToolResult("c", "a", "bash", "ok"))

    assert sent(ModelRequest("m", "", history), "openrouter")["messages"][1]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "Let me", "format": "x", "index": 0, "signature": "sig"},
        {"type": "reasoning.summary", "summary": "s", "index": 0},
        {"type": "reasoning.encrypted", "data": "d1", "id": "a", "index": 1},
        {"type": "reasoning.encrypted", "data": "d2", "id": "b"},
        {"type": "reasoning.encrypted", "data": "d3"},
    ]
    assert "reasoning_details" not in sent(ModelRequest("m", "", history), "unknown")["messages"][1]


def deep(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels)


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        *((each, True) for each in (2**63 - 1, -(2**63), 2**64 - 1, 1.5, 1e18, -0.0, True, None, deep(50))),
        *((each, False) for each in (2**64, -(2**63) - 1, 12345678901234567890123, 1e19, [{"a": [1e300]}], deep(90))),
    ],
)
def test_details_go_back_verbatim_or_not_at_all(value: Any, is_kept: bool) -> None:
    detail = {"type": "reasoning.encrypted", "data": "d", "index": 0, "odd": value}

    reply = answered("openrouter", delta({"reasoning_details": [detail], "content": "x"}), STOP)
    history = (ASK, AssistantMessage("x", (), reply.parts), ASK)

    message = sent(ModelRequest("m", "", history), "openrouter")["messages"][1]
    assert message.get("reasoning_details") == ([detail] if is_kept else None)


def test_a_key_does_not_come_in_by_details_of_reasoning() -> None:
    secret = "sk-secret-0123456789"
    chunks = [
        delta({"reasoning_details": [{"type": "t", "text": each, "index": 0}]}) for each in (secret[:9], secret[9:])
    ]

    reply = answered("openrouter", *chunks, delta({"content": "x"}), STOP, secret=secret)

    assert secret not in json.dumps(reply.parts)
    assert "[redacted]" in json.dumps(reply.parts)
