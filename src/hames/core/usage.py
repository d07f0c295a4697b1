"""Usage as evidence: sums that say what they cover, and never a zero for what was not reported."""

from __future__ import annotations

from typing import Any

from hames.core.state import UsageSum


def usage_total(usage: UsageSum) -> dict[str, Any]:
    """The published form: `direct`, and `inclusive` of finished children, of which there are none.

    Cost is absent with a reason (AH-USAGE-5): no rate card is kept in this version.
    """
    total = {
        "counters": dict(usage.counters),
        "requests": usage.requests,
        "reported": usage.reported,
        "costReason": "no_rate_card",
    }
    return {"direct": total, "inclusive": total}
