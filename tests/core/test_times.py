from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.core.times import epoch_ms, rfc3339

LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


@given(st.integers(0, LAST_MS))
def test_a_time_reads_back_to_the_millisecond(ms: int) -> None:
    text = rfc3339(ms)

    assert epoch_ms(text) == ms
    assert len(text) == len("2026-01-31T12:00:00.000Z")
    assert datetime.fromisoformat(text).timestamp() == pytest.approx(ms / 1000, abs=1e-3)


@given(st.integers(0, LAST_MS), st.integers(0, LAST_MS))
def test_times_sort_as_their_texts(first: int, second: int) -> None:
    assert (first < second) == (rfc3339(first) < rfc3339(second))


def test_a_known_time() -> None:
    assert rfc3339(1_769_860_800_007) == "2026-01-31T12:00:00.007Z"
