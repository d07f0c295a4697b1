"""Text without a secret, without I/O: `MARK` stands where the secret stood.

Rule 1: a stream is redacted across its pieces: what may be the beginning of the secret waits for what follows.
Rule 2: this is a net for accidents. Who encodes a secret, or shows it in parts, is not stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, AnyStr, Generic

MARK = "[redacted]"

MIN_SECRET_CHARS = 8
"""A shorter credential is a placeholder (`none`, `EMPTY`), and a word that texts need."""


def worth_hiding(secret: str | None) -> str | None:
    """`secret`, None when there is none or when it is a placeholder."""
    return secret if secret is not None and len(secret) >= MIN_SECRET_CHARS else None


def redact(value: Any, secret: str) -> Any:
    """A JSON value without `secret`, in its member names too."""
    match value:
        case str():
            return value.replace(secret, MARK)
        case Mapping():
            return {redact(name, secret): redact(item, secret) for name, item in value.items()}
        case list() | tuple():
            return [redact(item, secret) for item in value]
        case _:
            return value


class RedactedStream(Generic[AnyStr]):
    """One text, or its bytes, that comes in pieces."""

    def __init__(self, secret: AnyStr, mark: AnyStr) -> None:
        self._secret: AnyStr = secret
        self._mark: AnyStr = mark
        self._held: AnyStr = secret[:0]

    def feed(self, piece: AnyStr) -> AnyStr:
        """What can be shown now."""
        text = (self._held + piece).replace(self._secret, self._mark)
        tail = text[1 - len(self._secret) :]
        start = tail.find(self._secret[:1])
        while start >= 0 and not self._secret.startswith(tail[start:]):
            start = tail.find(self._secret[:1], start + 1)
        shown = len(text) if start < 0 else len(text) - len(tail) + start
        self._held = text[shown:]
        return text[:shown]

    def rest(self) -> AnyStr:
        """What still waits: the text has ended."""
        rest, self._held = self._held, self._held[:0]
        return rest
