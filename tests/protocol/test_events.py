from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import TypeAdapter
from typing_extensions import is_typeddict

from core.machine import Machine
from core.walk import walk
from hames.core.session import TERMINAL_EVENTS
from hames.protocol.events import (
    CONVERSATION_TYPES,
    EVENTS,
    LIFECYCLE_TYPES,
    TERMINAL_TYPES,
    EventInfo,
    EventType,
)


def test_the_table_has_every_type_and_no_other() -> None:
    assert set(EVENTS) == set(get_args(EventType))


@pytest.mark.parametrize("info", EVENTS.values(), ids=list(EVENTS))
def test_every_type_has_data_of_its_own_shape(info: EventInfo) -> None:
    assert is_typeddict(info.data)
    assert info.stability in ("stable", "experimental")


def test_the_derived_tables_are_parts_of_the_table() -> None:
    assert set(TERMINAL_TYPES) == set(TERMINAL_EVENTS)
    assert set(TERMINAL_TYPES) < LIFECYCLE_TYPES < set(EVENTS)
    assert set(CONVERSATION_TYPES) < set(EVENTS)


def test_what_is_decided_has_the_published_shape() -> None:
    shapes: dict[str, TypeAdapter[Any]] = {
        name: TypeAdapter(EVENTS[name].data)  # type: ignore[index]
        for name in LIFECYCLE_TYPES - {"session.created"}
    }
    seen = set()
    for seed in range(30):
        machine = Machine()
        walk(machine, seed, steps=80)
        for event in machine.ledger.events:
            if event.type in shapes:
                seen.add(event.type)
                checked = shapes[event.type].validate_python(event.data, strict=True)
                assert checked == event.data, f"{event.type} has a member that is not published"

    assert seen == set(shapes)
