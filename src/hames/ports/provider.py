"""What the engine asks of a model's provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from hames.core.conversation import ModelRequest, Part, Reply
from hames.core.cost import Money
from hames.core.records import record
from hames.protocol.errors import HarnessFault


@record
class ModelLimits:
    """Bounds of one model request, milliseconds: see `core/limits.py`."""

    connect_ms: int
    first_byte_ms: int
    idle_ms: int
    request_ms: int


class ProviderFailed(HarnessFault):
    """One try of a model request failed.

    `retryable`: the same request may be sent again. `retry_after_ms`: what the provider asked for. `details`
    may hold `status`, `phase` (connect, first_byte, idle, total, stream), `providerCode`, `providerMessage`
    (bounded to 500 characters, no secret), `requestId`. `usage` and `cost` as reported, if the try reported any;
    `usage_is_whole`: that is of all of the answer, by the provider's word.
    """

    retry_after_ms: int | None = None
    usage: Mapping[str, int] | None = None
    cost: Money | None = None
    usage_is_whole: bool = False


class Provider(Protocol):
    """One way to a model.

    `name` is the adapter; `route` names what a session is bound to: base URL, credential source and salted
    fingerprint, never the credential. `signs_as`: the dialect whose own parts of an answer go back to it.
    """

    name: str
    signs_as: str
    route: Mapping[str, Any]

    async def stream(self, request: ModelRequest, on_part: Callable[[Part], None], limits: ModelLimits) -> Reply:
        """Send `request` once, call `on_part` with each part as it comes, return the whole answer.

        Never retries. Cancelling it closes the connection at once. A stream that ends without saying that it
        is finished is a failure, never a reply.

        Raises:
            ProviderFailed: the try failed; `kind` says how.
        """
        ...

    async def models(self) -> Sequence[str]:
        """The models on offer, sorted.

        Raises:
            ProviderFailed: the list could not be had.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
