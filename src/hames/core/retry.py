"""When to send a failed model request again: pure arithmetic, `retry_delay_ms`.

Rule: never before the provider asked for it, and never beyond the budget of waiting. Jitter only adds.
"""

from __future__ import annotations

CAP_MS = 60_000
"""Most that doubling reaches: longer silence looks like a hang, and only the provider may ask for it."""

JITTER_SHARE = 0.5
"""Most of a wait that jitter adds: sessions that failed together should not come back together."""


def retry_delay_ms(
    retry: int, *, base_ms: int, retry_after_ms: int | None, jitter: float, waited_ms: int, budget_ms: int
) -> int | None:
    """How long to wait before repeat number `retry` (from 1); None when the wait does not fit the budget.

    `base_ms` doubles with each repeat up to `CAP_MS`. `retry_after_ms` is what the provider asked for, a lower
    bound. `jitter` from 0 to 1 is drawn by the caller. `waited_ms` of `budget_ms` are used up already.
    """
    # 2**16 ms is over the cap, so a larger exponent says nothing and only costs.
    grown_ms = min(base_ms << min(retry - 1, 16), CAP_MS)
    delay_ms = max(grown_ms, retry_after_ms or 0)
    left_ms = budget_ms - waited_ms
    if delay_ms > left_ms:
        return None
    return min(delay_ms + int(delay_ms * JITTER_SHARE * jitter), left_ms)
