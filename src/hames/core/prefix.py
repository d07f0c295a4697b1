"""What is known of the beginning of a conversation, which does not change any more: a request costs what is new."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from hames.core.compaction import message_tokens
from hames.core.conversation import Message
from hames.protocol.jsontext import dumps

if TYPE_CHECKING:
    pass


class Prefix:
    """The first `count` messages of a conversation: about how many tokens they have, and a digest over them."""

    def __init__(self) -> None:
        self.count = 0
        self.tokens = 0
        self._hash = sha256()

    def grow(self, messages: Sequence[Message]) -> None:
        """Take in those of `messages` that are new; the first `count` are those known."""
        for message in messages[self.count :]:
            self.tokens += message_tokens(message)
            self._hash.update(_told(message))
        self.count = len(messages)

    def digest(self, messages: Sequence[Message], rest: bytes) -> str:
        """SHA-256, hex, over `messages`, which begin with those known, and then `rest`."""
        whole = self._hash.copy()
        for message in messages[self.count :]:
            whole.update(_told(message))
        whole.update(rest)
        return whole.hexdigest()


def _told(message: Message) -> bytes:
    text = dumps(message)
    return b"%d:%b" % (len(text), text)
