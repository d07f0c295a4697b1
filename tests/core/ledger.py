"""A store in a few lists: it gives `decide` what it must know, keeps what `number` gives, and folds the log again.

Rule 1: every event goes through its bytes, so what is folded is what would be read back.
Rule 2: after each commit the folded log must equal the state that wrote it; a difference is an AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hames.core import decide as decide_module
from hames.core import session as session_module
from hames.core.commands import Command, Decision, Draft, KeyRecord, Known, Reply, fence_of, named_key, named_turn
from hames.core.session import TERMINAL_EVENTS, Event, KeyRecordParts
from hames.core.state import State, Turn, state_from_json, state_to_json, turn_from_json, turn_to_json
from hames.core.times import rfc3339
from hames.protocol.chain import encode_event
from hames.protocol.jsontext import loads

FIRST_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: where the ledger's clock starts; it advances a second a commit."""


@dataclass(frozen=True, slots=True)
class Core:
    """The functions under test, so that a changed copy of their modules can take their place."""

    decide: Callable[[State, Command, Known], Decision]
    number: Callable[[State, Sequence[Draft], str], tuple[list[Event], State]]
    evolve: Callable[[State, Event], State]
    fold: Callable[[str, Iterable[Event]], State]
    key_record: Callable[[State, Event], tuple[str, KeyRecordParts] | None]
    touched: Callable[[State, Event], Turn | None]

    @staticmethod
    def of(decide: Any, session: Any) -> Core:
        """From the two modules."""
        return Core(decide.decide, session.number, session.evolve, session.fold, session.key_record, session.touched)


REAL = Core.of(decide_module, session_module)


class Ledger:
    """One session's log, its rows and its lease. `fence` is 0 while nobody holds the lease."""

    def __init__(self, core: Core = REAL, session_id: str = "s1") -> None:
        self.core = core
        self.session_id = session_id
        self.state = State(session_id)
        self.commits: list[list[Event]] = []
        self.turns: dict[str, Turn] = {}
        self.keys: dict[tuple[str, str], KeyRecord] = {}
        self.fence = 0
        self.last_fence = 0
        self.now_ms = FIRST_MS

    @property
    def events(self) -> list[Event]:
        """The log."""
        return [event for commit in self.commits for event in commit]

    def run(self, command: Command) -> tuple[Reply, list[Event]]:
        """Decide `command` against the head and keep what follows; `seq` in the answer is always filled in.

        Raises:
            Refused: as `decide` does; nothing changed.
        """
        turn_id, key = named_turn(command), named_key(command)
        known = Known(
            turn=self.turns.get(turn_id) if turn_id is not None else None,
            key=self.keys.get(key) if key is not None else None,
            fence=self.fence if fence_of(command) is not None else 0,
        )
        decision = self.core.decide(self.state, command, known)
        events, state = self.core.number(self.state, decision.drafts, rfc3339(self.now_ms))
        reply = decision.reply
        if reply.seq is None:
            reply = replace(reply, seq=state.seq)
        if events:
            self._keep(events, state, reply)
        return reply, events

    def claim(self) -> int:
        """Take the lease, from whoever holds it; the new fence."""
        self.last_fence += 1
        self.fence = self.last_fence
        return self.fence

    def release(self) -> None:
        """Nobody holds the lease."""
        self.fence = 0

    def crash(self) -> None:
        """Forget the state and fold it from the log; its stored form must say the same."""
        folded = self.core.fold(self.session_id, self.events)
        assert replace(folded, ended=None) == replace(self.state, ended=None)
        stored = state_from_json(loads(state_to_json(folded)))
        assert stored == replace(folded, ended=None)
        self.state = stored

    def _keep(self, events: list[Event], state: State, reply: Reply) -> None:
        after = self.state
        kept: list[Event] = []
        for event in events:
            read = _through_bytes(self.session_id, event)
            after = self.core.evolve(after, read)
            assert after.seq == event.seq == self.state.seq + len(kept) + 1, "sequence numbers are dense"
            if event.type in TERMINAL_EVENTS:
                assert read.data["fold"] == {"version": 1, "digest": after.digest()}
            self._rows(after, read, reply)
            kept.append(read)
        assert after == state, "the log folds to the state that wrote it"
        self.state = state
        self.commits.append(kept)
        self.now_ms += 1000

    def _rows(self, after: State, event: Event, reply: Reply) -> None:
        turn = self.core.touched(after, event)
        if turn is not None:
            assert turn_from_json(loads(turn_to_json(turn))) == turn
            self.turns[turn.turn_id] = turn
        record = self.core.key_record(after, event)
        if record is not None:
            key, parts = record
            scope = "store" if event.type == "session.created" else "session"
            # The answer stands at the head of its commit; a creation's also names its first turn.
            turn_id = parts.turn_id or reply.turn_id
            self.keys[scope, key] = KeyRecord(parts.digest, self.session_id, reply.seq or 0, turn_id, parts.steer_id)


def _through_bytes(session_id: str, event: Event) -> Event:
    value: Mapping[str, Any] = loads(
        encode_event(
            session_id,
            event.seq,
            event.time,
            event.type,
            event.data,
            turn_id=event.turn_id,
            attempt=event.attempt,
        )
    )
    return Event.of(value)
