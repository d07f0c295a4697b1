from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from core.ledger import Ledger
from core.machine import Machine
from core.walk import walk
from hames.core.commands import CancelTurn, CreateSession, StartTurn, SubmitTurn
from hames.core.session import Event
from hames.core.views import ITEM_TYPES, item_view, queue_view, session_view, turn_view
from hames.protocol.events import EVENTS
from hames.protocol.objects import Item, Queue, Session, Turn

BY = {"principal": "ann"}
SNAPSHOT = {"workspace": {"path": "/work"}, "cwd": "/work/src", "model": {"provider": "offline", "model": "echo"}}
STRICT_TURN = TypeAdapter(Turn)
STRICT_QUEUE = TypeAdapter(Queue)
STRICT_SESSION = TypeAdapter(Session)


def _held() -> Ledger:
    ledger = Ledger()
    ledger.run(CreateSession(SNAPSHOT, "digest", "keyed", "d", BY, title="A title"))
    for turn_id in ("t1", "t2"):
        ledger.run(SubmitTurn(turn_id, ({"type": "text", "text": "Work."},), "d", BY))
    ledger.run(StartTurn(ledger.claim(), {"pid": 1}, ledger.now_ms, 60_000))
    ledger.run(CancelTurn(BY, "t1"))
    return ledger


def test_every_turn_queue_and_session_of_a_walk_has_its_published_shape() -> None:
    machine = Machine()
    for seed in range(20):
        walk(machine, seed, steps=5)
        state = machine.ledger.state
        STRICT_QUEUE.validate_python(queue_view(state), strict=True)
        STRICT_SESSION.validate_python(session_view(state, SNAPSHOT, None, "1.abc", None), strict=True)
        for turn in machine.ledger.turns.values():
            view = turn_view(turn, "s1", "1.abc", held=state.hold is not None, runner="local")
            assert STRICT_TURN.validate_python(view, strict=True) == view
            assert ("outcome" in view) == turn.ended


def test_only_a_running_turn_has_a_runner_and_only_a_queued_one_is_held() -> None:
    turns = _held().turns

    running = turn_view(turns["t1"], "s1", "5.abc", held=True, runner="remote")
    queued = turn_view(turns["t2"], "s1", "5.abc", held=True, runner="remote")

    assert (running["runner"], queued["runner"]) == ("remote", "none")
    assert ("held" in running, queued["held"]) == (False, True)
    assert running["cancelRequested"]["cause"] == "client"
    assert "startedAt" not in queued


def test_a_held_queue_says_by_whom_and_why() -> None:
    view = queue_view(_held().state)

    assert view["turnIds"] == ["t2"]
    assert view["held"]["by"] == BY
    assert view["held"]["cause"] == "turn_cancelled"


def test_optional_members_of_a_session_are_there_when_they_are_known() -> None:
    state = _held().state

    full = session_view(state, SNAPSHOT, {"team": "x"}, "5.abc", {"pid": 1})
    bare = session_view(Ledger().state, SNAPSHOT, None, "0.abc", None)

    assert (full["title"], full["metadata"], full["owner"], full["runningTurnId"]) == (
        "A title",
        {"team": "x"},
        {"pid": 1},
        "t1",
    )
    assert not {"title", "metadata", "owner", "runningTurnId"} & set(bare)


@pytest.mark.parametrize(
    ("data", "item_id"),
    [
        ({"itemId": "i1"}, "i1"),
        ({"callId": "c1"}, "c1"),
        ({"steerId": "s1"}, "s1"),
        ({}, "t1"),
    ],
)
def test_an_item_is_named_by_its_own_id_or_its_turn(data: dict[str, Any], item_id: str) -> None:
    item = item_view(Event(3, "t", "turn.queued", data, "t1"), "3.abc")

    assert item == {"itemId": item_id, "kind": "user", "data": data, "cursor": "3.abc", "turnId": "t1"}


def test_an_item_of_no_turn_names_none() -> None:
    item = item_view(Event(3, "t", "tool.completed", {"callId": "c1"}), "3.abc")

    assert "turnId" not in item
    TypeAdapter(Item).validate_python(item, strict=True)


def test_items_are_events_of_known_types() -> None:
    assert set(ITEM_TYPES) < set(EVENTS)
