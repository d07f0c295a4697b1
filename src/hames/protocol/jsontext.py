"""JSON as Hames reads and writes it: the speed of orjson, and rules for what orjson refuses or lets pass.

Rule 1: text that leaves is valid UTF-8 with U+0085, U+2028 and U+2029 escaped, so that a reader that splits on
Unicode line ends still sees one line; a lone surrogate leaves as U+FFFD.
Rule 2: text that comes in is RFC 8259 in UTF-8, nested to 128 at most. The last of two equal members wins, a lone
surrogate escape becomes U+FFFD and is reported, `NaN` and `Infinity` are refused.
Rule 4: what `dumps` writes, `reread` reads, however deep: what was accepted stands deeper in an event than it came.
Rule 3: a number is never refused for its size alone. Beyond 64 bits it is a float, beyond a float it is the largest
float; whoever wants an integer sees that it is none.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

import orjson

MAX_DEPTH: Final = 128
"""Deeper text is refused where it comes in: nothing that Hames accepts is nested so deep."""

WRITTEN_DEPTH: Final = 254
"""Deeper values are not written: orjson ends there."""

_SURROGATE_ESCAPE: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""A surrogate pair as group 2, or a surrogate without its partner; group 1 is escaped backslashes before it."""

_WORTH_A_SECOND_LOOK: Final = re.compile(r"\\u[dD][89a-fA-F]|-?[0-9]")
"""What orjson stopped at where these rules may differ from it: a surrogate or a number beyond a float."""


class JsonInvalid(ValueError):
    """The text is not JSON by the rules above; the message says where and why, and quotes nothing of it."""


def dumps(value: object) -> bytes:
    """`value` as compact JSON text by rule 1; a float that is not finite becomes `null`.

    Raises:
        TypeError: a value or a key that JSON does not have, or nesting beyond 254.
    """
    try:
        text = orjson.dumps(value)
    except TypeError:
        text = _dumps_slowly(value)
    return escape_separators(text)


def escape_separators(text: bytes) -> bytes:
    """JSON text with U+0085, U+2028 and U+2029 escaped; they can only stand within strings."""
    if text.isascii():
        return text
    if b"\xc2\x85" in text:
        text = text.replace(b"\xc2\x85", b"\\u0085")
    if b"\xe2\x80\xa8" in text or b"\xe2\x80\xa9" in text:
        text = text.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return text


def clean_text(text: str) -> str:
    """`text` with surrogate pairs joined to the character they mean, and lone surrogates as U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def loads(text: bytes) -> Any:
    """The value of JSON text by rules 2 and 3.

    Raises:
        JsonInvalid: not JSON.
    """
    return parse(text)[0]


def reread(text: bytes) -> Any:
    """The value of JSON text that `dumps` wrote, and of what stands around it.

    Raises:
        JsonInvalid: not JSON.
    """
    return parse(text, depth=2 * WRITTEN_DEPTH)[0]


def repeated_member(text: bytes) -> str | None:
    """The place of a member that JSON text has twice in one object (`cards[0].name`); None where it has none such. For
    files that people write: the first may be the one that was meant.

    Raises:
        JsonInvalid: not JSON.
    """
    parse(text)
    level: list[tuple[str, Any]] = [("", _PAIRS.decode(_SURROGATE_ESCAPE.sub(_mend_escape, text).decode()))]
    while level:
        inner: list[tuple[str, Any]] = []
        for place, value in level:
            if isinstance(value, _Pairs):
                seen: set[str] = set()
                for name, member in value:
                    path = f"{place}.{name}" if place else name
                    if name in seen:
                        return path
                    seen.add(name)
                    inner.append((path, member))
            elif isinstance(value, list):
                inner += [(f"{place}[{index}]", element) for index, element in enumerate(value)]
        level = inner
    return None


class _Pairs(tuple[tuple[str, Any], ...]):
    """The members of an object as they stand in the text."""


def parse(text: bytes, *, exact_integers: bool = False, depth: int = MAX_DEPTH) -> tuple[Any, bool]:
    """The value of JSON text by rules 2 and 3, nested to `depth`, and whether a lone surrogate had to be replaced.

    `exact_integers` keeps integers beyond 64 bits (to 40 digits) as integers; it is slower.

    Raises:
        JsonInvalid: not JSON.
    """
    try:
        value, repaired = (_parse_slowly if exact_integers else _parse_fast)(text)
    except JsonInvalid:
        raise
    except ValueError as error:
        raise JsonInvalid(_reason(text, error)) from error
    except RecursionError:
        raise JsonInvalid(f"nested deeper than {depth}") from None
    brackets = text.count(b"[") + text.count(b"{")
    if brackets > depth and is_deeper(value, depth):
        raise JsonInvalid(f"nested deeper than {depth}")
    return value, repaired


def is_deeper(value: Any, depth: int) -> bool:
    """Whether `value` has lists or objects within each other to more than so many levels."""
    level: list[Any] = [value] if isinstance(value, list | dict) else []
    for _ in range(depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, list | dict)
        ]
        if not level:
            return False
    return bool(level)


def _reason(text: bytes, error: ValueError) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as undecodable:
        return f"not UTF-8 at byte {undecodable.start}"
    return str(error)


def _parse_fast(text: bytes) -> tuple[Any, bool]:
    try:
        return orjson.loads(text), False
    except orjson.JSONDecodeError as error:
        if _WORTH_A_SECOND_LOOK.match(error.doc, error.pos) is None:
            raise
    return _parse_slowly(text)


def _parse_slowly(text: bytes) -> tuple[Any, bool]:
    mended = _SURROGATE_ESCAPE.sub(_mend_escape, text)
    return _DECODER.decode(mended.decode()), mended != text


def _mend_escape(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape[2] else escape[1] + b"\\ufffd"


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= 40 else _finite(digits)


def _finite(digits: str) -> float:
    return max(-sys.float_info.max, min(float(digits), sys.float_info.max))


def _refuse_constant(name: str) -> Any:
    raise JsonInvalid(f"{name} is not a JSON value")


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_finite, parse_constant=_refuse_constant)
_PAIRS: Final = json.JSONDecoder(parse_int=_integer, parse_float=_finite, object_pairs_hook=_Pairs)


def _dumps_slowly(value: object) -> bytes:
    cleaned = _clean(value, 0)
    try:
        return orjson.dumps(cleaned)
    except TypeError:
        # An integer beyond 64 bits; whatever else JSON does not have is refused here too.
        return json.dumps(cleaned, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _clean(value: Any, depth: int) -> Any:
    if depth > WRITTEN_DEPTH:
        raise TypeError(f"nested deeper than {WRITTEN_DEPTH}, or a value that holds itself")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a key that is not a string")
        return {clean_text(key): _clean(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner, depth + 1) for inner in value]
    if isinstance(value, float) and not abs(value) <= sys.float_info.max:
        return None
    return value
