from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.driver import TIMEOUT_S, environment

DEMO = Path(__file__).parents[2] / "clients/python/examples/demo.py"


@pytest.mark.slow
def test_the_demonstration_holds_and_leaves_nothing_behind(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = environment(tmp_path / "home", {"TMPDIR": str(scratch)})
    done = subprocess.run([sys.executable, DEMO], env=env, capture_output=True, timeout=2 * TIMEOUT_S)
    told = done.stdout.decode()
    assert done.returncode == 0, told + done.stderr.decode()
    assert "VERDICT: all of it held" in told
    assert "SIGKILL to server process" in told
    assert "attempt 2" in told
    assert os.listdir(scratch) == []
    assert not (tmp_path / "home").exists()
