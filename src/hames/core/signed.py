"""Parts of an answer that only its provider understands, kept so that they go back verbatim, in order, or not at all.

Thinking that is signed, reasoning that is encrypted, signatures on calls: a provider refuses a history in which one
of them was changed, moved or is missing beside its neighbours, and another provider refuses them all.

Rule 1: text and calls are not kept twice. An item stands for a piece of the text by its length in characters, for a
call by its place, or holds a part of its own.
Rule 2: they go back to the same dialect and the same model only, and only when the items give the whole text and
every call again. Otherwise none of them does: half of a signed answer is worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, assert_never

from hames.core.conversation import AssistantMessage, ToolCall
from hames.core.records import record
from hames.protocol.jsontext import dumps, is_deeper

MOST_DEPTH: Final = 64
"""Of what a provider's own parts may be nested; deeper ones are not kept, and none of the answer's are."""

MOST_BYTES: Final = 2 * 2**20
"""Of an answer's own parts together, as JSON: they count as output for nobody, and go back with every request."""


@record
class TextItem:
    """A piece of the answer's text. `extra` are members that the provider put beside it."""

    text: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@record
class CallItem:
    """A call of the answer. `extra` are members that the provider put beside it."""

    call: ToolCall
    extra: Mapping[str, Any] = field(default_factory=dict)


@record
class OwnItem:
    """A part that is the provider's alone, as it came."""

    value: Mapping[str, Any]


Item = TextItem | CallItem | OwnItem


def signed_parts(dialect: str, model: str, items: Sequence[Item]) -> dict[str, Any]:
    """What `Reply.parts` holds of an answer: `{dialect, model, items}`; calls are numbered as they come.

    Empty where nothing is the provider's own: the text and the calls then say it all.
    """
    if not any(isinstance(item, OwnItem) or item.extra for item in items):
        return {}
    kept: list[dict[str, Any]] = []
    calls = 0
    # Text that is blank as a whole is no text of the message.
    is_blank = not "".join(item.text for item in items if isinstance(item, TextItem)).strip()
    for item in items:
        match item:
            case TextItem(text, extra):
                if extra or not is_blank:
                    kept.append({"text": 0 if is_blank else len(text), **({"extra": dict(extra)} if extra else {})})
            case CallItem(_, extra):
                kept.append({"call": calls, **({"extra": dict(extra)} if extra else {})})
                calls += 1
            case OwnItem(value):
                kept.append({"own": dict(value)})
            case _:
                assert_never(item)
    if is_deeper(kept, MOST_DEPTH) or len(dumps(kept)) > MOST_BYTES:
        return {}
    return {"dialect": dialect, "model": model, "items": kept}


def signed_items(message: AssistantMessage, dialect: str, model: str) -> list[Item] | None:
    """`message` as the items it came in; None where it must go back as text and calls alone (rule 2)."""
    parts = message.parts
    if parts.get("dialect") != dialect or parts.get("model") != model:
        return None
    items: list[Item] = []
    place = calls = 0
    for kept in parts["items"]:
        extra = kept.get("extra", {})
        if "own" in kept:
            items.append(OwnItem(kept["own"]))
        elif "call" in kept:
            if kept["call"] != calls or calls >= len(message.calls):
                return None
            items.append(CallItem(message.calls[calls], extra))
            calls += 1
        else:
            items.append(TextItem(message.text[place : place + kept["text"]], extra))
            place += kept["text"]
    return items if place == len(message.text) and calls == len(message.calls) else None


def joined(first: AssistantMessage, second: AssistantMessage) -> AssistantMessage:
    """Two answers as one: the provider paused after the first, which asks for no calls, and went on with the second."""
    parts: Mapping[str, Any] = {}
    routes = {(parts.get("dialect"), parts.get("model")) for parts in (first.parts, second.parts) if parts}
    if len(routes) == 1:
        items = [*_kept(first), *_kept(second)]
        parts = {**(first.parts or second.parts), "items": items}
    return AssistantMessage(first.text + second.text, second.calls, parts)


def _kept(message: AssistantMessage) -> Sequence[Mapping[str, Any]]:
    if message.parts:
        items: Sequence[Mapping[str, Any]] = message.parts["items"]
        return items
    calls = [{"call": place} for place in range(len(message.calls))]
    return [{"text": len(message.text)}, *calls] if message.text else calls
