from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hames.tools.clip import one_line, prefix, split_lines, tail, valid

STREAM = st.one_of(st.binary(max_size=300), st.text(alphabet="aé€😀\n", max_size=120).map(str.encode))


@given(STREAM, st.integers(0, 300), st.integers(1, 20), st.integers(1, 200))
def test_a_tail_is_bounded_valid_and_the_end_of_the_text(data: bytes, gone: int, lines: int, size: int) -> None:
    clip = tail(data, total=len(data) + gone, max_lines=lines, max_bytes=size)

    assert clip.size == len(clip.text.encode()) <= size
    assert clip.lines == len(split_lines(clip.text.encode())) <= lines
    assert clip.cut or gone == 0
    if not clip.cut:
        assert clip.text == data.decode("utf-8", "replace").replace("\0", "\ufffd")


@given(st.text(alphabet="aé€😀\n", max_size=200), st.integers(1, 20), st.integers(1, 200), st.integers(0, 3))
def test_a_tail_of_valid_text_is_a_suffix_without_replacement(text: str, lines: int, size: int, start: int) -> None:
    data = text.encode()
    clip = tail(data[start:], total=len(data), max_lines=lines, max_bytes=size)

    assert text.endswith(clip.text)


def test_a_cut_line_is_left_out_unless_it_is_most_of_the_text() -> None:
    assert tail(b"ut\nwhole\nlines\n", total=100, max_lines=9, max_bytes=99).text == "whole\nlines\n"
    assert tail(b"a" * 50 + b"\nb\n", total=100, max_lines=9, max_bytes=99).text == "a" * 50 + "\nb\n"


@given(st.binary(max_size=100))
def test_lines_are_the_data_and_end_at_line_feeds_only(data: bytes) -> None:
    lines = split_lines(data)

    assert b"".join(lines) == data
    assert all(line.endswith(b"\n") for line in lines[:-1])
    assert all(b"\n" not in line[:-1] for line in lines)


@given(st.text(max_size=60).filter(lambda text: valid(text) == text), st.integers(0, 100))
def test_a_prefix_is_the_longest_that_fits(text: str, size: int) -> None:
    cut = prefix(text, size)

    assert text.startswith(cut)
    assert len(cut.encode()) <= size
    if cut != text:
        assert len((cut + text[len(cut)]).encode()) > size


@given(st.text(alphabet=st.characters(), max_size=300))
def test_one_line_is_printable_and_short(text: str) -> None:
    line = one_line(text)

    assert line == "" or line.isprintable()
    assert len(line) <= 200


@given(st.text(alphabet=st.characters(), max_size=50))
def test_valid_text_can_be_encoded(text: str) -> None:
    valid(text).encode()
