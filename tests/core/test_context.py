from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.machine import Machine
from core.story import Story, slots
from core.walk import walk
from hames.core.artifacts import LOST
from hames.core.compaction import EARLIER, Replacement
from hames.core.composition import Part
from hames.core.context import Conversation
from hames.core.conversation import (
    AssistantMessage,
    ToolResult,
    UserMessage,
    history_faults,
)
from hames.core.entries import INTERRUPTED
from hames.core.plan import AskModel, Complete, LimitReached, StopAtLimit, TurnBounds, next_step
from hames.core.session import Event
from hames.protocol.events import CONVERSATION_TYPES

BOUNDS = TurnBounds(steps=3, tool_calls=9, wall_time_ms=1_000, output_bytes=1_000)


def test_a_turn_reads_as_it_went() -> None:
    story = Story()
    story.start("t1", "Fix it.")
    story.step("I look.", "c1", "c2")
    story.result("c2", "two", outcome="error")
    story.result("c1", "")
    story.step("Done.")
    story.tell("turn.completed")

    user, answer, first, second, last = story.messages

    assert user == UserMessage("Fix it.")
    assert isinstance(answer, AssistantMessage)
    assert [call.call_id for call in answer.calls] == ["c1", "c2"]
    assert first == ToolResult("c1", "pc1", "read", "(no output)")
    assert second == ToolResult("c2", "pc2", "read", "two", is_error=True)
    assert last == AssistantMessage("Done.")


def test_calls_that_a_turn_left_open_are_answered_as_interrupted() -> None:
    story = Story()
    story.start("t1", "Fix it.")
    story.step("", "c1", "c2")
    story.result("c1")
    story.tell("turn.cancelled")
    story.start("t2", "Go on.")

    assert story.texts[2:] == [
        "text",
        INTERRUPTED,
        "[The turn above was cancelled before it finished.]\n\nGo on.",
    ]


def test_a_failed_turn_is_said_to_have_failed_and_why() -> None:
    story = Story()
    story.start("t1", "Fix it.")
    story.tell("turn.failed", error={"kind": "model_gateway"})
    story.start("t2", "Again.")

    assert story.texts == ["Fix it.\n\n[The turn above failed: model_gateway.]\n\nAgain."]


def test_a_turn_that_never_ran_leaves_nothing() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.queue("t2", "Never.", instructions="Never.")
    story.tell("turn.cancelled", "t2")
    story.step("Done.")
    story.tell("turn.completed")
    story.start("t3", "Next.")

    assert story.texts == ["Work.", "Done.", "Next."]


def test_joins_and_steers_are_said_when_they_enter() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.queue("j1", "Also.", instructions="ignored")
    story.tell("turn.steered", steerId="s1", input=slots("Hurry."))
    story.step("Half.")
    story.tell("turn.joined", "j1", hostTurnId="t1", step=2)
    story.tell("steer.delivered", steerIds=["s1", "unknown"], step=2)
    story.step("Whole.")
    story.tell("turn.completed", "j1", hostTurnId="t1")
    story.tell("turn.completed")

    assert story.texts == ["Work.", "Half.", "Also.\n\nHurry.", "Whole."]


def test_an_update_before_the_start_replaces_the_text_and_nothing_else() -> None:
    story = Story()
    story.queue("t1", "Old.")
    story.tell("turn.updated", delivery="join")
    story.tell("turn.updated", input=slots("New."))
    story.tell("turn.started", attempt=1)

    assert story.texts == ["New."]


def test_what_is_not_in_context_is_not_sent() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.tell("step.started", step=1)
    story.tell("message.completed", itemId="i1", text="Withdrawn.", inContext=False, cause="cancelled")
    story.tell("message.completed", itemId="i2", text=" ", inContext=True)
    story.tell("step.completed", step=1)

    assert story.texts == ["Work."]


def test_parts_of_an_answer_are_sent_back_as_they_came() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.tell("step.started", step=1)
    story.tell("message.completed", itemId="i1", text="Well.", inContext=True)
    story.tell("step.completed", step=1, parts={"signature": "x"})

    assert story.messages[-1] == AssistantMessage("Well.", parts={"signature": "x"})


@pytest.mark.parametrize("lost", ["message", "call"])
def test_parts_of_an_answer_of_which_something_is_lost_are_not_sent(lost: str) -> None:
    story = Story()
    story.start("t1", "Work.")
    story.tell("step.started", step=1)
    said: dict[str, Any] = {"itemId": "i1", "text": "Well.", "inContext": True}
    asked: dict[str, Any] = {"callId": "c1", "providerCallId": "p1", "tool": "read", "arguments": "{}"}
    (said if lost == "message" else asked)[LOST] = True
    story.tell("message.completed", **said)
    story.tell("tool.requested", **asked)
    story.tell("step.completed", step=1, parts={"signature": "x"})

    answer = next(message for message in story.messages if isinstance(message, AssistantMessage))

    assert answer.parts == {}


def test_an_answer_after_a_pause_goes_on_with_the_one_before() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.tell("step.started", step=1)
    story.tell("message.completed", itemId="i1", text="Well, ", inContext=True)
    story.tell("step.completed", step=1, stopReason="pause")
    progress = story.conversation.progress
    assert progress is not None
    phases = [progress.phase]

    story.step("yes.")

    assert story.texts == ["Work.", "Well, yes."]
    assert [*phases, progress.phase] == ["ask", "final"]


def test_a_result_of_an_unknown_call_changes_nothing() -> None:
    story = Story()
    story.start("t1", "Work.")
    before = story.messages

    story.result("c9")

    assert story.messages == before


@given(st.lists(st.sampled_from(sorted(CONVERSATION_TYPES)), max_size=30), st.integers(1, 4))
def test_events_in_any_order_give_a_sendable_history(types: list[str], names: int) -> None:
    story = Story()
    story.start("t0", "First.")
    for number, type_ in enumerate(types):
        data: Mapping[str, Any] = {
            "input": slots("Text."),
            "attempt": 1,
            "hostTurnId": "t0",
            "steerId": f"s{number % names}",
            "steerIds": [f"s{number % names}"],
            "step": 1,
            "itemId": f"i{number % names}",
            "text": "Text.",
            "inContext": number % 2 == 0,
            "callId": f"c{number if type_ == 'tool.requested' else number % names}",
            "providerCallId": f"p{number}",
            "tool": "read",
            "arguments": "{}",
            "outcome": "ok",
            "effect": "read",
            "error": {"kind": "internal"},
            "provider": "fake",
            "model": "m",
            "parts": [Part("agent", "Agent.").data()],
            "source": "document",
            "path": f"{number % names}.md",
            "kind": "changed",
            "counters": {"prompt_tokens": number},
            "repairs": [{"code": "images", "count": 1}],
        }
        story.tell(type_, f"t{number % names}", **data)

    assert story.messages
    assert story.conversation.seq == story.seq


def test_a_whole_log_is_folded_as_its_events_one_by_one() -> None:
    machine = Machine()
    walk(machine, 1, steps=100)
    events = machine.ledger.events
    replaced = [Replacement.of(event) for event in events if event.type == "context.replaced"]
    newest = replaced[-1] if replaced else None
    at_once = Conversation(replacement=newest)

    at_once.apply_all(events[newest.read_from - 1 if newest else 0 :])

    assert at_once.messages() == machine.conversation.messages()
    assert at_once.progress == machine.conversation.progress
    assert at_once.seq == machine.ledger.state.seq


@pytest.mark.parametrize("seed", range(5))
def test_keeping_what_cannot_change_changes_nothing(seed: int) -> None:
    machine = Machine()
    walk(machine, seed, steps=150)
    plain, keeping = Conversation(), Conversation()
    kept = 0

    for event in machine.ledger.events:
        plain.apply(event)
        keeping.apply(event)
        now = keeping.settle()

        assert keeping.messages() == plain.messages()
        assert history_faults(plain.messages(), checked=now) == history_faults(plain.messages())
        assert now >= kept
        kept = now


# --- progress -----------------------------------------------------------------------------------------------


def _progress(story: Story) -> Any:
    assert story.conversation.progress is not None
    return story.conversation.progress


def test_progress_follows_a_turn_from_its_start_to_its_end() -> None:
    story = Story()
    assert story.conversation.progress_open() == {}
    story.start("t1", "Work.", instructions="Be brief.")
    assert (_progress(story).instructions, _progress(story).attempt) == ("Be brief.", 1)
    assert next_step(_progress(story), BOUNDS) == AskModel(1, fallback=False)

    story.step("I look.", "c1")
    assert _progress(story).phase == "called"
    assert list(story.conversation.progress_open()) == ["c1"]

    story.tell("tool.started", callId="c1", effect="execute")
    assert _progress(story).started == {"c1": "execute"}

    story.result("c1", "12345")
    assert (_progress(story).open, _progress(story).started, _progress(story).phase) == ({}, {}, "ask")
    assert _progress(story).output_bytes == len("I look.") + 5

    story.step("Done.")
    assert next_step(_progress(story), BOUNDS) == Complete("Done.")

    story.tell("turn.completed")
    assert story.conversation.progress is None


def test_a_message_after_the_final_answer_asks_again() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.step("Done.")
    story.tell("turn.steered", steerId="s1", input=slots("More."))
    story.tell("steer.delivered", steerIds=["s1"], step=2)

    assert next_step(_progress(story), BOUNDS) == AskModel(2, fallback=False)


def test_a_step_that_a_lost_attempt_began_is_asked_again() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.tell("step.started", step=1)
    story.tell("message.chunk", itemId="i1", offset=0, text="Ha")
    story.tell("message.chunk", itemId="i1", offset=2, text="lf")
    story.tell("reasoning.chunk", itemId="i2", offset=0, text="Hm")
    assert _progress(story).phase == "asked"
    assert _progress(story).partial == {"i1": ("message", "Half"), "i2": ("reasoning", "Hm")}

    story.tell("message.completed", itemId="i1", text="Half", inContext=False, cause="owner_lost")
    story.tell("reasoning.completed", itemId="i2", text="Hm", inContext=False, cause="owner_lost")
    story.tell("turn.started", attempt=2)

    assert (_progress(story).phase, _progress(story).attempt, _progress(story).partial) == ("ask", 2, {})
    assert story.texts == ["Work."]
    assert next_step(_progress(story), BOUNDS) == AskModel(2, fallback=False)


def test_another_attempt_keeps_the_calls_that_are_open() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.step("", "c1", "c2")
    story.tell("turn.started", attempt=2)
    story.result("c1")

    assert (_progress(story).phase, list(_progress(story).open)) == ("called", ["c2"])


def test_a_call_that_was_cut_at_its_limit_ends_the_turn() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.step("", "c1")
    story.result("c1", "", outcome="not_run", error={"kind": "limit_exceeded"})

    assert next_step(_progress(story), BOUNDS) == StopAtLimit(LimitReached("toolCalls", 9, 1), "")


def test_the_fallback_is_no_step_of_its_own() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.step("So far.")
    story.tell("step.started", step=2, fallback=True)

    assert (_progress(story).steps, _progress(story).fallback) == (1, True)


def test_a_turn_within_which_the_log_was_cut_is_known_as_such() -> None:
    story = Story()
    story.tell("log.recovered", action="cut")
    story.start("t1", "Work.")
    story.tell("log.recovered", action="continued")
    before = _progress(story).severed

    story.tell("log.recovered", action="cut")

    assert (before, _progress(story).severed) == (False, True)


def test_a_start_of_an_unknown_call_is_not_kept() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.tell("tool.started", callId="c9", effect="read")

    assert _progress(story).started == {}


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("step.started", {"step": 1}),
        ("message.chunk", {"itemId": "i1", "text": "x"}),
        ("message.completed", {"itemId": "i1", "text": "x", "inContext": True}),
        ("reasoning.completed", {"itemId": "i1", "text": "x", "inContext": False}),
        ("tool.requested", {"callId": "c1", "providerCallId": "p1", "tool": "read", "arguments": ""}),
        ("tool.started", {"callId": "c1", "effect": "read"}),
        ("step.completed", {"step": 1}),
    ],
)
def test_facts_without_a_running_turn_make_no_progress(type_: str, data: Mapping[str, Any]) -> None:
    story = Story()

    story.tell(type_, **data)

    assert story.conversation.progress is None


def test_a_result_after_its_turn_leaves_the_history_sendable() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.step("", "c1")
    story.tell("turn.cancelled")
    story.tell("tool.completed", None, callId="c1", outcome="ok", text="Late.", originTurnId="t1")

    assert story.conversation.progress is None
    assert len(story.messages) == 3


def test_what_was_said_without_words_is_no_part_of_it() -> None:
    story = Story()
    assert not story.conversation.is_paused

    story.start("t1", "")

    assert story.conversation.groups() == []
    assert not story.conversation.is_paused


def test_what_was_said_before_a_cut_is_marked_as_earlier_and_what_the_running_turn_asks_is_not() -> None:
    story = Story()
    story.conversation = Conversation(replacement=Replacement(9, 7, frozenset({2, 4}), 1, "Left out.", "t2"))

    story.start("t1", "First.")
    story.start("t2", "Second.")
    story.seq = 9
    story.step("Done.", turn_id="t2")
    story.tell("turn.completed", "t2")
    story.start("t3", "Third.")

    assert story.texts == [f"Left out.\n\n{EARLIER}\nFirst.\n\nSecond.", "Done.", "Third."]


def test_a_loop_of_a_turn_that_is_not_told_leaves_what_is_told_as_it_is() -> None:
    replacement = Replacement(9, 5, frozenset(), 1, "Left out.")
    conversation = Conversation(replacement=replacement)

    conversation.apply(Event(2, "", "loop.detected", {"period": 1, "repeats": 3}, "t0"))

    assert [message.text for message in conversation.messages()] == ["Left out."]


def test_what_the_model_is_told_of_a_loop_is_no_word_of_a_person() -> None:
    story = Story()
    story.start("t1", "Work.")

    story.tell("loop.detected", period=1, repeats=3)

    assert [group.is_said for group in story.conversation.groups()] == [True, False]


def test_steers_that_are_delivered_at_once_are_one_group() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.step("Well.")
    for steer in ("s1", "s2"):
        story.tell("turn.steered", steerId=steer, input=slots(f"Mind {steer}."))

    story.tell("steer.delivered", steerIds=["s1", "s2"], step=2)

    [_, _, steers] = story.conversation.groups()
    assert [message.text for message in steers.messages] == ["Mind s1.", "Mind s2."]
    assert steers.from_seq == story.seq - 2
