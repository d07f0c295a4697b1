"""How many files this process may have open: a store takes some twenty, each command that runs three or four."""

from __future__ import annotations

import resource
from typing import Final

from hames.protocol.errors import Refused

WANTED: Final = 256
"""As many as macOS gives by default, the least of the usual ones."""

LEAST: Final = 64
"""With fewer, opening the store or starting a command would fail half-way."""


def allow_files() -> None:
    """Raise the soft limit to `WANTED`, if it is lower and may be raised.

    Raises:
        Refused: `invalid_config`: fewer than `LEAST` are allowed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= WANTED or soft == resource.RLIM_INFINITY:
        return
    allowed = WANTED if hard == resource.RLIM_INFINITY else max(soft, min(WANTED, hard))
    if allowed < LEAST:
        message = f"Only {allowed} files may be open, and {LEAST} are needed at least: raise the limit (`ulimit -n`)."
        raise Refused("invalid_config", message, limit="RLIMIT_NOFILE", found=allowed, needed=LEAST)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
