"""The fact of what a try used and cost or can have cost, and who may be held to a limit of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hames.core.artifacts import size_bytes
from hames.core.commands import Draft
from hames.core.compaction import CHARS_PER_TOKEN, request_tokens
from hames.core.conversation import ModelRequest, Reply
from hames.core.cost import FREE, NO_COUNTERS, Sent, is_credible, most, usage_facts
from hames.core.limits import NO_COST_LIMIT
from hames.core.plan import LimitReached, cost_reached
from hames.core.records import record
from hames.engine.attempt import Attempt
from hames.ports import ProviderFailed, World
from hames.protocol.errors import Refused


@record
class Asked:
    """A try of a request. `sent` is what it can come to at most; None where no limit of the cost asks for it."""

    request_id: str
    number: int
    sent: Sent | None

    def data(self, attempt: Attempt) -> dict[str, Any]:
        """What stands of it in `model.requested`."""
        known = {"modelRequestId": self.request_id, "tryNumber": self.number}
        return {**known, **self.at_most(attempt)}

    def at_most(
        self, attempt: Attempt, counters: Mapping[str, int] = NO_COUNTERS, *, whole: bool = False, seen_bytes: int = 0
    ) -> dict[str, Any]:
        """`costAtMost`, where it is asked for and known."""
        if self.sent is None:
            return {}
        equipment = attempt.equipment
        money = most(equipment.provider.name, equipment.prices, self.sent, counters, whole=whole, seen_bytes=seen_bytes)
        return {} if money is None or money.currency != "USD" else {"costAtMost": money.published()}


def asked_of(attempt: Attempt, request: ModelRequest, request_id: str, number: int) -> Asked:
    """Try `number` of `request`, which is about to be sent."""
    if attempt.bounds.cost_micros == NO_COST_LIMIT:
        return Asked(request_id, number, None)
    # A token is at least a byte, and estimates take so many bytes for one.
    tokens = request_tokens(request) * CHARS_PER_TOKEN
    return Asked(request_id, number, Sent(tokens, request.max_output_tokens or attempt.equipment.answer_tokens))


async def out_of_money(attempt: Attempt) -> LimitReached | None:
    """Whether the turn may make no further request for what it cost so far."""
    if attempt.bounds.cost_micros == NO_COST_LIMIT:
        return None
    await attempt.flush()
    return cost_reached(attempt.progress, attempt.bounds)


def usage_drafts(
    attempt: Attempt, answered: Reply | ProviderFailed, asked: Asked, *, seen_bytes: int = 0
) -> list[Draft]:
    """What a try used, as the provider reported it; nothing where it reported nothing. `seen_bytes`: of an answer that
    was cut, so many came."""
    if answered.usage is None and answered.cost is None:
        return []
    equipment, counters = attempt.equipment, answered.usage or {}
    if isinstance(answered, Reply):
        whole, seen_bytes = True, _said_bytes(answered)
    else:
        whole = answered.usage_is_whole
    data: dict[str, Any] = {
        "modelRequestId": asked.request_id,
        "tryNumber": asked.number,
        "provider": equipment.provider.name,
        "model": equipment.model,
        "counters": counters,
        **usage_facts(
            equipment.provider.name,
            counters,
            prices=equipment.prices,
            reported=answered.cost,
            whole=whole,
        ),
    }
    is_sure = "cost" in data and "partial" not in data
    if not is_sure or not is_credible(equipment.provider.name, counters, seen_bytes):
        data |= asked.at_most(attempt, counters, whole=whole, seen_bytes=seen_bytes)
    return [Draft("usage.recorded", data)]


def _said_bytes(reply: Reply) -> int:
    return sum(size_bytes(text) for text in (reply.text, reply.reasoning, *(call.arguments for call in reply.calls)))


def refuse_unpriced(world: World, model: Mapping[str, Any], *limits: Mapping[str, Any]) -> None:
    """Hold nobody to a limit that cannot be told from what it costs; `model` is a route.

    Raises:
        Refused: `capability_unavailable`: one of `limits` bounds the cost, and no prices in US dollars are known.
    """
    if all(each.get("costMicros", NO_COST_LIMIT) == NO_COST_LIMIT for each in limits):
        return
    provider, name = model["provider"], model["model"]
    if provider in FREE:
        return
    known = world.facts(provider, name)
    if known is None or known.prices is None or known.prices.currency != "USD":
        raise Refused(
            "capability_unavailable",
            f"No prices of {provider}/{name} in US dollars are known at its address, so `costMicros` cannot bound it. "
            "Leave that out, or give them in the file that the setting modelsFile names.",
            limit="costMicros",
        )
