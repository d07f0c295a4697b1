"""Text without a secret, without I/O: `MARK` stands where the secret stood.

Rule 1: a stream is redacted across its pieces: what may be the beginning of the secret waits for what follows.
Rule 2: this is a net for accidents. Who encodes a secret, or shows it in parts, is not stopped.
Rule 3: nothing here recurses, and every step looks at a text once: what comes in may be made to take long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, AnyStr, Final, Generic

MARK = "[redacted]"

MIN_SECRET_CHARS = 8
"""A shorter credential is a placeholder (`none`, `EMPTY`), and a word that texts need."""


def worth_hiding(secret: str | None) -> str | None:
    """`secret`, None when there is none or when it is a placeholder."""
    return secret if secret is not None and len(secret) >= MIN_SECRET_CHARS else None


_HOLDERS: Final = (list, dict, tuple, Mapping)
"""The common ones first: to ask an abstract class is slow."""


def redact(value: Any, secret: str, *, in_place: bool = False) -> Any:
    """A JSON value without `secret`, in its member names too.

    `in_place` changes the lists and dicts of `value` itself, which nobody else may hold: a copy of millions of them
    takes seconds.
    """
    top: list[Any] = [value]
    filled: list[list[Any] | dict[Any, Any]] = [top]
    while filled:
        holder = filled.pop()
        places: Iterable[Any] = enumerate(holder) if isinstance(holder, list) else holder.items()
        for place, item in places:
            if isinstance(item, str):
                if secret in item:
                    holder[place] = item.replace(secret, MARK)
            elif isinstance(item, _HOLDERS):
                if not (in_place and _can_stay(item, secret)):
                    item = holder[place] = _copied(item, secret)
                if item:
                    filled.append(item)
    return top[0]


def _can_stay(value: Any, secret: str) -> bool:
    if isinstance(value, dict):
        return not any(secret in name for name in value if isinstance(name, str))
    return isinstance(value, list)


def _copied(value: list[Any] | tuple[Any, ...] | Mapping[Any, Any], secret: str) -> list[Any] | dict[Any, Any]:
    """A copy of the outermost level, without `secret` in the names of its members."""
    if not isinstance(value, Mapping):
        return list(value)
    return {name.replace(secret, MARK) if isinstance(name, str) else name: item for name, item in value.items()}


_SPELLING: Final = re.compile(
    r"\\+(?:u00(?P<json>[0-9a-f]{2})|x(?P<repr>[0-9a-f]{2})|(?P<escaped>.))"
    r"|%(?:25)*(?P<url>[0-9a-f]{2})"
    r"|&(?:amp;)*(?:#(?P<decimal>[0-9]{2,3})|#x(?P<html>[0-9a-f]{2})|(?P<named>amp|lt|gt|quot|apos));",
    re.IGNORECASE | re.DOTALL,
)
"""One character as JSON, `repr`, a URL and HTML spell it, also where it was spelled several times over: each text
within a text doubles the backslashes. No alternative can be left for another, so that it is read in one go."""

_NAMED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}

SPELLING_CHARS: Final = 12
"""The longest spelling that is to be expected: an escape of JSON in a text in a text, with eight backslashes."""


def without_spelled(text: str, secret: str) -> str:
    """`text` without `secret` in any case of its letters, and with any of its characters escaped."""
    text = re.sub(re.escape(secret), MARK, text, flags=re.IGNORECASE)
    # A backslash at the end escapes nothing.
    wanted, _ = _unspelled(secret.rstrip("\\"))
    if not wanted:
        return text
    plain, starts = _unspelled(text)
    shown = []
    at = 0
    for found in re.finditer(re.escape(wanted), plain, re.IGNORECASE):
        shown += [text[at : starts[found.start()]], MARK]
        at = starts[found.end()]
    return "".join([*shown, text[at:]])


def without_spelled_before_cut(text: str, secret: str) -> str:
    """As `without_spelled`, of the beginning of a text: what its end may hold of `secret` is left out too."""
    shown = without_spelled(text, secret)
    return shown[: max(0, len(shown) - SPELLING_CHARS * len(secret))]


def _unspelled(text: str) -> tuple[str, list[int]]:
    """`text` with each spelling as its character, and where each character of that begins in it; last, its end.

    Backslashes are left out, however spelled: how many there are tells how often a text was escaped, and nothing else.
    """
    plain: list[str] = []
    starts: list[int] = []
    at = 0
    for found in _SPELLING.finditer(text):
        plain.append(text[at : found.start()])
        starts += range(at, found.start())
        if (char := _spelled(found)) != "\\":
            plain.append(char)
            starts.append(found.start())
        at = found.end()
    plain.append(text[at:])
    starts += range(at, len(text) + 1)
    return "".join(plain), starts


def _spelled(found: re.Match[str]) -> str:
    if code := found["json"] or found["repr"] or found["url"] or found["html"]:
        return chr(int(code, 16))
    if code := found["decimal"]:
        return chr(int(code))
    return found["escaped"] or _NAMED[found["named"].lower()]


class RedactedStream(Generic[AnyStr]):
    """One text, or its bytes, that comes in pieces."""

    def __init__(self, secret: AnyStr, mark: AnyStr) -> None:
        self._secret: AnyStr = secret
        self._mark: AnyStr = mark
        self._held: AnyStr = secret[:0]

    def feed(self, piece: AnyStr) -> AnyStr:
        """What can be shown now."""
        text = (self._held + piece).replace(self._secret, self._mark)
        tail = text[1 - len(self._secret) :]
        start = tail.find(self._secret[:1])
        while start >= 0 and not self._secret.startswith(tail[start:]):
            start = tail.find(self._secret[:1], start + 1)
        shown = len(text) if start < 0 else len(text) - len(tail) + start
        self._held = text[shown:]
        return text[:shown]

    def rest(self) -> AnyStr:
        """What still waits: the text has ended."""
        rest, self._held = self._held, self._held[:0]
        return rest
