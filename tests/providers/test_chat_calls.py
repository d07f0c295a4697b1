"""Tool calls put together from the fragments of many kinds of servers: none merged, none dropped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.conversation import CallDelta, Part
from hames.providers.chat_calls import CallFragments, NamelessCall

A, B = '{"command": "echo {}"}', '{"path": "b", "deep": {"x": [1]}}'


def fragment(
    arguments: Any = None, *, index: int | None = None, call_id: str | None = None, name: str | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"function": {}}
    if index is not None:
        found["index"] = index
    if call_id is not None:
        found["id"] = call_id
    if name is not None:
        found["function"]["name"] = name
    if arguments is not None:
        found["function"]["arguments"] = arguments
    return found


def joined(*fragments: dict[str, Any]) -> list[tuple[str, str, str]]:
    calls = CallFragments()
    parts: list[Part] = [part for one in fragments for part in calls.add(one)]
    parts += calls.end()
    found = calls.calls()
    for place, call in enumerate(found):
        shown = "".join(part.text for part in parts if isinstance(part, CallDelta) and part.index == place)
        assert shown == call.arguments or (not shown and call.arguments == "{}")
    assert all(isinstance(part, CallDelta) and part.tool == found[part.index].tool for part in parts)
    return [(call.provider_id, call.tool, call.arguments) for call in found]


BOTH = [("a", "bash", A), ("b", "read", B)]


def interleaved(**members: bool) -> list[dict[str, Any]]:
    """Both calls, character by character in turn, with an index and an id in each fragment as asked."""
    out = [
        fragment("", index=0 if members["index"] else None, call_id="a", name="bash"),
        fragment("", index=1 if members["index"] else None, call_id="b", name="read"),
    ]
    for at in range(max(len(A), len(B))):
        for index, (call_id, raw) in enumerate([("a", A), ("b", B)]):
            if at < len(raw):
                out.append(
                    fragment(
                        raw[at],
                        index=index if members["index"] else None,
                        call_id=call_id if members["id"] else None,
                    )
                )
    return out


def test_an_index_in_each_fragment_keeps_interleaved_calls_apart() -> None:
    assert joined(*interleaved(index=True, id=False)) == BOTH


def test_an_id_in_each_fragment_does_without_any_index() -> None:
    assert joined(*interleaved(index=False, id=True)) == BOTH


def test_the_id_and_the_index_in_each_fragment_agree() -> None:
    assert joined(*interleaved(index=True, id=True)) == BOTH


def test_one_index_for_two_ids_is_two_calls() -> None:
    assert (
        joined(
            fragment(A[:5], index=0, call_id="a", name="bash"),
            fragment(A[5:], index=0),
            fragment(B[:5], index=0, call_id="b", name="read"),
            fragment(B[5:], index=0),
        )
        == BOTH
    )


def test_one_index_for_two_ids_that_are_interleaved_is_two_calls() -> None:
    assert (
        joined(
            fragment("", index=0, call_id="a", name="bash"),
            fragment("", index=0, call_id="b", name="read"),
            fragment(A, index=0, call_id="a"),
            fragment(B, index=0, call_id="b"),
        )
        == BOTH
    )


def test_without_index_and_further_ids_fragments_go_on_with_the_last_call() -> None:
    assert (
        joined(
            fragment("", call_id="a", name="bash"),
            fragment(A[:3]),
            fragment(A[3:]),
            fragment("", call_id="b", name="read"),
            fragment(B),
        )
        == BOTH
    )


def test_an_index_of_null_is_no_index() -> None:
    null = {"index": None}

    assert (
        joined(
            {**fragment("", call_id="a", name="bash"), **null},
            {**fragment(A), **null},
            {**fragment("", call_id="b", name="read"), **null},
            {**fragment(B), **null},
        )
        == BOTH
    )


def test_an_id_that_comes_late_is_the_id() -> None:
    assert joined(fragment(A[:4], index=0, name="bash"), fragment(A[4:], index=0, call_id="a")) == [BOTH[0]]


def test_arguments_wait_for_a_name_that_comes_late() -> None:
    assert joined(fragment(A, index=0, call_id="a"), fragment("", index=0, name="bash")) == [BOTH[0]]


def test_a_placeholder_is_replaced_by_the_arguments() -> None:
    assert joined(
        fragment("{}", index=0, call_id="a", name="bash"), fragment(A[:6], index=0), fragment(A[6:], index=0)
    ) == [BOTH[0]]


def test_empty_arguments_are_an_empty_object() -> None:
    assert joined(fragment("{}", index=0, call_id="a", name="x"), fragment("", index=1, call_id="b", name="y")) == [
        ("a", "x", "{}"),
        ("b", "y", "{}"),
    ]


def test_indices_may_leave_gaps() -> None:
    assert (
        joined(fragment(A, index=0, call_id="a", name="bash"), fragment(B, index=2, call_id="b", name="read")) == BOTH
    )


def test_a_name_and_id_repeated_in_each_fragment_are_one_call() -> None:
    assert joined(*(fragment(piece, index=0, call_id="a", name="bash") for piece in A)) == [BOTH[0]]


def test_a_name_repeated_without_id_or_index_is_one_call_until_it_is_whole() -> None:
    found = joined(
        *(fragment(piece, name="bash") for piece in (A[:5], A[5:])), fragment("", name="bash"), fragment(A, name="bash")
    )

    assert [call[1:] for call in found] == [("bash", A), ("bash", A)]
    assert found[0][0] != found[1][0]


def test_a_new_id_in_each_fragment_without_a_name_is_one_call() -> None:
    fragments = [fragment(piece, index=0, call_id=f"made-up-{at}") for at, piece in enumerate(A)]

    assert joined(fragment("", index=0, call_id="a", name="bash"), *fragments) == [BOTH[0]]


def test_a_fragment_with_an_index_nobody_knows_and_nothing_else_is_not_dropped() -> None:
    assert joined(fragment(A[:4], index=0, call_id="a", name="bash"), fragment(A[4:], index=1)) == [BOTH[0]]


def test_calls_that_share_an_id_get_ids_that_differ() -> None:
    found = joined(fragment(A, index=0, call_id="x", name="bash"), fragment(B, index=1, call_id="x", name="read"))

    assert [call[1:] for call in found] == [("bash", A), ("read", B)]
    assert found[0][0] == "x"
    assert found[1][0] != "x"


def test_calls_without_ids_get_some_that_do_not_meet_those_given() -> None:
    found = joined(
        fragment(A, index=0, name="bash"),
        fragment(B, index=1, call_id="call_2", name="read"),
        fragment(A, index=2, name="bash"),
    )

    assert len({call_id for call_id, _, _ in found} - {""}) == 3


def test_arguments_given_as_an_object_are_written_out() -> None:
    assert joined(fragment({"a": 1}, index=0, call_id="a", name="bash")) == [("a", "bash", '{"a":1}')]


def test_a_call_that_never_gets_a_name_is_an_error() -> None:
    calls = CallFragments()
    calls.add(fragment(A, index=0, call_id="a"))
    calls.end()

    with pytest.raises(NamelessCall):
        calls.calls()


def test_an_emoji_cut_into_two_fragments_is_whole_and_a_lone_half_is_replaced() -> None:
    assert joined(fragment('{"a":"\ud83d', index=0, call_id="a", name="x"), fragment('\ude00 \ud83d"}', index=0)) == [
        ("a", "x", '{"a":"😀 \ufffd"}')
    ]


def test_the_escape_of_a_lone_half_is_replaced_once_the_call_is_whole() -> None:
    calls = CallFragments()
    calls.add(fragment(r'{"a":"\ud8', index=0, call_id="a", name="x"))
    calls.add(fragment(r'3d!"}', index=0))
    calls.end()

    assert calls.calls()[0].arguments == r'{"a":"\ufffd!"}'


@given(st.lists(st.tuples(st.sampled_from(["bash", "read"]), st.sampled_from([A, B, "{}"])), min_size=1), st.data())
def test_any_cut_of_well_indexed_calls_gives_the_calls(items: list[tuple[str, str]], cuts: st.DataObject) -> None:
    queues = []
    for index, (tool, raw) in enumerate(items):
        queue = [fragment("", index=index, call_id=f"id{index}", name=tool)]
        while raw:
            size = cuts.draw(st.integers(1, len(raw)))
            queue.append(fragment(raw[:size], index=index))
            raw = raw[size:]
        queues.append(queue)
    fragments = []
    while any(queues):
        chosen = cuts.draw(st.sampled_from([queue for queue in queues if queue]))
        fragments.append(chosen.pop(0))
    calls = CallFragments()

    for one in fragments:
        calls.add(one)
    calls.end()

    found = {call.provider_id: (call.tool, call.arguments) for call in calls.calls()}
    assert found == {f"id{index}": item for index, item in enumerate(items)}
