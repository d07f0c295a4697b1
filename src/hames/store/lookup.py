"""What is read of a store: sessions, turns, pages of the log; all over one connection, in one thread.

Rule 1: what was read is proved before it is handed out; damage is `session_corrupt` for that session alone.
Rule 2: no transaction stays open between two calls: a long reader would stop the WAL from being reused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final
from zlib import crc32

import apsw

from hames.core.state import Turn
from hames.ports import Artifact, Loaded, Owner, Page
from hames.protocol.chain import check_cursor, cursor, first_digest, parse_cursor
from hames.protocol.errors import HamesError, HarnessFault, Refused
from hames.store import blob_rows, removal, rows
from hames.store.opening import ReadSide
from hames.store.pages import Bounds, Damage, Sizes, corrupt, read_backward, read_forward
from hames.store.schema import SESSION_VERSION, every, one

SIZES_KEPT: Final = 1024
"""Sessions whose average event size is remembered."""

TURNS_PROVED: Final = 4096
"""Sessions whose rows of turns were looked at and are remembered."""

_PAGE: Final = (
    "select (select crc from event where id = ?1), count(*), max(id), crc, cast(group_concat(line, char(10)) as blob)"
    " from event where id > ?1 and id <= ?2"
)
"""`crc` is taken from the row of `max(id)` (sqlite.org/lang_select.html, "bare columns"). The rows come in the order of
their key, as the table is scanned; were it otherwise, the CRC would not match."""

GONE: Final = -1
"""Instead of the head of a session that was deleted."""

NEWEST: Final = 2**62
"""Beyond the number of every session and turn."""

_OF_WORKSPACE: Final = " and workspace = ?2"
_OF_QUERY: Final = " and instr(casefold(ifnull(title, '') || char(10) || id), ?3)"
"""A condition that does not apply is left out, never null: SQLite would not use an index for it."""

_TURNS: Final = f"select {rows.TURN_COLUMNS} from turn where session = ?1 and n < ?2 order by n desc limit ?4"
_TURNS_OF: Final = (
    f"select {rows.TURN_COLUMNS} from turn where session = ?1 and n < ?2 and status = ?3 order by n desc limit ?4"
)
_TURNS_FAILED: Final = (
    f"select {rows.TURN_COLUMNS} from turn where session = ?1 and n in"
    " (select n from turn where session = ?1 and n < ?2 and status = ?3"
    " and status in ('failed', 'cancelled') order by n desc limit ?4) order by n desc"
)
"""Turns that failed are few among many: they have an index, whose own condition must stand here word for word."""


class _Log:
    """`pages.Lines` on the table of events."""

    def __init__(self, connection: apsw.Connection, row: rows.Stored) -> None:
        self._connection = connection
        self._row = row
        self.session_id = row.session_id
        self.head_seq = row.seq
        self.head_cursor = cursor(row.seq, row.chain)

    def fetch(self, low: int, high: int) -> bytes:
        base = self._row.base
        try:
            found = one(self._connection, _PAGE, (base + low, base + high))
        except apsw.CorruptError:
            raise self._damage(low, high) from None
        before, count, last, crc, text = found
        if count != high - low or last != base + high or (before is None and low > 0) or not isinstance(text, bytes):
            raise self._damage(low, high)
        block: bytes = text
        proof = crc32(b"\n", crc32(block, before or 0))
        if proof != crc or (high == self._row.seq and crc != self._row.crc):
            raise self._damage(low, high)
        return block

    def _damage(self, low: int, high: int) -> Damage:
        """Where exactly: each event is held against the checksums stored with it and with the one before it."""
        base = self._row.base
        good: list[bytes] = []
        after: list[bytes] = []
        first_bad = last_bad = 0
        crc: int | None = 0 if low == 0 else None
        expected = low + 1
        select = "select id, crc, line from event where id >= ? and id <= ? order by id"
        try:
            for key, stored, text in self._connection.execute(select, (base + max(low, 1), base + high)):
                seq = key - base
                if seq == low:
                    crc = stored
                    continue
                if not expected <= seq <= high:
                    # Keys that are out of order: the table itself is damaged.
                    break
                if expected < seq:
                    first_bad, last_bad, after = first_bad or expected, seq - 1, []
                line = text.encode(errors="replace") if isinstance(text, str) else b""
                end = seq == self._row.seq and stored != self._row.crc
                if crc is None or end or crc32(b"\n", crc32(line, crc)) != stored:
                    first_bad, last_bad, after = first_bad or seq, seq, []
                elif first_bad:
                    after.append(line)
                else:
                    good.append(line)
                crc, expected = stored, seq + 1
        except (apsw.CorruptError, UnicodeError):
            after = []
        if expected <= high:
            first_bad, last_bad, after = first_bad or expected, high, []
        return Damage(first_bad or low + 1, last_bad or low + 1, good, after)


_Place = tuple[str, str, Bounds]
"""Where a page begins: session, cursor before it, bounds."""


class Lookup:
    """Reads a store. `look` tells of an owner."""

    def __init__(self, side: ReadSide, look: Callable[[str], Owner]) -> None:
        self._connection = side.connection
        # SQLite's own `lower` knows ASCII only.
        self._connection.create_scalar_function("casefold", _casefold, 1, deterministic=True)
        self._key = side.key
        self._look = look
        self._sizes: dict[str, Sizes] = {}
        self._turns_proved: set[str] = set()
        self._next: _Place | None = None
        self._ahead: tuple[_Place, Page] | None = None
        self._is_followed = False

    def _find(self, session_id: str) -> rows.Stored:
        try:
            row = rows.find(self._connection, self._key, session_id)
        except apsw.CorruptError as error:
            raise rows.not_proved(session_id, 0, "the database file is damaged") from error
        if row is None:
            removal.refuse(self._connection, session_id)
            raise Refused("session_not_found", sessionId=session_id)
        return row

    def head(self, session_id: str) -> int:
        """The seq of a session's last event."""
        return self._find(session_id).seq

    def heads(self, session_ids: Sequence[str]) -> dict[str, int]:
        """The same for several; `GONE` for those that were deleted, and those that never were are left out."""
        found: dict[str, int] = {}
        for session_id in session_ids:
            row = one(self._connection, "select head from session where id = ?", (session_id,))
            if row is not None:
                found[session_id] = row[0]
            elif removal.deleted_at(self._connection, session_id) is not None:
                found[session_id] = GONE
        return found

    def version(self) -> int:
        """Changes when another connection commits."""
        return int(self._connection.pragma("data_version"))

    def load(self, session_id: str) -> Loaded:
        """As `Store.load`."""
        return self._loaded(self._find(session_id))

    def _loaded(self, row: rows.Stored) -> Loaded:
        try:
            head, created, _ = rows.load(self._connection, row, self._key)
        except apsw.CorruptError as error:
            raise rows.not_proved(row.session_id, row.seq, "the database file is damaged") from error
        owner = None if row.owner is None else self._look(row.owner)
        return Loaded(
            head.state, created["snapshot"], created["keyedDigest"], created.get("metadata"), head.cursor, owner
        )

    def owner(self, session_id: str) -> Owner | None:
        """As `Store.owner`."""
        owner_id = self._find(session_id).owner
        return None if owner_id is None else self._look(owner_id)

    def _with_turns(self, session_id: str) -> rows.Stored:
        """A session whose rows of turns are all there and no more: looked at once."""
        row = self._find(session_id)
        if session_id not in self._turns_proved and row.min_reader <= SESSION_VERSION:
            state = rows.stored_state(self._connection, row)
            if state is not None:
                rows.prove_turns(self._connection, row.n, state.count, session_id=session_id)
            if len(self._turns_proved) >= TURNS_PROVED:
                self._turns_proved.clear()
            self._turns_proved.add(session_id)
        return row

    def turn(self, session_id: str, turn_id: str) -> tuple[Turn, str]:
        """As `Store.turn`."""
        row = self._with_turns(session_id)
        turn = rows.turn_row(self._connection, row.n, turn_id, session_id=session_id)
        if turn is None:
            raise Refused("turn_not_found", turnId=turn_id)
        return turn, cursor(row.seq, row.chain)

    def turns(self, session_id: str, before: int | None, limit: int, status: str | None) -> tuple[list[Turn], str]:
        """As `Store.turns`."""
        row = self._with_turns(session_id)
        before = NEWEST if before is None else before
        at = cursor(row.seq, row.chain)
        if status in ("queued", "running"):
            head, _, _ = rows.load(self._connection, row, self._key)
            open_turns = [turn for turn in head.state.turns.values() if turn.status == status and turn.n < before]
            return sorted(open_turns, key=lambda turn: -turn.n)[:limit], at
        select = _TURNS if status is None else _TURNS_OF if status == "completed" else _TURNS_FAILED
        found = every(self._connection, select, (row.n, before, status, limit))
        return [rows.turn_of(each, session_id) for each in found], at

    def sessions(
        self, workspace: str | None, query: str | None, before: int | None, limit: int
    ) -> list[tuple[int, Loaded]]:
        """As `Store.sessions`."""
        before = NEWEST if before is None else before
        also = ("" if workspace is None else _OF_WORKSPACE) + ("" if query is None else _OF_QUERY)
        select = f"select {rows.COLUMNS} from session where n < ?1{also} order by n desc limit ?4"
        found: list[tuple[int, Loaded]] = []
        while len(found) < limit:
            asked = limit - len(found)
            values = (before, workspace, None if query is None else query.casefold(), asked)
            page = every(self._connection, select, values)
            for each in page:
                before = each[0]
                try:
                    found.append((each[0], self._loaded(rows.stored(each, self._key))))
                except (Refused, HarnessFault):
                    continue
            if len(page) < asked:
                break
        return found

    def places(self, session_id: str, artifacts: Collection[str]) -> list[blob_rows.Place]:
        """Where artifacts of a session are, in the order asked for."""
        n = self._find(session_id).n
        return [blob_rows.find(self._connection, n, artifact, session_id=session_id) for artifact in artifacts]

    def places_left(self, session_id: str, artifacts: Collection[str]) -> list[blob_rows.Place]:
        """The same, without those that a repair has said to be lost."""
        n = self._find(session_id).n
        found = (blob_rows.find_left(self._connection, n, each, session_id=session_id) for each in artifacts)
        return [place for place in found if place is not None]

    def artifacts(self, session_id: str, after: str | None, limit: int) -> list[Artifact]:
        """As `Store.artifacts`."""
        return blob_rows.page(self._connection, self._find(session_id).n, after, limit)

    def read(self, session_id: str, after: str | None, before: str | None, bounds: Bounds) -> Page:
        """As `Store.read`."""
        row = self._find(session_id)
        low = 0 if after is None else self._place(row, after)
        low_cursor = after or cursor(0, first_digest(session_id))
        log = _Log(self._connection, row)
        if len(self._sizes) > SIZES_KEPT:
            self._sizes.clear()
        sizes = self._sizes.setdefault(session_id, Sizes())
        if before is None:
            place = (session_id, low_cursor, bounds)
            page = self._taken(row, place)
            if page is None:
                page = read_forward(log, bounds, sizes, low=low, low_cursor=low_cursor, high=row.seq)
            self._is_followed = place == self._next
            self._next = (session_id, page.cursor, bounds) if page.more else None
            return page
        high = max(low, self._place(row, before) - 1)
        return read_backward(log, bounds, sizes, low=low, low_cursor=low_cursor, high=high)

    @property
    def is_followed(self) -> bool:
        """The last question was for the page behind the one before, and there is another behind it."""
        return self._is_followed and self._next is not None

    def look_ahead(self) -> None:
        """Read the page that comes next: while a client is sent one page, the next one is made. One page is kept."""
        place, self._is_followed = self._next, False
        if place is not None:
            session_id, after, bounds = place
            self._ahead = (place, self.read(session_id, after, None, bounds))
            self._next, self._is_followed = place, False

    def _taken(self, row: rows.Stored, place: _Place) -> Page | None:
        """The page that was read ahead, if it is the one asked for and the log still holds it: its cursor proves all of
        it."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != place:
            return None
        try:
            self._place(row, ahead[1].cursor)
        except HamesError:
            return None
        return replace(ahead[1], head_seq=row.seq, head_cursor=cursor(row.seq, row.chain))

    def place(self, session_id: str, seq: int) -> str:
        """As `Store.place`."""
        row = self._find(session_id)
        digest = self._digest(row, seq)
        if digest is None:
            raise Refused("cursor_ahead", headSeq=row.seq, seq=seq)
        return cursor(seq, digest)

    def _place(self, row: rows.Stored, text: str) -> int:
        seq, hex_ = parse_cursor(text)
        digest = self._digest(row, seq)
        if digest is not None and digest[: len(hex_) // 2].hex() != hex_:
            self._check_digest(row, seq, digest)
        check_cursor(text, seq, hex_, digest, row.seq)
        return seq

    def _digest(self, row: rows.Stored, seq: int) -> bytes | None:
        """As the row of event `seq` says; None behind the head."""
        try:
            digest = first_digest(row.session_id) if seq == 0 else rows.digest_at(self._connection, row, seq)
        except apsw.CorruptError as error:
            raise corrupt(row.session_id, seq, "lies in a damaged part of the database file") from error
        if digest is None and seq <= row.seq:
            raise corrupt(row.session_id, seq, "is missing")
        return digest

    def _check_digest(self, row: rows.Stored, seq: int, digest: bytes) -> None:
        """Before a cursor is called foreign: the digest that it differs from must be the one that was sent.

        Raises:
            HarnessFault: `session_corrupt`.
        """
        line = seq and one(self._connection, "select cast(line as blob) from event where id = ?", (row.base + seq,))
        if line and not line[0].startswith(b'"cursor":"%b"' % cursor(seq, digest).encode()):
            raise corrupt(row.session_id, seq, "has another digest than stands in its line")


def _casefold(*values: Any) -> str:
    return str(values[0]).casefold()
