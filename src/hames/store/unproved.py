"""The fault of an artifact whose content is not what its digest says. Apart from the files, which load SQLite."""

from __future__ import annotations

from typing import Any

from hames.core.artifacts import artifact_id
from hames.protocol.errors import HarnessFault


def corrupt(digest: bytes, why: str, **details: Any) -> HarnessFault:
    """`artifact_corrupt`, naming the artifact, what was expected and what was found."""
    artifact = artifact_id(digest)
    return HarnessFault(
        "artifact_corrupt",
        f"The content of artifact {artifact} {why}. Nothing was changed. Keep a copy of the store, restore a backup.",
        boundary="artifact_store",
        artifact=artifact,
        expected=digest.hex(),
        **details,
    )
