"""Which images of a conversation the model is shown: those that it takes, each once, and no more than limits allow.

Rule: what is decided for an image depends only on the model and on those before it, so a request repeats the one before
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hames.core.artifacts import artifact_id, content_of
from hames.core.bitmaps.gif import is_animated
from hames.core.conversation import Picture
from hames.core.images import measure
from hames.core.limits import DEFAULTS

FEW: Final = 20
"""Of a request with an image that is larger than `LARGE_SIDE`: with more of them Anthropic refuses it
(https://platform.claude.com/docs/en/build-with-claude/vision, general limits)."""

LARGE_SIDE: Final = 2_000
"""Pixels of the longer side."""


ALL_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Those that may be admitted."""

_NOT_TAKEN: Final[Mapping[str, frozenset[str]]] = {
    # https://ai.google.dev/gemini-api/docs/image-understanding, supported image formats
    "gemini": frozenset({"image/gif"}),
}
"""By dialect: types that its vendor refuses, whatever the model."""


def types_taken(dialect: str, images: bool | None) -> frozenset[str]:
    """The types of images that may be sent in this dialect to a model of which is known whether it takes `images`."""
    return frozenset() if images is False else ALL_TYPES - _NOT_TAKEN.get(dialect, frozenset())


class Pictures:
    """The images shown so far. `most` and `most_bytes`: how many, and of which size together; `types`: which are."""

    def __init__(
        self,
        *,
        most: int = DEFAULTS["requestImages"],
        most_bytes: int = DEFAULTS["requestImageBytes"],
        types: frozenset[str] = ALL_TYPES,
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._types = types
        self._seen: set[str] = set()
        self._shown: dict[str, str] = {}
        self._shown_bytes = 0
        self._shows_large = False
        self.left_out = 0
        """How many were, by the limits."""
        self.not_taken = 0
        """How many the model would refuse."""

    def fits(self, types: frozenset[str]) -> bool:
        """Whether a model that takes `types` is shown the same of what came so far; then they hold for what comes."""
        # Where none are taken the notes say so, whatever the type.
        if self._seen and (self._seen & (types ^ self._types) or bool(types) != bool(self._types)):
            return False
        self._types = types
        return True

    def show(self, image: Mapping[str, Any]) -> tuple[Picture | None, str]:
        """The image, unless it is left out; and what is said in its place or beside it."""
        data: bytes | None = image["data"]
        name = f"image {label}" if (label := image.get("label")) else "image"
        if data is None:
            return None, f"[{name}: its content is lost]"
        media_type = image["mediaType"]
        self._seen.add(media_type)
        if media_type not in self._types:
            self.not_taken += 1
            which = media_type if self._types else "images"
            return None, f"[{name}: not shown, since this model takes no {which}]"
        if media_type == "image/gif" and is_animated(data):
            # Admitted by an earlier version.
            self.not_taken += 1
            return None, f"[{name}: not shown, since it is an animation]"
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
        return Picture(artifact, media_type, data), f"[{name}]"

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
