"""The export of a session: its archive, written page by page to a spool and kept as an artifact no event refers to.

Rule 1: it only reads: no lease, no look at the world, nothing is appended. It goes to the head that it found.
Rule 2: memory holds a page. The log is read twice, since the size and the digest of a member stand before its content.
Rule 3: the same log, exported by the same build, is the same bytes, so the same artifact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import anyio.to_thread

from hames import __version__
from hames.archive.lines import EVENTS
from hames.archive.verify import sealed_text
from hames.archive.write import (
    MOST_MEMBER_BYTES,
    ArchiveWriter,
    Member,
    artifact_member,
    member,
    schemas_digest,
    texts,
)
from hames.core.records import record
from hames.ports import Artifact, Page, Spool, Store
from hames.protocol.chain import cursor, first_digest, next_digest
from hames.protocol.errors import HarnessFault, Refused
from hames.protocol.jsontext import reread
from hames.protocol.methods import PROTOCOL_VERSION, SCHEMA_VERSION

PAGE_BYTES: Final = 512 * 1024
PAGE_EVENTS: Final = 10_000
PIECE_BYTES: Final = 2**20
ARTIFACTS_PAGE: Final = 1_000
MEDIA_TYPE: Final = "application/x-tar"

_EVENT_AT: Final = b'","event":'
_REFERENCE: Final = re.compile(rb'"artifact":"(a-[0-9a-f]{32})"')


@record
class Exported:
    """An export: where it is kept, and how far it goes."""

    artifact: Artifact
    cursor: str
    events: int


async def export_session(store: Store, session_id: str) -> Exported:
    """Export a session up to its head, whoever runs it.

    Raises:
        Refused: `session_not_found`, `session_deleted`; `limit_exceeded`: a member is larger than the format holds.
        HarnessFault: `session_corrupt`, `artifact_corrupt`, `store_full`, `store_unavailable`.
    """
    head = await store.read(session_id, limit=1, max_bytes=1)
    log = _Log(session_id)
    await _each_page(store, session_id, head, log.take)
    if cursor(log.count, log.digest) != head.head_cursor:
        raise HarnessFault(
            "session_corrupt",
            f"The events of session {session_id} do not lead to its head. Nothing was changed; see `hames verify`.",
            boundary="artifact_store",
            sessionId=session_id,
            seq=log.count,
        )
    artifacts = await _artifacts(store, session_id, log)
    schemas = await anyio.to_thread.run_sync(_schemas)
    spool = store.spool()
    try:
        await _write(store, spool, head, log, artifacts=artifacts, schemas=schemas)
        artifact = await store.keep(session_id, spool, media_type=MEDIA_TYPE, name=f"{session_id}.tar")
    except BaseException:
        spool.discard()
        raise
    return Exported(artifact, head.head_cursor, head.head_seq)


async def _write(
    store: Store, spool: Spool, head: Page, log: _Log, *, artifacts: Sequence[Artifact], schemas: dict[str, bytes]
) -> None:
    session_id = log.session_id
    before = texts(schemas)
    events = Member(EVENTS, log.size_bytes, log.sums.hexdigest())
    large = [artifact_member(artifact.sha256, artifact.size_bytes) for artifact in artifacts]
    members = [*(member(name, text) for name, text in before.items()), events, *large]
    for each in members:
        if each.size > MOST_MEMBER_BYTES:
            message = f"{each.name} of session {session_id} has {each.size} bytes; an export holds {MOST_MEMBER_BYTES}."
            raise Refused(
                "limit_exceeded", message, limit="exportMemberBytes", configured=MOST_MEMBER_BYTES, observed=each.size
            )
    about = _about(store, log, schemas)
    archive = await anyio.to_thread.run_sync(_begin, spool, about, members, before)
    await _each_page(store, session_id, head, lambda lines: archive.add(_jsonl(lines)))
    for artifact, each in zip(artifacts, large, strict=True):
        await anyio.to_thread.run_sync(archive.open, each.name)
        await _each_piece(store, session_id, artifact, archive.add)
    await anyio.to_thread.run_sync(_end, archive, spool)


def _begin(spool: Spool, about: dict[str, Any], members: Sequence[Member], before: dict[str, bytes]) -> ArchiveWriter:
    archive = ArchiveWriter(spool.write, about, members)
    for name, text in before.items():
        archive.open(name)
        archive.add(text)
    archive.open(EVENTS)
    return archive


def _end(archive: ArchiveWriter, spool: Spool) -> None:
    archive.close()
    # Here, where nobody waits for it: it is kept under the store's gate.
    spool.sync()


def _about(store: Store, log: _Log, schemas: dict[str, bytes]) -> dict[str, Any]:
    store_id = str(store.describe()["storeId"])
    digest = log.digest.hex()
    keyed = store.keyed(sealed_text(store_id, log.session_id, log.count, digest))
    return {
        "build": {"name": "hames", "version": __version__},
        "protocolVersion": PROTOCOL_VERSION,
        "schemaVersion": SCHEMA_VERSION,
        "schemasSha256": schemas_digest(schemas),
        "storeId": store_id,
        "sessionId": log.session_id,
        "snapshotDigest": log.snapshot_digest,
        "events": {"count": log.count, "first": log.first, "last": cursor(log.count, log.digest), "digest": digest}
        | {"keyed": keyed},
    }


@dataclass(slots=True)
class _Log:
    """What must be known of a log before it is written."""

    session_id: str
    count: int = 0
    size_bytes: int = 0
    first: str = ""
    snapshot_digest: str = ""
    digest: bytes = b""
    sums: Any = field(default_factory=sha256)
    references: set[str] = field(default_factory=set)

    def take(self, lines: list[bytes]) -> None:
        digest = self.digest or first_digest(self.session_id)
        for line in lines:
            digest = next_digest(digest, line[line.index(_EVENT_AT) + len(_EVENT_AT) :])
            if b'"artifact":"a-' in line:
                self.references |= {found.decode() for found in _REFERENCE.findall(line)}
        if not self.count and lines:
            created = reread(b"{" + lines[0] + b"}")
            self.first, self.snapshot_digest = created["cursor"], created["event"]["data"]["snapshotDigest"]
        self.digest = digest
        self.count += len(lines)
        text = _jsonl(lines)
        self.size_bytes += len(text)
        self.sums.update(text)


def _jsonl(lines: list[bytes]) -> bytes:
    return b"{" + b"}\n{".join(lines) + b"}\n"


async def _each_page(store: Store, session_id: str, head: Page, take: Callable[[list[bytes]], object]) -> None:
    """Give `take` the lines up to `head`, in a thread: a page is some milliseconds of work."""
    after: str | None = None
    seq = 0
    while seq < head.head_seq:
        page = await store.read(session_id, after=after, limit=PAGE_EVENTS, max_bytes=PAGE_BYTES)
        lines = page.lines.split(b"\n")[: min(page.count, head.head_seq - seq)]
        await anyio.to_thread.run_sync(take, lines)
        after, seq = page.cursor, seq + len(lines)


async def _artifacts(store: Store, session_id: str, log: _Log) -> list[Artifact]:
    """What events of `log` refer to, by ids."""
    found: list[Artifact] = []
    after: str | None = None
    while True:
        page = await store.artifacts(session_id, after=after, limit=ARTIFACTS_PAGE)
        found += [artifact for artifact in page if 0 < artifact.seq <= log.count]
        if len(page) < ARTIFACTS_PAGE:
            break
        after = page[-1].artifact
    for absent in log.references - {artifact.artifact for artifact in found}:
        # Lost, which is told; or nothing but a text of somebody's that looks like a reference.
        with suppress(Refused):
            await store.artifact(session_id, absent)
    return found


async def _each_piece(store: Store, session_id: str, artifact: Artifact, take: Callable[[bytes], object]) -> None:
    offset = 0
    while offset < artifact.size_bytes:
        piece = await store.read_artifact(session_id, artifact.artifact, offset=offset, length=PIECE_BYTES)
        await anyio.to_thread.run_sync(take, piece)
        offset += len(piece)


def _schemas() -> dict[str, bytes]:
    from hames.protocol.schema import event_schemas

    return event_schemas()
