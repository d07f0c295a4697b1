"""What the models of Gemini differ in, told by their names: thinking, signatures, images in results.

Rule: of a name that is not known, nothing is assumed. A member that a model does not know is refused, and the request
is then refused whole.

Source: https://ai.google.dev/gemini-api/docs/thinking, .../thought-signatures, .../function-calling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from hames.core.conversation import Effort
from hames.core.records import record

COLLECTION = "models/"
"""Before the name of a model, in listings; it may be left out."""

_VERSION = re.compile(r"gemini-(?:(\d+)(?:\.(\d+))?-|(?:pro|flash|flash-lite)-latest$)")
_NEWEST = (3, 0)
"""What a name without a number is taken for: `gemini-flash-latest` follows the newest."""

_OTHER_MODELS = ("-image", "-tts", "-audio", "-embedding")
"""In the names of models that make something else than text, and do not think."""

_WITH_MINIMAL = ("gemini-3-flash", "gemini-3.1-flash-lite")
"""Models that are known to take the level `minimal`; others refuse it. `low` is taken by all that have levels."""

_WITHOUT_MEDIUM = ("gemini-3-pro",)

_BUDGETS: Mapping[Effort, int] = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Tokens, as the vendor maps efforts itself: https://ai.google.dev/gemini-api/docs/openai#thinking."""

_LEAST_PRO_BUDGET = 128
"""Gemini 2.5 Pro thinks always."""


@record
class Traits:
    """What a model can. `thinking` is how its thinking is steered.

    `wants_signatures`: a call in the history needs one. `shows_results`: results of tools may hold images.
    `takes_schema_with_tools`: an answer may be bound to a schema though tools are declared.
    """

    name: str
    thinking: Literal["level", "budget", "fixed"]
    wants_signatures: bool
    shows_results: bool
    takes_schema_with_tools: bool


def traits_of(model: str) -> Traits:
    """The traits of `model`, with or without its collection."""
    name = model.removeprefix(COLLECTION)
    found = _VERSION.match(f"{name}-" if name[-1:].isdigit() else name)
    version = (0, 0)
    if found:
        version = (int(found[1]), int(found[2] or 0)) if found[1] else _NEWEST
    is_third = version >= _NEWEST
    thinks = not any(mark in name for mark in _OTHER_MODELS)
    thinking: Literal["level", "budget", "fixed"] = "fixed"
    if thinks and is_third:
        thinking = "level"
    elif thinks and version >= (2, 5):
        thinking = "budget"
    return Traits(name, thinking, is_third, is_third, is_third)


def thinking_config(traits: Traits, effort: Effort | None) -> dict[str, Any]:
    """`thinkingConfig`, empty where the model has none. Its thoughts are asked for: they are what people see."""
    if traits.thinking == "fixed":
        return {}
    if effort is None:
        return {"includeThoughts": True}
    if traits.thinking == "level":
        return {"includeThoughts": True, "thinkingLevel": _level(traits.name, effort)}
    least = _LEAST_PRO_BUDGET if traits.name.startswith("gemini-2.5-pro") else 0
    budget = max(least, _BUDGETS[effort])
    # Thoughts are refused where there are none.
    return {"includeThoughts": True, "thinkingBudget": budget} if budget else {"thinkingBudget": 0}


def _level(name: str, effort: Effort) -> str:
    if effort in ("none", "minimal"):
        return "minimal" if name.startswith(_WITH_MINIMAL) else "low"
    return "high" if effort == "medium" and name.startswith(_WITHOUT_MEDIUM) else effort
