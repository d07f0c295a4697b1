"""Check an archive: the standalone check, with this package's types and, where it is at hand, a store's key."""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from typing import Any, BinaryIO, cast

from hames.archive import standalone
from hames.archive.findings import Finding, FindingKind, Report, Verdict


def verify_archive(stream: BinaryIO, *, keyed: Callable[[str], str] | None = None) -> Report:
    """Read the archive in `stream` to its end and tell what it is worth.

    `keyed` makes the keyed digest of a text under a store's key (`Store.keyed`): with that of the store which exported
    it, `authentic` tells whether somebody who had the key did. Memory does not grow with the log. Never raises for
    what it reads; what `stream.read` raises goes through.
    """
    found = standalone.check(stream)
    findings = tuple(Finding(cast(FindingKind, kind), where, message) for kind, where, message in found.findings)
    authentic = None
    if keyed is not None and found.verdict == "good":
        authentic = is_authentic(found.manifest, keyed)
    verdict = cast(Verdict, found.verdict)
    return Report(verdict, findings, found.more, found.session_id, found.events, found.cursor, authentic)


def sealed_text(store_id: str, session_id: str, count: int, digest: str) -> str:
    """What the keyed digest of an archive is made of: which log, how much of it, whose."""
    return f"{standalone.FORMAT} {store_id} {session_id} {count} {digest}"


def is_authentic(manifest: dict[str, Any], keyed: Callable[[str], str]) -> bool:
    """Whether the keyed digest in a manifest was made with the key of `keyed`."""
    events = manifest.get("events", {})
    text = sealed_text(
        manifest.get("storeId", ""), manifest.get("sessionId", ""), events.get("count"), events.get("digest")
    )
    return compare_digest(str(events.get("keyed")), keyed(text))
