"""A process on claimed descriptors that echoes each frame, for the tests of `hames.server.stdio`.

A frame that is a JSON string names something to do before it is echoed: see `_ACTIONS`. At the end of its input the
process writes `end <reason>` to stderr and, with `--report PATH`, to a file. `--follow` follows the parent,
`--no-pidfd` as on a system without pidfds; `--noise` prints before the descriptors are claimed.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

if "--noise" in sys.argv:
    sys.stdout.write("noise before")

from hames.server.stdio import EndReason, Reader, Writer, claim_stdio

if "--no-pidfd" in sys.argv:
    del os.pidfd_open

STDOUT_BEFORE = sys.stdout
STDIO = claim_stdio()

import anyio  # noqa: E402

from hames.protocol.jsontext import dumps, loads  # noqa: E402
from hames.server.frames import FrameDecoder, FrameFault, encode_frame  # noqa: E402
from hames.threads import LoopPort  # noqa: E402


def _noise_of_python() -> None:
    print("noise of print")
    print("noise of \ud800 half a character")
    print("noise of a stream kept", file=STDOUT_BEFORE, flush=True)
    sys.stdout.buffer.write(b"noise of a buffer\n")
    print("noise beside", file=sys.stderr)
    warnings.warn("noise of a warning", stacklevel=1)


def _noise_of_c() -> None:
    os.write(1, b"noise of a descriptor\n")
    library = ctypes.CDLL(None)
    library.puts(b"noise of puts")
    library.write(1, b"noise of write\n", 15)
    library.fflush(None)


def _noise_of_a_child() -> None:
    subprocess.run(["sh", "-c", "echo noise of a child; printf '\\033]777;noise\\007'"], check=True)


def _flood() -> None:
    for _ in range(20_000):
        print("x" * 100)


def _child_sees() -> object:
    """What a child reads from its descriptor 0, and which of its descriptors are those of the connection."""
    script = "cat; for name in /proc/self/fd/*; do readlink $name; done; true"
    ours = {os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in (STDIO.stdin, STDIO.stdout)}
    seen = subprocess.run(["sh", "-c", script], check=True, stdout=subprocess.PIPE, close_fds=False).stdout.decode()
    return [line for line in seen.splitlines() if line in ours or line.isdigit()]


def _standard_descriptors() -> object:
    return [os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in (0, 1, 2)]


_ACTIONS: dict[str, Callable[[], object]] = {
    "noise of python": _noise_of_python,
    "noise of c": _noise_of_c,
    "noise of a child": _noise_of_a_child,
    "flood": _flood,
    "child sees": _child_sees,
    "standard descriptors": _standard_descriptors,
}


async def _serve() -> None:
    decoder = FrameDecoder(2**24)
    ended = anyio.Event()

    def answer(frame: bytes | FrameFault) -> None:
        assert isinstance(frame, bytes)
        asked = loads(frame)
        action = _ACTIONS.get(asked) if isinstance(asked, str) else None
        writer.send(encode_frame(frame if action is None else dumps({asked: action()}), decoder.framing))

    def on_data(data: bytes) -> None:
        for frame in decoder.feed(data):
            answer(frame)
        reader.consumed(len(data))

    def on_end(reason: EndReason) -> None:
        for frame in decoder.end():
            answer(frame)
        os.write(2, f"end {reason}\n".encode())
        if "--report" in sys.argv:
            Path(sys.argv[-1]).write_text(f"end {reason}", encoding="utf-8")
        ended.set()

    port = LoopPort()
    writer = Writer(STDIO.stdout, port, on_broken=lambda error: ended.set())
    reader = Reader(STDIO.stdin, port, on_data=on_data, on_end=on_end, follow_parent="--follow" in sys.argv)
    writer.start()
    reader.start()
    await ended.wait()
    os._exit(0 if await writer.drain(20) else 3)


anyio.run(_serve)
