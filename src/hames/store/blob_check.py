"""Whether the artifacts of a store are what was put into it: rows, files, and what refers to them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

import apsw

from hames.store.findings import Findings
from hames.store.schema import one

PIECE_BYTES: Final = 2**20
"""Of a file that is read at once."""

_OF_ALL = "select sha256, size_bytes, data from blob order by n"
_OF_SESSION = (
    "select sha256, size_bytes, data from blob where sha256 in"
    " (select sha256 from blob_ref where session = (select n from session where id = ?)) order by n"
)


def check_blobs(
    connection: apsw.Connection, directory: Path, found: Findings, notes: list[str], session_id: str | None
) -> int:
    """Look at every blob, or at those of one session; how many there are."""
    count = 0
    select = (_OF_ALL, ()) if session_id is None else (_OF_SESSION, (session_id,))
    for digest, size_bytes, data in connection.execute(*select):
        count += 1
        if not isinstance(digest, bytes) or not isinstance(size_bytes, int):
            found.part("artifacts")
            found.add("edited", "the table of artifacts is damaged")
            continue
        found.part(f"artifact {digest.hex()[:32]}")
        if data is None:
            _check_file(directory / "blobs" / digest.hex()[:2] / digest.hex()[2:], digest, size_bytes, found)
        elif len(data) != size_bytes or sha256(data).digest() != digest:
            found.add("edited", "does not match its digest")
    if session_id is None:
        _check_references(connection, found, notes)
    return count


def _check_file(path: Path, digest: bytes, size_bytes: int, found: Findings) -> None:
    hashed = sha256()
    seen = 0
    try:
        with open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                hashed.update(piece)
                seen += len(piece)
    except FileNotFoundError:
        found.add("missing", f"its file {path.parent.name}/{path.name} is not there")
        return
    if seen < size_bytes:
        found.add("torn", f"its file has {seen} of {size_bytes} bytes")
    elif hashed.digest() != digest:
        found.add("edited", "its file does not match its digest")


def _check_references(connection: apsw.Connection, found: Findings, notes: list[str]) -> None:
    found.part("artifacts")
    (lost,) = one(connection, "select count(*) from blob_ref where sha256 not in (select sha256 from blob)")
    if lost:
        found.add("missing", f"{lost} are referred to and not there")
    (unused,) = one(connection, "select count(*) from blob where sha256 not in (select sha256 from blob_ref)")
    if unused:
        notes.append(f"{unused} artifacts are not referred to; they are collected in time")
