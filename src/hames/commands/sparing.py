"""What libraries load only because it happens to be installed, kept out of a process that has no use for it.

Rule: called by a command that runs its loop on asyncio, before the libraries are loaded; it costs nothing itself.
"""

from __future__ import annotations

import os
import sys
from typing import Final, cast

UNUSED: Final = ("httpx._main", "trio")
"""httpx loads its command line where click and rich are installed, httpcore the event loop that is not run: together
110 ms, half of what the first request to a model costs. Both do without what cannot be imported."""


def spare_imports() -> None:
    """Have these imports fail, and Pydantic not look through every installed package for plugins (20 ms)."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # None in the table of modules makes the import fail (Python reference, 5.3.1).
    absent = cast("dict[str, None]", sys.modules)
    for name in UNUSED:
        absent.setdefault(name, None)
