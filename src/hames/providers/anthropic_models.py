"""What the families of Claude models take, told by the version in a model's name: `family`.

Rule: a name without a version, which is a model of somebody else behind the same API or one that is not known yet, is
asked in the plainest way: without thinking, effort or schema, which a server may refuse.

Sources: https://platform.claude.com/docs/en/build-with-claude/thinking (what each model does when `thinking` is left
out, and what it refuses), https://platform.claude.com/docs/en/build-with-claude/effort,
https://platform.claude.com/docs/en/build-with-claude/preserved-thinking,
https://platform.claude.com/docs/en/about-claude/models/overview.
"""

from __future__ import annotations

import re
from typing import Literal

from hames.core.records import record

DEFAULT_MAX_TOKENS = 32_000
"""`max_tokens`, which every request must have, where nobody gave one: all models since 3.7 give as much (Opus 4 and
4.1 not more), and it is room for a whole file and the thinking before it."""

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[.-](\d{1,2})(?!\d))?")
"""`claude-3-7-sonnet-20250219`, `claude-opus-4-20250514`, `claude-haiku-5-5`, `anthropic/claude-opus-4.6`."""

Thinking = Literal["none", "budget", "adaptive", "always"]
"""How a model is asked to think: not at all; with a budget of tokens; as it sees fit, when told to; as it sees fit in
any case, where some models refuse to be told not to."""


@record
class Family:
    """What a model takes. `most_tokens` bounds `max_tokens`, None where that is not known.

    `binds_thinking`: it refuses thinking whose conversation was changed before it.
    """

    most_tokens: int | None = None
    thinking: Thinking = "none"
    binds_thinking: bool = False
    takes_schema: bool = False


def family(model: str) -> Family:
    """The family of a model by its name."""
    found = _VERSION.search(model)
    if found is None:
        return Family()
    version = (int(found[1]), int(found[2] or 0))
    if version < (3, 5):
        return Family(most_tokens=4_096)
    if version < (3, 7):
        return Family(most_tokens=8_192)
    if version < (4, 6):
        most = 32_000 if "opus" in model and version < (4, 5) else 64_000
        return Family(most, thinking="budget", takes_schema=version >= (4, 5))
    thinking: Thinking = "adaptive" if version < (5, 0) else "always"
    return Family(128_000, thinking, binds_thinking=version > (5, 0), takes_schema=True)
