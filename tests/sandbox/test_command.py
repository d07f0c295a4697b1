"""The half of the protocol that Hames speaks, against a reaper that says what it likes."""

from __future__ import annotations

import array
import os
import signal
import socket
import time
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from hames.sandbox.command import Command, RunningCommand, Tail
from hames.sandbox.tree import kill_all


@pytest.mark.anyio
async def test_a_report_is_understood_however_it_is_cut(tmp_path: Path) -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    cwd = os.open(tmp_path, os.O_PATH)
    with near, far, closing(RunningCommand(Tail(10, end=True), None)) as running:
        running.hand_over(near, Command("s", ("a",), {}, cwd))
        message, ancillary, _, _ = far.recvmsg(10, socket.CMSG_SPACE(20))
        control, status, output, *others = array.array("i", ancillary[0][2])
        assert message == b"Rs"
        os.write(output, b"hello")
        async with anyio.create_task_group() as group:
            group.start_soon(running.until, lambda: running.settled)
            for byte in b"exit 7\nalive 2 done 41 42\n":
                os.write(status, bytes([byte]))
                await anyio.lowlevel.checkpoint()
        running.drain()
        for fd in (control, status, output, cwd, *others):
            os.close(fd)

    assert (running.exit_code, running.killed, running.alive) == (7, 2, (41, 42))
    assert running.tail.value() == b"hello"


def test_a_tree_that_does_not_end_is_told_at_the_deadline() -> None:
    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})

    killed, left = kill_all(lambda: [child], lambda: False, time.monotonic())

    assert killed == left == {child}
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
