"""`todo`: the model's own list of what is to do, whole in every result.

Rule: the log is the only place where the list is kept, so it goes back with the session and there is no second truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hames.core.conversation import ToolSpec
from hames.ports import Effect, ToolContext, ToolOutcome
from hames.tools.clip import one_line

MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}

MAX_ITEMS = 50
MAX_CHARS = 200
"""Of an item's text: a list is for glancing at."""


class TodoTool:
    """Keep a list."""

    effect: Effect = "read"
    spec = ToolSpec(
        name="todo",
        description=(
            "Keep a list of what is to do, for work of three steps or more. Give the whole list each time, in order; "
            "it takes the place of the one before. One item at a time is `in_progress`; an item is `completed` as soon "
            "as it is."
        ),
        parameters={
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "maxItems": MAX_ITEMS,
                    "items": {
                        "type": "object",
                        "properties": {
                            "text": {"type": "string", "minLength": 1, "maxLength": MAX_CHARS},
                            "status": {"enum": list(MARKS)},
                        },
                        "required": ["text", "status"],
                        "additionalProperties": False,
                    },
                }
            },
            "required": ["items"],
            "additionalProperties": False,
        },
    )

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
        """There is one list, and the last call of a step wins."""
        return "todo:"

    def summary(self, arguments: Mapping[str, Any]) -> str:
        """How far it is, and what is being done."""
        items = arguments["items"]
        done = sum(item["status"] == "completed" for item in items)
        now = next((f": {item['text']}" for item in items if item["status"] == "in_progress"), "")
        return one_line(f"todo {done}/{len(items)}{now}")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Give the list back."""
        items = arguments["items"]
        rows = [f"{MARKS[item['status']]} {one_line(item['text'])}" for item in items]
        counts = {status: sum(item["status"] == status for item in items) for status in MARKS}
        return ToolOutcome(text="\n".join(rows) or "[The list is empty.]", details={"items": len(items), **counts})
