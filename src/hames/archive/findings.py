"""What a check of a log or of an archive found: the same type, whoever checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingKind = Literal["torn", "duplicated", "gapped", "edited", "swapped", "missing"]
"""`torn`: cut off. `duplicated`: a part stands twice. `gapped`: parts between others are not there. `edited`: bytes
differ from what was written. `swapped`: parts stand in another order. `missing`: a part is not there at all."""

Verdict = Literal["good", "torn", "duplicated", "gapped", "edited", "swapped", "missing", "foreign"]
"""Of a whole: the kind of its first finding; `foreign` for what was never an archive."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One break: `where` names the part (`events.jsonl line 7`, `session s-1 event 7`), `message` what was seen."""

    kind: FindingKind
    where: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What came of checking an archive.

    `findings` are in the order of the file, `more` counts those beyond `MOST_FINDINGS`. `session_id`, `events` and
    `cursor` tell how far the log was proved: the number of events and the cursor after the last of them. `authentic`
    is None where no key was at hand; only who has the key of the store that exported it can tell.
    """

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    more: int = 0
    session_id: str | None = None
    events: int = 0
    cursor: str | None = None
    authentic: bool | None = None

    @property
    def good(self) -> bool:
        """Nothing was found, and no key that was at hand says otherwise."""
        return self.verdict == "good" and self.authentic is not False
