"""A provider as one session asks it: with headers that say whom the requests are for.

Rule: the route, its connections and its credential are those of the provider; closing it is left to who made that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hames.core.attribution import headers

if TYPE_CHECKING:
    from hames.core.conversation import ModelRequest, Part, Reply
    from hames.ports import ModelLimits
    from hames.providers.http_provider import HttpProvider


class Attributed:
    """`provider`, whose model requests say `attribution`. Implements `ports.Provider`."""

    def __init__(self, provider: HttpProvider, attribution: Mapping[str, str]) -> None:
        self.name = provider.name
        self.signs_as = provider.signs_as
        self.route = provider.route
        self._provider = provider
        self._headers = headers(attribution)

    async def stream(self, request: ModelRequest, on_part: Callable[[Part], None], limits: ModelLimits) -> Reply:
        """See `ports.Provider.stream`."""
        return await self._provider.stream(request, on_part, limits, headers=self._headers)

    async def models(self) -> Sequence[str]:
        """See `ports.Provider.models`."""
        return await self._provider.models()

    async def aclose(self) -> None:
        """The connections stay: other sessions use them."""
