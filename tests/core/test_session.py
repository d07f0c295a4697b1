from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.ledger import Ledger
from hames.core.commands import (
    Boundary,
    CancelTurn,
    Command,
    CreateSession,
    CutLog,
    Draft,
    Ending,
    EndTurn,
    KeyRecord,
    Known,
    Record,
    StartTurn,
    SteerTurn,
    SubmitTurn,
    fence_of,
    named_key,
    named_turn,
)
from hames.core.decide import decide
from hames.core.session import Event, evolve, fold, key_record, number, touched
from hames.core.state import FILES_NAMED, State, state_from_json, state_to_json, turn_from_json, turn_to_json
from hames.protocol.errors import Refused
from hames.protocol.events import EVENTS, LIFECYCLE_TYPES
from hames.protocol.jsontext import loads

BY = {"principal": "ann"}
SLOTS = ({"type": "text", "text": "Work."},)
FIRST = SubmitTurn("t1", SLOTS, "d", BY, limits={"wallTimeMs": 500}, instructions="Be brief.", meta={"n": 1})
CREATE = CreateSession({"version": 1}, "snapshot", "keyed", "d", BY, "k", "A title", {"team": "x"}, FIRST)


def _running() -> Ledger:
    ledger = Ledger()
    ledger.run(CREATE)
    ledger.run(StartTurn(ledger.claim(), {"pid": 1}, 1_000, 60_000))
    return ledger


def _record(ledger: Ledger, *drafts: Draft) -> list[Event]:
    return ledger.run(Record(ledger.fence, "t1", drafts))[1]


def test_optional_members_that_were_not_given_are_absent() -> None:
    ledger = Ledger()
    ledger.run(CreateSession({}, "snapshot", "keyed", "d", BY, turn=SubmitTurn("t1", SLOTS, "d", BY)))

    created, queued = ledger.events

    assert set(created.data) == {"snapshot", "snapshotDigest", "keyedDigest", "by", "contentDigest"}
    assert set(queued.data) == {"input", "delivery", "position", "limits", "by", "contentDigest"}


def test_members_that_were_given_stand_in_the_events() -> None:
    created, queued, started = _running().events

    assert created.data["title"] == "A title"
    assert created.data["metadata"] == {"team": "x"}
    assert created.data["idempotencyKey"] == "k"
    assert queued.data["instructions"] == "Be brief."
    assert queued.data["meta"] == {"n": 1}
    assert started.data["deadlineAt"] == "1970-01-01T00:00:01.500Z"
    assert started.data["snapshotDigest"] == "snapshot"


def test_a_creation_under_a_key_of_another_session_answers_with_that_session() -> None:
    known = Known(key=KeyRecord("d", "other", 7, "t7"))

    decision = decide(State("s1"), CREATE, known)

    assert decision.drafts == ()
    assert decision.reply.session_id == "other"
    assert (decision.reply.turn_id, decision.reply.seq, decision.reply.repeated) == ("t7", 7, True)


def test_an_attempt_on_a_session_that_is_not_there_does_nothing() -> None:
    state = State("s1")

    assert decide(state, StartTurn(1, {}, 0, 0), Known(fence=1)).drafts == ()
    with pytest.raises(Refused) as refused:
        decide(state, Record(1, "t1", ()), Known(fence=1))
    assert refused.value.kind == "lease_lost"


def test_a_type_of_a_later_build_only_moves_the_head() -> None:
    state = _running().state

    after = evolve(state, Event(state.seq + 1, "later", "turn.teleported", {}, "t1", 1))

    assert after == replace(state, seq=state.seq + 1, ended=None)


def test_only_types_of_the_lifecycle_change_the_digest_of_the_fold() -> None:
    state, ledger = State("s1"), _running()
    ledger.run(SteerTurn("s1", SLOTS, "d", BY))
    _record(
        ledger,
        Draft("model.requested", {}),
        Draft("usage.recorded", {"counters": {"in": 1}}),
        Draft("file.changed", {"path": "a"}),
        Draft("tool.completed", {"outcome": "ok"}),
        Draft("warning", {}),
    )
    ledger.run(CancelTurn(BY))
    ledger.run(EndTurn(ledger.fence, "t1", Ending("cancelled")))

    for event in ledger.events:
        after = evolve(state, event)
        assert event.type in LIFECYCLE_TYPES or after.digest() == state.digest(), event.type
        state = after

    assert set(EVENTS) > LIFECYCLE_TYPES


def test_a_tool_that_finishes_after_its_turn_changes_no_turn() -> None:
    state = _running().state
    late = Event(state.seq + 1, state.updated_at, "tool.completed", {"outcome": "ok", "originTurnId": "t0"})

    after = evolve(state, late)

    assert after.turns == state.turns
    assert touched(after, late) is None


def test_changed_files_are_named_up_to_a_number_and_counted_beyond() -> None:
    ledger = _running()
    paths = [f"file-{n}" for n in range(FILES_NAMED + 3)]
    _record(ledger, *(Draft("file.changed", {"path": path}) for path in [*paths, *paths[:5]]))

    _, events = ledger.run(EndTurn(ledger.fence, "t1", Ending("completed", "Done.")))

    evidence = events[-1].data["evidence"]
    assert evidence["files"] == paths[:FILES_NAMED]
    assert evidence["filesChanged"] == FILES_NAMED + 3
    assert evidence["complete"] is False


def test_the_terminal_states_assurance_usage_and_what_the_model_claims() -> None:
    ledger = _running()
    _record(ledger, Draft("model.requested", {}), Draft("usage.recorded", {"counters": {"in": 3}}))

    ending = EndTurn(ledger.fence, "t1", Ending("completed"), assurance={"reduced": ["network"]})
    _, (terminal,) = ledger.run(ending)

    assert terminal.data["assurance"] == {"reduced": ["network"]}
    assert terminal.data["text"] == ""
    assert terminal.data["claims"] == {"text": "turn.completed.text"}
    assert terminal.data["usage"]["direct"]["counters"] == {"in": 3}
    assert terminal.data["evidence"] == {"calls": {}, "files": [], "filesChanged": 0, "complete": True}


def test_facts_are_stamped_with_the_turn_and_its_attempt() -> None:
    ledger = _running()

    events = _record(ledger, Draft("warning", {}, turn_id="another", attempt=9))

    assert [(event.turn_id, event.attempt) for event in events] == [("t1", 1)]


def test_a_boundary_without_joins_or_steers_appends_nothing() -> None:
    ledger = _running()

    reply, events = ledger.run(Boundary(ledger.fence, "t1", 2))

    assert events == []
    assert (reply.joined, reply.steered) == ((), ())


def test_an_event_reads_back_from_its_published_form() -> None:
    published = {"seq": 3, "time": "t", "type": "turn.queued", "data": {"a": 1}, "turnId": "t1", "attempt": 2}

    assert Event.of(published) == Event(3, "t", "turn.queued", {"a": 1}, "t1", 2)
    assert Event.of({"seq": 3, "time": "t", "type": "x", "data": {}}) == Event(3, "t", "x", {})


def test_a_key_is_recorded_with_what_it_stands_for() -> None:
    ledger = _running()
    ledger.run(SteerTurn("st", SLOTS, "d2", BY, key="k2"))

    records = [key_record(ledger.state, event) for event in ledger.events]

    assert [record and (record[0], record[1].digest, record[1].turn_id, record[1].steer_id) for record in records] == [
        ("k", "d", None, None),
        None,
        None,
        ("k2", "d2", "t1", "st"),
    ]


@pytest.mark.parametrize(
    ("command", "turn", "key", "fence"),
    [
        (CREATE, "t1", ("store", "k"), None),
        (replace(CREATE, turn=None, key=None), None, None, None),
        (replace(FIRST, key="k"), "t1", ("session", "k"), None),
        (SteerTurn("s", SLOTS, "d", BY, key="k"), None, ("session", "k"), None),
        (CancelTurn(BY, "t2"), "t2", None, None),
        (CancelTurn(BY), None, None, None),
        (Record(3, "t1", ()), "t1", None, 3),
        (StartTurn(4, {}, 0, 0), None, None, 4),
    ],
)
def test_a_command_names_what_must_be_known(command: Command, turn: Any, key: Any, fence: Any) -> None:
    assert named_turn(command) == turn
    assert named_key(command) == key
    assert fence_of(command) == fence


def test_the_fold_of_a_log_is_the_state_that_wrote_it() -> None:
    ledger = _running()

    assert fold("s1", ledger.events) == ledger.state


def test_numbering_nothing_changes_nothing() -> None:
    state = _running().state

    assert number(state, (), "later") == ([], state)


def test_a_state_of_another_version_of_the_fold_is_not_read() -> None:
    stored = loads(state_to_json(_running().state))

    assert state_from_json({**stored, "version": stored["version"] + 1}) is None


def test_members_of_a_later_build_are_left_out() -> None:
    ledger = _running()
    stored = loads(state_to_json(ledger.state))
    stored["state"]["mood"] = "good"
    turn = loads(turn_to_json(ledger.turns["t1"]))

    assert state_from_json(stored) == replace(ledger.state, ended=None)
    assert turn_from_json({**turn, "mood": "good"}) == ledger.turns["t1"]


def test_text_that_json_has_no_form_for_is_cleaned_where_it_is_kept() -> None:
    state = replace(_running().state, title="half \ud83d")
    turn = replace(state.turns["t1"], key="half \ud83d")

    kept = state_from_json(loads(state_to_json(state)))

    assert kept is not None
    assert kept.title == "half \ufffd"
    assert turn_from_json(loads(turn_to_json(turn))).key == "half \ufffd"


def test_a_command_that_only_repeats_gives_what_its_key_was_used_for_or_nothing() -> None:
    ledger = _running()
    used = KeyRecord("d", "s", 1, "t1", None)
    for command in (replace(CREATE, only_repeat=True), replace(FIRST, key="k", only_repeat=True)):
        new = decide(ledger.state, command, Known())
        again = decide(ledger.state, command, Known(key=used))

        assert (new.drafts, new.reply.repeated) == ((), False)
        assert (again.drafts, again.reply.repeated, again.reply.turn_id) == ((), True, "t1")


def test_a_cut_log_holds_what_waits_since_it_may_have_run() -> None:
    ledger = _running()
    cut = CutLog({"lastGoodSeq": 3, "epoch": 2, "reason": "edited"})
    ledger.run(SubmitTurn("t2", SLOTS, "d", BY))

    idle = decide(_running().state, cut)
    busy = decide(ledger.state, cut)

    assert [draft.type for draft in idle.drafts] == ["log.recovered"]
    assert [draft.type for draft in busy.drafts] == ["log.recovered", "queue.held"]
    assert busy.drafts[1].data["cause"] == "log_cut"
