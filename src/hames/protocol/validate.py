"""Input against its published shape, with errors that name the member and say what is expected.

The `TypedDict`s of the messages are the one source: what a client may read of them is made by pydantic (`schema.py`),
what it sends is checked here by the same annotations. Building all of pydantic's validators would cost 60 ms of a
start and 15 MB; a test holds both to the same verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from hames.protocol.base import SOME, TAGGED, Constraint, is_closed
from hames.protocol.errors import InvalidParams

Check = Callable[[Any, str], Any]
"""Takes a value and its path; gives the value, or raises `InvalidParams`."""


def check_params(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """`value` as the params called `name`; `_meta` is kept as it is.

    Raises:
        InvalidParams: the first member that does not fit, by its path.
    """
    checked: dict[str, Any] = _params(name)(value, "")
    return checked


def prepare_params(names: Iterable[str]) -> None:
    """Build the checks of these params, so that their first request does not wait for it."""
    for name in names:
        _params(name)


@cache
def _params(name: str) -> Check:
    from hames.protocol import params

    return _check(getattr(params, name))


@cache
def _check(hint: Any) -> Check:
    """The check of a type, by its form."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (NotRequired, Required):
        return _check(arguments[0])
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    if is_typeddict(hint):
        return _object(hint)
    if origin is list:
        return _array(_check(arguments[0]))
    if origin is Literal:
        return _literal(arguments)
    if origin is UnionType:
        return _either(arguments)
    if origin is dict:
        return _exactly(dict)
    return _exactly(hint)


_NAMES: Mapping[type, str] = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    list: "an array",
    dict: "an object",
    NoneType: "null",
}
"""Types of Python, as JSON calls them."""


def _exactly(kind: type) -> Check:
    expected = _NAMES[kind]

    def check(value: Any, path: str) -> Any:
        # Exactly: a boolean is no integer.
        if type(value) is not kind:
            raise _unfit(path, expected, value)
        return value

    return check


def _either(kinds: tuple[type, ...]) -> Check:
    def check(value: Any, path: str) -> Any:
        if type(value) not in kinds:
            raise _unfit(path, " or ".join(_NAMES[kind] for kind in kinds), value)
        return value

    return check


def _literal(values: tuple[Any, ...]) -> Check:
    quoted = [repr(value) for value in values]
    expected = quoted[0] if len(quoted) == 1 else f"one of {', '.join(quoted[:-1])} or {quoted[-1]}"

    def check(value: Any, path: str) -> Any:
        if not isinstance(value, str) or value not in values:
            raise _unfit(path, expected, value)
        return value

    return check


def _array(entry: Check) -> Check:
    def check(value: Any, path: str) -> Any:
        if type(value) is not list:
            raise _unfit(path, "an array", value)
        return [entry(each, f"{path}[{place}]") for place, each in enumerate(value)]

    return check


def _object(shape: Any) -> Check:
    hints = get_type_hints(shape, include_extras=True)
    members = [
        (name, _check(hint), shape.__total__ and get_origin(hint) is not NotRequired) for name, hint in hints.items()
    ]
    refuses_others = is_closed(shape)

    def check(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise _unfit(path, "an object", value)
        checked: dict[str, Any] = {}
        for name, member, required in members:
            if name in value:
                checked[name] = member(value[name], _within(path, name))
            elif required:
                raise InvalidParams(_within(path, name), "is required")
        if refuses_others and len(checked) < len(value):
            other = next(name for name in value if name not in checked)
            message = "is not a member here; see the schema of the method, or put it under _meta"
            raise InvalidParams(_within(path, str(other)), message)
        return checked

    return check


def _within(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _annotated(hint: Any, marks: tuple[Any, ...]) -> Check:
    if TAGGED in marks:
        return _tagged(get_args(hint))
    check = _check(hint)
    for mark in marks:
        check = _some(check) if mark is SOME else _bounded(check, mark)
    return check


def _tagged(shapes: tuple[Any, ...]) -> Check:
    by_tag = {get_args(get_type_hints(shape)["type"])[0]: _check(shape) for shape in shapes}
    tag = _literal(tuple(by_tag))

    def check(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise _unfit(path, "an object", value)
        if "type" not in value:
            raise InvalidParams(_within(path, "type"), "is required")
        return by_tag[tag(value["type"], _within(path, "type"))](value, path)

    return check


def _some(array: Check) -> Check:
    def check(value: Any, path: str) -> Any:
        checked = array(value, path)
        if not checked:
            raise InvalidParams(path, "must not be empty")
        return checked

    return check


def _bounded(inner: Check, mark: Constraint) -> Check:
    pattern = None if mark.pattern is None else re.compile(mark.pattern.removeprefix("^").removesuffix("$"))

    def check(value: Any, path: str) -> Any:
        inner(value, path)
        if mark.ge is not None and value < mark.ge:
            raise _unfit(path, f"at least {mark.ge}", value)
        if mark.le is not None and value > mark.le:
            raise _unfit(path, f"at most {mark.le}", value)
        if mark.min_length is not None and len(value) < mark.min_length:
            raise _unfit(path, f"a string of {mark.min_length} characters or more", value)
        if mark.max_length is not None and len(value) > mark.max_length:
            raise _unfit(path, f"a string of {mark.max_length} characters or fewer", value)
        if pattern is not None and pattern.fullmatch(value) is None:
            raise InvalidParams(path, f"must match {mark.pattern}, not {_shown(value)}")
        return value

    return check


def _unfit(path: str, expected: str, seen: Any) -> InvalidParams:
    return InvalidParams(path, f"must be {expected}, not {_shown(seen)}")


def _shown(value: Any) -> str:
    """What was seen, short, and nothing of a large or nested value."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"{value[:60]!r}… ({len(value)} characters)"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int | float):
        return str(value)[:40]
    return "an array" if isinstance(value, list) else "an object"
