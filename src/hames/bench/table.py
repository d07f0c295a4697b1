"""The rows of the report: which there are, what bounds them, and how a figure is judged.

Rule: a bound is a regression gate of this build on a machine of two cores; `hames bench --bound` sets another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from hames.core.records import record


@record
class Gate:
    """What a row is held to. `of` says whether the figure is bounded or its ratio to the floor.

    `most`: the bound is the highest that passes, else the lowest. `bound` None: reported, not judged.
    """

    group: str
    unit: str
    meaning: str
    bound: float | None = None
    of: Literal["figure", "ratio"] = "figure"
    most: bool = True


WAITS: Mapping[str, str] = {
    "connect": "for a connection to its provider",
    "first_byte": "for the first byte of an answer",
    "stall": "for more of an answer",
    "retry": "to ask again",
    "compaction": "for a summary",
    "tool": "for a command",
}

GATES: Mapping[str, Gate] = {
    "initialize": Gate("startup", "ms", "spawn to `initialize` answered", 2.0, of="ratio"),
    "session": Gate("startup", "ms", "spawn to a durable session answered", 400),
    "turn_accept": Gate("turns", "ms", "one-chunk turn: send to the receipt"),
    "turn_overhead": Gate("turns", "ms", "one-chunk turn: send to the terminal event, less the model's time", 8),
    "turn_growth": Gate("turns", "x", "the last ten of these turns against the first ten"),
    "turn_cpu": Gate("turns", "ms", "CPU of the server for such a turn"),
    "deltas_5000": Gate("deltas", "/s", "deltas of 20 bytes delivered one to one", 15_000, most=False),
    "deltas_50000": Gate("deltas", "/s", "the same, of an answer ten times as long", 15_000, most=False),
    "deltas_dropped": Gate("deltas", "deltas", "of these, not delivered", 0),
    "tool_turn": Gate("tools", "ms", "turn that runs `true` and then answers, less the model's time"),
    "parallel": Gate("parallel", "turns/s", "8 sessions at once, 20 turns each", most=False),
    "parallel_rss": Gate("parallel", "MB", "resident memory of the server after these", 90),
    "cancel": Gate("cancel", "ms", "cancel of a running command to the terminal event", 50),
    "cancel_orphans": Gate("cancel", "processes", "of these commands, alive after the terminal event", 0),
    **{
        f"{end}_in_{wait}": Gate("waits", "ms", f"{told} {meaning}: to the terminal event, the slowest", 100)
        for end, told in (("cancel", "cancel of a turn that waits"), ("limit", "end of the time of a turn that waits"))
        for wait, meaning in WAITS.items()
    },
    "eof_idle": Gate("eof", "ms", "end of stdin to the end of the process, nothing running", 100),
    "eof_busy_stream": Gate("eof", "ms", "the same while a model answers", 1_000),
    "eof_busy_tool": Gate("eof", "ms", "the same while a command runs", 1_000),
    "replay": Gate("replay", "ms", "100,000 events from the store to wire bytes", 60),
    "replay_pipe": Gate("replay", "ms", "the same from the server, over the pipe"),
    "restart": Gate("restart", "ms", "after kill -9: spawn to 200 turns replayed", 1_000),
    "long_growth": Gate(
        "long", "x", "the last ten of 1,000 turns against those from the 50th on of a young session", 1.3
    ),
    "long_request": Gate("long", "x", "the largest request of these turns against the model's window", 1.0),
    "long_shorter": Gate("long", "times", "that the context of these turns was made shorter", 2, most=False),
    "long_resume": Gate("long", "ms", "taking that session up after kill -9", 200),
    "open_large": Gate("large", "ms", "open a store of 1,000,000 events and 10,000 sessions", 2.0, of="ratio"),
    "list_large": Gate("large", "ms", "the first page of its sessions", 2.0, of="ratio"),
    "first_page_large": Gate("large", "ms", "the first page of the longest log", 2.0, of="ratio"),
    "last_page_large": Gate("large", "ms", "the last page of it", 2.0, of="ratio"),
    "open_after_kill": Gate("large", "ms", "open that store after kill -9, and prove the head of what ran", 10),
    "replay_rss": Gate("large", "MB", "memory the server takes to send the whole of that log", 32),
    "ack": Gate("ack", "ms", "a submit to its durable receipt, in process"),
    "ack64": Gate("ack", "events/s", "64 sessions writing at once", most=False),
    "share": Gate("share", "%", "of two processes writing without a pause: what the slower one gets", 40, most=False),
    "share_wait": Gate("share", "ms", "the longest that either waited", 200),
    "share_rate": Gate("share", "events/s", "what both write together", most=False),
    "idle_cpu": Gate("idle", "ms/s", "CPU of the server after a turn, while nothing happens", 10),
    "idle_wakeups": Gate("idle", "/s", "times a second that a thread of it was woken meanwhile"),
}

GROUPS: Sequence[str] = tuple(dict.fromkeys(gate.group for gate in GATES.values()))


@record
class Figure:
    """What was measured: a median of `n`, the best of them, and the floor's median."""

    name: str
    value: float
    n: int
    best: float | None = None
    floor: float | None = None


@record
class Row:
    """A figure beside its bound. `ok` None: not judged. `failure`: why there is no figure."""

    name: str
    value: float | None
    unit: str
    n: int = 0
    best: float | None = None
    floor: float | None = None
    ratio: float | None = None
    bound: float | None = None
    of: Literal["figure", "ratio"] = "figure"
    ok: bool | None = None
    failure: str | None = None


def judge(figure: Figure, bounds: Mapping[str, float]) -> Row:
    """The row of a figure; `bounds` holds the bounds that are set by the caller."""
    gate = GATES[figure.name]
    ratio = figure.value / figure.floor if figure.floor else None
    bound = bounds.get(figure.name, gate.bound)
    judged = ratio if gate.of == "ratio" else figure.value
    ok: bool | None = None
    if bound is not None and judged is not None:
        ok = judged <= bound if gate.most else judged >= bound
    return Row(
        figure.name,
        figure.value,
        gate.unit,
        figure.n,
        figure.best,
        figure.floor,
        ratio,
        bound,
        gate.of,
        ok,
    )


def broken(name: str, why: str, bounds: Mapping[str, float]) -> Row:
    """The row of a figure that could not be had: it misses any bound."""
    gate = GATES[name]
    return Row(name, None, gate.unit, bound=bounds.get(name, gate.bound), of=gate.of, ok=False, failure=why)


def chosen(names: Sequence[str]) -> list[str]:
    """The rows that `names` mean: rows, or groups; all for none.

    Raises:
        ValueError: a name is neither.
    """
    if not names:
        return list(GATES)
    for name in names:
        if name not in GATES and name not in GROUPS:
            raise ValueError(f"there is no row or group {name!r}; there are: {', '.join([*GROUPS, *GATES])}")
    return [row for row, gate in GATES.items() if row in names or gate.group in names]
