"""What event 1 of a session says about it, and whether this store wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from hmac import compare_digest
from typing import Any

from hames.core.state import State


def keyed_digest(key: bytes, digest: str) -> str:
    """BLAKE2b-256 of a snapshot's digest under the store's key, hex."""
    return blake2b(digest.encode(), key=key, digest_size=32).hexdigest()


def matches(created: Mapping[str, Any], state: State, key: bytes) -> bool:
    """Whether the data of `session.created` is what `state` was folded from, written by who has `key`."""
    digest = created["snapshotDigest"]
    return digest == state.snapshot_digest and compare_digest(keyed_digest(key, digest), created["keyedDigest"])


def workspace_of(snapshot: Mapping[str, Any]) -> str | None:
    """The path of a snapshot's workspace, to find sessions by."""
    workspace = snapshot.get("workspace")
    path = workspace.get("path") if isinstance(workspace, Mapping) else None
    return path if isinstance(path, str) else None
