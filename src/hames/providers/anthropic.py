"""Anthropic's Messages API: the dialect `anthropic`.

Source: https://docs.anthropic.com/en/api/messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hames.core.conversation import ModelRequest
from hames.providers.answer import Builder, model_ids
from hames.providers.anthropic_body import binds_thinking, body
from hames.providers.anthropic_messages import DIALECT
from hames.providers.anthropic_reply import MessageBuilder

VERSION = "2023-06-01"
"""The version that every server of this API speaks. The next, 2026-10-21, takes away only what is not used here:
https://platform.claude.com/docs/en/api/migration-2026-10-21."""

BETA = "thinking-binding-controls-2026-08-01"
"""Without it `thinking.block_binding` is refused: see `anthropic_body.DROP_BLOCK`, and
https://platform.claude.com/docs/en/build-with-claude/preserved-thinking."""


class Anthropic:
    """The dialect: see `Dialect`."""

    name = signs_as = DIALECT
    base_path = "/v1"
    models_path = "/models?limit=1000"
    """As many as one page may have; there are some dozens."""

    def headers(self, key: str | None) -> Mapping[str, str]:
        """The version, and the key where there is one."""
        headers = {"anthropic-version": VERSION}
        return headers if key is None else {**headers, "x-api-key": key}

    def headers_for(self, request: ModelRequest) -> Mapping[str, str]:
        """The beta, only where it is used: a gateway may refuse those that it does not know."""
        return {"anthropic-beta": BETA} if binds_thinking(request) else {}

    def path(self, request: ModelRequest) -> str:
        """The same for every model."""
        return "/messages"

    def body(self, request: ModelRequest) -> bytes:
        """See `anthropic_body`."""
        return body(request)

    def builder(self, request: ModelRequest, secret: str | None) -> Builder:
        """See `anthropic_reply`."""
        return MessageBuilder(request, secret)

    def model_names(self, listing: Any) -> Sequence[Any]:
        """See `model_ids`."""
        return model_ids(listing)
