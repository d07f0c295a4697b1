"""The body of an answer as it was before a server compressed it, without I/O: bytes in, pieces of bounded size out.

Rule 1: nothing is ever opened to more than `PIECE_BYTES` at once: a few thousand bytes may stand for gigabytes.
Rule 2: one coding that compresses is read, as some proxies use it though `identity` was asked for. Codings upon
codings, and others, are not: nobody sends them by accident.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

PIECE_BYTES: Final = 64 * 1024
"""As much as comes from a connection at once where nothing is compressed."""

READ: Final = ("gzip", "x-gzip", "deflate")
"""The codings that are read (RFC 9110, section 8.4.1)."""


class UnknownCoding(Exception):
    """The body is in a coding that was not asked for and is not read."""


class BrokenCoding(Exception):
    """The body is not what its coding allows."""


class Decoder:
    """One body. `coding` is the value of `content-encoding`.

    Raises:
        UnknownCoding: it is none that is read.
    """

    def __init__(self, coding: str) -> None:
        coding = coding.strip().lower()
        if coding not in ("", "identity", *READ):
            raise UnknownCoding(coding)
        # zlib.MAX_WBITS + 32 reads the format of gzip and that of zlib (zlib, inflateInit2).
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS + 32) if coding in READ else None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What `data` adds to the body, in order. Who stops taking pieces takes nothing further of this body.

        Raises:
            BrokenCoding: nothing can be made of it.
        """
        if self._inflate is None:
            yield data
            return
        piece = b"-"
        while (data or len(piece) == PIECE_BYTES) and not self._inflate.eof:
            try:
                piece = self._inflate.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise BrokenCoding(str(error)) from error
            data = self._inflate.unconsumed_tail
            if piece:
                yield piece
