"""Contents and who refers to them, as rows; small contents stand in their row, larger ones are files (`blobs.py`).

Rule 1: a content is in the store, durable, before the event that names it is committed: rows by the same transaction,
files before it.
Rule 2: a session reads what it refers to itself, and nothing else.
Rule 3: what nobody refers to is removed by who holds the gate, so never between a look for it and its use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

import apsw

from hames.core.artifacts import Content, artifact_id, id_prefix
from hames.core.records import record
from hames.ports import Artifact
from hames.protocol.errors import Refused
from hames.store.blobs import ROW_BYTES, UNNAMED, BlobFiles, FileSpool
from hames.store.schema import every, one
from hames.store.unproved import corrupt

COLLECTED_AT_ONCE: Final = 256
"""Contents removed in one transaction: others wait for the gate meanwhile."""

OF_REPAIR: Final = "lost/"
"""Before a content's digest in hexadecimal, as a key of `meta`: a repair could not find it. The value is its epoch."""

_COLUMNS: Final = "r.sha256, b.size_bytes, r.seq, r.media_type, r.name"
_JOINED: Final = "from blob_ref r left join blob b on b.sha256 = r.sha256 where r.session = ?"
_UNUSED: Final = "from blob b where created < ? and not exists (select 1 from blob_ref r where r.sha256 = b.sha256)"


@record
class Place:
    """Where an artifact's content is: in `data`, or in a file where that is None."""

    artifact: Artifact
    digest: bytes
    data: bytes | None


def keep(
    connection: apsw.Connection, files: BlobFiles, n: int, contents: Iterable[tuple[int, Content]], *, now: str
) -> None:
    """Put contents into the store and note that session `n` refers to them, each since the event of its seq.

    Raises:
        OSError: a file could not be written.
    """
    for seq, content in contents:
        _put(connection, files, content, now=now)
        _refer(connection, n, content.digest, (seq, content.media_type, content.name))


def keep_spooled(
    connection: apsw.Connection, n: int, spool: FileSpool, *, seq: int, media_type: str, name: str | None, now: str
) -> Artifact:
    """The same for what was spooled."""
    digest = spool.digest
    spool.settle()
    connection.execute(
        "insert into blob (sha256, size_bytes, created, data) values (?, ?, ?, ?)"
        " on conflict (sha256) do update set created = excluded.created",
        (digest, spool.size_bytes, now, spool.small),
    )
    _refer(connection, n, digest, (seq, media_type, name))
    return Artifact(artifact_id(digest), digest.hex(), spool.size_bytes, seq, media_type, name)


def _put(connection: apsw.Connection, files: BlobFiles, content: Content, *, now: str) -> None:
    small = content.data if len(content.data) <= ROW_BYTES else None
    if small is None:
        files.put(content.digest, content.data)
    found = one(connection, "select data from blob where sha256 = ?", (content.digest,))
    if found is None or (small is not None and found[0] != small):
        connection.execute(
            "insert into blob (sha256, size_bytes, created, data) values (?, ?, ?, ?)"
            " on conflict (sha256) do update set data = excluded.data, size_bytes = excluded.size_bytes",
            (content.digest, len(content.data), now, small),
        )


def _refer(connection: apsw.Connection, n: int, digest: bytes, facts: tuple[int, str | None, str | None]) -> None:
    connection.execute(
        "insert into blob_ref (session, sha256, seq, media_type, name) values (?, ?, ?, ?, ?)"
        " on conflict (session, sha256) do update set seq = excluded.seq where seq = 0",
        (n, digest, *facts),
    )


def name(connection: apsw.Connection, n: int, named: Mapping[bytes, int]) -> None:
    """Events of session `n` refer to contents that were kept before them: by digest, with the event's seq."""
    for digest, seq in named.items():
        connection.execute("update blob_ref set seq = ? where session = ? and sha256 = ? and seq = 0", (seq, n, digest))


def find(connection: apsw.Connection, n: int, artifact: str, *, session_id: str) -> Place:
    """An artifact of session `n`.

    Raises:
        Refused: `artifact_not_found`.
        HarnessFault: `artifact_corrupt`: its row is missing or does not match its digest.
    """
    prefix = id_prefix(artifact)
    row = prefix and one(
        connection,
        f"select {_COLUMNS}, b.data {_JOINED} and r.sha256 >= ? and r.sha256 < ?",
        (n, prefix, prefix + b"\xff" * 17),
    )
    if not row:
        raise Refused("artifact_not_found", sessionId=session_id, artifact=artifact)
    *facts, data = row
    digest: bytes = facts[0]
    if facts[1] is None:
        why = "was found nowhere by a repair" if is_lost(connection, digest) else "is not in the store"
        raise corrupt(digest, why)
    if data is not None and sha256(data).digest() != digest:
        raise corrupt(digest, "does not match its digest", found=sha256(data).hexdigest())
    return Place(_artifact(*facts), digest, data)


def find_left(connection: apsw.Connection, n: int, artifact: str, *, session_id: str) -> Place | None:
    """The same; None for one that a repair has said to be lost, and that is not there again since."""
    prefix = id_prefix(artifact) or b""
    (digest,) = one(
        connection,
        f"select max(r.sha256) {_JOINED} and r.sha256 >= ? and r.sha256 < ? and b.n is null",
        (n, prefix, prefix + b"\xff" * 17),
    )
    if digest is not None and is_lost(connection, digest):
        return None
    return find(connection, n, artifact, session_id=session_id)


def is_lost(connection: apsw.Connection, digest: bytes) -> bool:
    """A repair looked for this content in vain, and said so."""
    return one(connection, "select 1 from meta where key = ?", (OF_REPAIR + digest.hex(),)) is not None


def page(connection: apsw.Connection, n: int, after: str | None, limit: int) -> list[Artifact]:
    """The artifacts of session `n` behind `after`, by their ids."""
    low = id_prefix(after) if after is not None else b""
    if low is None:
        return []
    rows = every(
        connection,
        f"select {_COLUMNS} {_JOINED} and r.sha256 > ? and b.n is not null order by r.sha256 limit ?",
        (n, low + b"\xff" * 17 if low else low, limit),
    )
    return [_artifact(*row) for row in rows]


def _artifact(digest: bytes, size_bytes: int, seq: int, media_type: str | None, name: str | None) -> Artifact:
    return Artifact(artifact_id(digest), digest.hex(), size_bytes, seq, media_type, name)


def used(connection: apsw.Connection, digest: bytes, *, now: str) -> None:
    """What no event refers to was used: it stays for another while."""
    connection.execute("update blob set created = ? where sha256 = ?", (now, digest))


def collect(connection: apsw.Connection, files: BlobFiles, *, before: str) -> int:
    """Remove some of the contents that nobody refers to and that were last used `before`; how many.

    Called in a transaction, with the gate held. A file goes before its row is gone for sure: nobody refers to it, and
    who needs the content writes it anew.
    """
    connection.execute(
        "delete from blob_ref where seq = 0 and sha256 in (select sha256 from blob where created < ?)", (before,)
    )
    digests = every(connection, f"select sha256, data is null {_UNUSED} limit ?", (before, COLLECTED_AT_ONCE))
    for digest, is_file in digests:
        connection.execute("delete from blob where sha256 = ?", (digest,))
        if is_file:
            files.remove(digest)
    return len(digests)


def sweep(connection: apsw.Connection, files: BlobFiles, folder: str, *, older_than_s: float) -> int:
    """Remove files that were given up: without a name, or without a row because their commit never came; how many.

    Called with the gate held: what is there then has its row, or never will.
    """
    swept = 0
    if folder == UNNAMED:
        for path in files.leftovers(older_than_s):
            path.unlink(missing_ok=True)
            swept += 1
        return swept
    for digest in files.named(folder, older_than_s):
        if one(connection, "select 1 from blob where sha256 = ? and data is null", (digest,)) is None:
            files.remove(digest)
            swept += 1
    return swept
