"""The request that the next step sends: the instructions, the conversation, the tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from hames.core.composition import Part, shown_document
from hames.core.context import Conversation
from hames.core.conversation import ModelRequest, ToolSpec, UserMessage
from hames.core.prefix import Prefix
from hames.protocol.jsontext import dumps

ABOUT_DOCUMENTS: Final = """\
Documents of the project follow, each within <document>, from the outermost directory to the innermost. They say how
people work here. Where they differ the later wins; instructions below them and what the user asks win over all."""


def system_prompt(parts: Sequence[Part], call: str | None) -> str:
    """The system text: agent, environment, documents, then instructions of the session and of the call; the later wins
    where they differ."""
    sections = [part.text for part in parts if part.source in ("agent", "environment")]
    documents = [shown_document(part) for part in parts if part.source == "document"]
    if documents:
        sections += [ABOUT_DOCUMENTS, *documents]
    for part in parts:
        if part.source == "session":
            sections.append(f"Instructions for this session (they win over those above):\n{part.text}")
    if call:
        sections.append(f"Instructions for this turn (they win over those above):\n{call}")
    return "\n\n".join(sections)


def compose(
    conversation: Conversation,
    *,
    model: str,
    system: str,
    tools: tuple[ToolSpec, ...],
    fallback: bool,
    max_output_tokens: int | None = None,
) -> ModelRequest:
    """The request of the next step. As a fallback it says so, and forbids tools."""
    messages = conversation.messages()
    if fallback:
        note = "[The step limit is reached. Answer now with what you know; no tools can be used.]"
        last = messages[-1]
        if isinstance(last, UserMessage):
            messages = (*messages[:-1], UserMessage(f"{last.text}\n\n{note}", last.images))
        else:
            messages = (*messages, UserMessage(note))
    choice: Literal["auto", "none"] = "none" if fallback else "auto"
    return ModelRequest(model, system, messages, tools, choice, max_output_tokens=max_output_tokens)


def request_digest(request: ModelRequest, known: Prefix | None = None) -> str:
    """SHA-256 over the neutral request: equal requests are equal in the log. `known`: of its first messages."""
    rest = dumps(replace(request, messages=()))
    return (known or Prefix()).digest(request.messages, rest)
