"""Whether an image is whole: what can be proved of its bytes without making pixels of them.

Rule 1: nothing here trusts a length, a count or a size that the image names: memory is bounded whatever it says, and
time by its bytes and by the pixels that were allowed.
Rule 2: what stands behind the end of a PNG, a GIF or a JPEG is not looked at, as no decoder does: cameras keep further
pictures there. A WebP names its own size.
Rule 3: a picture stands still. OpenAI refuses an animated GIF (https://platform.openai.com/docs/guides/images-vision,
image input requirements), and of any animation nobody says which of its frames a model is shown.
"""

from __future__ import annotations


class Broken(ValueError):
    """An image that decoders refuse; its text says what is wrong, and repeats nothing of it."""


class Animated(Broken):
    """It is whole, as far as it was looked at, and has more than one frame."""

    def __init__(self) -> None:
        super().__init__("it is an animation, of which no model is shown more than a frame: take one of them")
