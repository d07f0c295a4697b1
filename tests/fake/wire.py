"""`Wire`: what the fake provider must know of a dialect to speak it. One file each: `chat`, and its siblings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fake.answers import Answer


class Wire(Protocol):
    """A dialect as its vendor's server speaks it, and stricter than that."""

    prefix: str
    """Of every path; the base URL ends with it."""
    listing_path: str
    """Where models are listed, behind the prefix."""

    def is_ask(self, path: str) -> bool:
        """Whether a model is asked by POST to this path (behind the prefix, without its query)."""
        ...

    def key(self, headers: Mapping[str, str]) -> str | None:
        """The credential in lower-case headers."""
        ...

    def refusal(self, target: str, headers: Mapping[str, str], raw: bytes) -> tuple[Any, str | None]:
        """The parsed body (None when it is not JSON) and why it is refused; `target` is path and query."""
        ...

    def listing(self, names: Sequence[str]) -> Mapping[str, Any]:
        """The document that lists models."""
        ...

    def error(self, code: int, message: str, kind: str) -> Mapping[str, Any]:
        """The document of an error; `kind` is `invalid_api_key`, `invalid_request` or `not_found`."""
        ...

    def last_user_text(self, body: Mapping[str, Any]) -> str:
        """The text of the last thing the user said, without results of tools."""
        ...

    def text(self, text: str) -> Answer:
        """A whole answer in words."""
        ...
