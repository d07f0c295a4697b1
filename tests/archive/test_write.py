"""The writer of archives refuses what was not announced."""

from __future__ import annotations

import io

import pytest

from hames.archive.write import ArchiveWriter, Member, member


def writer(*members: Member) -> ArchiveWriter:
    return ArchiveWriter(io.BytesIO().write, {}, members)


def test_a_member_that_is_longer_than_announced_is_refused() -> None:
    archive = writer(Member("a", 3, ""))
    archive.open("a")
    with pytest.raises(ValueError, match="a is longer than was announced"):
        archive.add(b"four")


def test_a_member_that_is_shorter_than_announced_is_refused() -> None:
    archive = writer(Member("a", 3, ""), member("b", b"b"))
    archive.open("a")
    archive.add(b"no")
    with pytest.raises(ValueError, match="a is 1 bytes shorter than was announced"):
        archive.open("b")


def test_a_member_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="b was written where a was announced"):
        writer(Member("a", 3, ""), member("b", b"b")).open("b")


def test_a_member_that_is_left_out_is_refused() -> None:
    with pytest.raises(ValueError, match="a was announced and not written"):
        writer(Member("a", 3, "")).close()
