"""What goes of a conversation that is too long, and what stands in its place."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.compaction import (
    IMAGE_TOKENS,
    KEPT_PART,
    KEPT_SAID,
    KEPT_SAID_PART,
    LAST_PART,
    NAMED_FILES,
    SUMMARISE,
    SUMMARY_TOKENS,
    Group,
    Replacement,
    files_named,
    message_tokens,
    plan_cut,
    request_for_summary,
    request_tokens,
    shown_summary,
    text_tokens,
    transcript,
)
from hames.core.conversation import (
    AssistantMessage,
    Message,
    ModelRequest,
    Picture,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
    history_faults,
)
from hames.core.session import Event


def said(seq: int, words: int = 10, turn_id: str = "t1") -> Group:
    return Group(seq, seq, True, turn_id, (UserMessage("word " * words),), is_whole=True)


def answer(seq: int, words: int = 10, *, calls: int = 0, is_whole: bool = True, path: str = "a") -> Group:
    made = tuple(ToolCall(f"c{seq}-{n}", f"p{seq}-{n}", "read", f'{{"path":"{path}"}}') for n in range(calls))
    results = [ToolResult(call.call_id, call.provider_id, call.tool, "word " * words) for call in made]
    return Group(seq, seq, False, "t1", (AssistantMessage("Well.", made), *results), is_whole)


@st.composite
def histories(draw: st.DrawFn) -> list[Group]:
    groups: list[Group] = []
    for seq in range(1, draw(st.integers(1, 14))):
        words = draw(st.integers(1, 300))
        if not groups or draw(st.booleans()):
            groups.append(said(seq, words, turn_id=f"t{draw(st.integers(1, 3))}"))
        else:
            groups.append(answer(seq, words, calls=draw(st.integers(0, 3))))
    if groups and not groups[-1].is_said and draw(st.booleans()):
        last = groups[-1]
        groups[-1] = Group(last.seq, last.seq, False, last.turn_id, last.messages, is_whole=False)
    return groups


@given(histories(), st.integers(8, 4_000), st.integers(0, 3))
def test_a_cut_leaves_a_history_that_can_be_sent(groups: list[Group], window: int, turn: int) -> None:
    running = f"t{turn}"

    cut = plan_cut(groups, window_tokens=window, running=running, read_from=99)

    if cut is None:
        return
    replacement = Replacement(100, cut.kept_from, frozenset(cut.kept), cut.read_from, "x")
    stays = [group for group in groups if replacement.keeps(group.seq)]
    assert [group for group in groups if not replacement.keeps(group.seq)] == list(cut.gone)
    assert all(group.is_whole for group in cut.gone)
    assert not [group for group in cut.gone if group.is_said and group.turn_id == running]
    assert cut.read_from <= min([99, *(group.from_seq for group in stays)])
    messages: list[Message] = [UserMessage("x")]
    messages += [message for group in stays if group.is_whole for message in group.messages]
    assert history_faults(messages) == []


@given(histories(), st.integers(100, 4_000))
def test_what_stays_is_a_small_part_of_the_window(groups: list[Group], window: int) -> None:
    cut = plan_cut(groups, window_tokens=window, running="", read_from=99)

    if cut is None:
        return
    behind = [group for group in groups if group.seq >= cut.kept_from and group.is_whole]
    assert sum(group.tokens for group in behind) <= window // LAST_PART
    if len(behind) > 1:
        assert sum(group.tokens for group in behind) <= max(window // KEPT_PART, behind[-1].tokens)
    kept = [group for group in groups if group.seq in cut.kept]
    assert len(kept) <= KEPT_SAID
    assert sum(group.tokens for group in kept) <= window // KEPT_SAID_PART


@given(histories(), histories(), st.integers(8, 4_000))
def test_what_went_once_does_not_come_back(first: list[Group], second: list[Group], window: int) -> None:
    cut = plan_cut(first, window_tokens=window, running="t1", read_from=99)
    if cut is None:
        return
    before = Replacement(0, cut.kept_from, frozenset(cut.kept), 0, "")
    summary = Group(0, 0, False, "", (UserMessage("x"),), is_whole=True)
    later = [
        Group(group.seq + 50, group.from_seq + 50, group.is_said, group.turn_id, group.messages, group.is_whole)
        for group in second
    ]
    left = [summary, *(group for group in first if before.keeps(group.seq)), *later]

    again = plan_cut(left, window_tokens=window, running="t1", read_from=99, kept_from=cut.kept_from)

    if again is not None:
        after = Replacement(0, again.kept_from, frozenset(again.kept), 0, "")
        assert not [group.seq for group in cut.gone if after.keeps(group.seq)]
        assert [group for group in left[1:] if not after.keeps(group.seq)] == [g for g in again.gone if g.seq]


def test_a_summary_alone_is_not_summed_up_again() -> None:
    summary = Group(0, 0, False, "", (UserMessage("word " * 900),), is_whole=True)

    assert plan_cut([summary, said(9)], window_tokens=1_000, running="t1", read_from=9) is None
    assert plan_cut([], window_tokens=1_000, running="t1", read_from=9) is None


def test_the_cut_stands_before_a_message_of_a_person_where_there_is_one() -> None:
    groups = [said(1), answer(2, 100, calls=1), answer(3), said(4), answer(5)]

    cut = plan_cut(groups, window_tokens=400, running="", read_from=9)

    assert cut is not None
    assert cut.kept_from == 4


def test_calls_in_the_making_stay_whatever_their_size() -> None:
    groups = [said(1), answer(2), answer(3, 9_000, calls=2, is_whole=False)]

    cut = plan_cut(groups, window_tokens=100, running="t1", read_from=1)

    assert cut is not None
    assert (cut.kept_from, cut.kept, [group.seq for group in cut.gone]) == (3, (1,), [2])


@given(histories(), st.integers(0, 900))
def test_a_transcript_has_no_more_characters_than_it_may(groups: list[Group], most: int) -> None:
    text = transcript(groups, most)

    assert len(text) <= most + len("\n[… 1234567 characters left out …]\n")


def test_a_transcript_says_who_said_what_and_cuts_what_is_long() -> None:
    image = Picture("a-1", "image/png", b"")
    result = ToolResult("c1", "p1", "bash", "y" * 900, is_error=True)
    call = ToolCall("c1", "p1", "bash", "{}")
    groups = [
        Group(1, 1, True, "t", (UserMessage("Look.", (image,)),), is_whole=True),
        Group(2, 2, False, "t", (AssistantMessage(" ", (call,)), result), is_whole=True),
        Group(3, 3, False, "t", (AssistantMessage("Done."),), is_whole=True),
    ]

    lines = transcript(groups, 10_000).split("\n")

    assert lines[:3] == ["User: Look.", "(an image)", "Call of bash: {}"]
    assert lines[3].startswith("Result of bash (failed): yyy")
    assert lines[3].endswith("y… (900 characters)")
    assert lines[4:] == ["Assistant: Done."]


def test_the_request_for_a_summary_keeps_the_instructions_and_fits() -> None:
    gone = [said(seq, 4_000) for seq in range(1, 50)]

    request = request_for_summary("Never touch /etc.", "m", gone, most_tokens=20_000)

    assert request.system == "Never touch /etc."
    assert (request.tools, request.max_output_tokens) == ((), SUMMARY_TOKENS)
    assert request_tokens(request) + SUMMARY_TOKENS < 20_000
    assert request.messages[0].text.endswith(SUMMARISE)
    assert history_faults(request.messages) == []


def test_files_are_named_once_in_the_order_of_their_last_use() -> None:
    groups = [answer(seq, calls=1, path=path) for seq, path in enumerate("abcab", 1)]
    odd = [ToolCall("c", "p", "read", text) for text in ("[1]", "{", '{"path":1}', '{"path":""}', '{"path":"\ud800"}')]
    groups.append(Group(9, 9, False, "t", (AssistantMessage("", tuple(odd)),), is_whole=True))

    assert files_named(groups)[:3] == ["c", "a", "b"]
    many = [answer(seq, calls=1, path=f"file{seq}") for seq in range(NAMED_FILES + 5)]
    assert files_named(many) == [f"file{seq}" for seq in range(5, NAMED_FILES + 5)]


@given(st.text(min_size=1))
def test_a_summary_cannot_close_its_delimiter(summary: str) -> None:
    text = shown_summary({"messagesGone": 3, "summary": summary, "files": ["a.py", "b.py"]})

    found = re.search(r'<summary id="(\w+)">\n', text)
    assert found is not None
    assert text.count(f'</summary id="{found[1]}">') == 1
    assert text.endswith("Files that they named: a.py, b.py")


@pytest.mark.parametrize("extra", [{}, {"summary": "", "files": []}])
def test_without_a_summary_it_is_said_what_went(extra: dict[str, Any]) -> None:
    text = shown_summary({"messagesGone": 3, **extra})

    assert text == "[3 earlier messages of this conversation were left out to make room.]"


def test_a_replacement_is_read_from_its_event() -> None:
    data = {"keptFrom": 7, "kept": [3], "readFrom": 2, "messagesGone": 4, "files": [], "summary": "All well."}

    found = Replacement.of(Event(9, "", "context.replaced", data))

    assert [found.keeps(seq) for seq in (2, 3, 6, 7)] == [False, True, False, True]
    assert "All well." in found.text
    assert (found.seq, found.read_from) == (9, 2)


def test_tokens_are_about_a_quarter_of_the_bytes() -> None:
    image = Picture("a-1", "image/png", b"")
    tool = ToolSpec("read", "Reads.", {"type": "object"})
    call = ToolCall("c", "p", "read", "x" * 400)

    assert (text_tokens("abcd" * 10), text_tokens("語" * 10)) == (10, 7)
    assert message_tokens(UserMessage("", (image,))) > IMAGE_TOKENS
    assert message_tokens(AssistantMessage("", (call,))) > 100
    with_tool = request_tokens(ModelRequest("m", "s" * 40, (), (tool,)))
    assert with_tool > request_tokens(ModelRequest("m", "s" * 40, ())) == 10
