"""When a failed request is sent again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hames.core.retry import CAP_MS, JITTER_SHARE, retry_delay_ms

MS = st.integers(0, 10_000_000)


@given(
    retry=st.integers(1, 200),
    base_ms=st.integers(0, 60_000),
    retry_after_ms=st.none() | MS,
    jitter=st.floats(0, 1),
    waited_ms=MS,
    budget_ms=MS,
)
def test_a_delay_is_never_early_never_over_budget_and_never_without_bound(
    retry: int, base_ms: int, retry_after_ms: int | None, jitter: float, waited_ms: int, budget_ms: int
) -> None:
    delay = retry_delay_ms(
        retry,
        base_ms=base_ms,
        retry_after_ms=retry_after_ms,
        jitter=jitter,
        waited_ms=waited_ms,
        budget_ms=budget_ms,
    )

    least = max(min(base_ms * 2 ** (retry - 1), CAP_MS), retry_after_ms or 0)
    if delay is None:
        assert waited_ms + least > budget_ms
    else:
        assert least <= delay <= least * (1 + JITTER_SHARE)
        assert waited_ms + delay <= budget_ms


@given(retry=st.integers(1, 30), base_ms=st.integers(1, 60_000), jitter=st.floats(0, 1))
def test_more_jitter_never_shortens_a_delay(retry: int, base_ms: int, jitter: float) -> None:
    def delay(share: float) -> int:
        found = retry_delay_ms(retry, base_ms=base_ms, retry_after_ms=None, jitter=share, waited_ms=0, budget_ms=10**9)
        assert found is not None
        return found

    assert delay(0) <= delay(jitter) <= delay(1)


def test_delays_double_up_to_the_cap() -> None:
    delays = [
        retry_delay_ms(retry, base_ms=1_000, retry_after_ms=None, jitter=0, waited_ms=0, budget_ms=10**9)
        for retry in range(1, 9)
    ]

    assert delays == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_a_wait_that_the_provider_asks_for_may_exceed_the_cap_but_not_the_budget() -> None:
    asked = {"base_ms": 1_000, "retry_after_ms": 90_000, "jitter": 0.0, "waited_ms": 0}

    assert retry_delay_ms(1, budget_ms=90_000, **asked) == 90_000  # type: ignore[arg-type]
    assert retry_delay_ms(1, budget_ms=89_999, **asked) is None  # type: ignore[arg-type]
