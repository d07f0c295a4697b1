"""What of a conversation is not sent as it was said, and that it is told once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hames.core.conversation import AssistantMessage, Message, UserMessage
from hames.core.repairs import ARTIFACTS_NAMED, Unsigned, counts, is_more, repairs_data
from hames.core.signed import OwnItem, TextItem, signed_items, signed_parts

ROUTES = st.tuples(st.sampled_from(["anthropic", "openai"]), st.sampled_from(["one", "two"]))


def answered(route: tuple[str, str] | None) -> Message:
    parts = {} if route is None else signed_parts(*route, [OwnItem({"sealed": "x"}), TextItem("Well.")])
    return AssistantMessage("Well.", parts=parts)


MESSAGES = st.lists(st.builds(answered, st.none() | ROUTES) | st.just(UserMessage("Go on.")), max_size=20)


@given(MESSAGES, st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), ROUTES), max_size=8))
def test_a_count_that_goes_on_is_the_count_of_all(
    messages: list[Message], looks: list[tuple[int, int, tuple[str, str]]]
) -> None:
    unsigned = Unsigned()
    for length, settled, route in looks:
        known = messages[:length]

        count = unsigned.count(known, route, min(settled, len(known)))

        answers = [each for each in known if isinstance(each, AssistantMessage) and each.parts]
        assert count == sum(signed_items(each, *route) is None for each in answers)


def test_what_is_told_is_told_again_when_there_is_more_of_it() -> None:
    nothing = repairs_data(signed_parts=0, images=0, not_taken=0, lost=())
    first = repairs_data(signed_parts=2, images=1, not_taken=3, lost=())
    lost = repairs_data(signed_parts=1, images=0, not_taken=0, lost={"a-2", "a-1"})

    assert nothing == {"repairs": []}
    assert not is_more(nothing, {})
    assert counts(first) == {"signed_parts": 2, "images": 1, "images_not_taken": 3}
    assert is_more(first, {})
    assert not is_more(first, counts(first))
    assert not is_more(nothing, counts(first))
    assert is_more(lost, counts(first))
    assert lost["repairs"][1] == {"code": "content_lost", "count": 2, "artifacts": ["a-1", "a-2"]}


def test_of_many_that_are_lost_the_first_are_named() -> None:
    [repair] = repairs_data(signed_parts=0, images=0, not_taken=0, lost=[f"a-{n:03}" for n in range(500)])["repairs"]

    assert repair["count"] == 500
    assert repair["artifacts"] == [f"a-{n:03}" for n in range(ARTIFACTS_NAMED)]
