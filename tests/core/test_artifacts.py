"""What is taken out of events, and that it comes back whole."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.artifacts import (
    LARGE_BYTES,
    LOST,
    artifact_id,
    data_url,
    id_prefix,
    is_large,
    reference,
    references,
    separate,
    size_bytes,
    whole,
)
from hames.protocol.jsontext import clean_text, dumps, loads

TEXTS = st.one_of(
    st.text(max_size=50),
    st.builds(lambda piece, times: piece * times, st.text(min_size=1, max_size=9), st.integers(1, 9_000)),
)
SLOTS = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "text", "text": text, "role": "context", "label": "x"}, TEXTS),
        st.builds(lambda data: {"type": "image", "mediaType": "image/png", "data": data}, st.binary(max_size=99)),
    ),
    min_size=1,
    max_size=6,
)
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["turn.updated", "turn.steered"]), st.fixed_dictionaries({"input": SLOTS})),
    st.tuples(st.just("turn.queued"), st.fixed_dictionaries({"input": SLOTS, "instructions": TEXTS})),
    st.tuples(st.just("tool.requested"), st.fixed_dictionaries({"arguments": TEXTS, "callId": st.just("c")})),
    st.tuples(st.just("message.completed"), st.fixed_dictionaries({"text": TEXTS, "inContext": st.just(True)})),
    st.tuples(st.just("tool.completed"), st.fixed_dictionaries({"text": TEXTS, "details": st.just({"a": 1})})),
    st.tuples(
        st.just("step.completed"),
        st.fixed_dictionaries(
            {"step": st.just(1)}, optional={"parts": st.fixed_dictionaries({"items": st.lists(TEXTS, max_size=3)})}
        ),
    ),
)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_cleaned(inner) for inner in value]
    return {name: _cleaned(inner) for name, inner in value.items()} if isinstance(value, dict) else value


@given(EVENTS)
def test_what_is_taken_out_comes_back_whole(event: tuple[str, dict[str, Any]]) -> None:
    type_, data = event

    kept, contents = separate(type_, data)

    found = {content.artifact: content.data for content in contents}
    assert references(type_, kept) == set(found)
    assert _cleaned(whole(type_, kept, found)) == _cleaned(data)
    assert len(dumps(kept)) < 2**20


@given(EVENTS, st.data())
def test_what_is_lost_is_told_in_its_place(event: tuple[str, dict[str, Any]], draws: st.DataObject) -> None:
    type_, original = event
    kept, contents = separate(type_, original)
    found = {content.artifact: content.data for content in contents}
    lost = draws.draw(st.sets(st.sampled_from(sorted(found)))) if found else set()
    left = {artifact: content for artifact, content in found.items() if artifact not in lost}

    told = whole(type_, kept, left)

    assert told.get(LOST, False) == bool(lost)
    for member, before in original.items():
        if member == "arguments" and lost:
            assert "are left" in loads(told[member].encode())["lost"]
        elif member == "parts" and lost:
            assert told[member] == {}
        elif member == "input":
            assert len(told[member]) == len(before)
            for slot, was in zip(told[member], before, strict=True):
                is_lost = slot.get("data", b"") is None or slot.get("text", "").endswith(" are left.]")
                assert is_lost or _cleaned(slot) == _cleaned(was)
        elif isinstance(before, str):
            after = told[member]
            assert after == clean_text(before) or after == before or (lost and after.endswith(" are left.]"))
        else:
            assert told[member] == before


@given(TEXTS, st.integers(1, 20_000))
def test_large_means_more_bytes(text: str, most_bytes: int) -> None:
    assert is_large(text, most_bytes) == (len(text.encode("utf-8", "replace")) > most_bytes)


@given(TEXTS)
def test_a_reference_counts_as_the_text_it_stands_for(text: str) -> None:
    kept, contents = separate("message.completed", {"text": clean_text(text), "inContext": False})

    assert size_bytes(kept["text"]) == len(clean_text(text).encode())
    assert bool(contents) == (len(clean_text(text).encode()) > LARGE_BYTES)


def test_small_events_are_left_as_they_are() -> None:
    for type_, data in (("message.chunk", {"text": "x" * 99_999}), ("turn.completed", {"text": "done"}), ("new", {})):
        kept, contents = separate(type_, data)
        assert kept is data
        assert contents == ()


def test_the_worst_input_fits_a_frame() -> None:
    slots = [{"type": "text", "text": "\x85" * 20_000, "label": ""} for _ in range(50)]
    slots += [{"type": "text", "text": "\x01" * 1_024, "label": ""} for _ in range(50)]

    kept, contents = separate("turn.queued", {"input": slots, "instructions": "\x01" * 16_384})

    assert len(contents) == 50
    assert len(dumps(kept)) < 700_000


def test_messages_that_do_not_count_are_not_asked_for() -> None:
    kept, _ = separate("message.completed", {"text": "x" * 20_000, "inContext": False})

    assert references("message.completed", kept) == set()
    assert references("turn.completed", {"text": kept["text"]}) == set()


@pytest.mark.parametrize("artifact", ["", "a-", "b-" + "0" * 32, "a-" + "g" * 32, "a-" + "A" * 32, "a-" + " 0" * 16])
def test_what_is_no_id_has_no_prefix(artifact: str) -> None:
    assert id_prefix(artifact) is None


@given(st.binary(min_size=32, max_size=32))
def test_an_id_names_the_beginning_of_the_digest(digest: bytes) -> None:
    assert id_prefix(artifact_id(digest)) == digest[:16]


def test_a_head_ends_between_two_characters_and_is_short_where_it_is_escapes() -> None:
    def head(text: str) -> str:
        (content,) = separate("turn.completed", {"text": text})[1]
        shown: str = reference(content)["head"]
        return shown

    assert head("€" * 20_000) == "€" * 341
    assert head("\x01" * 20_000) == "\x01" * 256


@given(st.binary(max_size=99))
def test_a_data_url_holds_the_bytes(data: bytes) -> None:
    head, _, encoded = data_url("image/png", data).partition(",")

    assert (head, b64decode(encoded)) == ("data:image/png;base64", data)
