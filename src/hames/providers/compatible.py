"""Any server that speaks Chat Completions: the dialect `compatible`.

Source: https://platform.openai.com/docs/api-reference/chat. What differs from one server to the next is data: see
`chat_quirks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hames.core.conversation import ModelRequest
from hames.providers.answer import Builder, model_ids
from hames.providers.chat_body import body
from hames.providers.chat_quirks import STRICTEST, Quirks
from hames.providers.chat_reply import ReplyBuilder


class Compatible:
    """The dialect as the server of `quirks` speaks it: see `Dialect`."""

    name = "compatible"
    base_path = "/v1"

    def __init__(self, quirks: Quirks = STRICTEST) -> None:
        self._quirks = quirks
        self.signs_as = quirks.dialect
        self._query = "" if quirks.api_version is None else f"?api-version={quirks.api_version}"
        self.models_path = f"/models{self._query}"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """The key, where there is one: a bearer token, or in a header of its own."""
        if key is None:
            return {}
        return {"api-key": key} if self._quirks.key_header == "api-key" else {"authorization": f"Bearer {key}"}

    def headers_for(self, request: ModelRequest) -> Mapping[str, str]:
        """None."""
        return {}

    def path(self, request: ModelRequest) -> str:
        """The same for every model."""
        return f"/chat/completions{self._query}"

    def body(self, request: ModelRequest) -> bytes:
        """See `chat_body`."""
        return body(request, self._quirks)

    def builder(self, request: ModelRequest, secret: str | None) -> Builder:
        """See `chat_reply`."""
        return ReplyBuilder(secret, request, self._quirks)

    def model_names(self, listing: Any) -> Sequence[Any]:
        """See `model_ids`."""
        return model_ids(listing)
