"""What a campaign has done, kept in a file after each round, so that the next call goes on."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Done:
    """A round that is over. `said` is its own line, or why it was not possible or what was broken."""

    kind: str
    seed: int
    units: int
    seconds: float
    result: str
    """`ok`, `impossible` or `broken`."""
    said: str

    @property
    def name(self) -> str:
        """What `SOAK_SEED` takes to repeat it."""
        return f"{self.kind}-{self.seed}"


@dataclass
class State:
    """A campaign: its base seed and its rounds."""

    base: int
    rounds: list[Done] = field(default_factory=list)

    def units(self) -> Counter[str]:
        """How much was done of each kind, impossible rounds too; broken ones are to be done again."""
        done: Counter[str] = Counter()
        for each in self.rounds:
            if each.result != "broken":
                done[each.kind] += each.units
        return done

    def save(self, path: Path) -> None:
        """Put it in the file, whole or not at all."""
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"base": self.base, "rounds": [asdict(each) for each in self.rounds]}, indent=1))
        os.replace(draft, path)


def load_state(path: Path) -> State:
    """The campaign in the file, or a new one."""
    if not path.exists():
        return State(random.SystemRandom().randrange(10**6))
    saved = json.loads(path.read_text())
    return State(saved["base"], [Done(**each) for each in saved["rounds"]])
