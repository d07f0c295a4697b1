"""What the answers of all providers have in common, without I/O: JSON that may be odd, counters, text in pieces.

Rule 1: an answer is whole only when the provider has said so. A stream that merely ends is no answer.
Rule 2: an error within the stream ends the try at once, with the provider's own words.
Rule 3: usage is what was reported and nothing else: integers under the provider's names, absent stays absent
(AH-USAGE-1).
Rule 4: a credential that the provider echoes ends here, whatever member it stands in and however it is cut.
Rule 5: an answer that is nested deeper than `jsontext.MAX_DEPTH` is malformed: no provider sends such, and what is kept
of an answer is written, read and sent again at every depth above that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from typing import Any, Protocol

import orjson

from hames.core.conversation import Part, ReasoningDelta, Reply, TextDelta
from hames.core.cost import Money
from hames.core.redaction import redact, worth_hiding
from hames.protocol.jsontext import MAX_DEPTH, WRITTEN_DEPTH, is_deeper
from hames.providers.surrogates import PairJoiner, without_surrogates

_MAX_COUNTER = 2**53 - 1
"""Largest integer that every JSON reader keeps exact (RFC 8259 section 6); no counter of tokens comes near."""

_MAX_COUNTERS = 100
"""Counters kept of one answer."""

NAME_CHARS = 200
"""Of the name of a model, and of the id of an answer, as the provider gives them."""


class MalformedAnswer(Exception):
    """The answer is not what the protocol allows: its text names what came instead."""


class ErrorInAnswer(Exception):
    """The provider reported an error in place of an answer, or within one."""

    def __init__(self, document: Any) -> None:
        self.document = document
        super().__init__("the answer holds an error")


class Builder(Protocol):
    """One answer of one provider, as it grows."""

    usage: Mapping[str, int] | None
    """As reported so far."""

    usage_is_whole: bool
    """By the provider's word that is of all of the answer, even if its end does not come."""

    @property
    def cost(self) -> Money | None:
        """What the provider says that it costs, so far."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the answer is whole; something may follow, such as usage."""
        ...

    @property
    def closed(self) -> bool:
        """Whether nothing can follow."""
        ...

    def add(self, payload: bytes) -> list[Part]:
        """The parts of one event of the stream, or of a whole answer that was not streamed.

        Raises:
            ErrorInAnswer: it is an error. MalformedAnswer: it is nothing that the protocol allows.
        """
        ...

    def end(self) -> list[Part]:
        """The parts that waited for more which did not come."""
        ...

    def reply(self) -> Reply:
        """The whole answer, after `end`.

        Raises:
            MalformedAnswer: it cannot be used.
        """
        ...


def parse(payload: bytes) -> Any:
    """One JSON value, also where lone surrogates or bad UTF-8 stand in it.

    Raises:
        MalformedAnswer: not JSON, or nested too deep.
    """
    value = _parsed(payload)
    if payload.count(b"[") + payload.count(b"{") > MAX_DEPTH and _is_too_deep(value):
        raise MalformedAnswer(f"a chunk that is nested deeper than {MAX_DEPTH} levels")
    return value


def _is_too_deep(value: Any) -> bool:
    deeper = value
    for _ in range(WRITTEN_DEPTH - MAX_DEPTH):
        deeper = [deeper]
    try:
        # What can be written at this depth is not too deep: that is known 30 times sooner than by going through it.
        orjson.dumps(deeper)
        return False
    except TypeError:
        return is_deeper(value, MAX_DEPTH)


def _parsed(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(payload.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise MalformedAnswer("a chunk that is not JSON") from error


class Reader:
    """Parses the events of one answer, and takes `secret` out of all that comes: names, counters, text."""

    def __init__(self, secret: str | None) -> None:
        self.secret = worth_hiding(secret)
        self._bytes = (self.secret or "").encode()
        self._as_json = orjson.dumps(self.secret or "")[1:-1]

    def read(self, payload: bytes) -> Any:
        """The JSON value of one event.

        Raises:
            MalformedAnswer: not JSON.
        """
        value = parse(payload)
        if self.secret is not None and (self._bytes in payload or (b"\\" in payload and self._is_in(value))):
            value = redact(value, self.secret, in_place=True)
        return value

    def _is_in(self, value: Any) -> bool:
        """Whether the secret may stand in `value`, which an escape has hidden: written anew, there is but one way."""
        try:
            return self._as_json in orjson.dumps(value)
        except TypeError:  # half of a pair, or an integer beyond 64 bits
            return True


class Words:
    """The text and the reasoning of one answer: pairs are joined, and `secret` is taken out where pieces meet."""

    def __init__(self, secret: str | None) -> None:
        self._text = StringIO()
        self._reasoning = StringIO()
        self._text_pairs = PairJoiner(secret)
        self._reasoning_pairs = PairJoiner(secret)

    @property
    def text(self) -> str:
        """All text that was given out."""
        return self._text.getvalue()

    @property
    def reasoning(self) -> str:
        """All reasoning that was given out."""
        return self._reasoning.getvalue()

    def add_text(self, text: str, parts: list[Part]) -> None:
        """More text; what can be shown of it goes to `parts`."""
        if text := self._text_pairs.join(text):
            self._text.write(text)
            parts.append(TextDelta(text))

    def add_reasoning(self, text: Any, parts: list[Part]) -> None:
        """More reasoning; what is no text is left out, since none of it counts."""
        if isinstance(text, str) and (text := self._reasoning_pairs.join(text)):
            self._reasoning.write(text)
            parts.append(ReasoningDelta(text))

    def end(self) -> list[Part]:
        """The parts that waited."""
        parts: list[Part] = []
        if rest := self._reasoning_pairs.rest():
            self._reasoning.write(rest)
            parts.append(ReasoningDelta(rest))
        return parts + self.end_text()

    def end_text(self) -> list[Part]:
        """What waited of the text: a block of it has ended, and the next does not go on with it."""
        rest = self._text_pairs.rest()
        if not rest:
            return []
        self._text.write(rest)
        return [TextDelta(rest)]


def named(value: Any) -> str | None:
    """The name of a model or the id of an answer, None where there is none."""
    return without_surrogates(value)[:NAME_CHARS] if isinstance(value, str) and value else None


def model_ids(listing: Any) -> list[Any]:
    """The names in a listing `{data: [{id}]}`; rows of another shape are passed over.

    Raises:
        KeyError, TypeError: it is no such listing.
    """
    rows = listing["data"]
    if not isinstance(rows, list):
        raise TypeError("not a list")
    return [row.get("id") for row in rows if isinstance(row, dict)]


def flatten_usage(usage: Any) -> dict[str, int]:
    """The counters of a `usage` object, nested ones with dots; what is no whole number is left out."""
    counters: dict[str, int] = {}
    queue = [("", usage)]
    while queue and len(counters) < _MAX_COUNTERS:
        prefix, value = queue.pop()
        if isinstance(value, dict) and prefix.count(".") < 4:
            queue += [(f"{prefix}.{name}" if prefix else name, item) for name, item in reversed(value.items())]
        elif type(value) is int and 0 <= value <= _MAX_COUNTER and prefix.isascii() and 0 < len(prefix) <= 200:
            counters[prefix] = value
    return counters
