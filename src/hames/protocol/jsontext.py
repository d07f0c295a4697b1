"""JSON as Hames reads and writes it: the speed of orjson, and rules for what orjson refuses or lets pass.

Rule 1: text that leaves is valid UTF-8 with U+0085, U+2028 and U+2029 escaped, so that a reader that splits on
Unicode line ends still sees one line; a lone surrogate leaves as U+FFFD.
Rule 2: text that comes in is RFC 8259 in UTF-8, nested to 128 at most. The last of two equal members wins, a lone
surrogate escape becomes U+FFFD and is reported, `NaN` and `Infinity` are refused.
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
"""Deeper text is refused: nothing that Hames accepts is nested so deep, and recursion must end somewhere."""

_SEPARATORS: Final = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))

_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")

_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""One escape, or a surrogate pair; group 1 is a surrogate without its partner."""


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
    for raw, escaped in _SEPARATORS:
        if raw in text:
            text = text.replace(raw, escaped)
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


def parse(text: bytes, *, exact_integers: bool = False) -> tuple[Any, bool]:
    """The value of JSON text by rules 2 and 3, and whether a lone surrogate had to be replaced.

    `exact_integers` keeps integers beyond 64 bits (to 40 digits) as integers; it is slower.

    Raises:
        JsonInvalid: not JSON.
    """
    repaired = False
    try:
        value = None if exact_integers else orjson.loads(text)
    except orjson.JSONDecodeError:
        _check_utf8(text)
        exact_integers = True
    if exact_integers:
        mended = _replace_lone_surrogates(text)
        repaired = mended is not text
        value = _parse_slowly(mended)
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise JsonInvalid(f"nested deeper than {MAX_DEPTH}")
    return value, repaired


def _check_utf8(text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise JsonInvalid(f"not UTF-8 at byte {error.start}") from error


def _replace_lone_surrogates(text: bytes) -> bytes:
    """`text` itself if it has none."""
    if _SURROGATE_ESCAPE.search(text) is None:
        return text
    mended = _ESCAPE.sub(lambda escape: b"\\ufffd" if escape[1] else escape[0], text)
    return text if mended == text else mended


def _parse_slowly(text: bytes) -> Any:
    try:
        return _DECODER.decode(text.decode())
    except RecursionError:
        raise JsonInvalid(f"nested deeper than {MAX_DEPTH}") from None
    except json.JSONDecodeError as error:
        raise JsonInvalid(f"{error.msg} at character {error.pos}") from error


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= 40 else _finite(digits)


def _finite(digits: str) -> float:
    return max(-sys.float_info.max, min(float(digits), sys.float_info.max))


def _refuse_constant(name: str) -> Any:
    raise JsonInvalid(f"{name} is not a JSON value")


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_finite, parse_constant=_refuse_constant)


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def _dumps_slowly(value: object) -> bytes:
    cleaned = _clean(value, 0)
    try:
        return orjson.dumps(cleaned)
    except TypeError:
        # An integer beyond 64 bits; whatever else JSON does not have is refused here too.
        return json.dumps(cleaned, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _clean(value: Any, depth: int) -> Any:
    if depth > 254:
        raise TypeError("nested deeper than 254, or a value that holds itself")
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
