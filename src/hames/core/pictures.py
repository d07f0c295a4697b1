"""Which images of a conversation the model is shown: each once, and no more than its limits allow.

Rule: what is decided for an image depends only on those before it, so a request repeats the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hames.core.artifacts import artifact_id, content_of
from hames.core.conversation import Picture
from hames.core.images import measure
from hames.core.limits import DEFAULTS

FEW: Final = 20
"""Of a request with an image that is larger than `LARGE_SIDE`: with more of them Anthropic refuses it
(https://platform.claude.com/docs/en/build-with-claude/vision, general limits)."""

LARGE_SIDE: Final = 2_000
"""Pixels of the longer side."""


class Pictures:
    """The images shown so far. `most` and `most_bytes`: how many, and of which size together."""

    def __init__(
        self, *, most: int = DEFAULTS["requestImages"], most_bytes: int = DEFAULTS["requestImageBytes"]
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._shown: dict[str, str] = {}
        self._shown_bytes = 0
        self._shows_large = False
        self.left_out = 0
        """How many were, by the limits."""

    def show(self, image: Mapping[str, Any]) -> tuple[Picture | None, str]:
        """The image, unless it is left out; and what is said in its place or beside it."""
        data: bytes | None = image["data"]
        name = f"image {label}" if (label := image.get("label")) else "image"
        if data is None:
            return None, f"[{name}: its content is lost]"
        artifact = artifact_id(content_of(data, "").digest)
        if artifact in self._shown:
            before = self._shown[artifact]
            return None, f"[{name}: the same as {before} above]"
        if len(self._shown) >= self._most or self._shown_bytes + len(data) > self._most_bytes:
            self.left_out += 1
            return None, f"[{name}: left out, a conversation shows {self._most} images of {self._most_bytes} bytes]"
        is_large = _is_large(data)
        if (is_large or self._shows_large) and len(self._shown) >= FEW:
            self.left_out += 1
            return None, f"[{name}: left out, where one is larger than {LARGE_SIDE} pixels {FEW} images are shown]"
        self._shows_large |= is_large
        self._shown[artifact] = name
        self._shown_bytes += len(data)
        return Picture(artifact, image["mediaType"], data), f"[{name}]"

    def said(self, slots: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], tuple[Picture, ...]]:
        """`slots` with a text for each image, and the images that are shown."""
        texts: list[Mapping[str, Any]] = []
        shown: list[Picture] = []
        for slot in slots:
            if slot.get("type") != "image":
                texts.append(slot)
                continue
            picture, note = self.show(slot)
            texts.append({"text": note})
            if picture is not None:
                shown.append(picture)
        return texts, tuple(shown)


def _is_large(data: bytes) -> bool:
    measured = measure(data)
    return measured is not None and max(measured.width, measured.height) > LARGE_SIDE
