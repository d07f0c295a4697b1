"""What of a conversation is not sent as it was said, so that a provider takes it (`context.repaired`). Pure.

Rule: it is told when there is more of it than was told, so a session that goes on tells of nothing twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hames.core.conversation import AssistantMessage, Message
from hames.core.signed import signed_items

ARTIFACTS_NAMED: Final = 100
"""Of contents that are lost, so many are named by their ids."""

Route = tuple[str, str]
"""Whose parts of an answer go back: dialect and model."""


@dataclass(slots=True)
class Unsigned:
    """How many answers go without the parts that only their provider understands, counted as messages settle."""

    _route: Route | None = None
    _settled: int = 0
    _count: int = 0

    def count(self, messages: Sequence[Message], route: Route, settled: int) -> int:
        """Those among `messages`, of which the first `settled` will not change."""
        if route != self._route or self._settled > settled:
            self._route, self._settled, self._count = route, 0, 0
        self._count += _unsigned(messages[self._settled : settled], route)
        self._settled = settled
        return self._count + _unsigned(messages[settled:], route)


def _unsigned(messages: Sequence[Message], route: Route) -> int:
    answers = (message for message in messages if isinstance(message, AssistantMessage) and message.parts)
    return sum(signed_items(message, *route) is None for message in answers)


def repairs_data(*, signed_parts: int, images: int, not_taken: int, lost: Collection[str]) -> dict[str, Any]:
    """The data of `context.repaired`; without a repair where there is nothing to tell."""
    repairs: list[dict[str, Any]] = []
    if signed_parts:
        repairs.append({"code": "signed_parts", "count": signed_parts})
    if images:
        repairs.append({"code": "images", "count": images})
    if not_taken:
        repairs.append({"code": "images_not_taken", "count": not_taken})
    if lost:
        repairs.append({"code": "content_lost", "count": len(lost), "artifacts": sorted(lost)[:ARTIFACTS_NAMED]})
    return {"repairs": repairs}


def counts(data: Mapping[str, Any]) -> Mapping[str, int]:
    """What such data tells, by code."""
    return {repair["code"]: repair["count"] for repair in data["repairs"]}


def is_more(data: Mapping[str, Any], told: Mapping[str, int]) -> bool:
    """`data` tells of something that was not told yet."""
    return any(count > told.get(code, 0) for code, count in counts(data).items())
