"""Exports as a client fetches them, and a machine that has nothing but Python and the file."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.driver import TIMEOUT_S, Server

SCRIPT = (
    "import runpy, sys, tarfile\n"
    "tar = tarfile.open(sys.argv[1])\n"
    "verifier = next(each for each in tar if each.name == 'verify.py')\n"
    "open('verify.py', 'wb').write(tar.extractfile(verifier).read())\n"
    "sys.argv = ['verify.py', sys.argv[1]]\n"
    "runpy.run_path('verify.py', run_name='__main__')\n"
)


def fetch(server: Server, session_id: str, exported: Mapping[str, Any]) -> bytes:
    """The whole file, piece by piece."""
    wish = {"sessionId": session_id, "artifact": exported["artifact"], "encoding": "base64"}
    data = b""
    while len(data) < exported["sizeBytes"]:
        piece = server.call("artifact/read", **wish, offset=len(data))
        data += b64decode(piece["data"])
        assert piece["nextOffset"] == len(data)
    return data


def verified_elsewhere(directory: Path, data: bytes) -> tuple[int, str]:
    """What the verifier in the file says of it where there is neither Hames nor store nor key: exit code and text."""
    directory.mkdir(exist_ok=True)
    (directory / "export.tar").write_bytes(data)
    command = [sys.executable, "-I", "-S", "-c", SCRIPT, "export.tar"]
    done = subprocess.run(
        command, cwd=directory, env={}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def member(directory: Path, name: str) -> bytes:
    """A member of the file that was checked there."""
    with tarfile.open(directory / "export.tar") as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()
