"""One step of a session's log, without I/O: from a command to the lines and checksums that are stored.

Rule 1: a line is `"cursor":"…","event":{…}`, made once; what is stored is what is sent (invariant 2).
Rule 2: `crc` runs over all lines of the session, each ended by LF, so one CRC proves a page of any size: a changed,
missing or swapped event breaks it.
Rule 3: both stores go through `advance`, so they cannot decide or number differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final
from zlib import crc32

import orjson

from hames.core.artifacts import KEEPING, Content, separate
from hames.core.commands import (
    Boundary,
    CancelTurn,
    CloseSession,
    Command,
    CompactContext,
    CreateSession,
    CutLog,
    Draft,
    EndTurn,
    ExitProcess,
    KeyRecord,
    Known,
    OpenSession,
    Record,
    Reply,
    ResumeQueue,
    StartProcess,
    StartTurn,
    SteerTurn,
    StopProcess,
    SubmitTurn,
    UpdateSession,
    UpdateTurn,
    named_turn,
)
from hames.core.decide import decide
from hames.core.records import record
from hames.core.session import LIFECYCLE_EVENTS, Event, evolve, key_record, number, touched
from hames.core.state import State, Turn
from hames.protocol.chain import cursor, encode_event, first_digest, next_digest

DIGEST_BYTES: Final = 8
"""Of each event's digest that is stored: 6 are checked with a cursor, 8 against the head's chain."""

NOT_OWNED: Final = -1
"""The fence that an attempt finds when its process does not hold the lease: no command is made under it, not even
by mistake under 0."""

_PREFIX: Final = re.compile(
    rb'"cursor":"([^"]*)","event":\{"sessionId":"[^"]*","seq":\d+,"time":"[^"]*"'
    rb'(?:,"turnId":"[^"]*")?(?:,"attempt":\d+)?,"type":"([^"]*)"'
)
"""What stands before the data of a line: all of it is of a known form, so no JSON parser is needed."""

_EVENT_AT: Final = b'","event":'


_LIFECYCLE: Final = frozenset(type_.encode() for type_ in LIFECYCLE_EVENTS)

_lasting: Final = attrgetter(*(f.name for f in fields(State) if f.name not in {"seq", "ended"}))
"""What of a state is stored; the head is stored apart, `ended` not at all."""


@record
class Head:
    """Where a session's log stands: the folded state, the last event's digest, the running CRC."""

    state: State
    chain: bytes
    crc: int

    @property
    def cursor(self) -> str:
        """The cursor after the last event."""
        return cursor(self.state.seq, self.chain)


@record
class Row:
    """An event as stored."""

    seq: int
    digest: bytes
    crc: int
    line: bytes


@record
class UsedKey:
    """An idempotency key that was used up; `in_store` when it is unique in the store, not in the session."""

    in_store: bool
    key: str
    record: KeyRecord


@record
class Step:
    """What a command appends, and what it changes beside the log. `turns` are those that changed.

    `state` is as `evolve` left it; `head` forgets `ended`, which is of one moment and is not stored. `contents` are
    what the events refer to, each with the seq of the first that does; `named` those that were kept before them.
    """

    head: Head
    state: State
    events: tuple[Event, ...]
    rows: tuple[Row, ...]
    turns: Mapping[str, Turn]
    keys: tuple[UsedKey, ...]
    reply: Reply
    contents: Mapping[bytes, tuple[int, Content]]
    named: Mapping[bytes, int]


def empty_head(session_id: str) -> Head:
    """The head of a log without events."""
    return Head(State(session_id), first_digest(session_id), 0)


def advance(head: Head, command: Command, known: Known, *, now: str) -> Step:
    """Decide `command` at `head` and number what follows; `now` is RFC 3339. Nothing is changed.

    Raises:
        Refused: by `decide`.
    """
    decision = decide(head.state, command, known)
    state, chain, crc = head.state, head.chain, head.crc
    events: list[Event] = []
    rows: list[Row] = []
    turns: dict[str, Turn] = {}
    used: list[tuple[Event, str, str, str | None, str | None]] = []
    contents: dict[bytes, tuple[int, Content]] = {}
    named: dict[bytes, int] = {}
    for draft in decision.drafts:
        data, apart = separate(draft.type, draft.data)
        if apart:
            draft = Draft(draft.type, data, draft.turn_id, draft.attempt)
            for content in apart:
                contents.setdefault(content.digest, (state.seq + 1, content))
        if draft.type in KEEPING and "artifact" in draft.data:
            named.setdefault(bytes.fromhex(draft.data["artifact"]["sha256"]), state.seq + 1)
        (event,), state = number(state, (draft,), now)
        row = next_row(state.session_id, event, chain, crc)
        chain, crc = row.digest, row.crc
        events.append(event)
        rows.append(row)
        turn = touched(state, event)
        if turn is not None and turn is not head.state.turns.get(turn.turn_id):
            turns[turn.turn_id] = turn
        key = key_record(state, event)
        if key is not None:
            used.append((event, key[0], key[1].digest, key[1].turn_id, key[1].steer_id))
    keys = tuple(
        UsedKey(
            event.type == "session.created",
            key,
            KeyRecord(digest, state.session_id, state.seq, turn_id or decision.reply.turn_id, steer_id),
        )
        for event, key, digest, turn_id, steer_id in used
    )
    head = Head(state.at_rest(), chain, crc)
    return Step(head, state, tuple(events), tuple(rows), turns, keys, decision.reply, contents, named)


def next_row(session_id: str, event: Event, chain: bytes, crc: int) -> Row:
    """`event` as it is stored after an event whose digest is `chain` and whose running CRC is `crc`."""
    text = encode_event(
        session_id, event.seq, event.time, event.type, event.data, turn_id=event.turn_id, attempt=event.attempt
    )
    digest = next_digest(chain, text)
    line = b'"cursor":"' + cursor(event.seq, digest).encode() + _EVENT_AT + text
    return Row(event.seq, digest, crc32(b"\n", crc32(line, crc)), line)


def cursor_in(line: bytes) -> str:
    """The cursor that stands in a line."""
    return line[10 : line.index(b'"', 10)].decode()


def type_in(line: bytes) -> bytes:
    """The type of a line's event; empty when it is not a line."""
    match = _PREFIX.match(line)
    return match[2] if match else b""


def event_in(line: bytes) -> Mapping[str, Any]:
    """A line's event, parsed."""
    event: Mapping[str, Any] = orjson.loads(line[line.index(_EVENT_AT) + len(_EVENT_AT) :])
    return event


def moved(before: State, after: State) -> bool:
    """Whether more than the head differs between two states at rest: whether the later one must be stored."""
    return _lasting(before) != _lasting(after)


def refold(session_id: str, lines: Iterable[bytes]) -> tuple[State, dict[str, Turn]]:
    """The state and every turn that a whole log leads to, by this build's `evolve`. Most lines are not even parsed."""
    state = State(session_id)
    turns: dict[str, Turn] = {}
    seq = 0
    for line in lines:
        seq += 1
        if type_in(line) not in _LIFECYCLE:
            continue
        event = Event.of(event_in(line))
        state = evolve(state, event)
        turn = touched(state, event)
        if turn is not None:
            turns[turn.turn_id] = turn
    return state.at(seq).at_rest(), turns


def known_turn(command: Command, state: State) -> tuple[str | None, Turn | None]:
    """The turn id to look up for `decide` if it is not open, or the open turn itself."""
    turn_id = named_turn(command)
    turn = None if turn_id is None else state.turns.get(turn_id)
    return (None if turn is not None else turn_id), turn


def weigh(command: Command) -> int:
    """About how many bytes `command` will append: for bounds, not for accounts."""
    match command:
        case CreateSession():
            return 8192 + (weigh(command.turn) if command.turn is not None else 0)
        case SubmitTurn() | SteerTurn() | UpdateTurn():
            told = len(command.instructions or "") if isinstance(command, SubmitTurn) else 0
            return 512 + told + sum(_text_bytes(slot) for slot in command.input or ())
        case Record() | EndTurn() | StartTurn():
            return 512 + sum(256 + _draft_bytes(draft) for draft in command.drafts)
        case UpdateSession() | CloseSession() | OpenSession() | CancelTurn() | ResumeQueue() | Boundary() | CutLog():
            return 512
        case CompactContext() | StopProcess():
            return 512
        case StartProcess() | ExitProcess():
            return 512 + _text_bytes(command.data)


def _draft_bytes(draft: Draft) -> int:
    return _text_bytes(draft.data) + sum(_text_bytes(image) for image in draft.data.get("images", ()))


def _text_bytes(value: Mapping[str, Any]) -> int:
    return sum(len(member) for member in value.values() if isinstance(member, str | bytes))
