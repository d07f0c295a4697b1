"""JPEG (ITU T.81): every segment to the end of the image, and all that a scan needs to be decoded.

What is not proved: the coded pixels themselves. A decoder reads some image out of any of them, which is why a picture
with a damaged middle is shown everywhere; what makes decoders give up is in the segments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hames.core.bitmaps import Broken
from hames.core.records import record

_SOF: Final = (0xC0, 0xC1, 0xC2)
"""Baseline, extended and progressive, by Huffman codes: what all decoders know."""
_PROGRESSIVE: Final = 0xC2
_DHT, _EOI, _SOS, _DQT, _DRI = 0xC4, 0xD9, 0xDA, 0xDB, 0xDD
_COMMENTS: Final = (*range(0xE0, 0xF0), 0xFE)

MOST_SCANS: Final = 500
"""Each goes over the whole image: a short file of very many is made to keep a decoder busy."""

_MARKER: Final = re.compile(rb"\xff+[^\x00\xff\xd0-\xd7]", re.DOTALL)
"""What ends the coded data: no stuffed byte, and no restart."""


@record
class _Component:
    """A colour of the frame: its sampling factors and its table of quantisation."""

    across: int
    down: int
    table: int


def check(data: bytes) -> None:
    """Raises `Broken`: `data` does not begin with a whole JPEG."""
    if not data.startswith(b"\xff\xd8"):
        raise Broken("it has no start of an image")
    image, at = _Image(), 2
    while True:
        marker, at = _marker(data, at)
        if marker == _EOI:
            image.end()
            return
        length = int.from_bytes(data[at : at + 2], "big")
        body = data[at + 2 : at + length]
        if len(body) != length - 2:
            raise Broken("a segment goes beyond its end")
        image.take(marker, body)
        at += length
        if marker == _SOS:
            coded = _MARKER.search(data, at)
            if coded is None:
                raise Broken("it ends before the end of the image")
            at = coded.start()


def _marker(data: bytes, at: int) -> tuple[int, int]:
    """The marker at `at`, after any bytes that fill up, and where what follows stands."""
    start = at
    while data[at : at + 1] == b"\xff":
        at += 1
    if at >= len(data):
        raise Broken("it ends before the end of the image")
    if at == start:
        raise Broken("no marker stands where one belongs")
    return data[at], at + 1


class _Image:
    """What the segments so far have said."""

    def __init__(self) -> None:
        self._frame: dict[int, _Component] = {}
        self._progressive = False
        self._quantised: set[int] = set()
        self._codes: set[tuple[int, int]] = set()
        self._shown: set[int] = set()
        self._scans = 0

    def take(self, marker: int, body: bytes) -> None:
        """One more segment."""
        if marker in _SOF:
            self._take_frame(body)
            self._progressive = marker == _PROGRESSIVE
        elif marker == _SOS:
            self._scan(body)
        elif marker == _DQT:
            self._quantisation(body)
        elif marker == _DHT:
            self._huffman(body)
        elif marker == _DRI:
            if len(body) != 2:
                raise Broken("its restart interval has not 2 bytes")
        elif marker not in _COMMENTS:
            raise Broken("it has a segment that decoders do not know")

    def end(self) -> None:
        """The end of the image."""
        if not self._frame or self._shown != set(self._frame):
            raise Broken("it ends before all of its colours")

    def _take_frame(self, body: bytes) -> None:
        if self._frame or len(body) < 6 or len(body) != 6 + 3 * body[5] or body[5] not in (1, 3, 4):
            raise Broken("it has two frames, or one that is not whole")
        if body[0] != 8 or not any(body[1:3]) or not any(body[3:5]):
            raise Broken("its width or height is 0, or its samples have not 8 bits")
        for at in range(6, len(body), 3):
            self._frame[body[at]] = _Component(body[at + 1] >> 4, body[at + 1] & 15, body[at + 2])
        if len(self._frame) != body[5]:
            raise Broken("two of its colours have one name")
        _check_sampling(self._frame)

    def _quantisation(self, body: bytes) -> None:
        at = 0
        while at < len(body):
            wide, table = body[at] >> 4, body[at] & 15
            at += 1 + (128 if wide else 64)
            if wide > 1 or table > 3 or at > len(body):
                raise Broken("a table of quantisation is not whole")
            self._quantised.add(table)

    def _huffman(self, body: bytes) -> None:
        at = 0
        while at < len(body):
            kind, table = body[at] >> 4, body[at] & 15
            counts, start = body[at + 1 : at + 17], at + 17
            at = start + sum(counts)
            if kind > 1 or table > 3 or len(counts) < 16 or sum(counts) > 256 or at > len(body):
                raise Broken("a table of codes is not whole")
            _check_codes(counts)
            if kind == 0 and max(body[start:at], default=0) > 15:
                raise Broken("a table of codes has one that stands for nothing")
            self._codes.add((kind, table))

    def _scan(self, body: bytes) -> None:
        self._scans += 1
        if self._scans > MOST_SCANS:
            raise Broken(f"it has more than {MOST_SCANS} scans")
        if not self._frame or not body or not 1 <= body[0] <= 4 or len(body) != 4 + 2 * body[0]:
            raise Broken("a scan has no frame before it, or is not whole")
        names = body[1:-3:2]
        tables = body[2:-3:2]
        if len(set(names)) != len(names) or not set(names) <= set(self._frame):
            raise Broken("a scan has colours that are not of the frame")
        colours = [self._frame[name] for name in names]
        # B.2.3: no more than ten blocks in what is coded together.
        if len(colours) > 1 and sum(each.across * each.down for each in colours) > 10:
            raise Broken("a scan codes more together than can be")
        if any(each.table not in self._quantised for each in colours):
            raise Broken("a table of quantisation is missing")
        kinds = self._progression(body) if self._progressive else (0, 1)
        needed = {(kind, each >> 4 if kind == 0 else each & 15) for kind in kinds for each in tables}
        if not needed <= self._codes:
            raise Broken("a table of codes is missing")
        if not self._progressive or body[-3] == 0:
            self._shown |= set(names)

    def _progression(self, body: bytes) -> tuple[int, ...]:
        """The kinds of tables that a scan needs (G.1.1.1): which coefficients, and which of their bits it tells."""
        first, last, high, low = body[-3], body[-2], body[-1] >> 4, body[-1] & 15
        sound = last == 0 if first == 0 else first <= last <= 63 and body[0] == 1
        if not sound or low > 13 or (high and low != high - 1):
            raise Broken("a scan tells coefficients that are not of JPEG")
        if first:
            return (1,)
        return () if high else (0,)


def _check_sampling(frame: Mapping[int, _Component]) -> None:
    """Raises `Broken`: factors are out of range, or no whole multiples of each other, which no decoder scales."""
    across = max(each.across for each in frame.values())
    down = max(each.down for each in frame.values())
    for each in frame.values():
        if not 1 <= each.across <= 4 or not 1 <= each.down <= 4 or across % each.across or down % each.down:
            raise Broken("its colours are sampled as no decoder scales them")


def _check_codes(counts: bytes) -> None:
    """Raises `Broken`: there are more codes of a length than fit beside the shorter ones (C.2)."""
    code = 0
    for length, count in enumerate(counts, 1):
        code += count
        # The code of ones alone is never given away.
        if code > (1 << length) - (count > 0):
            raise Broken("a table of codes has too many of one length")
        code <<= 1
