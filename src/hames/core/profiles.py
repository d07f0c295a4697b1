"""What differs between families of models in what they are told: one table. Pure.

Rule 1: a family is found by the provider, and behind one that speaks for many by the model's name; what is not known
is `other`, which works everywhere.
Rule 2: every prompt says the same; a family only gets the words that its models need to do it. None names a tool: which
there are is the session's choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

from hames.core.records import record

Family = Literal["anthropic", "openai", "gemini", "other"]

_COMMON: Final = """\
You are a coding agent. You work in one workspace on the user's machine, through the tools you are given.
Paths are relative to the working directory unless absolute; they cannot leave the workspace.
Read before you edit. Run what you change. Say plainly what you did, what you saw and what is left."""

_ANTHROPIC: Final = """\
Ask for independent calls together: they run side by side.
Do what was asked and no more; where you think that more is needed, say so at the end."""

_OPENAI: Final = """\
Go on until what was asked is done; end your turn only then, or when you need an answer that nothing here gives.
Change files with the tools that are made for it, not with shell commands. Ask for independent calls together."""

_GEMINI: Final = """\
Before you use a library, a command or a convention, look whether this workspace uses it.
Text that is to be replaced must be given exactly as it stands in the file, with its white space: read it first.
Ask for independent calls together."""

_OTHER: Final = """\
Use a tool whenever a file or the outcome of a command matters; do not guess what they hold.
The arguments of a call are one JSON object with the names that its schema gives."""


@record
class Profile:
    """A family: its agent prompt, and the names of project documents that it reads in a directory, in order."""

    family: Family
    prompt: str
    documents: tuple[str, ...]


PROFILES: Mapping[str, Profile] = {
    "anthropic": Profile("anthropic", f"{_COMMON}\n{_ANTHROPIC}", ("AGENTS.md", "CLAUDE.md")),
    "openai": Profile("openai", f"{_COMMON}\n{_OPENAI}", ("AGENTS.md", ".codex/instructions.md")),
    "gemini": Profile("gemini", f"{_COMMON}\n{_GEMINI}", ("AGENTS.md", "GEMINI.md")),
    "other": Profile("other", f"{_COMMON}\n{_OTHER}", ("AGENTS.md", ".codex/instructions.md")),
}

assert set(PROFILES) == set(get_args(Family))

_NAMES: Final[Mapping[str, Family]] = {
    "claude": "anthropic",
    "gpt": "openai",
    "codex": "openai",
    "gemini": "gemini",
}
"""What in a model's name tells its family, in lower case."""


def profile_of(provider: str, model: str) -> Profile:
    """The profile of `model` at `provider`: by the provider's name where it is a family's, else by the model's."""
    if provider in PROFILES:
        return PROFILES[provider]
    name = model.lower()
    return next((PROFILES[family] for part, family in _NAMES.items() if part in name), PROFILES["other"])
