"""What a Chat Completions server wants to see again of its answer, without I/O: see `Quirks.echo`.

Rule: it goes back as it came. Pieces of one detail, which share an index, are one detail again: a server checks the
signature of the whole.

Sources: https://openrouter.ai/docs/use-cases/reasoning-tokens (preserving reasoning blocks),
https://api-docs.deepseek.com/guides/thinking_mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hames.core.conversation import ToolCall
from hames.core.redaction import redact
from hames.core.signed import CallItem, OwnItem, TextItem, signed_parts
from hames.providers.chat_quirks import Quirks
from hames.providers.request import keep_own

_GROWING: Final = ("text", "summary", "data")
"""Members of a detail that come in pieces; of the others the last that is given counts."""


class Echo:
    """What is kept of one answer of the server that `quirks` are of. `secret` is taken out where pieces meet."""

    def __init__(self, model: str, quirks: Quirks, secret: str | None) -> None:
        self._model = model
        self._quirks = quirks
        self._secret = secret
        self._details: list[dict[str, Any]] = []

    def add(self, details: Any) -> None:
        """More of `reasoning_details`; what is none is left out."""
        if self._quirks.echo == "reasoning_details" and isinstance(details, list):
            for detail in details:
                if isinstance(detail, dict):
                    self._grow(detail)

    def parts(self, text: str, reasoning: str, calls: Sequence[ToolCall]) -> Mapping[str, Any]:
        """`Reply.parts` of an answer of `text` and `calls` that `reasoning` led to."""
        own: dict[str, Any] = {}
        if self._quirks.echo == "reasoning_content" and reasoning:
            own["reasoning_content"] = reasoning
        if self._details:
            details = keep_own([_joined(detail) for detail in self._details])
            if details is None:
                return {}
            own["reasoning_details"] = details if self._secret is None else redact(details, self._secret)
        if not own:
            return {}
        said = [TextItem(text)] if text else []
        return signed_parts(self._quirks.dialect, self._model, [OwnItem(own), *said, *map(CallItem, calls)])

    def _grow(self, piece: dict[str, Any]) -> None:
        last = self._details[-1] if self._details else {}
        index, kind = piece.get("index"), piece.get("type")
        if index is None or not last or last.get("index") != index or kind not in (None, last["type"]):
            last = {"type": kind}
            self._details.append(last)
        for name, value in piece.items():
            if name in _GROWING and isinstance(value, str):
                last.setdefault(name, []).append(value)
            elif value is not None or name not in last:
                last[name] = value


def _joined(detail: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: "".join(value) if name in _GROWING and isinstance(value, list) else value
        for name, value in detail.items()
    }
