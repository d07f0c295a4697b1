"""One conversation with all providers in turn: none refuses what another has said, and none is given another's secrets.

Rule: a provider is a row of `VENDORS`, and every provider that is asked by HTTP has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import openai
from fake.histories import PICTURES, TEXT
from fake.vendors import VENDORS
from hames.core.conversation import AssistantMessage, Message, ModelRequest, Reply, ToolResult, ToolSpec, UserMessage
from hames.providers import PROVIDERS

TOOLS = tuple(
    ToolSpec(name, "A tool.", {"type": "object", "properties": {"a": {"type": "string"}}}) for name in ("bash", "read")
)
Talk = tuple[Message, ...]


EVERYONE = [(vendor, model) for vendor in VENDORS.values() for model in vendor.models]


# --- conversations ----------------------------------------------------------------------------------------------


def request_of(model: str, talk: Talk, **options: Any) -> ModelRequest:
    return ModelRequest(model, "be brief", talk, TOOLS, **options)


def said(reply: Reply, step: int) -> AssistantMessage | None:
    """The message that the engine makes of a reply, None where it would fail the turn."""
    if not reply.text.strip() and not reply.calls:
        return None
    calls = tuple(replace(call, call_id=f"c{step}.{place}") for place, call in enumerate(reply.calls))
    return AssistantMessage(reply.text, calls, reply.parts)


def results_of(answer: AssistantMessage) -> tuple[ToolResult, ...]:
    return tuple(ToolResult(call.call_id, call.provider_id, call.tool, "done") for call in answer.calls)


@st.composite
def conversations(draw: st.DrawFn) -> Talk:
    """What comes of answers of any vendor, each to all that was said before."""
    talk: Talk = (UserMessage("hi"),)
    for step in range(draw(st.integers(1, 4))):
        vendor, model = draw(st.sampled_from(EVERYONE))
        request = request_of(model, talk)
        answer = said(vendor.reply(request, draw(vendor.answers(model))), step)
        if answer is None:
            continue
        images = tuple(draw(st.lists(PICTURES, max_size=1)))
        results = [replace(each, is_error=draw(st.booleans()), images=images) for each in results_of(answer)]
        talk += (answer, *draw(st.permutations(results)))
        if not results or draw(st.booleans()):
            talk += (UserMessage(draw(TEXT.filter(bool)), images),)
    return talk


@given(conversations(), st.sampled_from([None, "none", "low", "high"]), st.sampled_from(["auto", "none"]))
def test_no_provider_refuses_what_others_have_said(talk: Talk, effort: Any, choice: Any) -> None:
    for vendor, model in EVERYONE:
        request = request_of(model, talk, effort=effort, tool_choice=choice, cache_key="k")
        assert vendor.refusal(request) is None, (vendor.dialect.name, model)


@given(conversations(), st.sampled_from([None, "high"]))
def test_no_provider_refuses_a_conversation_whose_answers_come_again(talk: Talk, effort: Any) -> None:
    """As of a server that gives the same ids in every answer."""
    for vendor, model in EVERYONE:
        assert vendor.refusal(request_of(model, (*talk, *talk), effort=effort)) is None, (vendor.dialect.name, model)


@pytest.mark.parametrize("name", VENDORS)
def test_what_a_provider_signed_goes_back_to_it_alone_whoever_spoke_in_between(name: str) -> None:
    vendor = VENDORS[name]
    model = vendor.models[0]
    talk: Talk = (UserMessage("hi"),)
    own = said(vendor.reply(request_of(model, talk), vendor.signed(model)), 0)
    assert own is not None
    talk += (own, *results_of(own))
    for step, (other, its_model) in enumerate(EVERYONE, 1):
        answer = said(other.reply(request_of(its_model, talk), other.signed(its_model)), step)
        assert answer is not None
        talk += (answer, *results_of(answer))
    talk += (UserMessage("and?"),)
    secrets = {secret.encode() for secret in _long_texts(dict(own.parts))}

    for other, its_model in EVERYONE:
        request = request_of(its_model, talk, effort="high")
        found = {secret for secret in secrets if secret in other.dialect.body(request)}
        assert other.refusal(request) is None, (other.dialect.name, its_model)
        assert found == (secrets if (other, its_model) == (vendor, model) else set())
    assert bool(secrets) == (name != "compatible")


def _long_texts(value: Any) -> Iterator[str]:
    """The texts in a value that are long enough to be a signature."""
    if isinstance(value, str) and len(value) > 24:
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _long_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _long_texts(item)


def test_every_provider_that_is_asked_by_http_is_among_them() -> None:
    assert set(VENDORS) == {name for name, row in PROVIDERS.items() if row.is_remote}
    assert all(vendor.dialect.name == name for name, vendor in VENDORS.items())


def test_reasoning_that_led_to_a_message_without_text_does_not_go_before_another() -> None:
    vendor, model = VENDORS["openai"], "gpt-5.2"
    talk: Talk = (UserMessage("hi"),)
    outputs = openai.answer(openai.Thought(), openai.Said([""]), openai.Said(["Well."]))
    own = said(vendor.reply(request_of(model, talk), outputs), 0)
    assert own is not None

    assert vendor.refusal(request_of(model, (*talk, own, UserMessage("and?")))) is None
