"""Digests of content: SHA-256 over RFC 8785 (canonical) JSON, so equal content has one digest anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

import orjson

from hames.protocol.base import MAX_INTEGER
from hames.protocol.errors import InvalidParams

LEFT_OUT = frozenset({"_meta", "idempotencyKey", "subscribe"})
"""Not content: they may differ when a request is repeated."""


def canonical_digest(value: Any) -> str:
    """SHA-256, hex, of `value` as canonical JSON.

    Raises:
        ValueError: it holds what canonical JSON cannot (an integer beyond 2^53, NaN, a lone surrogate).
    """
    if _is_plain(value):
        with suppress(TypeError):  # a lone surrogate: refused below
            return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
    import rfc8785

    return sha256(rfc8785.dumps(value)).hexdigest()


def _is_plain(value: Any) -> bool:
    """Compact JSON with sorted keys is canonical: there are no fractions, and keys sort alike in every encoding. What
    takes a second for a text of some MiB takes milliseconds then, in which nothing else is answered."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and key.isascii() and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, int):
        return abs(value) <= MAX_INTEGER
    return value is None or isinstance(value, str)


def content_digest(params: Mapping[str, Any]) -> str:
    """The digest of what a request asks for, less what may differ when it is repeated.

    Raises:
        InvalidParams: a member has no canonical form.
    """
    content = {name: value for name, value in params.items() if name not in LEFT_OUT}
    try:
        return canonical_digest(content)
    except (ValueError, TypeError):
        faults = [fault for name, value in content.items() if (fault := _fault(name, value)) is not None]
        raise faults[0] from None


def _fault(name: str, value: Any) -> InvalidParams | None:
    try:
        canonical_digest(value)
    except (ValueError, TypeError) as error:
        return InvalidParams(name, f"holds a value without a canonical JSON form: {error}")
    return None
