"""What is known of the beginning of a conversation makes no difference but of time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.machine import Machine
from core.story import Story
from core.walk import walk
from hames.core.compaction import request_tokens
from hames.core.conversation import ModelRequest, UserMessage
from hames.core.prefix import Prefix
from hames.core.request import request_digest


@given(st.lists(st.text(max_size=9).map(UserMessage)), st.lists(st.integers(0, 9)), st.binary(max_size=9))
def test_a_digest_is_the_same_whatever_is_known(messages: list[UserMessage], steps: list[int], rest: bytes) -> None:
    known = Prefix()
    for count in sorted(min(step, len(messages)) for step in steps):
        known.grow(messages[:count])

    assert known.digest(messages, rest) == Prefix().digest(messages, rest)
    request = ModelRequest("m", "s", tuple(messages))
    assert request_tokens(request, (known.count, known.tokens)) == request_tokens(request)


def test_messages_are_told_apart_by_where_they_end() -> None:
    one = Prefix().digest([UserMessage("a"), UserMessage("b")], b"")
    other = Prefix().digest([UserMessage("ab")], b"")

    assert one != other


def test_what_a_session_settles_is_what_its_requests_begin_with() -> None:
    for seed in range(20):
        machine = Machine()
        for _ in range(6):
            walk(machine, seed, steps=15)
            machine.conversation.settle()
            request = ModelRequest("m", "s", machine.conversation.messages())
            assert request_digest(request, machine.conversation.prefix) == request_digest(request)


def test_an_answer_that_paused_is_not_settled_before_it_goes_on() -> None:
    story = Story()
    story.start("t1", "Work.")
    story.tell("step.started", step=1)
    story.tell("message.completed", itemId="i1", text="Well, ", inContext=True)
    story.tell("step.completed", step=1, stopReason="pause")
    story.tell("step.started", step=2)
    story.conversation.settle()
    story.tell("message.completed", itemId="i2", text="yes.", inContext=True)
    story.tell("step.completed", step=2, stopReason="stop")
    story.tell("turn.completed", text="yes.")
    story.start("t2", "And?")

    story.conversation.settle()

    request = ModelRequest("m", "s", story.messages)
    assert [message.text for message in request.messages] == ["Work.", "Well, yes.", "And?"]
    assert request_digest(request, story.conversation.prefix) == request_digest(request)
