"""What a model request says of whom it is made for: which fields there are, and how they are sent (AH-DIAG-4).

Rule: a value is a short name without spaces or `@`, which the caller of `session/create` gave. Nothing is put there
that Hames knows by itself: no prompt, path, user, host, session or key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hames.protocol.objects import ATTRIBUTION_PATTERN, Attribution

FIELDS: Final = tuple(Attribution.__annotations__)
"""Of `session/create`, in the order they are published."""


def headers(attribution: Mapping[str, str]) -> dict[str, str]:
    """The headers of a model request, by field."""
    return {_header(name): attribution[name] for name in FIELDS if name in attribution}


def published(user_agent: str) -> dict[str, Any]:
    """For `capabilities/describe`: what callers supply, and what is inferred, told apart."""
    supplied = [
        {"name": name, "supplied": "caller", "header": _header(name), "pattern": ATTRIBUTION_PATTERN} for name in FIELDS
    ]
    inferred = {"name": "harness", "supplied": "inferred", "header": "user-agent", "value": user_agent}
    coverage = (
        "fields of `attribution` in session/create: every model request of that session, repeats and summaries "
        "included, to every provider but `offline`; harness: every request to a provider, listings of models too"
    )
    return {"fields": [*supplied, inferred], "coverage": coverage}


def _header(name: str) -> str:
    return f"hames-{name}"
