"""What servers are loaded with: a model that answers at random, the same for the same seed and requests."""

from __future__ import annotations

import random
from pathlib import Path

from fake.provider import Answer, calls, partial, text, trickle


class Model:
    """Answers at random: words in pieces, slow words, tool calls alone and in batches.

    Some answers are large when `large` is set, so that the store's files grow; most take half a second when `slow` is,
    so that whoever is stopped or killed is in the midst of one.
    """

    def __init__(self, seed: int, *, large: bool = False, slow: bool = False) -> None:
        self.chance = random.Random(seed)
        self._longest = 20_000 if large else 60
        self._slow = 0.6 if slow else 0.1

    def __call__(self, body: object) -> Answer:
        chance = self.chance
        kind = chance.random()
        if kind < self._slow:
            words = partial("slow words ")[0].data  # type: ignore[union-attr]
            return trickle(words, each_ms=chance.choice((1, 3))) + text("done")
        if kind < self._slow + 0.4 * (1 - self._slow):
            return text("wörd " * chance.randrange(1, self._longest), chunks=chance.randrange(1, 12))
        tools = [
            ("bash", {"command": f"echo one; sleep 0.0{chance.randrange(1, 9)}; echo two"}),
            ("read", {"path": "a.txt"}),
            ("write", {"path": "b.txt", "content": "b" * chance.randrange(1, 100)}),
            ("grep", {"pattern": "a"}),
        ]
        return calls([chance.choice(tools) for _ in range(chance.randrange(1, 4))], "let me see" * chance.randrange(2))


def make_workspace(directory: Path) -> Path:
    """A directory with the file that the model's calls read."""
    workspace = directory / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "a.txt").write_text("a\n")
    return workspace
