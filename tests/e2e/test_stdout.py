"""Standard output holds frames and nothing else, whoever prints. The driver refuses any other byte."""

from __future__ import annotations

from pathlib import Path

from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, text

NOISY_START = '''
import ctypes, os, sys, threading, warnings
if "serve" in sys.argv:
    print("NOISE of print at start")
    os.write(1, b"NOISE of a descriptor at start\\n")

    def babble():
        libc = ctypes.CDLL(None)
        for _ in range(200):
            libc.puts(b"NOISE of puts")
            libc.fflush(None)
            os.write(1, b"NOISE of a descriptor\\n\\033]777;notify;NOISE\\007")
            print("NOISE of print")
            warnings.warn("NOISE of a warning")
            __import__("time").sleep(0.005)

    # What comes before the descriptors are claimed is the interpreter's; from then on all is stderr.
    import hames.server.stdio as stdio
    claim = stdio.claim_stdio
    def claim_and_babble():
        claimed = claim()
        threading.Thread(target=babble, daemon=True).start()
        return claimed
    stdio.claim_stdio = claim_and_babble
'''

COMMANDS = [
    "echo NOISE; printf '\\033]777;notify;NOISE\\007{\"jsonrpc\":\"2.0\"}\\n'",
    "echo NOISE >&2; echo NOISE >/dev/stderr; (echo NOISE >/dev/tty) 2>/dev/null; true",
    "for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do (echo NOISE >&$fd) 2>/dev/null; done; true",
    "for pid in $PPID $(cut -d' ' -f4 /proc/$PPID/stat); do echo NOISE >/proc/$pid/fd/1; done; true",
]


def test_nothing_but_frames_comes_out_whoever_prints(
    start: Start, workspace: Path, fake: FakeProvider, tmp_path: Path
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    # Python's own start-up imports this; it prints with every means there is.
    (hooks / "sitecustomize.py").write_text(NOISY_START.replace("__SRC__", ""))
    fake.script(*(calls([("bash", {"command": command})]) for command in COMMANDS), text("done"))

    server = start(env={"PYTHONPATH": f"{hooks}"})
    session_id = server.create(workspace)
    turn = server.finish(session_id, server.submit(session_id))

    assert turn["status"] == "completed"
    assert server.stop() == 0
    server.check()
    assert "NOISE of puts" in server.stderr
    assert b"NOISE" not in b"".join(frame.raw for frame in server.frames if frame.event is None)
'''
'''
