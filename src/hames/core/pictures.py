"""Which images of a conversation the model is shown: each once, and no more than its limits allow.

Rule: what is decided for an image depends only on those before it, so a request repeats the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hames.core.artifacts import artifact_id, content_of
from hames.core.conversation import Picture
from hames.core.limits import DEFAULTS


class Pictures:
    """The images shown so far. `most` and `most_bytes`: how many, and of which size together."""

    def __init__(
        self, *, most: int = DEFAULTS["requestImages"], most_bytes: int = DEFAULTS["requestImageBytes"]
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._shown: dict[str, str] = {}
        self._shown_bytes = 0

    def show(self, image: Mapping[str, Any]) -> tuple[Picture | None, str]:
        """The image, unless it is left out; and what is said in its place or beside it."""
        data: bytes = image["data"]
        artifact = artifact_id(content_of(data, "").digest)
        name = f"image {label}" if (label := image.get("label")) else "image"
        if artifact in self._shown:
            before = self._shown[artifact]
            return None, f"[{name}: the same as {before} above]"
        if len(self._shown) >= self._most or self._shown_bytes + len(data) > self._most_bytes:
            return None, f"[{name}: left out, a conversation shows {self._most} images of {self._most_bytes} bytes]"
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
