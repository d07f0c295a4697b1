"""What may be done to a session in a walk through `machine.py`, how often, and with which arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PICK = range(10)
YES_OR_NO = (False, True)
SELDOM = (False,) * 9 + (True,)
KEYS = (None, None, "k1", "k2")
CONTENTS = ("c1", "c1", "c2")

Choices = Mapping[str, Sequence[Any]]

ACTIONS: Mapping[str, tuple[int, Choices]] = {
    "create": (1, {"principal": ("ann", "bob"), "key": KEYS, "content": CONTENTS, "first": YES_OR_NO}),
    "submit": (
        9,
        {
            "pick": PICK,
            "principal": ("ann", "ann", "bob"),
            "delivery": ("queue", "queue", "join", "join", "join", "reject"),
            "key": KEYS,
            "content": CONTENTS,
            "resume": (False, False, False, True),
            "text": ("Fix it.", "<context>", "é \u2028 𝄞"),
            "repaired": SELDOM,
        },
    ),
    "update": (2, {"pick": PICK, "delivery": (None, "queue", "join"), "text": YES_OR_NO}),
    "steer": (
        4,
        {"aim": (None, None, "running", "other"), "pick": PICK, "key": KEYS, "content": CONTENTS, "repaired": SELDOM},
    ),
    "cancel": (
        5,
        {"pick": PICK, "queue": ("hold", "hold", "continue", "drop"), "cause": ("client", "disconnect")},
    ),
    "resume_queue": (1, {}),
    "rename": (1, {"title": ("One", "Two")}),
    "compact": (1, {}),
    "close": (1, {"again": (True, True, False)}),
    "reopen": (1, {}),
    "start": (7, {"stale": SELDOM, "again": SELDOM}),
    "record": (
        5,
        {
            "stale": SELDOM,
            "pick": PICK,
            "what": ("step", "calls", "results", "late", "odd", "shorter", "composed", "changed", "changed"),
        },
    ),
    "boundary": (4, {"stale": SELDOM, "pick": PICK}),
    "end": (
        5,
        {
            "stale": SELDOM,
            "pick": PICK,
            "status": ("completed", "completed", "failed", "failed", "cancelled"),
            "forced": YES_OR_NO,
            "recovering": SELDOM,
        },
    ),
    "begin_process": (2, {"stale": SELDOM, "pick": PICK}),
    "stop_process": (1, {"pick": PICK}),
    "leave_process": (3, {"stale": SELDOM, "pick": PICK}),
    "take_over": (1, {"then": ("start", "start", "settle", "wait")}),
    "release": (1, {}),
    "crash": (1, {}),
}
"""What may be done, how often, and with which arguments: lists, so that any source of choices can be used."""

OFTEN = tuple(name for name, (weight, _) in ACTIONS.items() for _ in range(weight))
