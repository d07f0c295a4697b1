"""A record is equal, hashed and shown as a frozen dataclass is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.records import record


@record
class None_:
    """Without a member."""


@record
class One:
    """With one."""

    a: int


@record
class Some:
    """With several: one is not compared, one is not shown, one has a default of its own."""

    a: int
    b: str = "b"
    c: float = field(default=0.0, compare=False)
    d: tuple[int, ...] = field(default=(), repr=False)


@record
class Own:
    """With a method that would be made."""

    a: int

    def __repr__(self) -> str:
        return "mine"


@dataclass(frozen=True, slots=True)
class Model:
    """What `Some` is like."""

    a: int
    b: str = "b"
    c: float = field(default=0.0, compare=False)
    d: tuple[int, ...] = field(default=(), repr=False)


SOME = st.tuples(st.integers(0, 2), st.sampled_from("xy"), st.sampled_from([0.0, 1.5]), st.sampled_from([(), (1,)]))


@given(SOME, SOME)
def test_it_is_like_a_frozen_dataclass(one: Any, other: Any) -> None:
    assert (Some(*one) == Some(*other)) == (Model(*one) == Model(*other))
    assert (hash(Some(*one)) == hash(Some(*other))) == (hash(Model(*one)) == hash(Model(*other)))
    assert repr(Some(*one)) == repr(Model(*one)).replace("Model", "Some")
    assert asdict(Some(*one)) == asdict(Model(*one))
    assert orjson.dumps(Some(*one)) == orjson.dumps(Model(*one))
    assert replace(Some(*one), a=9).a == 9


def test_records_of_two_kinds_are_never_equal() -> None:
    assert None_() == None_()
    assert One(1) == One(1) != One(2)
    others: list[object] = [Own(1), Model(1)]
    assert One(1) not in others
    assert Some(1) not in others
    assert len({None_(), None_(), One(1), One(1), Own(1)}) == 3


def test_it_has_slots_takes_part_in_matching_and_keeps_what_it_has_of_its_own() -> None:
    with pytest.raises(AttributeError):
        One(1).b = 2  # type: ignore[attr-defined]
    match Some(1, "x"):
        case Some(a, b):
            assert (a, b) == (1, "x")
    assert repr(Own(1)) == "mine"
    assert [each.name for each in fields(One)] == ["a"]
