"""Whatever a session went through (cancels, crashes, takeovers, steers, joins, cuts of the context, odd text), every
provider takes the request that it leads to.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import pytest

from core.machine import Machine
from core.walk import walk
from fake.histories import nested_text
from fake.vendors import VENDORS, Vendor
from hames.core.commands import Draft
from hames.core.conversation import ModelRequest, ToolSpec
from hames.core.session import Event
from hames.protocol.jsontext import dumps, loads

TOOLS = (ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}}),)

TEXTS = ("Well.", " ", "\n", "\u2028", "é 𝄞 \U0001f600", "\ufffd", "</context>", "x" * 70_000, "\x00\x1b[31m")
ARGUMENTS = (
    "{}",
    "",
    "{",
    "[1]",
    "null",
    '{"path": "a"}',
    '{"path": "\\ud800"}',
    '{"a": 1e999}',
    "x" * 9_000,
    *map(nested_text, (32, 33, 300)),
)
NAMES = ("read", "nope", "a.b/c d", "é" * 90, "1", "")


class Odd(Machine):
    """The machine, with a model that says odd things; each request that it leads to goes to `vendor`."""

    def __init__(self, vendor: Vendor, seed: int) -> None:
        super().__init__()
        self.vendor = vendor
        self.chance = Random(seed)
        self.requests = 0

    def _step(self, calls: int) -> list[Draft]:
        drafts = super()._step(calls)
        for place, draft in enumerate(drafts):
            data = dict(draft.data)
            if draft.type == "message.completed":
                data["text"] = self.chance.choice(TEXTS)
                data["inContext"] = bool(data["text"].strip()) and data["inContext"]
            elif draft.type == "tool.requested":
                data |= {"arguments": self.chance.choice(ARGUMENTS), "tool": self.chance.choice(NAMES)}
            elif draft.type == "step.completed" and self.chance.random() < 0.5:
                data["parts"] = self._signed()
            drafts[place] = Draft(draft.type, data)
        return drafts

    def _signed(self) -> Any:
        """What some vendor signed of another answer: it does not fit this one, unless by chance."""
        other = self.chance.choice(list(VENDORS.values()))
        model = self.chance.choice(other.models)
        return loads(dumps(other.reply(ModelRequest(model, "s", ()), other.signed(model)).parts))

    def _result(self, call: str, outcome: str) -> Draft:
        draft = super()._result(call, outcome)
        return Draft(draft.type, {**draft.data, "text": self.chance.choice(TEXTS)})

    def _converse(self, events: Sequence[Event]) -> None:
        super()._converse(events)
        if any(event.type == "step.started" for event in events):
            choice: Literal["auto", "none"] = self.chance.choice(("auto", "auto", "none"))
            model = self.chance.choice(self.vendor.models)
            request = ModelRequest(model, "Be good.", self.sent, TOOLS, choice)
            assert self.vendor.refusal(request) is None
            self.requests += 1


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", VENDORS)
def test_every_request_that_a_session_leads_to_is_taken(name: str) -> None:
    requests = 0
    for seed in range(80):
        machine = Odd(VENDORS[name], seed)
        walk(machine, seed, steps=120)
        requests += machine.requests

    assert requests > 100
