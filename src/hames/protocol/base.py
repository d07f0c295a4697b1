"""The shapes that everything on the wire is made of: identifiers, closed and open objects.

Input objects are closed (an unknown member is refused, save `_meta`); what Hames sends is open, so a reader
skips members it does not know and the protocol can grow (`additionalProperties` is absent there).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar

T = TypeVar("T", bound=type)

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Ids match this, case-sensitive. No `/`: an id is never a path."""

MAX_INTEGER = 2**53 - 1
"""Integers on the wire stay within what a double holds exactly."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """Bounds of a value, as JSON Schema has them. For pydantic a `Field`, which is made only when a schema is."""

    pattern: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    ge: int | None = None
    le: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import Field, TypeAdapter

        bounds = {name: bound for name, bound in asdict(self).items() if bound is not None}
        return TypeAdapter(Annotated[source, Field(**bounds)]).core_schema


class _Some:
    """At least one entry in an array; unlike `Constraint` it leaves the schema of the entries where it is."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "min_length": 1}


class _Tagged:
    """A union whose members are told apart by `type`; made only when a model is built, as `Constraint`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import Discriminator, TypeAdapter

        return TypeAdapter(Annotated[source, Discriminator("type")]).core_schema


def closed(cls: T) -> T:
    """Refuse unknown members in a `TypedDict` that a client sends."""
    cls.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]
    return cls


def is_closed(shape: Any) -> bool:
    """Unknown members are refused."""
    return getattr(shape, "__pydantic_config__", {}).get("extra") == "forbid"


Id = Annotated[str, Constraint(pattern=ID_PATTERN)]
Key = Annotated[str, Constraint(min_length=1, max_length=256)]
Text = Annotated[str, Constraint(max_length=16 * 2**20)]
Short = Annotated[str, Constraint(max_length=4096)]
Title = Annotated[str, Constraint(max_length=500)]
Count = Annotated[int, Constraint(ge=0, le=MAX_INTEGER)]
Positive = Annotated[int, Constraint(ge=1, le=MAX_INTEGER)]
Json = Any
TAGGED = _Tagged()
"""Annotates a union of objects that `type` tells apart: what does not fit is said of the one that was meant."""

SOME = _Some()
"""Annotates an array that may not be empty."""
