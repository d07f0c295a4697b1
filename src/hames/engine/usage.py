"""The fact of what a try used and cost, and who may be held to a limit of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hames.core.commands import Draft
from hames.core.conversation import Reply
from hames.core.cost import usage_facts
from hames.core.limits import NO_COST_LIMIT
from hames.engine.attempt import Attempt
from hames.ports import ProviderFailed, World
from hames.protocol.errors import Refused


def usage_drafts(attempt: Attempt, answered: Reply | ProviderFailed, *, request_id: str, number: int) -> list[Draft]:
    """What try `number` of a request used, as the provider reported it; nothing where it reported nothing."""
    if answered.usage is None and answered.cost is None:
        return []
    equipment, counters = attempt.equipment, answered.usage or {}
    data = {
        "modelRequestId": request_id,
        "tryNumber": number,
        "provider": equipment.provider.name,
        "model": equipment.model,
        "counters": counters,
        **usage_facts(
            equipment.provider.name,
            counters,
            prices=equipment.prices,
            reported=answered.cost,
            whole=isinstance(answered, Reply),
        ),
    }
    return [Draft("usage.recorded", data)]


def refuse_unpriced(world: World, model: Mapping[str, Any], *limits: Mapping[str, Any]) -> None:
    """Hold nobody to a limit that cannot be told from what it costs; `model` is a route.

    Raises:
        Refused: `capability_unavailable`: one of `limits` bounds the cost, and no prices in US dollars are known.
    """
    if all(each.get("costMicros", NO_COST_LIMIT) == NO_COST_LIMIT for each in limits):
        return
    provider, name = model["provider"], model["model"]
    known = world.facts(provider, name)
    if known is None or known.prices is None or known.prices.currency != "USD":
        raise Refused(
            "capability_unavailable",
            f"No prices of {provider}/{name} in US dollars are known at its address, so `costMicros` cannot bound it. "
            "Leave that out, or give them in the file that the setting modelsFile names.",
            limit="costMicros",
        )
