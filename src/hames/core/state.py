"""The folded lifecycle of a session: what `decide` decides on and `evolve` changes.

Only open turns stand in it, so its size does not grow with the log; an ended turn is kept by the store as it
last stood (`Turn`) and handed to `decide` by way of `Known` where a command names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from typing import Any, Literal

from hames.core.records import replaced
from hames.core.usage import NO_USAGE, UsageSum
from hames.protocol.jsontext import dumps

FOLD_VERSION = 1
"""Raised when `evolve` decides differently; a fold of another version is not compared but folded anew."""

FILES_NAMED = 200
"""Changed files that a terminal event names; more are only counted."""

FILES_NAMED_CHARS = 16 * 1024
"""Characters of their paths, together: a terminal fits a frame whatever the paths are."""

TERMINAL: frozenset[str] = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True)
class Turn:
    """A turn as it stands. `n` counts admissions in the session from 1; times are RFC 3339."""

    turn_id: str
    n: int
    delivery: Literal["queue", "join"]
    by: Mapping[str, Any]
    digest: str
    limits: Mapping[str, Any]
    queued_at: str
    queued_seq: int
    status: Literal["queued", "running", "completed", "failed", "cancelled"] = "queued"
    key: str | None = None
    host: str | None = None
    attempt: int = 0
    fence: int = 0
    started_at: str | None = None
    deadline_at: str | None = None
    cancel: Mapping[str, Any] | None = None
    ended_at: str | None = None
    end_seq: int | None = None
    outcome: Mapping[str, Any] | None = None
    usage: UsageSum = NO_USAGE
    calls: Mapping[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    files_total: int = 0

    @property
    def ended(self) -> bool:
        """It has its terminal."""
        return self.status in TERMINAL


ENDED_PROCESSES = 16
"""Background processes that have ended, of which a state knows: each costs some hundred bytes with every change."""


@dataclass(frozen=True)
class Process:
    """A background process as it stands. `reaper` is where the process that started it has its reaper; `stop` who wants
    it to end; `exit` what `process.exited` told, without the ids."""

    process_id: str
    turn_id: str
    call_id: str
    command: str
    started_at: str
    name: str | None = None
    reaper: Mapping[str, Any] | None = None
    stop: Mapping[str, Any] | None = None
    ended_at: str | None = None
    exit: Mapping[str, Any] | None = None

    @property
    def ended(self) -> bool:
        """Nothing of it runs."""
        return self.exit is not None


@dataclass(frozen=True)
class State:
    """A session's lifecycle after event `seq`.

    `model` is the route that was set in the place of the snapshot's, and `model_digest` the digest of the snapshot with
    it. `queue` holds ids in order of admission; `running` is the host, whose joined turns stand in `turns` with
    `host` set. `steers` are ids that the running turn has not been given yet. `replaced_at` is the event that last
    replaced the context, 0 if none did, and `composed_at` the one that last composed what goes beside it; `compact`
    says who asked for the context to be replaced with the next request. `processes` are those in the background that
    run, and the newest of those that ended. `ended` is the turn that the latest event ended, if it did.
    """

    session_id: str
    seq: int = 0
    status: Literal["none", "open", "closed"] = "none"
    title: str | None = None
    created_at: str = ""
    updated_at: str = ""
    snapshot_digest: str = ""
    model: Mapping[str, Any] | None = None
    model_digest: str | None = None
    turns: Mapping[str, Turn] = field(default_factory=dict)
    queue: tuple[str, ...] = ()
    running: str | None = None
    hold: Mapping[str, Any] | None = None
    steers: tuple[str, ...] = ()
    count: int = 0
    usage: UsageSum = NO_USAGE
    replaced_at: int = 0
    composed_at: int = 0
    compact: Mapping[str, Any] | None = None
    processes: Mapping[str, Process] = field(default_factory=dict)
    ended: Turn | None = None

    @property
    def effective_digest(self) -> str:
        """Of the snapshot as turns that start now work with it."""
        return self.model_digest or self.snapshot_digest

    def effective(self, snapshot: Mapping[str, Any]) -> Mapping[str, Any]:
        """The session's `snapshot`, with the model that was set since."""
        return snapshot if self.model is None else {**snapshot, "model": self.model}

    @property
    def active(self) -> Turn | None:
        """The running turn."""
        return self.turns[self.running] if self.running is not None else None

    def joined(self) -> tuple[Turn, ...]:
        """Turns that joined the running one, in order of admission."""
        return tuple(turn for turn in self.turns.values() if turn.host is not None)

    def open_processes(self) -> tuple[Process, ...]:
        """Background processes that have not ended, in order of their start."""
        return tuple(process for process in self.processes.values() if not process.ended)

    def at(self, seq: int) -> State:
        """The same with the head at `seq`, nothing ended: what most events do."""
        return replaced(self, seq=seq, ended=None)

    def at_rest(self) -> State:
        """Without `ended`, which is of one moment and is not stored."""
        return self if self.ended is None else replaced(self, ended=None)

    def digest(self) -> str:
        """SHA-256 over the lifecycle (turns, queue, hold, steers, fences); equal builds agree on it."""
        turns = [
            (t.turn_id, t.n, t.status, t.delivery, t.host, t.attempt, t.fence, t.cancel is not None)
            for t in self.turns.values()
        ]
        whole = [self.status, turns, self.queue, self.running, self.hold is not None, self.steers, self.count]
        return sha256(dumps(whole)).hexdigest()


def turn_to_json(turn: Turn) -> bytes:
    """For the store's row of a turn."""
    try:
        # Twelve times faster than a copy to dictionaries; refused where text needs cleaning.
        return dumps(turn)
    except TypeError:
        return dumps(asdict(turn))


def turn_from_json(value: Mapping[str, Any]) -> Turn:
    """What `turn_to_json` wrote; members that this build does not know are left out."""
    known = {f.name: value[f.name] for f in fields(Turn) if f.name in value}
    known["usage"] = UsageSum.of(known.get("usage", {}))
    known["files"] = tuple(known.get("files", ()))
    return Turn(**known)


def state_to_json(state: State) -> bytes:
    """For the store's row of a session: `{version, state}`. `ended` is left out: it has a row of its own."""
    at_rest = state.at_rest()
    try:
        return dumps({"version": FOLD_VERSION, "state": at_rest})
    except TypeError:
        return dumps({"version": FOLD_VERSION, "state": asdict(at_rest)})


def _process_from_json(value: Mapping[str, Any]) -> Process:
    return Process(**{f.name: value[f.name] for f in fields(Process) if f.name in value})


def state_from_json(value: Mapping[str, Any]) -> State | None:
    """What `state_to_json` wrote; None when another version of the fold wrote it."""
    if value.get("version") != FOLD_VERSION:
        return None
    raw = dict(value["state"])
    raw["turns"] = {key: turn_from_json(turn) for key, turn in raw["turns"].items()}
    raw["usage"] = UsageSum.of(raw["usage"])
    raw["processes"] = {key: _process_from_json(one) for key, one in raw.get("processes", {}).items()}
    raw["ended"] = None
    raw["queue"] = tuple(raw["queue"])
    raw["steers"] = tuple(raw["steers"])
    return State(**{f.name: raw[f.name] for f in fields(State) if f.name in raw})
