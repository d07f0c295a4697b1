"""Take credentials out of this process's environment, where every command that a model runs could read them.

Linux shows the environment a process was started with in `/proc/<pid>/environ` (proc(5)), whatever became of the
variables since. So the bytes themselves are overwritten.
"""

from __future__ import annotations

import os
from contextlib import suppress

from hames.config import secret_variables

PR_SET_DUMPABLE = 4
"""prctl(2)."""


def hide_secrets() -> None:
    """Forget the secret settings in the environment. Call it once they are loaded."""
    names = [name for name in secret_variables() if name in os.environ]
    if not names:
        return
    # The import takes 5 ms of the start, so it is paid only where there is something to hide.
    import ctypes

    libc = ctypes.CDLL(None)
    with suppress(ValueError):  # no such symbol
        entries = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")
        place = 0
        while (address := entries[place]) is not None:
            entry, _, value = ctypes.string_at(address).partition(b"=")
            if os.fsdecode(entry) in names:
                ctypes.memset(address + len(entry) + 1, 0, len(value))
            place += 1
    for name in names:
        del os.environ[name]
    if hasattr(libc, "prctl"):
        # Nobody of the same user may read this process's memory either, which holds the key as long as it runs.
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
