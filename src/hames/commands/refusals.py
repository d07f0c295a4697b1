"""Expected failures told to a person. Pure.

Rule: what a program decides by stays as it is; here are only the words for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MODEL = (
    "`hames run --session ID --model <provider>/<model>` binds the session to what is configured now; or configure "
    "again what it was bound to."
)
_PLACE = "Put the directory back where it was, or begin a new session in another one."

_ADVICE: Mapping[str, str] = {
    "workspace": "Leave out --workspace to go on where the session works, or --session to begin a new one there.",
    "workspace.path": _PLACE,
    "workspace.inode": _PLACE,
    "cwd": _PLACE,
    "tools": "Use a build of Hames that has these tools, or begin a new session.",
    "sandbox.guarantees": "`hames doctor` says what is missing; mend that, or begin a new session.",
    "snapshotDigest": "`hames verify` looks at the store; restore a backup of it, or begin a new session.",
    "model.provider": _MODEL,
    "model.baseUrl": _MODEL,
    "model.credential": _MODEL,
}
"""What to do where a member of what a session was made for is not that of now."""

_ANY = "Restore what is named, or begin a new session."

MISMATCH = "The session was made for something else than what is here."


def told_refusal(kind: str, message: str, details: Mapping[str, Any]) -> str:
    """What to tell of it: its message and kind; of a session that does not fit, what differs, and what to do."""
    mark = f" [{kind}]" if kind else ""
    if kind != "authority_mismatch":
        return message + mark
    rows = details.get("fields", [])
    lines = [f"{row['member']}: recorded {_shown(row['recorded'])}, found {_shown(row['found'])}" for row in rows]
    lines += dict.fromkeys(_ADVICE.get(row["member"], _ANY) for row in rows)
    return "\n  ".join([MISMATCH + mark, *lines])


def _shown(value: Any) -> str:
    """A recorded or found value, in words."""
    if value in (None, [], (), {}):
        return "none"
    match value:
        case {"source": source}:
            return _credential(str(source), value)
        case Mapping():
            return ", ".join(f"{name} {_shown(held)}" for name, held in value.items())
        case list() | tuple():
            return ", ".join(map(_shown, value))
        case _:
            return str(value)


def _credential(source: str, of: Mapping[str, Any]) -> str:
    if "fingerprint" not in of:
        return "no key"
    owner = f", of {of['owner']}" if "owner" in of else ""
    return f"the key {of['fingerprint']} ({source}{owner})"
