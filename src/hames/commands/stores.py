"""Whether there is a store, for commands that look at one: who mistyped `HAMES_HOME` is told so, and makes none."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hames.config import home_path
from hames.protocol.errors import Refused

SIGNS = ("store.db", "witness", "key", "repaired")
"""Any of them tells that there is a store, or was one."""


def require_store(environ: Mapping[str, str]) -> None:
    """Go on only where a store is, damaged or not.

    Raises:
        Refused: `invalid_config`.
    """
    home = home_path(environ)
    if not any(os.path.lexists(home / name) for name in SIGNS):
        message = f"There is no store at {home}. Check HAMES_HOME; `hames run` and `hames serve` make one."
        raise Refused("invalid_config", message, setting="HAMES_HOME", path=str(home))
