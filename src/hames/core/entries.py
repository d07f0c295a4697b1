"""What a conversation is made of: what was said at once, and answers with their results; and the messages they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import orjson

from hames.core.conversation import AssistantMessage, Message, Picture, ToolCall, ToolResult, UserMessage
from hames.core.signed import joined

INTERRUPTED = "The call was interrupted before it gave a result."


@dataclass(slots=True)
class Said:
    """Said at event `seq`, to the user's side; `from_seq` is the first event that it needs to be told again."""

    seq: int
    from_seq: int
    text: str
    turn_id: str
    images: tuple[Picture, ...] = ()
    is_change: bool = False
    """Nobody said it: it tells of a change beside the conversation."""
    is_note: bool = False
    """Nobody said it: it tells of what the model does."""


@dataclass(slots=True)
class Answer:
    """What the model said in one step, with the results there are; `is_kept`: it is not left out of the context."""

    seq: int
    turn_id: str
    is_kept: bool = True
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    results: dict[str, ToolResult] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)
    is_maimed: bool = False
    """Of its text or its arguments something is lost."""


def add_to(messages: list[Message], entry: Said | Answer) -> None:
    """Append what `entry` is as messages; neighbours that providers do not take side by side become one."""
    last = messages[-1] if messages else None
    if isinstance(entry, Said):
        if entry.text and isinstance(last, UserMessage):
            # Several providers refuse two user messages in a row.
            messages[-1] = UserMessage(f"{last.text}\n\n{entry.text}", (*last.images, *entry.images))
        elif entry.text:
            messages.append(UserMessage(entry.text, entry.images))
    elif entry.text.strip() or entry.calls:
        answer = AssistantMessage(entry.text, tuple(entry.calls), entry.parts)
        if isinstance(last, AssistantMessage):
            messages[-1] = joined(last, answer)  # the provider had paused
        else:
            messages.append(answer)
        messages += [_result(entry, call) for call in entry.calls]


def _result(answer: Answer, call: ToolCall) -> ToolResult:
    found = answer.results.get(call.call_id)
    return found or ToolResult(call.call_id, call.provider_id, call.tool, INTERRUPTED, is_error=True)


def round_of(answer: Answer) -> str:
    """What a step called and what that gave: equal for equal calls, whatever their ids and the order of their keys."""
    digest = sha256()
    for call in answer.calls:
        for text in (call.tool.encode("utf-8", "replace"), _sorted(call.arguments)):
            digest.update(b"%d:%b" % (len(text), text))
        digest.update(answer.results[call.call_id].text.encode("utf-8", "replace"))
    return digest.hexdigest()


def _sorted(arguments: str) -> bytes:
    try:
        return orjson.dumps(orjson.loads(arguments), option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONDecodeError, TypeError):
        return arguments.encode("utf-8", "replace")
