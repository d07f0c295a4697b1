"""Records that never change: made and succeeded fast, since every event makes a dozen of them.

Rule: that nothing changes them is checked by the type checker, not at run time, where each field of a frozen
dataclass costs a call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import dataclass_transform

__all__ = ["record", "replaced"]

R = TypeVar("R")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[R]) -> type[R]:
    """A dataclass with slots whose members are not assigned again."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


if TYPE_CHECKING:
    from dataclasses import replace as replaced
else:

    def replaced(whole: R, **changes: Any) -> R:
        """`whole` with `changes`; of a dataclass without slots and without `__post_init__`."""
        other = object.__new__(whole.__class__)
        other.__dict__.update(whole.__dict__)
        other.__dict__.update(changes)
        return other
