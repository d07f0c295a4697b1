"""`artifact/*`: what a session keeps apart from its log, listed and read in pieces."""

from __future__ import annotations

import codecs
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

from hames.protocol.errors import InvalidParams
from hames.protocol.jsontext import dumps
from hames.server.handlers.fitting import fitting

if TYPE_CHECKING:
    from hames.ports import Artifact
    from hames.server.connection import Call

ARTIFACT_ROOM_BYTES: Final = 4 * 2**20
"""Pending bytes up to which a piece is sent: more than for events, since who has those in hand may need a piece before
it takes more of them."""

LISTED: Final = 100
MAX_LISTED: Final = 1_000

PIECE_BYTES: Final = 512 * 1024
"""Most bytes of one answer: as base64 they fit the smallest frame."""

CHARACTER_BYTES: Final = 4
"""The longest character in UTF-8 (RFC 3629)."""

TEXT_JSON_BYTES: Final = 768 * 1024
"""Most of a text as JSON, where a character may take six times its bytes."""


async def artifact_list(call: Call) -> dict[str, Any]:
    """A page of the session's artifacts."""
    params = call.params
    service = await call.service()
    store = await service.opened()
    limit = min(params.get("limit", LISTED), MAX_LISTED)
    found = await store.artifacts(params["sessionId"], after=params.get("after"), limit=limit)
    shown = fitting([_view(artifact) for artifact in found], call.host.limits["pageBytes"])
    result: dict[str, Any] = {"artifacts": shown}
    if len(found) == limit or len(shown) < len(found):
        result["nextAfter"] = shown[-1]["artifact"]
    return result


def _view(artifact: Artifact) -> dict[str, Any]:
    view: dict[str, Any] = {
        "artifact": artifact.artifact,
        "sizeBytes": artifact.size_bytes,
        "sha256": artifact.sha256,
    }
    optional = {"seq": artifact.seq or None, "mediaType": artifact.media_type, "name": artifact.name}
    return view | {name: value for name, value in optional.items() if value is not None}


async def artifact_read(call: Call) -> dict[str, Any]:
    """A piece of an artifact."""
    params = call.params
    service = await call.service()
    store = await service.opened()
    session_id, name = params["sessionId"], params["artifact"]
    artifact = await store.artifact(session_id, name)
    offset = min(params.get("offset", 0), artifact.size_bytes)
    length = min(params.get("length", PIECE_BYTES), PIECE_BYTES)
    is_text = params.get("encoding", "utf-8") == "utf-8"
    async with call.connection.room_for_page(call.connection.read_slots, ARTIFACT_ROOM_BYTES):
        asked = max(length, CHARACTER_BYTES) if is_text else length
        piece = await store.read_artifact(session_id, name, offset=offset, length=asked)
        given: dict[str, Any]
        if is_text:
            at_end = offset + len(piece) >= artifact.size_bytes
            offset, text, piece = _text(piece, offset, length, at_end=at_end)
            given = {"text": text}
        else:
            given = {"data": b64encode(piece).decode()}
    optional = {} if artifact.media_type is None else {"mediaType": artifact.media_type}
    return {
        "artifact": artifact.artifact,
        **given,
        "offset": offset,
        "nextOffset": offset + len(piece),
        "sizeBytes": artifact.size_bytes,
        "sha256": artifact.sha256,
        **optional,
    }


def _text(piece: bytes, offset: int, length: int, *, at_end: bool) -> tuple[int, str, bytes]:
    """Where whole characters begin in `piece`, and those that fit; at least one, if there is one.

    Raises:
        InvalidParams: it is no text.
    """
    start = 0
    while offset and start < min(CHARACTER_BYTES - 1, len(piece)) and piece[start] & 0xC0 == 0x80:
        start += 1
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(piece[start:], final=at_end)
    except UnicodeDecodeError as error:
        what = "must be `base64` here: the content is no UTF-8 text"
        raise InvalidParams("encoding", what) from error
    while len(text) > 1 and (len(text.encode()) > length or len(dumps(text)) > TEXT_JSON_BYTES):
        text = _shorter(text, length)
    return offset + start, text, text.encode()


def _shorter(text: str, length: int) -> str:
    fitting = text.encode()[:length].decode("utf-8", "ignore") or text[0]
    return fitting if len(fitting) < len(text) else text[: len(text) // 2]
