"""Sessions, turns and keys as rows, and the proof that a session's row and its log belong together.

Rule 1: a session's row has a MAC under the store's key over its head, chain and state: a row that was edited, swapped
or cut does not match, and other sessions are unaffected.
Rule 2: what event 1 holds (snapshot, metadata, keyed digest) is read from event 1; it is not stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from hmac import compare_digest
from typing import Any
from zlib import crc32

import apsw
import orjson

from hames.core.commands import KeyRecord
from hames.core.records import record
from hames.core.state import State, Turn, state_from_json, turn_from_json
from hames.protocol.errors import HarnessFault, Refused
from hames.store.log import DIGEST_BYTES, Head, event_in, refold
from hames.store.pages import corrupt
from hames.store.schema import SEQ_BITS, SESSION_VERSION, one
from hames.store.snapshots import matches

COLUMNS = "n, id, head, chain, crc, state_digest, mac, fence, owner, min_reader"


@record
class Stored:
    """The row of a session, proved by its MAC; the state is read apart."""

    n: int
    session_id: str
    seq: int
    chain: bytes
    crc: int
    state_digest: bytes
    fence: int
    owner: str | None
    min_reader: int

    @property
    def base(self) -> int:
        """The key before the first event's."""
        return self.n << SEQ_BITS


def seal(key: bytes, session_id: str, seq: int, chain: bytes, *, crc: int, state_digest: bytes) -> bytes:
    """The MAC of a session's row."""
    text = b"%s\0%d\0%d\0" % (session_id.encode(), seq, crc)
    return blake2b(text + chain + state_digest, key=key, digest_size=16).digest()


def digest_of(text: bytes) -> bytes:
    """Of a state's text, for the MAC."""
    return blake2b(text, digest_size=16).digest()


def find(connection: apsw.Connection, key: bytes, session_id: str) -> Stored | None:
    """A session's row.

    Raises:
        HarnessFault: `session_corrupt`: its MAC does not match.
    """
    row = one(connection, f"select {COLUMNS} from session where id = ?", (session_id,))
    return None if row is None else stored(row, key)


def stored(row: tuple[Any, ...], key: bytes) -> Stored:
    """A row of `COLUMNS`, proved."""
    n, session_id, seq, chain, crc, state_digest, mac, fence, owner, min_reader = row
    # A damaged table may hold values of other types.
    is_formed = all(isinstance(each, bytes) for each in (chain, state_digest, mac))
    is_formed = is_formed and isinstance(seq, int) and isinstance(crc, int)
    if not is_formed or not compare_digest(mac, seal(key, session_id, seq, chain, crc=crc, state_digest=state_digest)):
        raise not_proved(session_id, seq, "its head does not match its seal")
    return Stored(n, session_id, seq, chain, crc, state_digest, fence, owner, min_reader)


def load(connection: apsw.Connection, row: Stored, key: bytes) -> tuple[Head, Mapping[str, Any], dict[str, Turn]]:
    """A session's head and the data of its creation, proved; and the turns, if they had to be folded anew.

    Raises:
        Refused: `session_incompatible`.
        HarnessFault: `session_corrupt`.
    """
    if row.min_reader > SESSION_VERSION:
        raise Refused("session_incompatible", sessionId=row.session_id, needs=row.min_reader, supported=SESSION_VERSION)
    last = one(
        connection,
        "select id, digest, crc from event where id > ? and id <= ? order by id desc limit 1",
        (row.base, (row.n + 1) << SEQ_BITS),
    )
    if last is None or last != (row.base + row.seq, row.chain[:DIGEST_BYTES], row.crc):
        raise not_proved(row.session_id, row.seq, "its last event is not the one its head tells of")
    created = first_event(connection, row)
    state, turns = _state(connection, row)
    if state.seq != row.seq or not matches(created, state, key):
        raise not_proved(row.session_id, 1, "its snapshot was not written by this store")
    return Head(state, row.chain, row.crc), created, turns


def first_event(connection: apsw.Connection, row: Stored) -> Mapping[str, Any]:
    """The data of `session.created`."""
    found = one(connection, "select crc, line from event where id = ?", (row.base + 1,))
    if found is None:
        raise corrupt(row.session_id, 1, "is missing")
    crc, text = found
    line = _bytes(text)
    if crc32(b"\n", crc32(line)) != crc:
        raise corrupt(row.session_id, 1)
    data: Mapping[str, Any] = event_in(line)["data"]
    return data


def stored_state(connection: apsw.Connection, row: Stored) -> State | None:
    """A session's state as it was stored last, proved; None where another version of the fold did.

    Raises:
        HarnessFault: `session_corrupt`.
    """
    found = one(connection, "select doc from state where n = ?", (row.n,))
    text = b"" if found is None else _bytes(found[0])
    if digest_of(text) != row.state_digest:
        raise not_proved(row.session_id, row.seq, "its state does not match its seal")
    return state_from_json(orjson.loads(text))


def _state(connection: apsw.Connection, row: Stored) -> tuple[State, dict[str, Turn]]:
    state = stored_state(connection, row)
    if state is not None:
        # The state is stored when it changes; events that only move the head leave it.
        return replace(state, seq=row.seq), {}
    lines = connection.execute(
        "select line from event where id > ? and id <= ? order by id", (row.base, row.base + row.seq)
    )
    return refold(row.session_id, (line.encode() for (line,) in lines))


def not_proved(session_id: str, seq: int, why: str) -> HarnessFault:
    """`session_corrupt` for a session whose row and log do not belong together."""
    return HarnessFault(
        "session_corrupt",
        f"Session {session_id} does not prove itself: {why}. Nothing was changed. See `hames verify`.",
        boundary="artifact_store",
        sessionId=session_id,
        seq=seq,
    )


TURN_COLUMNS = "n, turn_id, status, crc, doc"

_TURNS = (
    "select count(*), min(n), max(n), count(case when json_valid(doc) then case when doc ->> 'n' = n"
    " and doc ->> 'status' = status and turn_id in (doc ->> 'turn_id', '/' || n) then 1 end end)"
    " from turn where session = ?"
)


def second_name(n: int) -> str:
    """What a turn is called in its row whose id a later turn of the session has too: no id begins so."""
    return f"/{n}"


def prove_turns(connection: apsw.Connection, n: int, count: int, *, session_id: str) -> None:
    """The rows of turns are those of the session's `count` turns, each under its own number, name and status. What else
    a row holds is proved when it is read.

    Raises:
        HarnessFault: `session_corrupt`: a list of them would be short, or tell of some twice.
    """
    found = one(connection, _TURNS, (n,))
    if found != ((count, 1, count, count) if count else (0, None, None, 0)):
        why = f"the rows of its turns are not those of the {count} that its log tells of, which `hames repair` mends"
        raise not_proved(session_id, 0, why)


def turn_row(connection: apsw.Connection, n: int, turn_id: str, *, session_id: str) -> Turn | None:
    """A turn of the session that has the number `n`."""
    select = f"select {TURN_COLUMNS} from turn where session = ? and turn_id = ?"
    found = one(connection, select, (n, turn_id))
    return None if found is None else turn_of(found, session_id)


def turn_of(found: tuple[int, str, str, int, str], session_id: str) -> Turn:
    """A turn from its row of `TURN_COLUMNS`."""
    n, turn_id, status, crc, doc = found
    if crc32(_bytes(doc)) != crc:
        raise not_proved(session_id, 0, "a turn's row does not match its checksum")
    turn = turn_from_json(orjson.loads(doc))
    if (turn.n, turn.status) != (n, status) or turn_id not in (turn.turn_id, second_name(n)):
        raise not_proved(session_id, 0, "a turn's row is called by another name, number or status than it tells of")
    return turn


def _bytes(text: object) -> bytes:
    """A stored text; empty, which matches no checksum, where a damaged table holds something else."""
    return text.encode() if isinstance(text, str) else b""


def key_row(connection: apsw.Connection, scope: int, key: str) -> KeyRecord | None:
    """What an idempotency key was used for; scope 0 is the store."""
    found = one(
        connection,
        "select digest, session_id, seq, turn_id, steer_id from idem where scope = ? and key = ?",
        (scope, key),
    )
    return None if found is None else KeyRecord(*found)


def digest_at(connection: apsw.Connection, row: Stored, seq: int) -> bytes | None:
    """The first bytes of an event's digest."""
    found = one(connection, "select digest from event where id = ?", (row.base + seq,))
    return None if found is None else found[0]
