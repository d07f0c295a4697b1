"""What confines a command, as its supervisor sees it: bubblewrap, which has two processes of its own.

Rule 1: standard library and `tree` only: it runs in the supervisor.
Rule 2: neither of the two is the command. The outer one gets no TERM: it would end, and with it the grace of the
command. The inner one is the first of the pid namespace: with it the kernel ends all others there, however fast they
fork.
"""

from __future__ import annotations

import os
import signal

from hames.sandbox.tree import children, descendants, read_now, send_signal

MARK = b"w"
"""Stands behind the number of arguments of a request whose first arguments confine the command."""

MUTE = b"m"
"""Stands there too, in a request whose command has nobody to hear its stderr."""

SETTINGS = b"s"
"""Stands behind these, with the number of fields that come before the arguments: limits, and rules of Landlock."""

STATUS_FD = 3
"""Where bubblewrap tells its inner process (`child-pid`) and the end of the command (`exit-code`), one JSON object a
line (bwrap(1), `--json-status-fd`). It closes it for the command."""

NOT_SET_UP = 1
"""Exit status of bubblewrap that could not do what it was asked, or not execute the command."""

MOST_COUNTED = 64
"""What outlived the command is counted up to here: a fork bomb would keep us at it for seconds."""


class Wrapper:
    """The two processes around one command."""

    def __init__(self) -> None:
        self.outer = 0
        self.told, self.teller = os.pipe()
        os.set_blocking(self.told, False)
        self.heard = b""

    def started(self, outer: int) -> None:
        """It runs as `outer`, 0 when it could not be executed: the other end of the pipe is its own."""
        os.close(self.teller)
        self.outer = outer

    def find(self, name: bytes) -> int | None:
        """The number that it told by this name, None when it did not."""
        self.heard += read_now(self.told) or b""
        # By hand: importing `json` takes longer than starting the command.
        digits, end, _ = self.heard.partition(b'"' + name + b'": ')[2].replace(b",", b" ").partition(b" ")
        return int(digits) if end and digits.isdigit() else None

    def failed(self, exit_code: int) -> bool:
        """Whether it ended before there was a command that could."""
        return exit_code == NOT_SET_UP and self.find(b"exit-code") is None

    def inner(self) -> int:
        """The inner process, 0 when it is gone; a child of the outer one, or ours after that has ended."""
        pid = self.find(b"child-pid")
        return pid if pid and (pid in children(self.outer) or pid in children(os.getpid())) else 0

    def end(self) -> set[int]:
        """Kill both; what there was inside, a bounded number of it."""
        inner = self.inner()
        if not inner:
            return set()
        inside = descendants([inner], most=MOST_COUNTED) - {inner}
        if self.outer in children(os.getpid()):
            # The outer one first, which would else report the end of the inner one as that of the command.
            send_signal([self.outer], signal.SIGKILL)
        send_signal([inner], signal.SIGKILL)
        return inside
