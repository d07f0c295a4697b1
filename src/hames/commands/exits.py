"""Exit codes, published: programs branch on them."""

from __future__ import annotations

COMPLETED = 0
FAILED = 1
LIMIT = 2
DENIED = 3
FOUND = {"torn": 10, "duplicated": 11, "gapped": 12, "edited": 13, "swapped": 14, "missing": 15, "foreign": 16}
"""`hames verify`: by the verdict; where several kinds of damage were found, the one that stands first here."""
LOSSES = 20
"""`hames repair`: the store is good again, and events were lost."""
USAGE = 64
"""Bad usage or configuration; the number is that of `sysexits.h`."""
INTERRUPTED = 130
TERMINATED = 143
