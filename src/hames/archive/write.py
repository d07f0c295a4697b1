"""Write an archive: its members in order, each of a size and a digest that are known before.

Rule 1: equal content gives equal bytes: no time, no owner, no order but the one of the arguments.
Rule 2: nothing is kept: what is given goes to `write` at once.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from hames.archive import lines, standalone
from hames.archive.standalone import ARTIFACTS, BLOCK, DIGEST, FORMAT, MANIFEST, closing, header, padding

VERIFIER: Final = "verify.py"

MOST_MEMBER_BYTES: Final = 8**11 - 1
"""8 GiB: eleven octal digits of the header (POSIX ustar)."""

README: Final = f"""\
This is a session of Hames, exported in the format {FORMAT}: a plain, uncompressed tar file.

manifest.json  what this is, and the size and SHA-256 of every member but itself and digest.txt
verify.py      checks the whole file with nothing but Python 3.8 or newer
schemas/       the JSON Schemas of the events, as the build that exported them had them
events.jsonl   the log: an event a line, {{"cursor":…,"event":…}}, as it was stored
artifacts/     large contents that events refer to, each by its SHA-256
digest.txt     the SHA-256 of every byte before its header, and that of manifest.json

To check it, name the tar file, not what was unpacked from it:

    tar -xf EXPORT.tar verify.py
    python3 verify.py EXPORT.tar

It says `good`, or what is wrong and where. Who does not trust the verifier that came along takes another copy of
it: `hames verify --export EXPORT.tar`, or src/hames/archive of the sources.

Each event is chained to the one before it: d0 is BLAKE2b-256("hames-log-1\\0" + sessionId), dn is BLAKE2b-256(dn-1 +
the bytes of event n), and the cursor of event n is n, a dot and the first 12 hex digits of dn. So a check proves that
the log is whole and in order. That it was exported by the store which it names is proved to who has that store's
key, by `events.keyed` in the manifest.
"""


@dataclass(frozen=True, slots=True)
class Member:
    """A member to be: its name, its size in bytes, its SHA-256 in hex."""

    name: str
    size: int
    sha256: str


class ArchiveWriter:
    """Writes one archive through `write`: `open` each member in the order of `members`, `add` its content, `close`.

    Raises:
        ValueError: what is written is not what was announced.
    """

    def __init__(self, write: Callable[[bytes], object], about: Mapping[str, Any], members: Sequence[Member]) -> None:
        self._to = write
        self._sums = hashlib.sha256()
        self._coming = list(reversed(members))
        self._left = 0
        self._name = MANIFEST
        entries = [{"name": member.name, "size": member.size, "sha256": member.sha256} for member in members]
        manifest = {"format": FORMAT, **about, "members": entries}
        text = json.dumps(manifest, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        self._manifest = hashlib.sha256(text).hexdigest()
        self._whole(MANIFEST, text)

    def open(self, name: str) -> None:
        """Begin the next member."""
        self._ended()
        member = self._coming.pop()
        if member.name != name:
            raise ValueError(f"{name} was written where {member.name} was announced")
        self._begin(member.name, member.size)

    def add(self, piece: bytes) -> None:
        """More of the member that was opened."""
        if len(piece) > self._left:
            raise ValueError(f"{self._name} is longer than was announced")
        self._left -= len(piece)
        self._write(piece)
        if not self._left:
            self._write(bytes(padding(self._size)))

    def close(self) -> None:
        """Write the end; nothing may follow."""
        self._ended()
        if self._coming:
            raise ValueError(f"{self._coming[-1].name} was announced and not written")
        self._whole(DIGEST, closing(self._sums.hexdigest(), self._manifest))
        self._write(bytes(2 * BLOCK))

    def _whole(self, name: str, text: bytes) -> None:
        self._begin(name, len(text))
        self.add(text)

    def _begin(self, name: str, size: int) -> None:
        self._name, self._size, self._left = name, size, size
        self._write(header(name, size))

    def _ended(self) -> None:
        if self._left:
            raise ValueError(f"{self._name} is {self._left} bytes shorter than was announced")

    def _write(self, data: bytes) -> None:
        self._sums.update(data)
        self._to(data)


def texts(schemas: Mapping[str, bytes]) -> dict[str, bytes]:
    """The members that stand before the events, by name: for people, for the verifier, for programs.

    `schemas` are those of events by type.
    """
    named = {f"schemas/{type_}.json": text for type_, text in sorted(schemas.items())}
    return {"README.txt": README.encode(), VERIFIER: program(), **named}


def artifact_member(sha256: str, size: int) -> Member:
    """The member that holds an artifact."""
    return Member(ARTIFACTS + sha256, size, sha256)


def member(name: str, content: bytes) -> Member:
    """A member that is in memory whole."""
    return Member(name, len(content), hashlib.sha256(content).hexdigest())


def schemas_digest(schemas: Mapping[str, bytes]) -> str:
    """SHA-256 over the schemas in the order of their types: tells two builds' schemas apart."""
    sums = hashlib.sha256()
    for _, text in sorted(schemas.items()):
        sums.update(text)
    return sums.hexdigest()


@cache
def program() -> bytes:
    """The verifier as one file: `standalone` with `lines` in the place where it imports it."""
    inner = inspect.getsource(lines).replace("from __future__ import annotations\n", "", 1)
    outer = inspect.getsource(standalone)
    imported = "from hames.archive.lines import EVENTS, LogCheck\n"
    before, found, after = outer.partition(imported)
    if not found:
        raise ValueError("the verifier does not import its other half as expected")
    return f"{before}{inner}{after}".encode()
