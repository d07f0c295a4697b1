"""JSON for people who read it: two spaces a level, one line feed at the end."""

from __future__ import annotations

import orjson


def pretty(value: object) -> str:
    """`value` as indented JSON text."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
