"""What must hold after a round, whatever it did: of a server that was ended, and of a store. Logs: `engine.rules`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from e2e.driver import Server
from e2e.processes import environment


def check_ended(server: Server, *codes: int) -> None:
    """It ended with one of these exit codes, and told of no defect."""
    code = server.process.returncode
    assert code in codes, f"exit code {code}, not one of {codes}; stderr: {server.stderr[-2000:]}"
    assert "Traceback" not in server.stderr, server.stderr[-3000:]


def killed(server: Server) -> None:
    """End it by SIGKILL: it must have been alive, and well."""
    server.kill()
    check_ended(server, -signal.SIGKILL)


def check_store(home: Path) -> None:
    """`hames verify` calls the store good."""
    command = [sys.executable, "-m", "hames", "verify", "--json"]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"hames verify: {done.returncode} {done.stdout[-3000:]} {done.stderr[-1000:]}"
    json.loads(done.stdout)
