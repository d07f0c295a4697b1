"""The connection of one HTTP request until it stands: closed when it never does.

httpcore closes a connection whose TLS handshake fails, and leaves one open whose handshake is cancelled, as it is when
its time is over: nobody has it then. What httpcore calls at each step of a request tells which connection that is
(https://www.encode.io/httpcore/extensions/#trace).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio

CLOSE_S: Final = 1.0
"""For a connection to be closed, which says nothing to the other side that it would have to answer."""


class Connecting:
    """Told of each step of a request by `step`; `aclose` when the request has ended, however it has."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._stands = True

    async def step(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of an event: this is such an extension `trace`. Never waits."""
        match event.rpartition(".")[0].rpartition(".")[2], event.rpartition(".")[2]:
            case "connect_tcp", "complete":
                self._stream, self._stands = info["return_value"], False
            case "start_tls", "started":
                # Behind a proxy, after a request to it.
                self._stands = False
            case "send_request_headers", "started":
                self._stands = True

    async def aclose(self) -> None:
        """Close what does not stand. Shielded, since the request may be cancelled; bounded for the same reason."""
        stream, self._stream = self._stream, None
        if stream is not None and not self._stands:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await stream.aclose()
