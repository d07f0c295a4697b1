"""One dialect over HTTP, asked by a test: a provider on a strict fake, its reply, and how it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from fake.answers import Answer
from fake.provider import FakeProvider
from hames.core.conversation import ModelRequest, Part, Reply, ToolSpec, UserMessage
from hames.ports import ModelLimits, ProviderFailed
from hames.providers.http_provider import Dialect, HttpProvider

LIMITS = ModelLimits(connect_ms=20_000, first_byte_ms=20_000, idle_ms=20_000, request_ms=25_000)
BASH = ToolSpec("bash", "Run a command.", {"type": "object", "properties": {}})


def hello(model: str, *tools: ToolSpec, **options: Any) -> ModelRequest:
    """A request that begins a conversation."""
    return ModelRequest(model, "be brief", (UserMessage("hi"),), tools or (BASH,), **options)


def ignore(part: Part) -> None:
    """Takes a part and does nothing."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How a dialect is asked: `request` is sent unless another is given, with `key` unless there is another."""

    dialect: Dialect
    request: ModelRequest
    key: str | None = None

    @asynccontextmanager
    async def provider(self, url: str, key: str | None = None) -> AsyncIterator[HttpProvider]:
        """The provider at `url`; a test that hangs in it fails."""
        provider = HttpProvider(self.dialect, url, key or self.key, key_source="env:KEY", salt=b"salt")
        try:
            with anyio.fail_after(30):
                yield provider
        finally:
            await provider.aclose()

    async def ask(
        self,
        fake: FakeProvider,
        *answers: Answer,
        request: ModelRequest | None = None,
        on_part: Callable[[Part], None] = ignore,
        limits: ModelLimits = LIMITS,
    ) -> Reply:
        """The reply to one request that gets `answers[0]`, from a provider made for it."""
        fake.script(*answers)
        async with self.provider(fake.url) as provider:
            return await provider.stream(request or self.request, on_part, limits)

    async def failure(self, fake: FakeProvider, answer: Answer, *, limits: ModelLimits = LIMITS) -> ProviderFailed:
        """How the request fails that gets `answer`."""
        with pytest.raises(ProviderFailed) as caught:
            await self.ask(fake, answer, limits=limits)
        assert caught.value.boundary == "model_gateway"
        return caught.value
