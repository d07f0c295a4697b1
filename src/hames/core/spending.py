"""What a turn has spent under a limit of its cost (AH-LIFE-4): what was told of it, and what was not at its most.

Rule 1: from the moment a request is in the log it counts, so that a crash, a cut answer or a silent provider makes
nothing cheaper. Rule 2: what nobody can bound is not taken for anything: `is_bounded` is lost, and a turn with a limit
asks nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from hames.core.cost import add_amounts, usd
from hames.core.records import record


@record
class Spending:
    """US dollars as decimal text. `assumed` is what of `amount` was not told and is the most it can have been.

    `open`: a request was made that nothing is told of yet; `most` is the most it can cost, None where nobody knows.
    """

    amount: str = "0"
    assumed: str = "0"
    is_bounded: bool = True
    open: bool = False
    most: str | None = None

    def asked(self, data: Mapping[str, Any]) -> Spending:
        """A request was made, as `model.requested` says; one before it that nothing was told of counts at its most."""
        # A summary that became necessary since the request was too long: that one was refused, which costs nothing,
        # unless an answer had begun to come.
        was_refused = data.get("trigger") == "overflow" and not data.get("afterText")
        before = self.refused() if was_refused else self.settled()
        return replace(before, open=True, most=data.get("costAtMost", {}).get("amount"))

    def told(self, data: Mapping[str, Any]) -> Spending:
        """Something was told of it, as `usage.recorded` says."""
        cost = usd(data.get("cost", {}))
        most = data.get("costAtMost", {}).get("amount")
        # A most beside a cost: what was reported is of a part, or cannot be true.
        if cost is not None and most is None and not data.get("partial"):
            return replace(self, amount=add_amounts(self.amount, cost), open=False, most=None)
        most = self.most if most is None else most
        if cost is not None and most is not None:
            most = max(cost, most, key=Decimal)
        return replace(self, open=True, most=most).settled()

    def retried(self, data: Mapping[str, Any]) -> Spending:
        """It failed, as `model.retried` says: one that was never taken cost nothing."""
        details = data["error"].get("details", {})
        return self.refused() if details.get("phase") == "connect" or "status" in details else self

    def refused(self) -> Spending:
        """It cost nothing."""
        return replace(self, open=False, most=None)

    def settled(self) -> Spending:
        """Nothing more will be told of what is open."""
        if not self.open:
            return self
        if self.most is None:
            return replace(self, is_bounded=False, open=False)
        amount, assumed = add_amounts(self.amount, self.most), add_amounts(self.assumed, self.most)
        return replace(self, amount=amount, assumed=assumed, open=False, most=None)


NOTHING_SPENT = Spending()
