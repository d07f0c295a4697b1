"""Times on the wire: RFC 3339, UTC, milliseconds. Pure: a time comes in as milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(epoch_ms: int) -> str:
    """`epoch_ms` as `2026-01-31T12:00:00.000Z`."""
    moment = datetime.fromtimestamp(epoch_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{epoch_ms % 1000:03d}Z"


def epoch_ms(text: str) -> int:
    """What `rfc3339` wrote."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000
