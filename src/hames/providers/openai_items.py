"""The items of an answer of OpenAI as they go back with the next request, without I/O.

Rule: reasoning goes back only where all of it can, encrypted and each with an item behind it that it led to. Else the
answer is text and calls without ids: an id stands for reasoning that would be missing.

Source: https://platform.openai.com/docs/guides/reasoning (keeping reasoning items in context).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hames.core.conversation import ToolCall
from hames.core.signed import CallItem, Item, OwnItem, TextItem
from hames.providers.request import clean, keep_own

DIALECT: Final = "openai"

GAP: Final = "gap"
"""Member of a `TextItem.extra`: this text is in none of the items that go back."""

ID_CHARS: Final = 64
"""Of the id of an item; a longer one is refused when it comes back."""

_REASONING_MEMBERS: Final = ("type", "id", "summary", "content", "encrypted_content", "status")
"""What a reasoning item may have when it comes back."""


@dataclass(slots=True)
class OutputItem:
    """One output item as it grows. `place` counts the items, `given` the characters that came as deltas.

    Of a message: `gap` characters stand before its text in that of the answer, which ends at `text_end`; it `is_torn`
    when the text of another stands within it. Of a call: `is_called` when its name is known. `last` is how it ended.
    """

    kind: str
    place: int
    given: int = 0
    gap: int = 0
    text_end: int = 0
    is_torn: bool = False
    is_refusal: bool = False
    is_called: bool = False
    last: Mapping[str, Any] | None = None


def items_to_keep(items: Sequence[OutputItem], text: str, calls: Sequence[ToolCall]) -> list[Item]:
    """An answer of `text` and `calls` as the items it came in, for `signed_parts`."""
    if any(item.is_torn for item in items) or sum(item.kind == "function_call" for item in items) != len(calls):
        return []
    said = _texts(items, text)
    reasoning = _led_to_something(items, said)
    has_ids = bool(reasoning) and all(_may_go_back(item) for item in items) and _differ(items)
    kept: list[Item] = []
    asked = iter(calls)
    for item in items:
        last = item.last or {}
        if item.kind == "function_call":
            kept.append(CallItem(next(asked), _ids(last) if has_ids else {}))
        elif item.kind == "reasoning" and has_ids and item.place in reasoning:
            kept.append(OwnItem(clean(_reasoning(last))))
        elif item.place in said:
            before, own = said[item.place]
            if before:
                kept.append(TextItem(before, {GAP: True}))
            if own:
                kept.append(TextItem(own, _beside(last, has_ids=has_ids) if own.strip() else {GAP: True}))
    return kept


def _texts(items: Sequence[OutputItem], text: str) -> dict[int, tuple[str, str]]:
    """By the place of each message: what stands before its text, and its text."""
    said: dict[int, tuple[str, str]] = {}
    end = 0
    for item in sorted((item for item in items if item.text_end), key=lambda item: item.text_end):
        start = end + item.gap
        said[item.place] = (text[end:start], text[start : item.text_end])
        end = item.text_end
    return said


def _led_to_something(items: Sequence[OutputItem], said: Mapping[int, tuple[str, str]]) -> set[int]:
    """The places of reasoning right before an item that goes back; other reasoning was cut, or replaced by more."""
    places: set[int] = set()
    before: OutputItem | None = None
    for item in items:
        if item.kind == "function_call" or said.get(item.place, ("", ""))[1].strip():
            if before is not None:
                places.add(before.place)
            before = None
        else:
            # What a message without text was led to by, does not lead to the item behind it.
            before = item if item.kind == "reasoning" else None
    return places


def _may_go_back(item: OutputItem) -> bool:
    """Whether an item is known, came whole, has an id that is taken back, and is encrypted if it is reasoning."""
    last = item.last or {}
    if item.kind == "reasoning" and not (isinstance(last.get("encrypted_content"), str) and last["encrypted_content"]):
        return False
    if item.kind not in ("message", "function_call", "reasoning"):
        return False
    if item.kind == "reasoning" and keep_own(_reasoning(last)) is None:
        return False
    item_id = last.get("id")
    return isinstance(item_id, str) and item_id.isascii() and 0 < len(item_id) <= ID_CHARS


def _differ(items: Sequence[OutputItem]) -> bool:
    ids = [(item.last or {}).get("id") for item in items]
    return len(set(ids)) == len(ids)


def _ids(last: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": last["id"], "status": "incomplete" if last.get("status") == "incomplete" else "completed"}


def _beside(last: Mapping[str, Any], *, has_ids: bool) -> dict[str, Any]:
    phase = last.get("phase")
    kept = {"phase": phase} if phase in ("commentary", "final_answer") else {}
    return {**_ids(last), **kept} if has_ids else kept


def _reasoning(last: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: last[name] for name in _REASONING_MEMBERS if last.get(name) is not None}
    return {**kept, "summary": kept.get("summary", [])}
