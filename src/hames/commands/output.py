"""Output outside an event loop, and what it means that nobody takes it."""

from __future__ import annotations

import os
import select


class OutputLost(Exception):
    """Standard output takes nothing more, and not because its reader went away."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"The output cannot be written to stdout: {error.strerror}.")


def emit(text: str) -> None:
    """Write output outside an event loop, all of it, as UTF-8.

    Raises:
        BrokenPipeError: its reader went away.
        OutputLost: nothing takes it: a full disk, a closed descriptor.
    """
    rest = memoryview(text.encode("utf-8", "backslashreplace"))
    while rest:
        try:
            rest = rest[os.write(1, rest) :]
        except BlockingIOError:
            # The parent has made the open file non-blocking.
            select.select([], [1], [])
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(error) from error
