"""The files of what is known of models: that of this build, and the operator's, which wins member by member.

Rule 1: the operator's file is checked whole before anything of it is used. `core/catalog.py` has its form.
Rule 2: they are read once, when a model is first asked about: a session keeps its prices while the process lives.
"""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from hames.core.catalog import Catalog, ModelFacts, Source, lookup, read_catalog
from hames.protocol.errors import Refused
from hames.protocol.jsontext import loads, repeated_member

SETTING = "modelsFile"

BUILT_IN = Path(__file__).with_name("data") / "models.json"

MOST_BYTES = 4 * 2**20
"""Of the operator's file: ours, with two hundred models, has 32 KiB."""

PLACE_CHARS = 500
"""Shown of a place in it: enough for a model's name and what is below it."""


class KnownModels:
    """What is known of models.

    Raises:
        Refused: as `load_catalogs`.
    """

    def __init__(self, operators: str | None) -> None:
        self._catalogs = load_catalogs(operators)

    def facts(self, base_url: str | None, model: str) -> ModelFacts | None:
        """What is known of `model` at an address; None: nothing."""
        return lookup(self._catalogs, urlsplit(base_url or "").netloc, model)


def load_catalogs(operators: str | None) -> tuple[Catalog, ...]:
    """The operator's catalog, where there is one, and that of this build.

    Raises:
        Refused: `invalid_config`, with the place in the operator's file and what may stand there.
    """
    own = _read(BUILT_IN.read_bytes(), "catalog")
    return (own,) if operators is None else (_operators(Path(operators)), own)


def _operators(path: Path) -> Catalog:
    try:
        if not path.is_absolute():
            raise ValueError("must be named by an absolute path")
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("is not a regular file")
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise ValueError(f"is larger than {MOST_BYTES} bytes")
        return _read(raw, "config")
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        raise Refused("invalid_config", f"The file of models {path} {why}.", setting=SETTING) from error
    except ValueError as error:
        raise Refused("invalid_config", f"The file of models {path} is of no use: {error}.", setting=SETTING) from error


def _without_waiting(path: str, flags: int) -> int:
    """A FIFO that nobody writes to is opened at once."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _read(raw: bytes, source: Source) -> Catalog:
    try:
        # Of two equal members, the one that is not used may be the one that was meant.
        repeated = repeated_member(raw) if source == "config" else None
        document = loads(raw)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if repeated is not None:
        raise ValueError(f"{repeated[:PLACE_CHARS]} is there twice; take one of them out")
    return read_catalog(document, digest=sha256(raw).hexdigest()[:16], source=source)
