"""`decide`, `number` and `evolve` against a second statement of the rules: see `machine.py`."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from core.actions import ACTIONS, OFTEN
from core.machine import Machine
from core.walk import walk


def _with_arguments(name: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    choices = {argument: st.sampled_from(list(values)) for argument, values in ACTIONS[name][1].items()}
    return st.tuples(st.just(name), st.fixed_dictionaries(choices))


class SessionMachine(RuleBasedStateMachine):
    """The machine with choices by hypothesis, which shrinks what it finds."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()

    @rule(action=st.sampled_from(OFTEN).flatmap(_with_arguments))
    def act(self, action: tuple[str, dict[str, Any]]) -> None:
        self.machine.act(*action)


TestSession = SessionMachine.TestCase
TestSession.settings = settings(max_examples=settings().max_examples // 4, stateful_step_count=30)
"""A quarter of the profile's: an example is thirty commands, and the walks below are quicker."""


def test_long_walks_keep_every_rule() -> None:
    for seed in range(settings().max_examples // 3):
        walk(Machine(), seed, steps=80)
