"""The shapes that everything on the wire is made of: identifiers, closed and open objects.

Input objects are closed (an unknown member is refused, save `_meta`); what Hames sends is open, so a reader
skips members it does not know and the protocol can grow (`additionalProperties` is absent there).
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

T = TypeVar("T", bound=type)

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Ids match this, case-sensitive. No `/`: an id is never a path."""

MAX_INTEGER = 2**53 - 1
"""Integers on the wire stay within what a double holds exactly."""


class _Constraint:
    """A pydantic `Field` that is made only when a model is built: importing pydantic costs 60 ms."""

    def __init__(self, **limits: Any) -> None:
        self.limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import Field, TypeAdapter

        return TypeAdapter(Annotated[source, Field(**self.limits)]).core_schema


class _Some:
    """At least one entry in an array; unlike `_Constraint` it leaves the schema of the entries where it is."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "min_length": 1}


def closed(cls: T) -> T:
    """Refuse unknown members in a `TypedDict` that a client sends."""
    cls.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]
    return cls


Id = Annotated[str, _Constraint(pattern=ID_PATTERN)]
Key = Annotated[str, _Constraint(min_length=1, max_length=256)]
Text = Annotated[str, _Constraint(max_length=16 * 2**20)]
Short = Annotated[str, _Constraint(max_length=4096)]
Title = Annotated[str, _Constraint(max_length=500)]
Count = Annotated[int, _Constraint(ge=0, le=MAX_INTEGER)]
Positive = Annotated[int, _Constraint(ge=1, le=MAX_INTEGER)]
Json = Any
SOME = _Some()
"""Annotates an array that may not be empty."""
