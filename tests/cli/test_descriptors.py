"""A process that may open few files says so, or raises the limit, before anything fails half-way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.driver import TIMEOUT_S, environment

LIMITED = """
import resource, sys
soft, hard = int(sys.argv.pop(1)), int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from hames.cli import main
main()
"""


def limited(home: Path, soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    """A turn with a command, in a process that may have so many files open."""
    script = 'call bash {"command": "ulimit -n"}\nsay done'
    words = [str(soft), str(hard), "run", "--model", "offline", "--workspace", str(home), script]
    argv = [sys.executable, "-c", LIMITED, *words]
    return subprocess.run(argv, env=environment(home), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.parametrize(("soft", "hard"), [(16, 4096), (40, 100), (64, 64)])
def test_a_low_limit_is_raised_as_far_as_it_may_be(tmp_path: Path, soft: int, hard: int) -> None:
    done = limited(tmp_path, soft, hard)

    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout


def test_where_it_cannot_be_raised_it_is_said_what_is_wrong(tmp_path: Path) -> None:
    done = limited(tmp_path, 16, 20)

    assert done.returncode == 64
    assert "Only 20 files may be open" in done.stderr
    assert "Traceback" not in done.stderr
