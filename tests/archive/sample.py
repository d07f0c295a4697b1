"""Small archives for the tests: a log that is chained as the store chains it, and ways to damage it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from hames.archive.findings import Report
from hames.archive.lines import EVENTS
from hames.archive.verify import sealed_text, verify_archive
from hames.archive.write import ArchiveWriter, artifact_member, member
from hames.protocol.chain import cursor, encode_event, first_digest, next_digest

SESSION = "s-1"
STORE = "ab" * 16


def keyed(text: str) -> str:
    """A keyed digest, as a store makes it."""
    return sha256(b"the key of this store" + text.encode()).hexdigest()


def log(count: int, session_id: str = SESSION) -> tuple[list[bytes], bytes]:
    """The lines of `events.jsonl`, each with its LF, and the digest of the last event."""
    digest = first_digest(session_id)
    lines: list[bytes] = []
    for seq in range(1, count + 1):
        event = encode_event(session_id, seq, "2026-01-01T00:00:00Z", "a.type", {"n": seq, "text": "käse"})
        digest = next_digest(digest, event)
        lines.append(b'{"cursor":"' + cursor(seq, digest).encode() + b'","event":' + event + b"}\n")
    return lines, digest


def archive(lines: Sequence[bytes], digest: bytes, artifacts: Sequence[bytes] = (b"large " * 100,)) -> bytes:
    """An archive of these lines, whose manifest tells of a log that ends with `digest`."""
    contents = {"README.txt": b"for people\n", EVENTS: b"".join(lines)}
    large = {artifact_member(sha256(each).hexdigest(), len(each)): each for each in artifacts}
    members = {**{member(name, text): text for name, text in contents.items()}, **large}
    count = len(lines)
    about = {
        "storeId": STORE,
        "sessionId": SESSION,
        "events": {
            "count": count,
            "last": cursor(count, digest),
            "digest": digest.hex(),
            "keyed": keyed(sealed_text(STORE, SESSION, count, digest.hex())),
        },
    }
    stream = io.BytesIO()
    writer = ArchiveWriter(stream.write, about, list(members))
    for each, content in members.items():
        writer.open(each.name)
        writer.add(content)
    writer.close()
    return stream.getvalue()


def sample(count: int = 5) -> bytes:
    """A good archive."""
    return archive(*log(count))


@dataclass(frozen=True, slots=True)
class Part:
    """Where a part of an archive is."""

    start: int
    end: int
    name: str


def parts(data: bytes) -> list[Part]:
    """The parts of a good archive, as a check names them."""
    found: list[Part] = []
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for each in tar.getmembers():
            end = each.offset_data + each.size
            found.append(Part(each.offset, each.offset_data, f"the header of {each.name}"))
            if each.name == EVENTS:
                start = each.offset_data
                for number, line in enumerate(data[start:end].splitlines(keepends=True), 1):
                    found.append(Part(start, start + len(line), f"{EVENTS} line {number}"))
                    start += len(line)
            else:
                found.append(Part(each.offset_data, end, each.name))
            found.append(Part(end, end + -end % 512, f"the padding behind {each.name}"))
    found.append(Part(found[-1].end, len(data), "the end of the archive"))
    return [part for part in found if part.start < part.end]


def where(data: bytes, offset: int) -> str:
    """The part that holds a byte."""
    return next(part.name for part in parts(data) if part.start <= offset < part.end)


def look(data: bytes) -> Report:
    """What the check says."""
    return verify_archive(io.BytesIO(data))
