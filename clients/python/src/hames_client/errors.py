"""What can go wrong: the server refuses (`HamesError`), it dies (`ConnectionLost`), a log has a hole (`LogBroken`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HAMES_ERROR = -32000
_KINDS: Mapping[int, str] = {
    -32700: "parse_error",
    -32600: "invalid_request",
    -32601: "method_not_found",
    -32602: "invalid_params",
    -32603: "internal",
    -32800: "request_cancelled",
}
"""Names for the codes that come without a kind."""


class HamesError(Exception):
    """The server refused or failed a request. Decide by `kind`; `message` is for people.

    `details` says more (limits, ids, both sides of a mismatch; of `invalid_params` the `path` of the member);
    `retryable`: waiting alone may cure it.
    """

    def __init__(self, kind: str, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.code = code
        self.message = message
        self.data: Mapping[str, Any] = data or {}

    @classmethod
    def from_wire(cls, error: Mapping[str, Any]) -> HamesError:
        """The `error` member of a JSON-RPC response."""
        code = error.get("code", 0)
        data = error.get("data")
        data = data if isinstance(data, dict) else {}
        kind = data.get("kind") or _KINDS.get(code, "unknown")
        return cls(str(kind), code, str(error.get("message", "")), data)

    @property
    def retryable(self) -> bool:
        return self.data.get("retryable") is True

    @property
    def details(self) -> Mapping[str, Any]:
        details = self.data.get("details")
        if isinstance(details, dict):
            return details
        # A code of JSON-RPC comes without a kind: what is in its `data` are the details.
        return {} if "kind" in self.data else self.data


class ConnectionLost(Exception):
    """The server is gone, and the request was not one that may be sent again; or it cannot be started any more.

    `exit_code` is negative for a signal and None when it is not known; `stderr` is the last that it wrote there.
    """

    def __init__(self, message: str, *, exit_code: int | None = None, stderr: str = "") -> None:
        super().__init__(f"{message}\n{stderr}".rstrip())
        self.exit_code = exit_code
        self.stderr = stderr


class LogBroken(Exception):
    """Events came with a hole between their numbers, or a subscription ended by itself: nothing may be assumed."""
