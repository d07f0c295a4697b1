"""Check the events of an export, line by line: the chain of digests over them, and their order.

Part of the program that stands in every archive (`standalone`), so: the standard library only, Python 3.8 or newer.
Rule: one line is held back, since what follows it tells a copy, a gap and a swap apart; nothing else is kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

EVENTS = "events.jsonl"
LINE = re.compile(
    rb'\{"cursor":"(0|[1-9][0-9]{0,15})\.([0-9a-f]{12})",'
    rb'"event":\{"sessionId":"([A-Za-z0-9][A-Za-z0-9._-]{0,63})","seq":([1-9][0-9]{0,15}),"time":"'
)
EVENT_AT = b',"event":'
MOST_LINE = 64 * 2**20
"""Bytes; an event is smaller. A longer line is not read into memory."""
MOST_GAPS = 1000
"""Ranges of events that were not where they belong, remembered to tell a swap when they turn up."""


class LogCheck:
    """Takes the bytes of `events.jsonl` as they come; `find(kind, where, message, by_manifest)` is told of breaks.

    `proved` events, up to the cursor `cursor`, are those before the first break.
    """

    def __init__(self, find: Callable[..., None]) -> None:
        self.session_id = ""
        self.proved = 0
        self.cursor: str | None = None
        self._find = find
        self._number = 0
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._held: bytes | None = None
        self._next: int | None = 1
        self._gaps: list[range] = []
        self._early: set[int] = set()
        self._chain: bytes | None = None
        self._lost = False
        self._sure = True
        self._broken = False

    def where(self) -> str:
        """The line that is being taken."""
        return f"{EVENTS} line {self._number + (self._held is not None) + 1}"

    def feed(self, piece: bytes) -> None:
        """Take the next bytes."""
        first, *others = piece.split(b"\n")
        for line in others:
            self._push(b"".join([*self._rest, first]))
            self._rest, self._rest_bytes, first = [], 0, line
        self._rest.append(first)
        self._rest_bytes += len(first)
        if self._rest_bytes > MOST_LINE:
            self._push(b"")
            self._rest, self._rest_bytes = [], 0

    def end(self, manifest: dict[str, Any]) -> None:
        """There are no more bytes: hold what was read against the manifest."""
        if self._rest_bytes:
            self._push(b"")
        self._push(None)
        told = manifest.get("events")
        if not isinstance(told, dict) or self._broken:
            return
        count = told.get("count")
        if isinstance(count, int) and count > self.proved:
            message = f"the log ends at event {self.proved}, in the manifest at {count}"
            self._find("missing", f"{EVENTS} line {self._number + 1}", message, True)
            return
        digest = None if self._chain is None else self._chain.hex()
        found = {"count": self.proved, "last": self.cursor, "digest": digest}
        wrong = [name for name, value in found.items() if told.get(name) != value]
        if manifest.get("sessionId") != self.session_id:
            wrong.append("sessionId")
        if wrong:
            self._find("edited", "manifest.json", f"it tells of other events: {', '.join(wrong)} differ", True)

    def _push(self, line: bytes | None) -> None:
        if self._held is not None:
            self._number += 1
            self._judge(self._held, None if line is None else _seq(line))
        self._held = line

    def _judge(self, line: bytes, following: int | None) -> None:
        match = LINE.match(line)
        if match is None or not line.endswith(b"}}") or match[1] != match[4]:
            if self._next is not None:
                self._tell("edited", "it is not an event any more")
            self._next = None
            self._lose()
            return
        seq = int(match[4])
        if self._next is None or seq == self._next:
            self._prove(line, match, seq)
        else:
            self._misplaced(seq, self._next, following)

    def _misplaced(self, seq: int, awaited: int, following: int | None) -> None:
        came_late = any(seq in gap for gap in self._gaps)
        if following == awaited + 1:
            self._tell("swapped", f"event {seq} stands where event {awaited} belongs")
            self._next = following
        elif seq < awaited and not came_late:
            self._tell("duplicated", f"event {seq} stands here again")
            return
        elif seq < awaited:
            self._tell("swapped", f"event {seq} stands behind event {awaited - 1}")
        elif following == awaited:
            self._tell("swapped", f"event {seq} stands before event {awaited}")
            self._early.add(seq)
        else:
            missing = str(awaited) if seq == awaited + 1 else f"{awaited} to {seq - 1}"
            self._tell("gapped", f"event {missing} is not there before event {seq}")
            if len(self._gaps) < MOST_GAPS:
                self._gaps.append(range(awaited, seq))
            self._next = seq + 1
        self._lose()

    def _prove(self, line: bytes, match: re.Match[bytes], seq: int) -> None:
        self._next = seq + 1
        while self._next in self._early:
            self._early.remove(self._next)
            self._next += 1
        if self._lost:
            return
        if self._chain is None:
            self.session_id = match[3].decode()
            self._chain = hashlib.blake2b(b"hames-log-1\0" + match[3], digest_size=32).digest()
        text = line[line.index(EVENT_AT) + len(EVENT_AT) : -1]
        digest = hashlib.blake2b(self._chain + text, digest_size=32).digest()
        if digest[:6].hex().encode() == match[2]:
            self._chain, self._sure = digest, True
            if not self._broken:
                self.proved, self.cursor = seq, f"{seq}.{digest[:6].hex()}"
        elif self._sure:
            # Either the cursor was changed, and the next event proves this one, or the event was, and what comes next
            # is not known either: two lines may have become one.
            self._tell("edited", f"event {seq} does not have the digest that its cursor tells")
            self._chain, self._sure, self._next = digest, False, None
        else:
            self._lose()

    def _lose(self) -> None:
        """The digest before the next event is not known: from here the order alone can be judged."""
        self._lost = True

    def _tell(self, kind: str, message: str) -> None:
        self._broken = True
        self._find(kind, f"{EVENTS} line {self._number}", message)


def _seq(line: bytes) -> int | None:
    match = LINE.match(line)
    return None if match is None else int(match[4])
