"""Chat Completions, as the fake provider speaks it. Its answers are built in `fake.answers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fake import answers, strict
from fake.answers import Answer


class Chat:
    """The dialect: see `Wire`."""

    prefix = "/v1"
    listing_path = "/models"

    def is_ask(self, path: str) -> bool:
        return path == "/chat/completions"

    def key(self, headers: Mapping[str, str]) -> str | None:
        found = headers.get("authorization")
        return None if found is None else found.removeprefix("Bearer ")

    def refusal(self, target: str, headers: Mapping[str, str], raw: bytes) -> tuple[Any, str | None]:
        return strict.refusal(raw, headers.get("content-type", ""))

    def listing(self, names: Sequence[str]) -> Mapping[str, Any]:
        return {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}

    def error(self, code: int, message: str, kind: str) -> Mapping[str, Any]:
        return {"error": {"message": message, "type": kind, "code": kind}}

    def last_user_text(self, body: Mapping[str, Any]) -> str:
        return last_user_text(body)

    def text(self, text: str) -> Answer:
        return answers.text(text)


def last_user_text(body: Mapping[str, Any]) -> str:
    """The text of the last user message of a request."""
    content = next((m["content"] for m in reversed(body["messages"]) if m["role"] == "user"), "")
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
