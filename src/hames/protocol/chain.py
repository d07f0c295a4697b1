"""The bytes of an event, the chain over them, and the cursor: pure, and the only place that knows their form.

`d0 = BLAKE2b-256("hames-log-1\\0" + sessionId)`, `dn = BLAKE2b-256(dn-1 + bytes of event n)`. The cursor after
event n is `"<n>.<first 12 hex of dn>"`, so a cursor of another log, or of a log that was cut, swapped or
edited, is told apart. Anyone can recompute it from an export.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from hames.protocol.errors import Refused
from hames.protocol.jsontext import dumps

CURSOR_HEX = 12
_CURSOR = re.compile(r"(0|[1-9][0-9]{0,15})\.([0-9a-f]{12})")


def first_digest(session_id: str) -> bytes:
    """d0, the digest before any event."""
    return blake2b(b"hames-log-1\0" + session_id.encode(), digest_size=32).digest()


def next_digest(digest: bytes, event: bytes) -> bytes:
    """dn from dn-1 and the bytes of event n."""
    return blake2b(digest + event, digest_size=32).digest()


def encode_event(
    session_id: str,
    seq: int,
    time: str,
    type_: str,
    data: Mapping[str, Any],
    *,
    turn_id: str | None = None,
    attempt: int | None = None,
) -> bytes:
    """The one encoding of an event: what is committed is what is sent, live or replayed (invariant 2)."""
    event: dict[str, Any] = {"sessionId": session_id, "seq": seq, "time": time}
    if turn_id is not None:
        event["turnId"] = turn_id
    if attempt is not None:
        event["attempt"] = attempt
    event["type"] = type_
    event["data"] = data
    return dumps(event)


def cursor(seq: int, digest: bytes) -> str:
    """The cursor after event `seq`, whose digest (or its first 6 bytes or more) is `digest`."""
    return f"{seq}.{digest[: CURSOR_HEX // 2].hex()}"


def parse_cursor(text: str) -> tuple[int, str]:
    """The position and the digest's hex that `text` names.

    Raises:
        Refused: `cursor_malformed`.
    """
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise Refused(
            "cursor_malformed",
            f"{text[:80]!r} is not a cursor; a cursor is a number, a dot and 12 hex digits, as it was received.",
        )
    return int(match[1]), match[2]


def check_cursor(text: str, seq: int, hex_: str, stored: bytes | None, head: int) -> None:
    """Refuse the cursor `text` = (`seq`, `hex_`) unless the log holds it; `stored` is its digest there, if any.

    Raises:
        Refused: `cursor_ahead` beyond the head, `cursor_foreign` where the digest differs.
    """
    if seq > head:
        raise Refused("cursor_ahead", headSeq=head, seq=seq)
    if stored is None or stored[: CURSOR_HEX // 2].hex() != hex_:
        raise Refused("cursor_foreign", cursor=text, headSeq=head)
