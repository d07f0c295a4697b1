"""OpenAI's Responses API: the dialect `openai`.

No answer is stored there for a later request (`store` is false): the whole conversation goes with each, and the model's
reasoning comes and goes back encrypted.

Source: https://platform.openai.com/docs/api-reference/responses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hames.core.conversation import ModelRequest
from hames.providers.answer import Builder, model_ids
from hames.providers.openai_body import body
from hames.providers.openai_reply import ResponseBuilder


class OpenAI:
    """The dialect: see `Dialect`."""

    name = signs_as = "openai"
    base_path = "/v1"
    models_path = "/models"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """A bearer token, where there is a key."""
        return {} if key is None else {"authorization": f"Bearer {key}"}

    def headers_for(self, request: ModelRequest) -> Mapping[str, str]:
        """None."""
        return {}

    def path(self, request: ModelRequest) -> str:
        """The same for every model."""
        return "/responses"

    def body(self, request: ModelRequest) -> bytes:
        """See `openai_body`."""
        return body(request)

    def builder(self, request: ModelRequest, secret: str | None) -> Builder:
        """See `openai_reply`."""
        return ResponseBuilder(request, secret)

    def model_names(self, listing: Any) -> Sequence[Any]:
        """See `model_ids`."""
        return model_ids(listing)
