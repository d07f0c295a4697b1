"""What differs between two runs, replaced by one value for all: so examples stay equal until behaviour changes.

Rule 1: the same value becomes the same value everywhere, so that a reader can follow an id from one example to another.
Rule 2: what comes out still has the published shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

LONGEST_TEXT = 160
LONGEST_LIST = 4
LONGEST_MAP = 4
"""Longer ones are shortened: an example shows a shape."""

LARGE_CHARS = 3_000
"""Of a list or a table that is so large as JSON, the first entry is enough."""

_MAPS = frozenset({"limits", "schemas", "properties", "$defs", "guarantees"})
"""Members that are tables by name; of a long one the first rows are kept."""

_WHOLE = frozenset({"message", "why", "description", "diff"})
"""Members whose text is not shortened."""

_TIMES = {
    "queuedAt": "09:00:00.010",
    "startedAt": "09:00:00.014",
    "at": "09:00:01.500",
    "since": "09:00:00.013",
    "endedAt": "09:00:02.140",
    "updatedAt": "09:00:02.140",
    "expiresAt": "09:00:30.013",
    "deadlineAt": "10:00:00.014",
}
_FIXED = {
    "host": "workstation",
    "principal": "ada",
    "inode": 1315847,
    "device": 66306,
    "durationMs": 12,
    "sinceMs": 15000,
    "delayMs": 1043,
    "startTime": 3690226,
    "socket": "/home/ada/.local/state/hames/reaper/reaper-4711-c9396721.socket",
    "responseId": "chatcmpl-7d1f",
    # Estimates, which follow the length of this run's paths.
    "estimatedTokens": 1803,
    "percent": 81,
    "tokensBefore": 1803,
    "tokensAfter": 911,
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_CURSOR = re.compile(r"\b(\d+)\.([0-9a-f]{12})\b")
_ID = re.compile(r"\b([a-z])-([0-9a-f]{20})\b")
_ARTIFACT = re.compile(r"\ba-([0-9a-f]{32})\b")
_SHA256 = re.compile(r"\b([0-9a-f]{32})[0-9a-f]{32}\b")
_CALL = re.compile(r"\bcall_\d+\b")
_DAY = re.compile(r"Today is \d{4}-\d\d-\d\d")
_SYSTEM = re.compile(r"The operating system is [^.]*")
_DIGEST_KEY = re.compile(r"(.*[dD]igest|fingerprint)")
_PID_KEY = re.compile(r"pid")


class Normal:
    """`plain` gives a value of this run as it stands in the documentation. `known`: texts of this run, like paths, and
    what stands for them."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(sorted(known.items(), key=lambda pair: -len(pair[0])))
        self._seen: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def plain(self, value: Any, key: str = "") -> Any:
        """The value, which stands under `key`, without what belongs to this run."""
        match value:
            case dict():
                items = list(value.items())
                if key in _MAPS and len(items) > LONGEST_MAP:
                    items = items[: _most(value, LONGEST_MAP)]
                time = self._event_time(value)
                if value.get("source") == "environment":  # whose paths are of this run
                    items += [("sizeBytes", len(self._text(value["text"], "text").encode()))]
                return {name: time if time and name == "time" else self.plain(one, name) for name, one in items}
            case list():
                kept = value if len(value) <= LONGEST_LIST else value[: _most(value, LONGEST_LIST - 1)]
                return [self.plain(one, key) for one in kept]
            case str():
                return self._text(value, key)
            case int() if not isinstance(value, bool) and _PID_KEY.fullmatch(key):
                return int(self._pid(str(value)))
            case _:
                return _FIXED.get(key, value) if value is not None else None

    def _event_time(self, value: dict[str, Any]) -> str | None:
        if "seq" in value and "time" in value:
            return f"2026-01-31T09:00:{value['seq'] * 7 // 1000:02d}.{value['seq'] * 7 % 1000:03d}Z"
        return None

    def _text(self, value: str, key: str) -> str:
        if key in _FIXED:
            return str(_FIXED[key])
        if _DIGEST_KEY.fullmatch(key) and re.fullmatch(r"[0-9a-f]{16,}", value):
            return self._stand_in(value[:32], "digest")[: len(value)]
        for text, other in self._known.items():
            value = re.sub(rf"(?<!\d){re.escape(text)}(?!\d)", other, value)
        value = _DAY.sub("Today is 2026-01-31", value)
        value = _SYSTEM.sub("The operating system is Linux (x86_64)", value)
        value = _TIME.sub(f"2026-01-31T{_TIMES.get(key, '09:00:00.010')}Z", value)
        value = _CURSOR.sub(lambda found: f"{found[1]}.{self._stand_in(found[0], 'cursor')[:12]}", value)
        value = _ID.sub(lambda found: f"{found[1]}-{self._stand_in(found[0], found[1])[:20]}", value)
        value = _ARTIFACT.sub(lambda found: f"a-{self._stand_in(found[1], 'digest')[:32]}", value)
        value = _SHA256.sub(lambda found: self._stand_in(found[1], "digest"), value)
        value = _CALL.sub(lambda found: f"call_{self._stand_in(found[0], 'call')[:8]}", value)
        is_whole = key in _WHOLE or len(value) <= LONGEST_TEXT
        return value if is_whole else value[: LONGEST_TEXT - 1] + "…"

    def _pid(self, value: str) -> str:
        if value not in self._seen:
            self._counts["pid"] = self._counts.get("pid", 0) + 1
            self._seen[value] = str(4710 + self._counts["pid"])
        return self._known.get(value, self._seen[value])

    def _stand_in(self, value: str, family: str) -> str:
        """64 hexadecimal digits: the first value of a family always has the same ones."""
        if value not in self._seen:
            self._counts[family] = self._counts.get(family, 0) + 1
            self._seen[value] = sha256(f"{family} {self._counts[family]}".encode()).hexdigest()
        return self._seen[value]


def _most(value: Any, usual: int) -> int:
    return 1 if len(json.dumps(value)) > LARGE_CHARS else usual
