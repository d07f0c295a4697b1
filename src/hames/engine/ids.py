"""Fresh identifiers: short, random, of the published form."""

from __future__ import annotations

import secrets


def new_id(prefix: str) -> str:
    """`prefix` and 80 random bits: unique in any store that will ever be."""
    return f"{prefix}-{secrets.token_hex(10)}"
