"""Contents of a store in memory: what `blob_rows` and `blobs` are to the one on disk."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hames.core.artifacts import Content, artifact_id, content_of, id_prefix
from hames.ports import Artifact
from hames.protocol.errors import Refused
from hames.store.unproved import corrupt

References = dict[bytes, Artifact]
"""What one session refers to, by digest."""


class MemorySpool:
    """`ports.Spool` in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def size_bytes(self) -> int:
        """See `Spool.size_bytes`."""
        return len(self.data)

    def write(self, data: bytes) -> None:
        """See `Spool.write`."""
        self.data += data

    def sync(self) -> None:
        """See `Spool.sync`."""

    def discard(self) -> None:
        """See `Spool.discard`."""
        self.data.clear()


@dataclass(slots=True)
class MemoryBlobs:
    """Contents by their digests, with the time of their last use in milliseconds since 1970."""

    contents: dict[bytes, bytes] = field(default_factory=dict)
    used_ms: dict[bytes, int] = field(default_factory=dict)

    def keep(self, references: References, contents: Iterable[tuple[int, Content]]) -> None:
        """Put contents in, each referred to since the event of its seq."""
        for seq, content in contents:
            self.contents[content.digest] = content.data
            self.used_ms.setdefault(content.digest, time.time_ns() // 1_000_000)
            known = references.get(content.digest)
            if known is None or known.seq == 0:
                references[content.digest] = Artifact(
                    content.artifact, content.digest.hex(), len(content.data), seq, content.media_type, content.name
                )

    def keep_spooled(self, references: References, spool: MemorySpool, *, media_type: str, name: str) -> Artifact:
        """Put in what was spooled; no event refers to it."""
        content = content_of(bytes(spool.data), media_type, name)
        self.keep(references, [(0, content)])
        self.used_ms[content.digest] = time.time_ns() // 1_000_000
        return references[content.digest]

    def read(self, references: References, artifact: str, *, session_id: str) -> bytes:
        """A whole content, proved.

        Raises:
            Refused: `artifact_not_found`.
            HarnessFault: `artifact_corrupt`.
        """
        found = find(references, artifact, session_id=session_id)
        digest = bytes.fromhex(found.sha256)
        if found.seq == 0:
            self.used_ms[digest] = time.time_ns() // 1_000_000
        data = self.contents[digest]
        if content_of(data, "").digest != digest:
            raise corrupt(digest, "does not match its digest", found=content_of(data, "").digest.hex())
        return data

    def collect(self, sessions: Iterable[References], grace_ms: int) -> int:
        """Remove what no session refers to and was not used for so long; how many."""
        before_ms = time.time_ns() // 1_000_000 - grace_ms
        old = {digest for digest, used_ms in self.used_ms.items() if used_ms < before_ms}
        named: set[bytes] = set()
        for references in sessions:
            for digest in [digest for digest, artifact in references.items() if artifact.seq == 0 and digest in old]:
                del references[digest]
            named |= references.keys()
        for digest in old - named:
            del self.contents[digest], self.used_ms[digest]
        return len(old - named)

    def forget(self, references: References, others: Iterable[References]) -> None:
        """Remove what only a session that is gone refers to."""
        named = {digest for other in others for digest in other}
        for digest in references.keys() - named:
            del self.contents[digest], self.used_ms[digest]


def name(references: References, named: Mapping[bytes, int]) -> None:
    """Events refer to contents that were kept before them."""
    for digest, seq in named.items():
        known = references.get(digest)
        if known is not None and known.seq == 0:
            references[digest] = replace(known, seq=seq)


def find(references: References, artifact: str, *, session_id: str) -> Artifact:
    """An artifact that a session refers to.

    Raises:
        Refused: `artifact_not_found`.
    """
    prefix = id_prefix(artifact)
    for digest, found in references.items():
        if prefix is not None and digest.startswith(prefix):
            return found
    raise Refused("artifact_not_found", sessionId=session_id, artifact=artifact)


def page(references: References, after: str | None, limit: int) -> list[Artifact]:
    """What a session refers to behind `after`, by the ids."""
    ordered = sorted(references.items())
    return [found for digest, found in ordered if after is None or artifact_id(digest) > after][:limit]
