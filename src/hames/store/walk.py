"""Along a session's log from its first event, as the table holds it: proved and folded event by event.

Rule 1: what is not the next event of the chain ends the trail; nothing behind it is folded, since nothing proves it.
An event proves itself by its text and one of what was stored of its digest: the cursor in its line, or its column. What
stands beside a proved text (`Amends`) follows from it, is told where it differs, and ends nothing.
Rule 2: memory does not grow with the log: an ended turn is passed on and forgotten.
Rule 3: what is wrong behind the end of the trail is still told apart, by the running checksum stored with each event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Any, Final, Protocol
from zlib import crc32

import apsw

from hames.archive.findings import FindingKind
from hames.core.records import record
from hames.core.session import LIFECYCLE_EVENTS, Event, evolve, touched
from hames.core.state import State, Turn
from hames.protocol.chain import cursor, first_digest, next_digest
from hames.store.findings import FINDINGS_OF_SESSION, Findings
from hames.store.log import DIGEST_BYTES, event_in, type_in
from hames.store.schema import SEQ_BITS, one

_WHOSE: Final = re.compile(rb'"cursor":"[^"]*","event":\{"sessionId":"([^"]*)","seq":(\d+),')
"""What a line says of itself."""

_EVENT_AT: Final = b'","event":'
_REFERENCE: Final = b'"artifact":"a-'
_DIFFERING: Final = ("digest", "checksum", "cursor")
"""Names of the parts of an entry: of its line, only the cursor can differ."""

_FOLDED: Final = frozenset(type_.encode() for type_ in LIFECYCLE_EVENTS)


@record
class Entry:
    """A row of the table of events."""

    seq: int
    digest: bytes
    crc: int
    line: bytes

    @property
    def parts(self) -> tuple[bytes, int, bytes]:
        """What follows from its text."""
        return self.digest, self.crc, self.line


@record
class Amends:
    """A proved event as its row should be, and which columns of the row are not."""

    row: Entry
    columns: tuple[str, ...]


class Taker(Protocol):
    """Who is told what a proved log leads to."""

    def amend(self, amends: Amends) -> None:
        """The row of a proved event holds something else than what follows from its text."""
        ...

    def event(self, state: State, event: Event) -> None:
        """`event` was folded into `state`; those that only move the head and refer to nothing are left out."""
        ...

    def turn(self, turn: Turn) -> None:
        """As a turn stands for good: it has ended, or the log has."""
        ...


def entries(connection: apsw.Connection, n: int) -> Generator[Entry, None, None]:
    """All rows of a session, by number.

    Raises:
        apsw.CorruptError: the database file is damaged where they stand.
    """
    base = n << SEQ_BITS
    select = "select id, digest, crc, cast(line as blob) from event where id > ? and id <= ? order by id"
    for key, digest, crc, line in connection.execute(select, (base, base + (1 << SEQ_BITS) - 1)):
        # A damaged table may hold values of other types; they prove nothing.
        yield Entry(
            key - base,
            digest if isinstance(digest, bytes) else b"",
            crc if isinstance(crc, int) else -1,
            line if isinstance(line, bytes) else b"",
        )


class Trail:
    """The part of a log that proves itself. `seq`, `chain`, `crc` and `state` are of its last event."""

    def __init__(self, session_id: str, taker: Taker, *, folds: bool = True) -> None:
        self.session_id = session_id
        self.seq = 0
        self.chain = first_digest(session_id)
        self.crc = 0
        self.state = State(session_id)
        self.created: Mapping[str, Any] | None = None
        self.amends: Amends | None = None
        """Of the event that was taken last, if there are any."""
        self._taker = taker
        self._folds = folds

    def take(self, entry: Entry) -> str | None:
        """Go on by one event; why it is not the next one that was written, None when it is."""
        self.amends = None
        start = entry.line.find(_EVENT_AT)
        if entry.seq != self.seq + 1 or start < 0:
            return "is not an event" if start < 0 else "is not the next one"
        digest = next_digest(self.chain, entry.line[start + len(_EVENT_AT) :])
        line = b'"cursor":"' + cursor(entry.seq, digest).encode() + entry.line[start:]
        if digest[:DIGEST_BYTES] != entry.digest and line != entry.line:
            return "does not follow from the events before it"
        crc = crc32(b"\n", crc32(line, self.crc))
        if self._folds:
            why = self._fold(line)
            if why is not None:
                return why
        row = Entry(entry.seq, digest[:DIGEST_BYTES], crc, line)
        if row != entry:
            self.amends = Amends(row, tuple(_DIFFERING[n] for n in range(3) if row.parts[n] != entry.parts[n]))
            self._taker.amend(self.amends)
        self.seq, self.chain, self.crc = entry.seq, digest, crc
        return None

    def end(self, *, is_whole: bool) -> None:
        """The log goes no further: if it is whole, pass on the turns that are open."""
        self.state = self.state.at_rest()
        if is_whole:
            for turn in self.state.turns.values():
                self._taker.turn(turn)

    def _fold(self, line: bytes) -> str | None:
        if said_by(line) != (self.session_id, self.seq + 1):
            return "says that it is another event"
        if type_in(line) not in _FOLDED and _REFERENCE not in line:
            self.state = self.state.at(self.seq + 1)
            return None
        try:
            event = Event.of(event_in(line))
            state = evolve(self.state, event)
        except (LookupError, TypeError, ValueError, AttributeError):
            return "cannot be folded"
        self.state = state
        if event.seq == 1:
            self.created = event.data
        self._taker.event(state, event)
        turn = touched(state, event)
        if turn is not None and turn.ended:
            self._taker.turn(turn)
        return None


def walk(
    connection: apsw.Connection,
    n: int,
    trail: Trail,
    found: Findings,
    *,
    step: Callable[[], object],
    head: int | None = None,
) -> int:
    """Follow `trail` over the rows of session `n`, say what is wrong with them; the number of the last row. `step` is
    called for each; `head` is where the log should end, if that is known."""
    last, crc = 0, 0
    is_whole = crc_known = True
    try:
        with closing(entries(connection, n)) as rows:
            for entry in rows:
                step()
                if entry.seq > last + 1:
                    _gap(last + 1, entry.seq - 1, found)
                    is_whole = crc_known = False
                why = trail.take(entry) if is_whole else _why(entry, crc if crc_known else None, trail.session_id)
                crc_known = True
                if why is not None:
                    is_whole = False
                    # What stands in the place of another brings its own checksum along.
                    crc_known = _classify(connection, n, entry, why, trail.session_id, found) == "edited"
                elif is_whole and trail.amends is not None:
                    differing = " and ".join(trail.amends.columns)
                    found.add(
                        "edited", f"its {differing} is not what follows from its text, which is whole", at=_at(entry)
                    )
                last, crc = entry.seq, trail.crc if is_whole else entry.crc
                # A trail that goes on is followed to its end, however much is wrong beside it.
                if not is_whole and found.of_part >= FINDINGS_OF_SESSION:
                    break
    except apsw.CorruptError:
        found.add("edited", "the database file is damaged there", at=f"behind event {last}")
    trail.end(is_whole=is_whole if head is None else trail.seq == head)
    return last


def said_by(line: bytes) -> tuple[str, int] | None:
    """Which event a line says that it is: session and seq; None where it is none."""
    says = _WHOSE.match(line)
    return None if says is None else (says[1].decode(errors="replace"), int(says[2]))


def _at(entry: Entry) -> str:
    return f"event {entry.seq}"


def _gap(first: int, last: int, found: Findings) -> None:
    if first == last:
        found.add("gapped", "is not there, but later ones are", at=f"event {first}")
    else:
        found.add("gapped", "are not there, but later ones are", at=f"events {first} to {last}")


def _why(entry: Entry, crc: int | None, session_id: str) -> str | None:
    """Why an event behind the end of the trail is not what was written, as far as its own checksum tells."""
    if said_by(entry.line) != (session_id, entry.seq):
        return "says that it is another event"
    if crc is not None and crc32(b"\n", crc32(entry.line, crc)) != entry.crc:
        return "does not match its checksum"
    return None


def _classify(
    connection: apsw.Connection, n: int, entry: Entry, why: str, session_id: str, found: Findings
) -> FindingKind:
    at = _at(entry)
    says = said_by(entry.line)
    if says is None or says == (session_id, entry.seq):
        return found.add("edited", why, at=at)
    whose, seq = says
    if whose != session_id:
        return found.add("swapped", f"is event {seq} of session {whose[:64]}", at=at)
    twin = one(connection, "select cast(line as blob) from event where id = ?", ((n << SEQ_BITS) + seq,))
    if twin is not None and twin[0] == entry.line:
        return found.add("duplicated", f"is event {seq} a second time", at=at)
    return found.add("swapped", f"is event {seq}", at=at)
