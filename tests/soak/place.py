"""Where a round happens, and how it says that it cannot."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path

from e2e.processes import unmeasured


class Impossible(Exception):
    """This machine does not allow the round; the text says why."""


def with_paths() -> dict[str, str]:
    """The environment in which another Python finds the modules that this one does."""
    return {**unmeasured(), "PYTHONPATH": os.pathsep.join(sys.path)}


@dataclass(frozen=True, slots=True)
class Place:
    """An empty directory for all that a round makes: what is kept of it when a rule is broken."""

    directory: Path
    seed: int
    size: int
    """How many of the round's unit: kills, cuts, frames."""

    def chance(self) -> random.Random:
        """The same choices for the same seed."""
        return random.Random(self.seed)

    def home(self, name: str = "home") -> Path:
        """A directory for a server's store and configuration."""
        home = self.directory / name
        home.mkdir()
        return home
