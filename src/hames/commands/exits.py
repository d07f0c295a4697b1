"""Exit codes, published: programs branch on them."""

COMPLETED = 0
FAILED = 1
LIMIT = 2
DENIED = 3
USAGE = 64
"""Bad usage or configuration; the number is that of `sysexits.h`."""
INTERRUPTED = 130
TERMINATED = 143
