"""Examples as Markdown: what was sent and answered, in blocks that a reader can take in.

Rule 1: what is shown is JSON; a value that fits a line stands on one.
Rule 2: the examples are kept in `protocol/examples/`, and come from a run that a test repeats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

Record = Mapping[str, Any]
Examples = Mapping[str, Mapping[str, Record]]
"""Records by family (`methods`, `events`, …) and name."""

NO_EXAMPLES: Final[Examples] = {}

LINE_CHARS: Final = 116


def examples(files: Mapping[str, str]) -> Examples:
    """The examples in the texts of files by family, a record a line."""
    return {
        family: {record["name"]: record for record in map(json.loads, text.splitlines())}
        for family, text in files.items()
    }


def exchange(record: Record | None) -> str:
    """A request with its answer; nothing without an example."""
    if record is None:
        return ""
    return f"For example:\n\n{_blocks(record['request'], record['answer'])}"


def single(record: Record | None, member: str) -> str:
    """One value; nothing without an example."""
    return "" if record is None else f"For example:\n\n{_blocks(record[member])}"


def refusal(record: Record | None) -> str:
    """How an error comes about, with what is sent and answered, or with the error of a turn."""
    if record is None:
        return ""
    parts = [record["note"]] if "note" in record else []
    if "error" in record:
        parts.append(f"The turn ends with:\n\n{_blocks(record['error'])}")
    elif "sent" in record:
        parts.append(f"```\n{record['sent']}\n```\n\n{_blocks(record['answer'])}")
    elif "answer" in record:
        parts.append(_blocks(*(record[name] for name in ("request", "answer") if name in record)))
    return "\n\n".join(parts).rstrip("\n") + "\n"


def _blocks(*values: Any) -> str:
    return "\n".join(f"```json\n{_pretty(value)}\n```\n" for value in values)


def _pretty(value: Any, indent: int = 0, before: int = 0) -> str:
    """JSON whose lines are no longer than they need to be; `before` characters stand on its first one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent + before <= LINE_CHARS or not value or not isinstance(value, dict | list):
        return line
    deeper = indent + 2
    if isinstance(value, dict):
        rows: Sequence[str] = [_row(f"{json.dumps(key)}: ", member, deeper) for key, member in value.items()]
        opening, closing = "{}"
    else:
        rows = [_row("", member, deeper) for member in value]
        opening, closing = "[]"
    return opening + "\n" + ",\n".join(rows) + "\n" + " " * indent + closing


def _row(key: str, member: Any, indent: int) -> str:
    return " " * indent + key + _pretty(member, indent, len(key) + 1)
