"""A caller's input as it is admitted: bounded, with something in it, its images whole and what they say they are."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from hames.core.bitmaps import Animated, Broken
from hames.core.images import measure
from hames.image_proofs import prove
from hames.protocol.errors import InvalidParams, Refused


async def check_input(
    slots: Sequence[Mapping[str, Any]], limits: Mapping[str, int], path: str = "input"
) -> tuple[Mapping[str, Any], ...]:
    """Slots as they are admitted, `data` of images as bytes; `path` names the member.

    Raises:
        InvalidParams: nothing in them; an image that is none, is broken, or is an animation.
        Refused: `limit_exceeded`: an image is too large.
    """
    if not any(slot["type"] == "image" or slot["text"].strip() for slot in slots):
        raise InvalidParams(path, "must hold a slot with some text, or an image")
    admitted = tuple(
        _image(slot, limits, f"{path}[{place}]") if slot["type"] == "image" else slot
        for place, slot in enumerate(slots)
    )
    for place, slot in enumerate(admitted):
        if slot["type"] == "image":
            await _check_whole(slot, f"{path}[{place}].data")
    return admitted


async def _check_whole(slot: Mapping[str, Any], path: str) -> None:
    try:
        await prove(slot["data"], slot["mediaType"])
    except Animated as animated:
        raise InvalidParams(path, f"must be a picture that stands still; {animated}") from None
    except Broken as broken:
        raise InvalidParams(path, f"must be a whole image; {broken}") from None


def _image(slot: Mapping[str, Any], limits: Mapping[str, int], path: str) -> Mapping[str, Any]:
    try:
        data = b64decode(slot["data"], validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParams(f"{path}.data", "must be base64 (RFC 4648, section 4)") from None
    bounded(limits, "imageBytes", f"{path}.data", len(data))
    found = measure(data)
    if found is None or found.media_type != slot["mediaType"]:
        seen = "none that is known" if found is None else found.media_type
        raise InvalidParams(f"{path}.data", f"must be an image of type {slot['mediaType']}; it is {seen}")
    bounded(limits, "imagePixels", f"{path}.data", max(found.width, found.height), unit="pixels wide or high")
    return {**slot, "data": data}


def bounded(limits: Mapping[str, int], limit: str, member: str, seen: int, *, unit: str = "bytes") -> None:
    """Refuse a member that is larger than its limit.

    Raises:
        Refused: `limit_exceeded`, naming the limit and the member.
    """
    if seen <= limits[limit]:
        return
    advice = "Put large material in a file." if unit == "bytes" else "Send less."
    raise Refused(
        "limit_exceeded",
        f"{member}: {seen} {unit} are more than the {limits[limit]} allowed. {advice}",
        limit=limit,
        configured=limits[limit],
        observed=seen,
    )
