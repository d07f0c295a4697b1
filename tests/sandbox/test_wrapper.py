"""What bubblewrap tells of itself is understood however it is cut."""

from __future__ import annotations

import itertools
import os

from hypothesis import given
from hypothesis import strategies as st

from hames.sandbox.wrapper import Wrapper

SAID = b'{ "child-pid": 4711, "cgroup-namespace": 40, "pid-namespace": 41 }\n{ "exit-code": 1 }\n'


@given(st.lists(st.integers(0, len(SAID)), max_size=5))
def test_its_words_may_come_in_pieces_and_a_number_counts_when_it_is_whole(cuts: list[int]) -> None:
    wrapper = Wrapper()
    places = [0, *sorted(cuts), len(SAID)]
    try:
        for begin, end in itertools.pairwise(places):
            os.write(wrapper.teller, SAID[begin:end])
            assert wrapper.find(b"child-pid") == (4711 if end > SAID.index(b"4711") + 4 else None)
            assert wrapper.failed(1) == (end < len(SAID) - 2)
            assert not wrapper.failed(3)
            assert wrapper.inner() == 0
    finally:
        wrapper.started(0)
        os.close(wrapper.told)
