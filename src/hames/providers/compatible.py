"""Any server that speaks Chat Completions: the dialect `compatible`.

Source: https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hames.core.conversation import ModelRequest
from hames.providers.answer import Builder
from hames.providers.chat_body import body
from hames.providers.chat_reply import ReplyBuilder


class Compatible:
    """The dialect: see `Dialect`."""

    name = "compatible"
    models_path = "/models"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """A bearer token, where there is a key."""
        return {} if key is None else {"authorization": f"Bearer {key}"}

    def path(self, request: ModelRequest) -> str:
        """The same for every model."""
        return "/chat/completions"

    def body(self, request: ModelRequest) -> bytes:
        """See `chat_body`."""
        return body(request)

    def builder(self, request: ModelRequest, secret: str | None) -> Builder:
        """See `chat_reply`."""
        return ReplyBuilder(secret)

    def model_names(self, listing: Any) -> Sequence[Any]:
        """`{data: [{id}]}`; rows of another shape are passed over."""
        return [row.get("id") for row in _rows(listing["data"]) if isinstance(row, dict)]


def _rows(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value
