"""Whether the artifacts of a store are what was put into it: rows, files, and what refers to them; and their repair.

Rule 1: a content is what has its digest, wherever it stands: in its row, in its file, or in a row under another name.
Rule 2: what cannot be found is said to be lost, once, in `meta`: a later look tells of it and calls it no new damage.
Rule 3: no file is written or removed here: a repair is one transaction.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import apsw

from hames.archive.findings import FindingKind
from hames.core.records import record
from hames.store.blob_rows import OF_REPAIR
from hames.store.findings import Findings
from hames.store.schema import every, one

PIECE_BYTES: Final = 2**20
"""Of a file that is read at once."""

DIGEST_BYTES: Final = 32

_OF_ALL: Final = "select sha256, size_bytes, data from blob order by n"
_OF_SESSION: Final = (
    "select sha256, size_bytes, data from blob where sha256 in"
    " (select sha256 from blob_ref where session = (select n from session where id = ?)) order by n"
)
_LOST: Final = f"(sha256 in (select unhex(substr(key, {len(OF_REPAIR) + 1})) from meta where key glob '{OF_REPAIR}*'))"
_REFERRED: Final = "from blob_ref where sha256 not in (select sha256 from blob)"


@record
class Mended:
    """What a repair did to contents: rows that are right again, and digests that are lost."""

    rows: int
    lost: tuple[bytes, ...]


def check_blobs(
    connection: apsw.Connection, directory: Path, found: Findings, notes: list[str], session_id: str | None
) -> int:
    """Look at every blob, or at those of one session; how many there are."""
    count = 0
    select = (_OF_ALL, ()) if session_id is None else (_OF_SESSION, (session_id,))
    for digest, size_bytes, data in connection.execute(*select):
        count += 1
        wrong = _wrong(directory, digest, size_bytes, data)
        if wrong is not None:
            found.part(f"artifact {digest.hex()[:32]}")
            found.add(*wrong)
    if session_id is None:
        _check_references(connection, found, notes)
    return count


def mend_blobs(connection: apsw.Connection, directory: Path) -> int:
    """Put rows right that are not, and remove those whose content is not to be found; how many. Before the sessions'
    references are made anew."""
    changed = 0
    for (n,) in every(connection, "select n from blob order by n"):
        digest, size_bytes, data = one(connection, "select sha256, size_bytes, data from blob where n = ?", (n,))
        if _wrong(directory, digest, size_bytes, data) is None:
            continue
        changed += 1
        name = digest if data is None else sha256(data).digest()
        in_file = size_of(directory, digest)
        if data is not None and name == digest:
            connection.execute("update blob set size_bytes = ? where n = ?", (len(data), n))
        elif in_file is not None:
            connection.execute("update blob set size_bytes = ?, data = null where n = ?", (in_file, n))
        elif data is not None and one(connection, "select 1 from blob where sha256 = ?", (name,)) is None:
            # Under the name of another; where nobody refers to it, it is collected in time.
            connection.execute("update blob set sha256 = ?, size_bytes = ? where n = ?", (name, len(data), n))
        else:
            connection.execute("delete from blob where n = ?", (n,))
    return changed


def settle_references(connection: apsw.Connection, directory: Path, *, epoch: int, now: str) -> Mended:
    """Find what is referred to and has no row, or say that it is lost. After the references were made anew."""
    found, lost = 0, []
    # Kept, and named by no event yet: nobody misses them.
    connection.execute("delete from blob_ref where seq = 0 and sha256 not in (select sha256 from blob)")
    for (digest,) in every(connection, f"select distinct sha256 {_REFERRED} and not {_LOST}"):
        size_bytes = size_of(directory, digest)
        if size_bytes is None:
            lost.append(digest)
            connection.execute("insert into meta values (?, ?)", (OF_REPAIR + digest.hex(), epoch))
        else:
            found += 1
            insert = "insert into blob (sha256, size_bytes, created) values (?, ?, ?)"
            connection.execute(insert, (digest, size_bytes, now))
    return Mended(found, tuple(lost))


def size_of(directory: Path, digest: bytes) -> int | None:
    """The length of a content's file, None where it is not there or holds something else."""
    return _looked_at(directory, digest)[0]


def _wrong(directory: Path, digest: bytes, size_bytes: int, data: bytes | None) -> tuple[FindingKind, str] | None:
    if len(digest) != DIGEST_BYTES:
        return "edited", "has a name that is no digest"
    if data is not None:
        whole = len(data) == size_bytes and sha256(data).digest() == digest
        return None if whole else ("edited", "does not match its digest")
    size, seen = _looked_at(directory, digest)
    if size == size_bytes:
        return None
    if size is not None:
        return "edited", f"its row tells of {size_bytes} bytes, its file has {size}"
    if seen is None:
        return "missing", f"its file {digest.hex()[:2]}/{digest.hex()[2:]} is not there"
    if seen < size_bytes:
        return "torn", f"its file has {seen} of {size_bytes} bytes"
    return "edited", "its file does not match its digest"


def _looked_at(directory: Path, digest: bytes) -> tuple[int | None, int | None]:
    """The length of a content's file if it is the content, and how much is there, if anything is."""
    if len(digest) != DIGEST_BYTES:
        return None, None
    hashed = sha256()
    seen = 0
    try:
        with open(directory / "blobs" / digest.hex()[:2] / digest.hex()[2:], "rb") as file:
            while piece := file.read(PIECE_BYTES):
                hashed.update(piece)
                seen += len(piece)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None, None
    return (seen if hashed.digest() == digest else None), seen


def _check_references(connection: apsw.Connection, found: Findings, notes: list[str]) -> None:
    found.part("artifacts")
    (missing,) = one(connection, f"select count(*) {_REFERRED} and not {_LOST}")
    if missing:
        found.add("missing", f"{missing} are referred to and not there")
    (lost,) = one(connection, f"select count(*) {_REFERRED} and {_LOST}")
    if lost:
        notes.append(f"{lost} artifacts are lost, as a repair found; events still name them")
    (unused,) = one(connection, "select count(*) from blob where sha256 not in (select sha256 from blob_ref)")
    if unused:
        notes.append(f"{unused} artifacts are not referred to; they are collected in time")


def forget_lost(connection: apsw.Connection) -> None:
    """Contents that are there again, or that nobody refers to any more, are not lost."""
    marks: list[tuple[Any, ...]] = every(connection, "select key from meta where key glob ?", (f"{OF_REPAIR}*",))
    for (key,) in marks:
        if one(connection, f"select 1 {_REFERRED} and hex(sha256) = upper(?)", (key[len(OF_REPAIR) :],)) is None:
            connection.execute("delete from meta where key = ?", (key,))
