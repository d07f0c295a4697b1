"""Standard output holds frames and nothing else, whoever prints. The driver refuses any other byte."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, text

SITECUSTOMIZE = """
import ctypes, os, sys, threading, time, warnings

libc = ctypes.CDLL(None)
print("NOISE of print at start")
libc.puts(b"NOISE of puts at start")
at_start = os.readlink("/proc/self/fd/1")

def babble():
    # Until the server takes its descriptor, 1 is the client's and nobody can keep others from it.
    while os.readlink("/proc/self/fd/1") == at_start:
        time.sleep(0.001)
    kept = sys.__stdout__
    while True:
        libc.puts(b"NOISE of puts")
        libc.fflush(None)
        libc.write(1, b"NOISE of write\\n", 15)
        os.write(1, b"NOISE of a descriptor \\033]777;notify;NOISE\\007")
        print("NOISE of print")
        print("NOISE of a stream kept", file=kept, flush=True)
        warnings.warn("NOISE of a warning")
        time.sleep(0.002)

if "serve" in sys.orig_argv:
    threading.Thread(target=babble, daemon=True).start()
"""

ANCESTORS = """
pid=$PPID
while tr '\\0' ' ' </proc/$pid/cmdline | grep -q hames; do
  for fd in 0 1 2; do (echo NOISE of an ancestor >/proc/$pid/fd/$fd) 2>/dev/null; done
  pid=$(sed 's/.*) . //' /proc/$pid/stat | cut -d' ' -f1)
done
"""
"""Writes to what the processes above have as 0 to 2, up to the server; its parent is not ours to disturb."""

COMMANDS = [
    'echo NOISE; printf \'\\033]777;notify;NOISE\\007{"jsonrpc":"2.0"}\\n\' >/dev/stdout',
    "(echo NOISE >&2); (echo NOISE >/dev/stderr); (echo NOISE >/dev/tty) 2>/dev/null; true",
    'for fd in $(seq 0 255); do (eval "echo NOISE >&$fd") 2>/dev/null; done; true',
    ANCESTORS,
    "nohup sh -c 'for i in 1 2 3 4 5; do echo NOISE; sleep 0.01; done' & sleep 0.1",
]


def test_nothing_but_frames_comes_out_whoever_prints(
    start: Start, workspace: Path, fake: FakeProvider, tmp_path: Path
) -> None:
    (tmp_path / "hooks").mkdir()
    # The interpreter imports this before anything of the server.
    (tmp_path / "hooks" / "sitecustomize.py").write_text(SITECUSTOMIZE)
    fake.script(*(calls([("bash", {"command": command})]) for command in COMMANDS), text("done"))
    sources = [path for path in sys.path if path.endswith("src")]

    server = start(env={"PYTHONPATH": os.pathsep.join([str(tmp_path / "hooks"), *sources])})
    session_id = server.create(workspace)
    turn = server.finish(session_id, server.submit(session_id))
    server.wait_until(lambda: "NOISE of puts\n" in server.stderr)

    assert turn["status"] == "completed"
    outcomes = [event["data"]["outcome"] for event in server.events(session_id, "tool.completed")]
    assert outcomes == ["ok"] * len(COMMANDS)
    assert server.stop() == 0
    server.check()
    for noise in ("print at start", "write", "a descriptor", "print", "a stream kept"):
        assert f"NOISE of {noise}" in server.stderr


def test_stderr_that_nobody_reads_holds_nothing_up(
    start: Start, workspace: Path, fake: FakeProvider, tmp_path: Path
) -> None:
    """A pipe holds 64 KiB; noise beyond is dropped and nobody waits."""
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(SITECUSTOMIZE.replace("0.002", "0"))
    fake.script(text("done"))
    sources = [path for path in sys.path if path.endswith("src")]
    server = start(env={"PYTHONPATH": os.pathsep.join([str(tmp_path / "hooks"), *sources])}, drain_stderr=False)

    session_id = server.create(workspace)
    turn = server.finish(session_id, server.submit(session_id))

    assert turn["status"] == "completed"
    assert server.call("ping") == {}
