"""What is told of a failure beside the server's words: the address that was asked, and what else there is to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fake.answers import Answer
from fake.provider import FakeProvider, chunk, status
from hames.core.conversation import ModelRequest, UserMessage
from hames.ports import ModelLimits, ProviderFailed
from hames.providers.advice import Asked
from hames.providers.anthropic import Anthropic
from hames.providers.compatible import Compatible
from hames.providers.failures import Said, read_error
from hames.providers.gemini import Gemini
from hames.providers.http_provider import Dialect, HttpProvider
from hames.providers.openai import OpenAI
from providers.asking import LIMITS, Asking, hello, ignore

pytestmark = pytest.mark.anyio

HOST = "http://10.0.0.7:8000"
CHAT = Asked("compatible", f"{HOST}/v1", "/chat/completions", "/v1", has_tools=True)
WRONG = (
    f"Asked was {HOST}/chat/completions: check the base URL, `providers.compatible.baseUrl`, which usually ends with"
)
NO_TOOLS = "`tools: []`"


def advice(status: int | None, document: Any, asked: Asked = CHAT) -> str:
    return asked.advice(status, read_error(document, None)) or ""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (404, "404 page not found"),
        (404, "a web page titled 'Error 404 (Not Found)!!1'"),
        (404, "Cannot POST /chat/completions"),
        (404, "File Not Found"),
        (405, "Method Not Allowed"),
        (308, "a redirect, which is not followed"),
    ],
)
def test_an_address_without_such_an_api_is_named(code: int, words: str) -> None:
    told = advice(code, words)

    assert "`providers.compatible.baseUrl`" in told
    assert f"{HOST}/v1/chat/completions" in told


def test_what_the_address_usually_ends_with_is_told_where_it_does_not() -> None:
    bare = Asked("compatible", HOST, "/chat/completions", "/v1")

    assert advice(404, "404 page not found", bare) == f"{WRONG} /v1."
    assert "usually" not in advice(404, "404 page not found")


def test_a_path_that_is_repeated_says_nothing_of_the_model_in_it() -> None:
    path = "/models/gemini-3:streamGenerateContent"
    asked = Asked("gemini", HOST, f"{path}?alt=sse", "/v1beta")

    assert "`providers.gemini.baseUrl`, which usually ends with /v1beta" in advice(404, f"Cannot POST {path}", asked)
    assert "`hames models gemini`" in advice(404, "models/gemini-3 is not found for API version v1beta", asked)


@pytest.mark.parametrize(
    ("code", "document"),
    [
        (404, {"error": {"message": "The model `x` does not exist.", "code": "model_not_found"}}),
        (404, {"error": {"message": "x", "code": "model_not_found"}}),
        (404, {"error": "model 'x' not found, try pulling it first"}),
        (404, {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-9"}}),
        (404, {"error": {"message": "The API deployment for this resource does not exist."}}),
        (404, {"error": {"message": "No endpoints found for x/y."}}),
        (None, {"error": {"message": "x", "code": "model_not_found"}}),
        (None, {"error": {"message": "x", "type": "not_found_error"}}),
    ],
)
def test_a_model_that_is_not_there_is_told_from_a_wrong_address(code: int | None, document: Any) -> None:
    told = advice(code, document)

    assert "`hames models compatible`" in told
    assert "base URL" not in told


def test_a_listing_that_is_not_there_is_never_the_fault_of_a_model() -> None:
    asked = Asked("compatible", HOST, "/models", "/v1", is_listing=True)

    assert f"{HOST}/models" in advice(404, "no models here", asked)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (400, "This model doesn't support tool use."),
        (400, "`tools` is not supported with this model"),
        (400, "Function calling is not supported"),
        (404, "No endpoints found that support tool use."),
        (500, "tools param requires --jinja flag"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (None, "the model does not support function calling"),
    ],
)
def test_a_model_that_knows_no_tools_is_told_how_to_do_without(code: int | None, words: str) -> None:
    assert NO_TOOLS in advice(code, words)
    assert NO_TOOLS not in advice(code, words, Asked("compatible", HOST, "/chat/completions", "/v1"))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (400, "tools.3.custom.input_schema: `oneOf` is not supported"),
        (400, "`tool_use` ids were found without `tool_result` blocks"),
        (400, "this model does not support images"),
        (400, "does not support toolsets"),
        (401, "your plan does not support tools"),
        (429, "Rate limit reached"),
        (503, "busy"),
    ],
)
def test_other_failures_get_no_advice_but_their_own_words(code: int, words: str) -> None:
    assert CHAT.advice(code, Said(words)) is None


# --- over HTTP -----------------------------------------------------------------------------------------------

KEY = "sk-secret-0123456789"


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


@pytest.mark.parametrize("make", [Compatible, OpenAI, Anthropic, Gemini], ids=lambda make: make.__name__)
async def test_a_wrong_base_url_is_told_with_the_url_and_without_the_key(
    make: Callable[[], Dialect], fake: FakeProvider
) -> None:
    asking = Asking(make(), hello("m"), KEY)

    async with asking.provider(f"{fake.url}/x-{KEY}") as provider:
        failure = await _failure(provider, LIMITS)

    assert (failure.kind, failure.retryable, failure.details["status"]) == ("model_unavailable", False, 404)
    assert f"{fake.url}/x-[redacted]{asking.dialect.path(asking.request)}" in failure.message
    assert f"ends with {asking.dialect.base_path}." in failure.message
    assert KEY not in repr((failure.message, failure.details))


async def _failure(provider: HttpProvider, limits: ModelLimits) -> ProviderFailed:
    with pytest.raises(ProviderFailed) as caught:
        await provider.stream(hello("m"), ignore, limits)
    return caught.value


async def test_a_listing_from_a_wrong_base_url_names_it(fake: FakeProvider) -> None:
    async with Asking(Compatible(), hello("m")).provider(f"{fake.url}/nowhere") as provider:
        with pytest.raises(ProviderFailed) as caught:
            await provider.models()

    assert f"{fake.url}/nowhere/models" in caught.value.message


@pytest.mark.parametrize(
    "answer",
    [
        status(400, {"error": {"message": "gemma:2b does not support tools"}}),
        chunk({"error": {"message": "gemma:2b does not support tools"}}),
    ],
    ids=["as a status", "in the stream"],
)
async def test_tools_that_are_refused_are_told_of_however_the_server_says_it(
    answer: Answer, fake: FakeProvider
) -> None:
    failure = await Asking(Compatible(), hello("m")).failure(fake, answer)

    assert NO_TOOLS in failure.message


async def test_a_request_without_tools_is_not_told_of_tools(fake: FakeProvider) -> None:
    asking = Asking(Compatible(), ModelRequest("m", "be brief", (UserMessage("hi"),)))
    failure = await asking.failure(fake, status(400, {"error": {"message": "it does not support tools"}}))

    assert failure.message.endswith("it does not support tools")


async def test_a_web_page_in_place_of_an_answer_names_the_url(fake: FakeProvider) -> None:
    page = status(200, "<html><title>Log in</title></html>", {"content-type": "text/html"})
    failure = await Asking(Compatible(), hello("m")).failure(fake, page)

    assert f"{fake.url}/chat/completions" in failure.message
    assert "`providers.compatible.baseUrl`" in failure.message
