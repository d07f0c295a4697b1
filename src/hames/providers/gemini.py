"""Google's Gemini API: the dialect `gemini`.

Rule: the key is in a header. In the query, where the vendor takes it too, it would be in everybody's logs.

Source: https://ai.google.dev/api/generate-content, https://ai.google.dev/api/models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from hames.core.conversation import ModelRequest
from hames.providers.answer import Builder
from hames.providers.gemini_body import DIALECT, body
from hames.providers.gemini_models import COLLECTION, traits_of
from hames.providers.gemini_reply import ReplyBuilder

_METHODS = "supportedGenerationMethods"
_METHOD = "generateContent"


class Gemini:
    """The dialect: see `Dialect`."""

    name = signs_as = DIALECT
    base_path = "/v1beta"
    models_path = "/models?pageSize=1000"
    """The most that a page may hold; there are some dozens."""

    def headers(self, key: str | None) -> Mapping[str, str]:
        """The key, where there is one."""
        return {} if key is None else {"x-goog-api-key": key}

    def headers_for(self, request: ModelRequest) -> Mapping[str, str]:
        """None."""
        return {}

    def path(self, request: ModelRequest) -> str:
        """The model is one segment of it, whatever its name holds."""
        model = quote(traits_of(request.model).name, safe="", errors="replace")
        return f"/models/{model}:streamGenerateContent?alt=sse"

    def body(self, request: ModelRequest) -> bytes:
        """See `gemini_body`."""
        return body(request)

    def builder(self, request: ModelRequest, secret: str | None) -> Builder:
        """See `gemini_reply`."""
        return ReplyBuilder(request, secret)

    def model_names(self, listing: Any) -> Sequence[Any]:
        """`{models: [{name, supportedGenerationMethods}]}`, those that generate content, without their collection."""
        rows = listing["models"]
        if not isinstance(rows, list):
            raise TypeError("not a list")
        able = [row for row in rows if isinstance(row, dict) and _METHOD in row.get(_METHODS, (_METHOD,))]
        return [str(row.get("name") or "").removeprefix(COLLECTION) for row in able]
