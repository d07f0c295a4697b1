"""Input against its published shape, by pydantic, with errors that name the member and say what is expected.

Adapters are built at first use and kept: one costs a millisecond or two, importing pydantic sixty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from hames.protocol.errors import InvalidParams

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    from hames.protocol import params

    return TypeAdapter(getattr(params, name))


def prepare_params(names: Iterable[str]) -> None:
    """Build the adapters of these params, so that their first request does not wait for it."""
    for name in names:
        _adapter(name)


def check_params(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """`value` as the params called `name`; `_meta` is kept as it is.

    Raises:
        InvalidParams: the first member that does not fit, by its path.
    """
    from pydantic import ValidationError

    try:
        checked: dict[str, Any] = _adapter(name).validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=True, include_input=True)[0]
        raise InvalidParams(_path(first["loc"]), _sentence(dict(first))) from None
    return checked


def _path(loc: tuple[int | str, ...]) -> str:
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


_EXPECTED: Mapping[str, str] = {
    "string_type": "a string",
    "int_type": "an integer",
    "bool_type": "true or false",
    "list_type": "an array",
    "dict_type": "an object",
    "literal_error": "one of {expected}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "string_too_short": "a string of {min_length} characters or more",
    "string_too_long": "a string of {max_length} characters or fewer",
}
"""What pydantic's kinds of errors expect, in words of JSON, filled from the error's context."""


def _sentence(error: dict[str, Any]) -> str:
    context = error.get("ctx") or {}
    kind, seen = error["type"], _shown(error.get("input"))
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return "is not a member here; see the schema of the method, or put it under _meta"
    if kind == "too_short":
        return "must not be empty"
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}, not {seen}"
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind].format(**context)}, not {seen}"
    text = str(error["msg"])
    return f"{text[:1].lower()}{text[1:]}; got {seen}"


def _shown(value: Any) -> str:
    """What was seen, short, and nothing of a large or nested value."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"{value[:60]!r}… ({len(value)} characters)"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int | float):
        return str(value)[:40]
    return "an array" if isinstance(value, list) else "an object"
