"""What background processes write: the newest bytes, whoever reads, whatever the disk takes, however it was cut off."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.protocol.errors import HarnessFault
from hames.sandbox.background import OutputFile, OutputFiles

KEEP = 64

PIECES = st.lists(st.binary(max_size=90), max_size=30)


def read_all(output: OutputFile, offset: int, length: int) -> tuple[int, bytes]:
    """Where the output begins from `offset` on, and all of it."""
    first, got = output.read(offset, length)
    at, data = first, got
    while data:
        at, data = output.read(at + len(data), length)
        assert not data or at == first + len(got), "pages follow one another"
        got += data
    return first, got


@given(PIECES, st.integers(0, 200), st.integers(1, 70))
def test_the_newest_bytes_are_read_from_any_byte_on(pieces: list[bytes], offset: int, length: int) -> None:
    whole = b"".join(pieces)
    with TemporaryDirectory() as place:
        outputs = OutputFiles(Path(place), KEEP)
        output = outputs.make("s", "p")
        for piece in pieces:
            output.write(piece)
        reader = outputs.find("s", "p")
        assert isinstance(reader, OutputFile)

        first, got = read_all(reader, offset, length)

        assert output.total_bytes == reader.total_bytes == len(whole)
        assert got == whole[first:]
        oldest, kept = read_all(reader, 0, 1000)
        assert kept == whole[oldest:]
        assert len(kept) >= min(KEEP, len(whole))
        assert len(kept) <= KEEP + KEEP // 2
        assert first == min(max(offset, oldest), len(whole))
        output.discard()
        assert os.listdir(place) == []


@given(PIECES, PIECES)
def test_another_writer_goes_on_where_one_died(before: list[bytes], after: list[bytes]) -> None:
    whole = b"".join((*before, *after))
    with TemporaryDirectory() as place:
        outputs = OutputFiles(Path(place), KEEP)
        first = outputs.make("s", "p")
        for piece in before:
            first.write(piece)
        second = outputs.make("s", "p")
        for piece in after:
            second.write(piece)

        oldest, kept = read_all(second, 0, 1000)  # type: ignore[arg-type]

        assert kept == whole[oldest:]
        assert second.total_bytes == len(whole)


def test_what_the_disk_does_not_take_is_left_out_with_all_before_it(tmp_path: Path) -> None:
    output = OutputFiles(tmp_path / "out", KEEP).make("s", "p")
    output.write(b"x" * 20)
    place = tmp_path / "out" / "s" / "p"
    away = tmp_path / "away"

    place.rename(away)
    output.write(b"y" * 40)
    lost = output.total_bytes
    place.mkdir()
    output.write(b"z" * 10)

    assert lost == 60
    assert output.total_bytes == 70
    at, data = output.read(0, 100)
    assert data == b"z" * (70 - at)


def test_a_place_that_cannot_be_made_is_said_typed(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")

    with pytest.raises(HarnessFault) as fault:
        OutputFiles(tmp_path / "out", KEEP).make("s", "p")

    assert fault.value.kind == "store_unavailable"


def test_what_is_not_there_is_not_found_and_a_session_is_forgotten_whole(tmp_path: Path) -> None:
    outputs = OutputFiles(tmp_path, KEEP)
    outputs.make("s", "p").write(b"x")
    outputs.make("s", "q").write(b"x")

    outputs.forget("s")
    outputs.forget("none")

    assert outputs.find("s", "p") is None
    assert os.listdir(tmp_path) == []


def test_a_disk_that_takes_no_more_never_moves_the_end_back(tmp_path: Path) -> None:
    outputs = OutputFiles(tmp_path, 4_000)
    output = outputs.make("s", "p")
    told = 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        for most_bytes in (2_000, 300, 0, 0, 2_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
            for _ in range(5):
                output.write(b"x" * 700)
                reader = outputs.find("s", "p")
                assert isinstance(reader, OutputFile)
                assert reader.total_bytes >= told
                told = reader.total_bytes
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert output.total_bytes == told == 5 * 5 * 700
