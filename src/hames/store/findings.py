"""What a look at a whole store found: what is wrong, and how much there was to look at.

Rule: however much is wrong, only so much is kept; the rest is counted.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from hames.archive.findings import Finding, FindingKind

FINDINGS_KEPT: Final = 200
"""Of a store: enough to tell what happened to it."""

FINDINGS_OF_SESSION: Final = 20
"""Of one session, so that one does not hide the others."""


class Findings:
    """Collects what is wrong. `where` of a finding begins with the part that is looked at: see `part`."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.kinds: Counter[FindingKind] = Counter()
        self.left = 0
        """Those that no repair mends."""
        self._part = ""
        self._of_part = 0

    @property
    def more(self) -> int:
        """Findings that were counted and not kept."""
        return self.kinds.total() - len(self.kept)

    def part(self, name: str) -> None:
        """From now on it is about this part of the store."""
        self._part = name
        self._of_part = 0

    @property
    def of_part(self) -> int:
        """How much is wrong with it so far."""
        return self._of_part

    def leave(self) -> None:
        """A repair leaves the part as it is, with all that is wrong with it so far."""
        self.left += self._of_part

    def add(self, kind: FindingKind, message: str, *, at: str = "") -> FindingKind:
        """Something is wrong with the part; `at` says where in it. Its kind, again."""
        self.kinds[kind] += 1
        self._of_part += 1
        if len(self.kept) < FINDINGS_KEPT and self._of_part <= FINDINGS_OF_SESSION:
            self.kept.append(Finding(kind, f"{self._part}, {at}" if at else self._part, message))
        return kind
